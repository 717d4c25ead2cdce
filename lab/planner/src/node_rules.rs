//! Renders the state of a node as texts: the input of programs, and the state read back from the
//! kernel.

use std::fmt::Write as _;
use std::net::IpAddr;

use crate::print::{BuildPhase, batch_commands};
use svclab_model::evidence::{LinkState, SavedRules, StageEvidence};
use svclab_model::plan::{Backend, Plan};

/// Names of all files that [`read_back`] can return.
pub const READ_BACK_FILES: [&str; 8] = [
    "iptables-save",
    "ip6tables-save",
    "iptables-legacy-save",
    "ip6tables-legacy-save",
    "ipset-save",
    "nft",
    "ipvsadm-Sn",
    "ip-addr",
];

/// Returns the inputs of the programs for a plan's namespaces, each after a comment with the
/// command.
#[must_use]
pub fn program_inputs(plan: &Plan) -> String {
    let mut text = String::new();
    for step in batch_commands(plan) {
        let command = match step.phase {
            BuildPhase::Rules4 => "iptables-restore --noflush".to_owned(),
            BuildPhase::Rules6 => "ip6tables-restore --noflush".to_owned(),
            _ => step.command.join(" "),
        };
        // This line belongs to the namespace, not to kube-proxy.
        let input = step.text.replace("link set dev lo up\n", "");
        if step.phase == BuildPhase::Links && input.is_empty() {
            continue;
        }
        if !text.is_empty() {
            text.push('\n');
        }
        let _ = write!(text, "# {command}\n{input}");
    }
    text
}

/// Returns the state of one node, as read back, as pairs of file name and content.
#[must_use]
pub fn read_back(evidence: &StageEvidence, node: &str) -> Vec<(&'static str, String)> {
    let mut files = Vec::new();
    let rules = evidence.rules.iter();
    let rules: Vec<&SavedRules> = rules.filter(|saved| saved.namespace == node).collect();
    let has_nft = rules.iter().any(|saved| saved.backend == Backend::Nft);
    for saved in rules {
        // The rules of one backend have the usual names.
        let is_second = has_nft && saved.backend == Backend::Legacy;
        let name = match (saved.ip_version, is_second) {
            (6, false) => "ip6tables-save",
            (6, true) => "ip6tables-legacy-save",
            (_, false) => "iptables-save",
            (_, true) => "iptables-legacy-save",
        };
        files.push((name, strip_counters(&saved.text)));
    }
    if let Some(held) = evidence.kernel_state.get(node) {
        if !held.sets.is_empty() {
            files.push(("ipset-save", held.sets.clone()));
        }
        if !held.nft.is_empty() {
            files.push(("nft", held.nft.clone()));
        }
        if !held.ipvs.is_empty() {
            let servers = held.ipvs.iter().map(ToString::to_string).collect();
            files.push(("ipvsadm-Sn", servers));
        }
        if !held.links.is_empty() {
            files.push(("ip-addr", render_interfaces(&held.links)));
        }
    }
    files
}

/// Returns saved rules without counters and without the comments that contain times.
fn strip_counters(saved: &str) -> String {
    let mut text = String::new();
    for line in saved.lines().filter(|line| !line.starts_with('#')) {
        let rule = line
            .strip_prefix('[')
            .and_then(|rest| rest.split_once("] "))
            .map_or(line, |(_, rule)| rule);
        match rule.strip_prefix(':').and_then(|_| rule.rsplit_once('[')) {
            Some((chain, _)) => {
                let _ = writeln!(text, "{chain}[0:0]");
            }
            None => {
                let _ = writeln!(text, "{rule}");
            }
        }
    }
    text
}

/// Renders interfaces as `ip address` does, without kernel internals.
fn render_interfaces(links: &[LinkState]) -> String {
    let mut text = String::new();
    for (index, link) in (1..).zip(links) {
        let _ = writeln!(
            text,
            "{index}: {}: <{}>",
            link.name,
            render_flags(link.flags)
        );
        for address in &link.addresses {
            let family = if address.is_ipv6() { "inet6" } else { "inet" };
            let scope = address_scope(address.ip());
            let _ = writeln!(text, "    {family} {address} scope {scope} {}", link.name);
        }
    }
    text
}

/// Returns the scope of an address as the kernel determines it for its own addresses.
fn address_scope(address: IpAddr) -> &'static str {
    match address {
        _ if address.is_loopback() => "host",
        IpAddr::V6(address) if address.is_unicast_link_local() => "link",
        _ => "global",
    }
}

/// Returns the flags that `ip` prints (Linux v6.12, `include/uapi/linux/if.h`).
fn render_flags(flags: u32) -> String {
    let known = [
        (1 << 3, "LOOPBACK"),
        (1 << 1, "BROADCAST"),
        (1 << 7, "NOARP"),
        (1 << 12, "MULTICAST"),
        (1, "UP"),
        (1 << 16, "LOWER_UP"),
    ];
    let names = known.iter().filter(|(bit, _)| flags & bit != 0);
    names.map(|(_, name)| *name).collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests {
    use super::*;
    use svclab_model::evidence::KernelState;

    #[test]
    fn read_back_counters_and_times_are_omitted() {
        let evidence = StageEvidence {
            rules: vec![SavedRules {
                namespace: "node-a".to_owned(),
                backend: Backend::Nft,
                ip_version: 4,
                text: "# Generated by iptables-save on Friday\n*nat\n:OUTPUT ACCEPT [3:180]\n:KUBE-SERVICES - [0:0]\n\
                       [12:720] -A OUTPUT -m comment --comment \"[1] a\" -j KUBE-SERVICES\nCOMMIT\n"
                    .to_owned(),
            }],
            kernel_state: [(
                "node-a".to_owned(),
                KernelState {
                    links: vec![LinkState {
                        name: "kube-ipvs0".to_owned(),
                        flags: 0x82,
                        addresses: vec!["10.96.0.1/32".parse().unwrap()],
                        ..LinkState::default()
                    }],
                    ..KernelState::default()
                },
            )]
            .into(),
            ..StageEvidence::default()
        };
        let files: Vec<String> = read_back(&evidence, "node-a")
            .into_iter()
            .map(|(name, text)| format!("== {name}\n{text}"))
            .collect();
        insta::assert_snapshot!(files.concat(), @r#"
        == iptables-save
        *nat
        :OUTPUT ACCEPT [0:0]
        :KUBE-SERVICES - [0:0]
        -A OUTPUT -m comment --comment "[1] a" -j KUBE-SERVICES
        COMMIT
        == ip-addr
        1: kube-ipvs0: <BROADCAST,NOARP>
            inet 10.96.0.1/32 scope global kube-ipvs0
        "#);
        assert_eq!(read_back(&evidence, "node-b"), []);
    }

    #[test]
    fn read_back_both_backends_have_own_files() {
        let saved = |backend, ip_version| SavedRules {
            namespace: "node-a".to_owned(),
            backend,
            ip_version,
            text: "*nat\nCOMMIT\n".to_owned(),
        };
        let names = |rules: Vec<SavedRules>| -> Vec<&str> {
            let evidence = StageEvidence {
                rules,
                ..StageEvidence::default()
            };
            let files = read_back(&evidence, "node-a").into_iter();
            files.map(|(name, _)| name).collect()
        };
        assert_eq!(
            names(vec![
                saved(Backend::Nft, 4),
                saved(Backend::Legacy, 4),
                saved(Backend::Legacy, 6)
            ]),
            [
                "iptables-save",
                "iptables-legacy-save",
                "ip6tables-legacy-save"
            ]
        );
        assert_eq!(names(vec![saved(Backend::Legacy, 6)]), ["ip6tables-save"]);
    }
}
