//! Adapts replayed nodes to a kernel that rejects parts of their dumps. Rejected lines are omitted
//! if the user permits it. The report or the error names their files and lines in both cases.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use super::Prepared;
use crate::kernel::{Agent, KernelError, MissingRequirements};
use crate::results::{ErrorKind, RunError};
use crate::run::kernel_error::to_run_error;
use svclab_journey::journey::Journey;
use svclab_model::plan::Plan;
use svclab_model::protocol::RejectedInput;
use svclab_planner::replay::{ChainPaths, OmittedItem, rejected};

/// Maximum number of rejections before a dump is given up. Rules that are rejected for the same
/// reason count once.
const MAX_REJECTIONS: usize = 64;

/// Returns the case without the lines that the kernel rejects. `error` is the first rejection.
/// `None` if the error does not concern a dump.
///
/// # Errors
///
/// When lines would have to be omitted and the user does not permit it. Also when there are more
/// than 64 rejections, or when the build fails for another reason.
pub async fn without_rejected(
    prepared: &Prepared,
    error: &KernelError,
    agent: &Agent,
) -> Option<Result<Prepared, RunError>> {
    let mut fitting = Refit::new(prepared);
    if !fitting.omit_rejected(error, agent).await {
        return None;
    }
    for _ in 0..MAX_REJECTIONS {
        match agent.build(fitting.prepared.plan.clone()).await {
            Ok(_session) => return Some(fitting.finish()),
            Err(next) => {
                if !fitting.omit_rejected(&next, agent).await {
                    return Some(Err(to_run_error(&next)));
                }
            }
        }
    }
    let message = format!("the kernel rejects more than {MAX_REJECTIONS} items of the dumps");
    Some(Err(omissions_error(&fitting.omitted, &message)))
}

/// Returns the case without the lines that need missing modules, if no kernel can run the case.
/// `None` if the error does not concern a dump.
///
/// # Errors
///
/// When lines would have to be omitted and the user does not permit it.
#[must_use]
pub fn without_unsupported(
    prepared: &Prepared,
    error: &KernelError,
) -> Option<Result<Prepared, RunError>> {
    let mut fitting = Refit::new(prepared);
    fitting
        .omit_modules(missing_requirements(error)?)
        .then(|| fitting.finish())
}

/// Returns the missing requirements of the most capable kernel that was tried. `None` if the error
/// has another cause.
fn missing_requirements(error: &KernelError) -> Option<&MissingRequirements> {
    match error {
        KernelError::Missing(missing)
        | KernelError::HostMissing(missing)
        | KernelError::GuestMissing { missing, .. } => Some(missing),
        KernelError::NoKernel { host, .. } => missing_requirements(host),
        _ => None,
    }
}

struct Refit {
    prepared: Prepared,
    /// Omitted items by node.
    omitted: BTreeMap<String, Vec<OmittedItem>>,
}

impl Refit {
    fn new(prepared: &Prepared) -> Self {
        Self {
            prepared: prepared.clone(),
            omitted: BTreeMap::new(),
        }
    }

    /// Omits from the plan what the kernel rejected. Returns whether anything was omitted.
    async fn omit_rejected(&mut self, error: &KernelError, agent: &Agent) -> bool {
        let KernelError::RequestFailed(failure) = error else {
            return missing_requirements(error).is_some_and(|missing| self.omit_modules(missing));
        };
        let Some(rejected) = &failure.rejected else {
            return false;
        };
        let accounts = self.prepared.replay_reports.iter();
        let mut nodes = accounts.zip(&self.prepared.dumps);
        let found = nodes.find(|(account, _)| account.node == rejected.namespace);
        let Some((_, (dump, _))) = found else {
            return false;
        };
        let culprit = find_rejected_rule(&self.prepared.plan, rejected, agent).await;
        let rejected = culprit.as_ref().unwrap_or(rejected);
        let omitted = rejected::remove_rejected(&mut self.prepared.plan, dump, rejected);
        let is_changed = !omitted.is_empty();
        let omitted_of_node = self.omitted.entry(rejected.namespace.clone()).or_default();
        omitted_of_node.extend(omitted);
        is_changed
    }

    fn omit_modules(&mut self, missing: &MissingRequirements) -> bool {
        let names: BTreeSet<&str> = missing
            .absent
            .iter()
            .map(|lack| lack.name.as_str())
            .collect();
        let mut is_changed = false;
        for (account, (dump, _)) in self
            .prepared
            .replay_reports
            .iter()
            .zip(&self.prepared.dumps)
        {
            let node = &account.node;
            let omitted =
                rejected::remove_missing_modules(&mut self.prepared.plan, node, dump, &names);
            is_changed |= !omitted.is_empty();
            self.omitted
                .entry(node.clone())
                .or_default()
                .extend(omitted);
        }
        is_changed
    }

    /// Returns the adapted case, or an error with all omissions if one concerns a strict dump.
    fn finish(mut self) -> Result<Prepared, RunError> {
        let accounts = self
            .prepared
            .replay_reports
            .iter()
            .zip(&self.prepared.dumps);
        let strict = accounts.filter(|(_, (_, lenient))| !lenient);
        let strict: BTreeSet<&String> = strict.map(|(account, _)| &account.node).collect();
        let is_strict =
            |(node, left): &(&String, &Vec<OmittedItem>)| strict.contains(node) && !left.is_empty();
        if self.omitted.iter().any(|entry| is_strict(&entry)) {
            return Err(omissions_error(
                &self.omitted,
                "the kernel rejects parts of the dumps",
            ));
        }
        for account in &mut self.prepared.replay_reports {
            let left = self.omitted.remove(&account.node);
            account.add_rejected(left.unwrap_or_default());
        }
        Ok(self.prepared)
    }
}

/// Finds the rule that makes legacy iptables reject a whole table, by bisection. Legacy iptables
/// does not report this rule. `None` if no such rule was found.
async fn find_rejected_rule(
    plan: &Plan,
    rejected: &RejectedInput,
    agent: &Agent,
) -> Option<RejectedInput> {
    let (table_index, rules) = rejected::committed_table(plan, rejected)?;
    let (mut accepted, mut refused) = (0, rules.len());
    while refused.checked_sub(accepted)? > 1 {
        let count = usize::midpoint(accepted, refused);
        let tried = rejected::truncate_table(plan, rejected, table_index, count);
        let is_rejected = match agent.build(tried.clone()).await {
            Err(KernelError::RequestFailed(failure)) => failure.rejected.is_some_and(|again| {
                let is_same_program =
                    again.program == rejected.program && again.namespace == rejected.namespace;
                let table = rejected::committed_table(&tried, &again);
                is_same_program && table.is_some_and(|(table, _)| table == table_index)
            }),
            _ => false,
        };
        if is_rejected {
            refused = count;
        } else {
            accepted = count;
        }
    }
    let line = rules.get(accepted)?.clone();
    Some(RejectedInput {
        line,
        ..rejected.clone()
    })
}

/// Returns an error that lists the omitted items.
fn omissions_error(omitted: &BTreeMap<String, Vec<OmittedItem>>, message: &str) -> RunError {
    let mut text = message.to_owned();
    for (node, left) in omitted {
        for item in left {
            let mut lines = item.render_lines().into_iter();
            let first = lines.next().unwrap_or_default();
            let _ = write!(text, "\n  {node}: {first}");
            for line in lines {
                let _ = write!(text, "\n      {line}");
            }
        }
    }
    RunError {
        kind: ErrorKind::Input,
        message: text,
        remedy: Some(
            "to omit these items, replay with --lenient or set `lenient: true` next to `dump` in \
             the lab; or select another kernel with --kernel"
                .to_owned(),
        ),
    }
}

/// Records in the replay reports which probes sent packets through chains with omitted rules.
pub fn record_probes(prepared: &mut Prepared, journeys: &[Vec<Journey>]) {
    for account in &mut prepared.replay_reports {
        let node = account.node.clone();
        let by = |chain: &ChainPaths| {
            let passed = journeys.iter().flatten().filter(|journey| {
                let hops = journey.packets.iter().flat_map(|flight| &flight.hops);
                let mut hops_on_node = hops.filter(|hop| hop.namespace == node);
                hops_on_node.any(|hop| {
                    let mut steps = hop.matches.iter();
                    steps.any(|step| step.table == chain.table && step.chain == chain.chain)
                })
            });
            passed.map(|journey| journey.probe.clone()).collect()
        };
        for left in &mut account.omitted {
            left.set_reached_by(by);
        }
    }
}
