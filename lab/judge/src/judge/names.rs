//! Checks that every name in the expectations of a case exists.

use std::collections::BTreeSet;

use crate::judge::Judge;
use crate::judge::probe::is_name_suffix;
use svclab_diagnostic::suggest::did_you_mean;
use svclab_planner::cluster::{DocumentPath, NameError, Problem, place};
use svclab_scenario::expectation::Expected;
use svclab_scenario::reference::DocumentRef;
use svclab_scenario::tree::PathSegment;

/// Prefixes of the counter names in `/proc/net/netstat`, `/proc/net/snmp` and `/proc/net/snmp6`, and of
/// those of conntrack.
const COUNTER_GROUPS: [&str; 9] = [
    "TcpExt",
    "IpExt",
    "MPTcpExt",
    "Ip",
    "IcmpMsg",
    "Icmp",
    "Tcp",
    "Udp",
    "conntrack.",
];

impl Judge<'_> {
    /// Adds a problem for each unknown name in the expectations at `parent`.
    pub(super) fn check_names(
        &self,
        expected: &Expected,
        parent: &[PathSegment],
        problems: &mut Vec<Problem>,
    ) {
        let mut add_problem = |path: &[PathSegment], error: NameError| {
            problems.push(Problem {
                location: DocumentPath {
                    document: DocumentRef::Lab,
                    path: parent.iter().chain(path).cloned().collect(),
                },
                message: error.message,
                help: error.help,
                is_key: false,
                stage: 0,
            });
        };
        let replaced = &self.case.replaced_nodes;
        let is_replaced = |name: &str| {
            let node = name.split_once('/').map(|(node, _)| node);
            node.is_some_and(|node| replaced.contains(&node))
        };
        // A packet never has the address of an interface without one. That may be what is wrong with
        // a dumped node.
        let check_addresses = |name: &str| -> Result<(), NameError> {
            if is_replaced(name) {
                return Ok(());
            }
            if !self.addresses(name)?.is_empty() {
                return Ok(());
            }
            Err(NameError {
                message: format!("`{name}` has no address"),
                help: Some("name an object or an interface with an address".to_owned()),
            })
        };
        for (name, probe) in &expected.probes {
            for source in probe.sources().into_iter().flatten() {
                if let Err(error) = check_addresses(source) {
                    let field = if probe.seen_source.is_some() {
                        "seenSource"
                    } else {
                        "seenSources"
                    };
                    add_problem(&place![name, field], error);
                }
            }
            for pod in probe.endpoints.iter().flatten() {
                let plans = self.case.stages.iter().map(|stage| stage.plan);
                let servers = || plans.clone().flat_map(|plan| &plan.servers);
                if !servers().any(|server| is_name_suffix(&server.name, pod)) {
                    let names: BTreeSet<&str> =
                        servers().map(|server| server.name.as_str()).collect();
                    let short_names = names.iter().filter_map(|name| name.rsplit('/').next());
                    let help = did_you_mean(pod, names.iter().copied().chain(short_names));
                    let message = format!("no server is named `{pod}`");
                    add_problem(&place![name, "endpoints"], NameError { message, help });
                }
            }
        }
        for (index, wire) in expected.wire.iter().enumerate() {
            for peer in [&wire.pattern.from, &wire.pattern.to].into_iter().flatten() {
                if let Err(error) = check_addresses(&peer.name) {
                    add_problem(&place!["wire", index], error);
                }
            }
        }
        for (index, counter) in expected.counters.iter().enumerate() {
            if !COUNTER_GROUPS
                .iter()
                .any(|group| counter.counter.starts_with(group))
            {
                let message = format!("`{}` is not a kernel counter", counter.counter);
                let help = Some(
                    "use a name from `nstat -az`, such as TcpExtIPReversePathFilter".to_owned(),
                );
                add_problem(
                    &place!["counters", index, "counter"],
                    NameError { message, help },
                );
            }
        }
    }
}
