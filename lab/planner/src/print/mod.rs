//! Renders a plan in the formats of the tools that can apply it by hand: `sysctl`, `ip -batch`,
//! `bridge -batch`, `ipvsadm -R`, `ipset restore`, `iptables-restore`, `nft -f`.
//!
//! The agent itself uses netlink. A test applies this output with the tools and compares the
//! results.

mod change;
mod commands;
pub mod descriptions;
mod network;

pub use commands::{ShellCommand, commands_between};

use std::borrow::Cow;
use std::fmt::Write as _;

use network::{render_addresses, render_bridge, render_links, routing_rule_command};
use svclab_model::plan::{Lifetime, Plan, RoutingRule, Stage};
use svclab_model::tools::iptables_program;

/// Phase in which a command runs. All namespaces finish a phase before the next phase starts: a
/// veth pair requires both namespaces, a route its interface.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum BuildPhase {
    /// Sysctls without an interface.
    Sysctls,
    /// Interfaces, all down.
    Links,
    /// Sysctls of interfaces.
    LinkSysctls,
    /// Bridge ports, addresses, interfaces up, then neighbours and routes.
    Addresses,
    /// Routing rules.
    RoutingRules,
    /// Forwarding entries of tunnels and bridges.
    Forwarding,
    /// IPVS timeouts and virtual servers.
    VirtualServers,
    /// Address sets (ipset).
    Sets,
    /// Accounting objects (`nfacct`) of rules.
    Accounting,
    /// IPv4 rules of iptables.
    Rules4,
    /// IPv6 rules of iptables.
    Rules6,
    /// Tables of nftables.
    Nft,
}

/// Input for one program in one namespace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BatchCommand {
    /// Name of the namespace as returned by [`netns_name`].
    pub netns: String,
    /// Phase in which the command runs.
    pub phase: BuildPhase,
    /// Command that reads `text` from its standard input, without `ip netns exec`.
    pub command: Vec<String>,
    /// Input of the command; every line ends with a newline.
    pub text: String,
}

/// Returns the name of a namespace for `ip netns`, with `_` instead of `/`. Kubernetes names
/// contain no underscore, and file names contain no slash.
#[must_use]
pub fn netns_name(name: &str) -> String {
    name.replace('/', "_")
}

/// Returns the commands that apply a plan, by namespace and then by phase.
#[must_use]
pub fn batch_commands(plan: &Plan) -> Vec<BatchCommand> {
    let mut steps = Vec::new();
    for (index, namespace) in plan.namespaces.iter().enumerate() {
        let mut step = |stage, command: &[&str], text: String| {
            steps.extend(command_with_input(&namespace.name, stage, command, text));
        };
        let settings = |with_link: bool, optional: bool| {
            let selected = namespace.sysctls.iter().filter(|setting| {
                setting.link.is_some() == with_link && setting.optional == optional
            });
            join_lines(selected.map(|setting| format!("{} = {}", setting.key, setting.value)))
        };
        // With `-e`, sysctl ignores keys that the kernel does not have.
        let (strict, lenient) = (&["sysctl", "-p", "-"][..], &["sysctl", "-e", "-p", "-"][..]);
        let ip = &["ip", "-batch", "-"][..];
        step(BuildPhase::Sysctls, strict, settings(false, false));
        step(BuildPhase::Sysctls, lenient, settings(false, true));
        step(BuildPhase::Links, ip, render_links(plan, index));
        step(BuildPhase::LinkSysctls, strict, settings(true, false));
        step(BuildPhase::LinkSysctls, lenient, settings(true, true));
        step(BuildPhase::Addresses, ip, render_addresses(namespace));
        // A routing rule for all sources does not state its family.
        for (family, v6) in [("-4", false), ("-6", true)] {
            let is_of_family = |rule: &&RoutingRule| rule.v6 == v6;
            let added = namespace.routing_rules.iter().filter(is_of_family);
            let removed = namespace.removed_routing_rules.iter().filter(is_of_family);
            let ip = &["ip", family, "-batch", "-"][..];
            step(
                BuildPhase::RoutingRules,
                ip,
                join_lines(
                    added
                        .map(routing_rule_command)
                        .chain(removed.map(|rule| format!("rule del {rule}"))),
                ),
            );
        }
        step(
            BuildPhase::Forwarding,
            &["bridge", "-batch", "-"],
            render_bridge(namespace),
        );
        let virtual_servers = namespace
            .ipvs_timeouts
            .iter()
            .map(ToString::to_string)
            .chain(namespace.ipvs.iter().map(ToString::to_string));
        step(
            BuildPhase::VirtualServers,
            &["ipvsadm", "-R"],
            virtual_servers.collect(),
        );
        step(
            BuildPhase::Sets,
            &["ipset", "restore"],
            with_final_newline(namespace.ipset.text()),
        );
        steps.extend(namespace.accounting.iter().map(|name| BatchCommand {
            netns: netns_name(&namespace.name),
            phase: BuildPhase::Accounting,
            command: ["nfacct", "add", name].map(str::to_owned).to_vec(),
            text: String::new(),
        }));
        let mut step = |stage, command: &[&str], text: String| {
            steps.extend(command_with_input(&namespace.name, stage, command, text));
        };
        let (mut first, mut last) = (with_final_newline(namespace.nft.text()), String::new());
        if !namespace.nft_first {
            std::mem::swap(&mut first, &mut last);
        }
        step(BuildPhase::Nft, &["nft", "-f", "-"], first);
        for rules in namespace.iptables_rules() {
            for (stage, family, text) in [
                (BuildPhase::Rules4, 4, &rules.v4),
                (BuildPhase::Rules6, 6, &rules.v6),
            ] {
                let program = iptables_program(family, rules.backend, "restore");
                step(stage, &[&program], with_final_newline(text.text()));
            }
        }
        step(BuildPhase::Nft, &["nft", "-f", "-"], last);
    }
    steps
}

/// Returns a command; `None` if it has no input.
fn command_with_input(
    namespace: &str,
    stage: BuildPhase,
    command: &[&str],
    text: String,
) -> Option<BatchCommand> {
    (!text.is_empty()).then(|| BatchCommand {
        netns: netns_name(namespace),
        phase: stage,
        command: command.iter().map(|&word| word.to_owned()).collect(),
        text,
    })
}

/// Renders the whole plan, for reading or as input for the tools. All other lines are comments for
/// every tool.
#[must_use]
pub fn render(plan: &Plan) -> String {
    let mut text = format!("# {}\n", escape_newlines(&plan.case));
    let steps = batch_commands(plan);
    for namespace in &plan.namespaces {
        let netns = netns_name(&namespace.name);
        let _ = write!(text, "\n# ==== {}\n", escape_newlines(&namespace.name));
        if steps.iter().all(|step| step.netns != netns) {
            text.push_str("# only interface lo\n");
        }
        for step in steps.iter().filter(|step| step.netns == netns) {
            let command: Vec<&str> = step.command.iter().map(String::as_str).collect();
            text.push_str(&netns_exec_comment(&netns, &command));
            text.push_str(&step.text);
        }
    }
    let descriptions = [
        (
            "servers",
            plan.servers
                .iter()
                .map(descriptions::describe_server)
                .collect(),
        ),
        (
            "kube-proxies",
            plan.kube_proxies
                .iter()
                .map(descriptions::render_real_proxy)
                .collect(),
        ),
        (
            "commands run by hand",
            plan.commands
                .iter()
                .flat_map(descriptions::render_node_command)
                .collect(),
        ),
        (
            "probes",
            plan.stages
                .first()
                .map(|stage| describe_probes(stage, Lifetime::Stage))
                .unwrap_or_default(),
        ),
        (
            "recorded evidence",
            descriptions::describe_evidence_request(plan),
        ),
    ];
    for (title, section_lines) in descriptions {
        let section_lines: Vec<String> = section_lines;
        if !section_lines.is_empty() {
            let _ = write!(text, "\n# ==== {title}\n");
            for line in section_lines {
                let _ = writeln!(text, "# {}", escape_newlines(&line));
            }
        }
    }
    text + &change::render_steps(plan)
}

fn describe_probes(stage: &Stage, lifetime: Lifetime) -> Vec<String> {
    let probes = stage.probes_with(lifetime);
    probes.map(descriptions::describe_probe).collect()
}

fn join_lines(lines: impl Iterator<Item = String>) -> String {
    lines.fold(String::new(), |text, line| {
        text + &escape_newlines(&line) + "\n"
    })
}

/// Replaces newlines by `\n`. Names, arguments and values come from a lab; none may end a comment
/// or start a line of a tool's input.
fn escape_newlines(text: &str) -> Cow<'_, str> {
    if text.contains(['\n', '\r']) {
        Cow::Owned(text.replace('\n', "\\n").replace('\r', "\\r"))
    } else {
        Cow::Borrowed(text)
    }
}

/// Returns a comment with the command that runs a program in a namespace. Words are quoted as for a
/// shell.
fn netns_exec_comment(netns: &str, command: &[&str]) -> String {
    let quoted = |word: &&str| {
        let quoted = shlex::try_quote(word);
        quoted.map_or_else(|_| format!("{word:?}"), Cow::into_owned)
    };
    let words: Vec<String> = [&netns].into_iter().chain(command).map(quoted).collect();
    let line = format!("ip netns exec {}", words.join(" "));
    format!("\n# {}\n", escape_newlines(&line))
}

fn with_final_newline(text: &str) -> String {
    if text.is_empty() || text.ends_with('\n') {
        text.to_owned()
    } else {
        format!("{text}\n")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    pub(super) fn small_plan() -> Plan {
        serde_json::from_str(include_str!("../../../../tests/plans/small.json")).unwrap()
    }

    #[test]
    fn render_plan_uses_tool_formats() {
        insta::assert_snapshot!(render(&small_plan()));
    }

    /// Appends newlines to the string with index `wanted` in a document, not counting map keys.
    fn append_newlines(value: &mut serde_json::Value, index: &mut usize, wanted: usize) {
        match value {
            serde_json::Value::String(text) => {
                if *index == wanted {
                    text.push_str("\nreboot # '; reboot\r\nreboot");
                }
                *index += 1;
            }
            serde_json::Value::Array(items) => {
                for item in items {
                    append_newlines(item, index, wanted);
                }
            }
            serde_json::Value::Object(fields) => {
                for (key, field) in fields {
                    // The input of tools legitimately has several lines.
                    if !["ipset", "nft", "v4", "v6"].contains(&key.as_str()) {
                        append_newlines(field, index, wanted);
                    }
                }
            }
            _ => {}
        }
    }

    #[test]
    fn render_newline_in_string_stays_on_line() {
        let mut small: serde_json::Value =
            serde_json::from_str(include_str!("../../../../tests/plans/small.json")).unwrap();
        small["kubeProxies"] = serde_json::json!([{
            "namespace": "router",
            "program": "/opt/kube-proxy",
            "arguments": ["--v=2", "--cluster-cidr=10.0.0.0/8"],
            "mode": "iptables",
            "backend": "nft",
            "syncTarget": {"services": 0, "endpoints": 0},
            "syncTimeout": {"secs": 1, "nanos": 0},
        }]);
        let (mut tried, mut shown) = (0, 0);
        for wanted in 0.. {
            let mut plan = small.clone();
            let mut count = 0;
            append_newlines(&mut plan, &mut count, wanted);
            if wanted >= count {
                break;
            }
            // An address cannot contain newlines.
            let Ok(plan) = serde_json::from_value::<Plan>(plan) else {
                continue;
            };
            tried += 1;
            let text = render(&plan);
            shown += usize::from(text.contains("reboot"));
            assert!(
                !text.lines().any(|line| line.starts_with("reboot")) && !text.contains('\r'),
                "{text}"
            );
        }
        assert!(tried > 10 && shown > 5, "{tried} {shown}");
    }

    #[test]
    fn batch_commands_of_namespace_are_sorted_by_phase() {
        let plan = small_plan();
        for namespace in &plan.namespaces {
            let stages: Vec<BuildPhase> = batch_commands(&plan)
                .into_iter()
                .filter(|step| step.netns == netns_name(&namespace.name))
                .map(|step| step.phase)
                .collect();
            assert!(stages.is_sorted(), "{stages:?}");
            assert_eq!(stages[0], BuildPhase::Sysctls);
        }
    }

    #[test]
    fn render_down_interface_and_virtual_servers() {
        let mut plan = small_plan();
        plan.namespaces[1].links[1].down = true;
        plan.namespaces[1].ipvs = vec![
            serde_json::from_value(serde_json::json!({
                "key": {"by": "address", "protocol": "tcp", "address": "10.96.0.2", "port": 80},
                "scheduler": "rr",
                "servers": [{"address": "10.0.2.2:8080", "weight": 1}],
            }))
            .unwrap(),
        ];
        let text = render(&plan);
        assert!(text.contains("link set dev client up"));
        assert!(!text.contains("link set dev br0 up"));
        assert!(text.contains(
            "# ip netns exec router ipvsadm -R\n-A -t 10.96.0.2:80 -s rr\n-a -t 10.96.0.2:80 -r 10.0.2.2:8080 -m -w 1\n"
        ));
    }
}
