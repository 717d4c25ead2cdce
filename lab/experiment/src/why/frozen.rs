//! Reads the state that manual commands leave on nodes, and puts this state into the plan in place
//! of the commands. Changes of single objects are possible only in a plan that contains the objects.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::finding::UnreadState;
use svclab_dump::{File, NodeDump};
use svclab_model::plan::{ETHERNET_MTU, Neighbour, NodeCommand, Plan};
use svclab_planner::replay::{HardwareAddresses, replace_node};
use svclab_planner::visibility::Visibility;
use svclab_ruleset::tool::Format;
use svclab_runner::kernel::{KernelError, Session};
use svclab_runner::run::execute::pool::Pool;
use svclab_runner::run::prepare::Prepared;

/// Programs whose output has the state of a node, each with the file name of a dump. These are the
/// programs of `scripts/collect-node`.
const PROGRAMS: [(&str, &str); 17] = [
    ("iptables-nft-save", "iptables-nft-save"),
    ("ip6tables-nft-save", "ip6tables-nft-save"),
    ("iptables-legacy-save", "iptables-legacy-save"),
    ("ip6tables-legacy-save", "ip6tables-legacy-save"),
    ("ipset-save", "ipset save"),
    ("nft", "nft list ruleset"),
    ("ipvsadm-Sn", "ipvsadm -Sn"),
    ("ip-addr", "ip addr"),
    ("ip-link", "ip -d link"),
    ("ip-route", "ip -4 route show table all"),
    ("ip-6-route", "ip -6 route show table all"),
    ("ip-rule", "ip -4 rule"),
    ("ip-6-rule", "ip -6 rule"),
    ("ip-neigh", "ip neigh show nud all"),
    ("bridge-fdb", "bridge fdb"),
    ("bridge-link", "bridge -d link"),
    ("sysctl-a", "sysctl -a"),
];

/// Returns the names of the programs that read the state of a node. Guests have them on request.
pub(super) fn state_programs() -> impl Iterator<Item = &'static str> {
    let lines = PROGRAMS.into_iter();
    lines.filter_map(|(_, command)| command.split(' ').next())
}

/// Whether manual commands leave a state that [`freeze_manual_changes`] can read: later stages
/// change the state further.
pub(super) fn has_manual_changes(plan: &Plan) -> bool {
    !plan.commands.is_empty() && plan.stages.len() <= 1
}

/// Returns the nodes with commands whose changes their state does not contain.
pub(super) fn partly_shown_nodes(plan: &Plan) -> Option<UnreadState> {
    let commands = plan.commands.iter();
    let hidden = commands.filter(|command| Visibility::new(command) != Visibility::Shown);
    let hidden: Vec<&NodeCommand> = hidden.collect();
    let nodes: BTreeSet<&str> = hidden.iter().map(|own| own.namespace.as_str()).collect();
    let first = hidden.first()?;
    Some(UnreadState {
        nodes: nodes.into_iter().map(str::to_owned).collect(),
        reason: format!("it does not show the changes of `{first}`"),
    })
}

fn can_be_read(plan: &Plan, node: &str) -> bool {
    let mut own = plan
        .commands
        .iter()
        .filter(|command| command.namespace == node);
    own.all(|command| Visibility::new(command) != Visibility::Mixed)
}

/// Returns the case with the state of its nodes after the manual commands, or why this state cannot
/// be read. Commands whose changes the state does not contain are kept. `None` if the case has no
/// other commands. With `after_probes`, the probes run before: some
/// state only shows then, such as next hops that do not reply.
pub(super) async fn freeze_manual_changes(
    prepared: &Prepared,
    pool: &Pool,
    after_probes: bool,
) -> Option<Result<Prepared, UnreadState>> {
    let plan = &prepared.plan;
    let shown = plan
        .commands
        .iter()
        .filter(|command| Visibility::new(command) == Visibility::Shown);
    let nodes: BTreeSet<&str> = shown
        .map(|command| command.namespace.as_str())
        .filter(|node| can_be_read(plan, node))
        .collect();
    if nodes.is_empty() {
        return None;
    }
    let frozen = if has_manual_changes(plan) {
        freeze_nodes(prepared, pool, &nodes, after_probes).await
    } else {
        Err("later steps of the case change it".to_owned())
    };
    Some(frozen.map_err(|reason| UnreadState::new(plan, reason)))
}

/// Returns the nodes on which manual commands ran.
fn nodes_with_commands(plan: &Plan) -> BTreeSet<&str> {
    let commands = plan.commands.iter();
    commands.map(|command| &*command.namespace).collect()
}

impl UnreadState {
    /// Creates the reason for all nodes on which manual commands ran.
    pub(super) fn new(plan: &Plan, reason: String) -> Self {
        let nodes = nodes_with_commands(plan).into_iter();
        Self {
            nodes: nodes.map(str::to_owned).collect(),
            reason,
        }
    }
}

/// Returns the case with the state that its nodes have in a lab, or the reason why it cannot be read.
async fn freeze_nodes(
    prepared: &Prepared,
    pool: &Pool,
    nodes: &BTreeSet<&str>,
    after_probes: bool,
) -> Result<Prepared, String> {
    let plan = &prepared.plan;
    let to_reason = |error: KernelError| error.to_string();
    let _room = pool.acquire_room(plan).await;
    let agent = pool.agent().await.map_err(to_reason)?;
    let mut session = agent.build(plan.clone()).await.map_err(to_reason)?;
    if after_probes {
        session.probe().await.map_err(to_reason)?;
    }
    let mut frozen = prepared.clone();
    for node in nodes {
        let dump = read_node(&mut session, node).await;
        let dump = dump.map_err(|reason| format!("on {node}, {reason}"))?;
        let known = HardwareAddresses::from_dumps([&dump]);
        let before = frozen.plan.clone();
        let report = replace_node(&mut frozen.plan, node, &dump, &known);
        let own = plan.commands.iter().filter(|own| own.namespace == *node);
        let hidden = own.filter(|own| Visibility::new(own) == Visibility::Hidden);
        frozen.plan.commands.extend(hidden.cloned());
        keep_default_mtus(&mut frozen.plan, &before, node);
        remove_lost_neighbours(&mut frozen.plan, node, &dump);
        frozen.replay_reports.push(report);
        frozen.dumps.push((Arc::new(dump), false));
    }
    Ok(frozen)
}

/// Leaves out the MTUs that the interfaces of a replaced node have by default, and those of other
/// namespaces, which the dump of the node does not show. `before` is the plan before the replacement.
fn keep_default_mtus(frozen: &mut Plan, before: &Plan, node: &str) {
    for namespace in &mut frozen.namespaces {
        let Some(before) = before.namespace(&namespace.name) else {
            continue;
        };
        let is_node = namespace.name == node;
        for link in &mut namespace.links {
            let mut links = before.links.iter();
            let Some(known) = links.find(|known| known.name == link.name) else {
                continue;
            };
            if !is_node || (known.mtu.is_none() && link.mtu == Some(ETHERNET_MTU)) {
                link.mtu = known.mtu;
            }
        }
    }
}

/// Removes the neighbours that the node does not have any more: a lab sets all of them, and the
/// kernel resolves removed ones again. It even removes permanent entries when an interface goes down
/// (Linux v6.12, `net/ipv4/fib_frontend.c`, `fib_disable_ip`, and `net/core/neighbour.c`,
/// `neigh_ifdown`).
fn remove_lost_neighbours(plan: &mut Plan, node: &str, dump: &NodeDump) {
    let mut namespaces = plan.namespaces.iter_mut();
    if let Some(namespace) = namespaces.find(|namespace| namespace.name == node) {
        let is_set = |planned: &Neighbour| {
            let mut dumped = dump.static_neighbours();
            dumped.any(|own| own.address == planned.address && *own.dev == *planned.dev)
        };
        namespace.neighbours.retain(is_set);
    }
}

/// Reads the state of a node. The error names the program that failed or printed something unknown.
async fn read_node(session: &mut Session, node: &str) -> Result<NodeDump, String> {
    let mut files = Vec::new();
    let mut failures = Vec::new();
    for (name, command) in PROGRAMS {
        let mut words = command.split(' ');
        let program = words.next().unwrap_or_default();
        let arguments: Vec<&str> = words.collect();
        let failure = match session.run(node, program, &arguments, "").await {
            Ok(output) if output.success => {
                files.push(File {
                    name: name.to_owned(),
                    format: Format::from_file_name(name),
                    text: output.stdout,
                });
                continue;
            }
            Ok(output) => output.stderr,
            Err(error) => error.to_string(),
        };
        failures.push(format!("`{command}` failed: {}", failure.trim()));
    }
    let parsed = NodeDump::parse(files);
    if let Some(error) = parsed.diagnostics.iter().find(|found| found.is_error()) {
        return Err(error.to_string());
    }
    let dump = parsed.dump;
    // Nodes without IPVS, sets or IPv6 lack some of the programs or their kernel modules.
    if dump.links.is_none() || dump.routes.is_empty() || dump.sysctls.is_none() {
        return Err(failures.join("; "));
    }
    Ok(dump)
}
