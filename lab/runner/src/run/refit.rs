//! What a kernel refuses of replayed nodes is left out, where the user says that it may be,
//! and told of in any case: which file, which line.

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

/// After how many refusals a dump is given up. Rules that are refused for the same reason
/// count once.
const MOST: usize = 64;

/// A case as far as a kernel takes it, of which this error told that it does not take all.
/// None if that has nothing to do with a dump.
///
/// # Errors
///
/// All that would have to be left out, if the user has not said that it may be; and what
/// else went wrong.
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

/// The same where no kernel was found, for what it lacks.
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

/// What the kernel lacks that is most able of those that were asked.
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
    /// By node.
    left: BTreeMap<String, Vec<LeftOut>>,
}

impl Fitting {
    fn of(prepared: &Prepared) -> Self {
        Self {
            prepared: prepared.clone(),
            left: BTreeMap::new(),
        }
    }

    /// Takes out what was refused. Whether anything was.
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

    /// The case without it, or the error that says what that would be.
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

/// The rule because of which legacy iptables refuses a whole table: it does not say which.
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

/// What would be left out, as an error.
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

/// Notes in the accounts of which probes packets came to the chains in which something is
/// left out.
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
