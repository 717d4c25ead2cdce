//! Adapts replayed nodes to a kernel that rejects parts of their dumps. Rejected lines are omitted
//! if the user permits it. The report or the error names their files and lines in both cases.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use super::execute::trouble;
use super::prepare::Prepared;
use crate::kernel::{Agent, KernelError, Missing};
use crate::results::{RunError, Trouble};
use svclab_journey::journey::Journey;
use svclab_model::plan::Plan;
use svclab_model::protocol::Rejected;
use svclab_planner::replay::{InChain, LeftOut, refused};

/// Maximum number of rejections before a dump is given up. Rules that are rejected for the same
/// reason count once.
const MOST: usize = 64;

/// Returns the case without the lines that the kernel rejects. `error` is the first rejection.
/// `None` if the error does not concern a dump.
///
/// # Errors
///
/// When lines would have to be omitted and the user does not permit it. Also when there are more
/// than 64 rejections, or when the build fails for another reason.
pub async fn as_far_as_taken(
    prepared: &Prepared,
    error: &KernelError,
    agent: &Agent,
) -> Option<Result<Prepared, RunError>> {
    let mut fitting = Fitting::of(prepared);
    if !fitting.without(error, agent).await {
        return None;
    }
    for _ in 0..MOST {
        match agent.build(fitting.prepared.plan.clone()).await {
            Ok(_session) => return Some(fitting.end()),
            Err(next) => {
                if !fitting.without(&next, agent).await {
                    return Some(Err(trouble(&next)));
                }
            }
        }
    }
    let many = format!("more than {MOST} things of the dumps were refused");
    Some(Err(told(&fitting.left, &many)))
}

/// Returns the case without the lines that need missing modules, if no kernel can run the case.
/// `None` if the error does not concern a dump.
///
/// # Errors
///
/// When lines would have to be omitted and the user does not permit it.
#[must_use]
pub fn as_far_as_had(
    prepared: &Prepared,
    error: &KernelError,
) -> Option<Result<Prepared, RunError>> {
    let mut fitting = Fitting::of(prepared);
    fitting
        .without_modules(lacks(error)?)
        .then(|| fitting.end())
}

/// Returns the missing requirements of the most capable kernel that was tried. `None` if the error
/// has another cause.
fn lacks(error: &KernelError) -> Option<&Missing> {
    match error {
        KernelError::Missing(missing)
        | KernelError::HostLacks(missing)
        | KernelError::GuestLacks { missing, .. } => Some(missing),
        KernelError::Nowhere { host, .. } => lacks(host),
        _ => None,
    }
}

struct Fitting {
    prepared: Prepared,
    /// Omitted items by node.
    left: BTreeMap<String, Vec<LeftOut>>,
}

impl Fitting {
    fn of(prepared: &Prepared) -> Self {
        Self {
            prepared: prepared.clone(),
            left: BTreeMap::new(),
        }
    }

    /// Omits from the plan what the kernel rejected. Returns whether anything was omitted.
    async fn without(&mut self, error: &KernelError, agent: &Agent) -> bool {
        let KernelError::Failed(failure) = error else {
            return lacks(error).is_some_and(|missing| self.without_modules(missing));
        };
        let Some(rejected) = &failure.rejected else {
            return false;
        };
        let accounts = self.prepared.accounts.iter();
        let mut nodes = accounts.zip(&self.prepared.dumps);
        let found = nodes.find(|(account, _)| account.node == rejected.namespace);
        let Some((_, (dump, _))) = found else {
            return false;
        };
        let culprit = culprit(&self.prepared.plan, rejected, agent).await;
        let rejected = culprit.as_ref().unwrap_or(rejected);
        let left = refused::without(&mut self.prepared.plan, dump, rejected);
        let some = !left.is_empty();
        let all = self.left.entry(rejected.namespace.clone()).or_default();
        all.extend(left);
        some
    }

    fn without_modules(&mut self, missing: &Missing) -> bool {
        let names: BTreeSet<&str> = missing
            .absent
            .iter()
            .map(|lack| lack.name.as_str())
            .collect();
        let mut some = false;
        for (account, (dump, _)) in self.prepared.accounts.iter().zip(&self.prepared.dumps) {
            let node = &account.node;
            let left = refused::without_modules(&mut self.prepared.plan, node, dump, &names);
            some |= !left.is_empty();
            self.left.entry(node.clone()).or_default().extend(left);
        }
        some
    }

    /// Returns the adapted case, or an error with all omissions if one concerns a strict dump.
    fn end(mut self) -> Result<Prepared, RunError> {
        let accounts = self.prepared.accounts.iter().zip(&self.prepared.dumps);
        let strict = accounts.filter(|(_, (_, lenient))| !lenient);
        let strict: BTreeSet<&String> = strict.map(|(account, _)| &account.node).collect();
        let is_strict =
            |(node, left): &(&String, &Vec<LeftOut>)| strict.contains(node) && !left.is_empty();
        if self.left.iter().any(|one| is_strict(&one)) {
            return Err(told(
                &self.left,
                "the kernel does not take all of the dumps",
            ));
        }
        for account in &mut self.prepared.accounts {
            let left = self.left.remove(&account.node);
            account.without(left.unwrap_or_default());
        }
        Ok(self.prepared)
    }
}

/// Finds the rule that makes legacy iptables reject a whole table, by bisection. Legacy iptables
/// does not report this rule. `None` if no such rule was found.
async fn culprit(plan: &Plan, rejected: &Rejected, agent: &Agent) -> Option<Rejected> {
    let (which, rules) = refused::committed(plan, rejected)?;
    let (mut taken, mut refused) = (0, rules.len());
    while refused.checked_sub(taken)? > 1 {
        let count = usize::midpoint(taken, refused);
        let tried = refused::with_rules(plan, rejected, which, count);
        let again = match agent.build(tried.clone()).await {
            Err(KernelError::Failed(failure)) => failure.rejected.is_some_and(|again| {
                let same =
                    again.program == rejected.program && again.namespace == rejected.namespace;
                let table = refused::committed(&tried, &again);
                same && table.is_some_and(|(table, _)| table == which)
            }),
            _ => false,
        };
        if again {
            refused = count;
        } else {
            taken = count;
        }
    }
    let line = rules.get(taken)?.clone();
    Some(Rejected {
        line,
        ..rejected.clone()
    })
}

/// Returns an error that lists the omitted items.
fn told(left: &BTreeMap<String, Vec<LeftOut>>, message: &str) -> RunError {
    let mut text = message.to_owned();
    for (node, left) in left {
        for one in left {
            let mut lines = one.lines().into_iter();
            let first = lines.next().unwrap_or_default();
            let _ = write!(text, "\n  {node}: {first}");
            for line in lines {
                let _ = write!(text, "\n      {line}");
            }
        }
    }
    RunError {
        trouble: Trouble::Input,
        message: text,
        remedy: Some(
            "replay it with --lenient, or say `lenient: true` beside `dump` in the lab, to leave that out; or name another kernel with --kernel"
                .to_owned(),
        ),
    }
}

/// Records in the replay reports which probes sent packets through chains with omitted rules.
pub fn note(prepared: &mut Prepared, journeys: &[Journey]) {
    for account in &mut prepared.accounts {
        let node = account.node.clone();
        let by = |chain: &InChain| {
            let passed = journeys.iter().filter(|journey| {
                let hops = journey.flights.iter().flat_map(|flight| &flight.hops);
                let mut there = hops.filter(|hop| hop.namespace == node);
                there.any(|hop| {
                    let mut steps = hop.met.iter();
                    steps.any(|step| step.table == chain.table && step.chain == chain.chain)
                })
            });
            passed.map(|journey| journey.probe.clone()).collect()
        };
        for left in &mut account.left_out {
            left.seen(by);
        }
    }
}
