//! Renders changes of iptables rules and nftables tables.

use std::collections::HashMap;

use crate::delta::rules;
use svclab_model::plan::{Backend, Iptables, Namespace};
use svclab_model::tools::iptables_command;
use svclab_ruleset::input::Input;
use svclab_ruleset::iptables::chains::Chains;
use svclab_ruleset::iptables::command::{Command, Verb};
use svclab_ruleset::iptables::script::{IptablesScript, Table, TableScript};
use svclab_ruleset::nft::{Chain, Ruleset, Set, Table as NftTable};

/// Returns the commands for changed iptables rules of both backends and IP families.
pub(super) fn iptables_commands(old: &Namespace, new: &Namespace) -> Vec<String> {
    let none = Iptables::default();
    let mut lines = Vec::new();
    for backend in [Backend::Nft, Backend::Legacy] {
        let find = |namespace: &'_ Namespace| -> Option<Iptables> {
            let mut rules = namespace.iptables_rules();
            rules.find(|rules| rules.backend == backend).cloned()
        };
        let (old, new) = (find(old), find(new));
        let (old, new) = (old.as_ref().unwrap_or(&none), new.as_ref().unwrap_or(&none));
        for (family, old, new) in [(4, &old.v4, &new.v4), (6, &old.v6, &new.v6)] {
            let program = iptables_command(family, backend);
            lines.extend(script_commands(&program, old, new));
        }
    }
    lines
}

fn script_commands(
    program: &str,
    old: &Input<IptablesScript>,
    new: &Input<IptablesScript>,
) -> Vec<String> {
    if old == new {
        return Vec::new();
    }
    let chains = |input: &Input<IptablesScript>| {
        let script = input.state().ok()?;
        Chains::from_script(script).ok()
    };
    let (Some(mut current), Some(wanted)) = (chains(old), chains(new)) else {
        return Vec::new();
    };
    let script = rules::diff(&current, &wanted);
    let mut lines = Vec::new();
    for (table, changes) in script.tables() {
        let head = format!("{program} -t {table}");
        lines.extend(table_commands(&head, table, changes, &mut current));
    }
    lines
}

/// Returns the commands of one table. `current` has the rules before them, and afterwards those
/// after them.
fn table_commands(
    head: &str,
    table: Table,
    changes: &TableScript,
    current: &mut Chains,
) -> Vec<String> {
    let created = changes.chains.iter();
    let mut lines: Vec<String> = created.map(|name| format!("{head} -N {name}")).collect();
    let policies = changes.policies.iter();
    lines.extend(policies.map(|(chain, policy)| format!("{head} -P {chain} {policy}")));
    let declared = TableScript {
        commands: Vec::new(),
        ..changes.clone()
    };
    // Neither a declaration nor a policy can fail.
    let _ = current.load_table(table, &declared);
    let mut commands = changes.commands.iter().peekable();
    while let Some(command) = commands.next() {
        let chain = &command.chain;
        let deleted = command
            .number
            .filter(|_| command.verb == Verb::Delete)
            .and_then(|number| number.checked_sub(1));
        let replacement = commands
            .peek()
            .filter(|next| {
                deleted.is_some_and(|index| is_placed_at(next, chain, index, current, table))
            })
            .copied();
        let line = match (deleted, replacement) {
            (Some(index), Some(next)) => format!("-R {chain} {} {}", index + 1, next.rule),
            (Some(index), None) => deletion(current.rules(table, chain), chain, index),
            (None, _) => command.to_string(),
        };
        lines.push(format!("{head} {line}"));
        if current.apply(table, command).is_err() {
            break;
        }
        if let Some(next) = replacement {
            commands.next();
            if current.apply(table, next).is_err() {
                break;
            }
        }
    }
    lines
}

/// Whether a command puts a rule where the rule with this index was deleted.
fn is_placed_at(next: &Command, chain: &str, index: usize, current: &Chains, table: Table) -> bool {
    let is_last = index + 1 == current.rules(table, chain).len();
    next.chain == chain
        && match next.verb {
            Verb::Insert => next.number == Some(index + 1),
            Verb::Append => is_last,
            _ => false,
        }
}

/// Returns the deletion of a rule by its text, because rules of a running node move. A rule that
/// exists more than once is deleted by its number.
fn deletion(rules: &[String], chain: &str, index: usize) -> String {
    match rules.get(index) {
        Some(rule) if rules.iter().filter(|other| *other == rule).count() == 1 => {
            format!("-D {chain} {rule}")
        }
        _ => format!("-D {chain} {}", index + 1),
    }
}

/// Returns the commands for changed nftables tables.
pub(super) fn nft_commands(old: &Input<Ruleset>, new: &Input<Ruleset>) -> Vec<String> {
    if old == new {
        return Vec::new();
    }
    let (Ok(old), Ok(new)) = (old.state(), new.state()) else {
        return Vec::new();
    };
    let (old_tables, new_tables) = (tables_by_name(old), tables_by_name(new));
    let mut lines = Vec::new();
    for name in old.tables.iter().map(NftTable::full_name) {
        if !new_tables.contains_key(&name) {
            lines.push(format!("nft delete table {name}"));
        }
    }
    for table in &new.tables {
        match old_tables.get(&table.full_name()) {
            Some(current) if *current != table => lines.extend(nft_table_commands(current, table)),
            Some(_) => {}
            None => lines.push(format!("nft -f - <<'EOF'\n{table}EOF")),
        }
    }
    lines
}

fn tables_by_name(ruleset: &Ruleset) -> HashMap<String, &NftTable> {
    let tables = ruleset.tables.iter();
    tables.map(|table| (table.full_name(), table)).collect()
}

fn nft_table_commands(old: &NftTable, new: &NftTable) -> Vec<String> {
    let name = new.full_name();
    let mut lines = Vec::new();
    for set in &new.sets {
        match old.set(&set.name) {
            Some(current) => lines.extend(nft_element_commands(&name, current, set)),
            None => lines.push(in_table(&name, set)),
        }
    }
    for chain in new
        .chains
        .iter()
        .filter(|chain| old.chain(&chain.name).is_none())
    {
        lines.push(format!("nft add chain {name} {}", chain.name));
    }
    for chain in &new.chains {
        let empty = Chain::regular(&chain.name);
        let current = old.chain(&chain.name).unwrap_or(&empty);
        lines.extend(nft_chain_commands(&name, current, chain));
    }
    for chain in old
        .chains
        .iter()
        .filter(|chain| new.chain(&chain.name).is_none())
    {
        lines.push(format!("nft flush chain {name} {}", chain.name));
        lines.push(format!("nft delete chain {name} {}", chain.name));
    }
    for set in old.sets.iter().filter(|set| new.set(&set.name).is_none()) {
        let kind = if set.is_map { "map" } else { "set" };
        lines.push(format!("nft delete {kind} {name} {}", set.name));
    }
    lines
}

fn in_table(name: &str, set: &Set) -> String {
    format!("nft -f - <<'EOF'\ntable {name} {{\n{set}}}\nEOF")
}

fn nft_element_commands(table: &str, old: &Set, new: &Set) -> Vec<String> {
    let name = &new.name;
    let removed = old.elements_missing_in(new);
    let removed = removed.map(|own| {
        format!(
            "nft delete element {table} {name} '{{ {} }}'",
            own.bare_key()
        )
    });
    let added = new.elements_missing_in(old);
    let added = added.map(|own| format!("nft add element {table} {name} '{{ {own} }}'"));
    removed.chain(added).collect()
}

/// Returns the commands of one chain. nft deletes a rule by its handle, which only the node knows.
fn nft_chain_commands(table: &str, old: &Chain, new: &Chain) -> Vec<String> {
    let name = &new.name;
    let mut lines = Vec::new();
    let policy = |chain: &Chain| chain.hook.as_ref().map(|hook| hook.policy.clone());
    if let Some(wanted) = policy(new).filter(|wanted| policy(old).as_ref() != Some(wanted)) {
        lines.push(format!("nft chain {table} {name} '{{ policy {wanted}; }}'"));
    }
    let texts =
        |chain: &Chain| -> Vec<String> { chain.rules.iter().map(ToString::to_string).collect() };
    let (old, new) = (texts(old), texts(new));
    let steps = rules::chain_changes(&old, &new);
    for rule in steps.iter().flat_map(|(removed, _)| &old[removed.clone()]) {
        lines.push(format!(
            "nft delete rule {table} {name} handle HANDLE  # `nft -a list chain {table} {name}` \
             shows the handle of: {rule}"
        ));
    }
    for (step, (removed, added)) in steps.iter().enumerate() {
        let is_end = step + 1 == steps.len() && removed.end == old.len();
        for index in added.clone() {
            let rule = &new[index];
            lines.push(if is_end {
                format!("nft add rule {table} {name} '{rule}'")
            } else {
                format!("nft insert rule {table} {name} index {index} '{rule}'")
            });
        }
    }
    lines
}
