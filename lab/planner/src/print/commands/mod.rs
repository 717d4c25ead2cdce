//! Renders the difference of two plans as the commands that an operator types on a node. Input: the
//! plan of the current state, and the plan of the wanted state. Output: one shell command per
//! change, in an order in which a running node can execute them.

mod network;
mod rules;
mod services;
#[cfg(test)]
mod tests;

use svclab_model::plan::{Namespace, Plan};

/// Command to type in a namespace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ShellCommand {
    /// Namespace name: `node-1`.
    pub namespace: String,
    /// Command line for a shell. A line that starts with `#` describes a change that no single
    /// command makes.
    pub line: String,
}

/// Returns the commands that change the namespaces of the first plan into those of the second.
/// Namespaces that only one plan has are ignored.
#[must_use]
pub fn commands_between(current: &Plan, wanted: &Plan) -> Vec<ShellCommand> {
    let mut commands = Vec::new();
    for new in &wanted.namespaces {
        let Some(old) = current.namespace(&new.name).filter(|old| *old != new) else {
            continue;
        };
        let lines = namespace_commands(old, new).into_iter();
        commands.extend(lines.map(|line| ShellCommand {
            namespace: new.name.clone(),
            line,
        }));
    }
    commands
}

fn namespace_commands(old: &Namespace, new: &Namespace) -> Vec<String> {
    let mut lines = network::mtu_commands(old, new);
    lines.extend(network::sysctl_commands(old, new));
    lines.extend(network::link_commands(old, new));
    lines.extend(network::route_commands(old, new));
    lines.extend(services::virtual_server_commands(old, new));
    // Rules name sets: sets are created before the rules change, and destroyed afterwards.
    let (before, after) = services::set_commands(&old.ipset, &new.ipset);
    lines.extend(before);
    lines.extend(rules::iptables_commands(old, new));
    lines.extend(rules::nft_commands(&old.nft, &new.nft));
    lines.extend(after);
    lines
}
