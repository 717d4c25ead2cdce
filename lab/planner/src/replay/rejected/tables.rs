//! Selects the input of a restore program and shortens its tables, to find a rejected rule.

use svclab_model::plan::{Iptables, Namespace, Plan};
use svclab_model::protocol::RejectedInput;
use svclab_model::tools::iptables_program;
use svclab_ruleset::input::Input;
use svclab_ruleset::iptables::script::IptablesScript;

/// Returns the position of a table in the program's input and the rules of the table. `None` unless
/// the rejected line is the `COMMIT` of a table.
#[must_use]
pub fn committed_table(plan: &Plan, rejected: &RejectedInput) -> Option<(usize, Vec<String>)> {
    let namespace = plan.namespace(&rejected.namespace)?;
    if rejected.line != "COMMIT" {
        return None;
    }
    let input = program_input(namespace, &rejected.program)?;
    let before = input.text().lines().take(rejected.line_number);
    let table_number = before.filter(|line| *line == "COMMIT").count();
    let mut blocks = input.state().ok()?.tables();
    let (_, block) = blocks.nth(table_number.checked_sub(1)?)?;
    let rules = block.commands.iter().map(ToString::to_string);
    Some((table_number, rules.collect()))
}

/// Returns the plan with only the first `count` rules of the program's table at position `which`.
#[must_use]
pub fn truncate_table(plan: &Plan, rejected: &RejectedInput, which: usize, count: usize) -> Plan {
    let mut plan = plan.clone();
    let mut namespaces = plan.namespaces.iter_mut();
    let found = namespaces.find(|ns| ns.name == rejected.namespace);
    if let Some(input) = found.and_then(|ns| program_input_mut(ns, &rejected.program)) {
        let truncated = input.edit(|script| {
            let mut blocks = script.tables_mut();
            let block = which.checked_sub(1).and_then(|index| blocks.nth(index));
            if let Some((_, block)) = block {
                block.commands.truncate(count);
            }
        });
        debug_assert!(truncated.is_ok(), "the planner renders the scripts");
    }
    plan
}

pub(super) fn program_inputs_mut(
    namespace: &mut Namespace,
) -> impl Iterator<Item = (String, &mut Input<IptablesScript>)> {
    let backends = [
        namespace.iptables.as_mut(),
        namespace.other_iptables.as_mut(),
    ];
    backends.into_iter().flatten().flat_map(|rules| {
        let Iptables { backend, v4, v6 } = rules;
        [
            (iptables_program(4, *backend, "restore"), v4),
            (iptables_program(6, *backend, "restore"), v6),
        ]
    })
}

pub(super) fn program_input_mut<'n>(
    namespace: &'n mut Namespace,
    program: &str,
) -> Option<&'n mut Input<IptablesScript>> {
    program_inputs_mut(namespace)
        .find(|(name, _)| name == program)
        .map(|(_, input)| input)
}

fn program_input<'n>(namespace: &'n Namespace, program: &str) -> Option<&'n Input<IptablesScript>> {
    let backends = namespace.iptables_rules();
    let mut inputs =
        backends.flat_map(|rules| [(4, rules.backend, &rules.v4), (6, rules.backend, &rules.v6)]);
    let found =
        inputs.find(|(ip, backend, _)| iptables_program(*ip, *backend, "restore") == program);
    found.map(|(_, _, input)| input)
}
