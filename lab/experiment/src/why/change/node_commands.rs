//! Changes of state that is not part of a plan: queueing disciplines, VLAN filtering, conntrack
//! entries, and what manual commands of the case left on a node.

use super::ProposedChange;
use svclab_model::plan::{Backend, CommandLimits, NodeCommand, Plan};
use svclab_model::tools::iptables_command;
use svclab_planner::visibility::Visibility;

/// Programs of the commands of [`ProposedChange::node_commands`].
pub(in crate::why) const PROGRAMS: [&str; 8] = [
    "iptables-nft",
    "ip6tables-nft",
    "iptables-legacy",
    "ip6tables-legacy",
    "sysctl",
    "ip",
    "tc",
    "conntrack",
];

impl ProposedChange {
    /// Returns the commands that make the change after the manual commands of the case. Empty if the
    /// change is one of the plan.
    pub(super) fn node_commands(&self, plan: &Plan) -> Vec<NodeCommand> {
        let has_manual_commands = |namespace: &String| {
            let mut typed = plan.commands.iter();
            // Commands with another effect change nothing that a plan contains.
            typed.any(|command| {
                command.namespace == *namespace && Visibility::new(command) != Visibility::Hidden
            })
        };
        let (namespaces, line) = match self {
            Self::DeleteQueue {
                namespace,
                link,
                parent,
            } => {
                return command(namespace, &format!("tc qdisc del dev {link} {parent}"));
            }
            Self::DisableVlanFiltering { namespace, bridge } => {
                let line = format!("ip link set {bridge} type bridge vlan_filtering 0");
                return command(namespace, &line);
            }
            Self::DeleteConnections {
                namespace,
                protocol,
                destination,
            } => {
                let (address, port) = (destination.ip(), destination.port());
                let family = if address.is_ipv6() { " -f ipv6" } else { "" };
                let line =
                    format!("conntrack -D{family} -p {protocol} -d {address} --dport {port}");
                return command(namespace, &line);
            }
            // The rule may not be in the plan, and its number may be that of another one.
            Self::DeleteRule {
                namespace,
                backend,
                v6,
                table,
                chain,
                rule,
                ..
            } => {
                let program = program(*v6, *backend);
                let line = format!("{program} -t {table} -D {chain} {rule}");
                (std::slice::from_ref(namespace), line)
            }
            Self::AcceptPolicy {
                namespace,
                backend,
                v6,
                table,
                chain,
            } if !table.contains(' ') => {
                let program = program(*v6, *backend);
                let line = format!("{program} -t {table} -P {chain} ACCEPT");
                (std::slice::from_ref(namespace), line)
            }
            Self::SetSysctl {
                namespaces,
                keys,
                value,
            } => {
                let settings = keys.iter().map(|key| format!("{key}={value}"));
                let settings: Vec<String> = settings.collect();
                let line = format!("sysctl -w {}", settings.join(" "));
                (namespaces.as_slice(), line)
            }
            _ => return Vec::new(),
        };
        if !namespaces.iter().any(has_manual_commands) {
            return Vec::new();
        }
        let commands = namespaces.iter();
        commands
            .flat_map(|namespace| command(namespace, &line))
            .collect()
    }
}

fn program(v6: bool, backend: Backend) -> String {
    iptables_command(if v6 { 6 } else { 4 }, backend)
}

/// Returns a command line as a command. Empty if the line is no valid one.
fn command(namespace: &str, line: &str) -> Vec<NodeCommand> {
    let words = shlex::split(line).into_iter();
    let commands = words.map(|command| NodeCommand {
        namespace: namespace.to_owned(),
        command,
        input: String::new(),
        limits: CommandLimits::default(),
    });
    commands.collect()
}
