//! Replays the sysctls of a dumped node that affect packets.

use super::known_sysctls::{SysctlEffect, effect};
use super::naming::sysctl_link_name;
use super::not_built::full_tables::full_tables;
use super::report::{FileLine, OmittedItem, ReplayReport, count_noun, list_names};
use crate::build::topology::sysctls::ICMP_LIMITS;
use svclab_dump::NodeDump;
use svclab_model::plan::{Namespace, Sysctl};
use svclab_ruleset::sysctl::Sysctls;
use svclab_ruleset::tool::Format;

/// Read-only and debugging sysctls of IPVS.
const IPVS_READ_ONLY: [&str; 2] = ["net.ipv4.vs.cache_bypass", "net.ipv4.vs.debug_level"];

/// Replaces the sysctls of the node with those of the dump.
pub fn replay_sysctls(namespace: &mut Namespace, dump: &NodeDump, report: &mut ReplayReport) {
    let Some(dumped) = &dump.sysctls else {
        report.add_simulated("sysctls of the lab: `sysctl -a` was not dumped");
        return;
    };
    let ipvs = namespace.uses_ipvs();
    let mut replayed_count = 0_usize;
    let mut added: Vec<Sysctl> = Vec::new();
    let mut unknown: Vec<String> = Vec::new();
    for (key, setting) in dumped {
        let Some(value) = setting.values.first() else {
            continue;
        };
        let (link, default) = match effect(key) {
            SysctlEffect::None | SysctlEffect::SharedLimit => continue,
            SysctlEffect::Unknown => {
                unknown.push(format!("{key} = {value}"));
                continue;
            }
            SysctlEffect::Global { default } => (None, default),
            SysctlEffect::Interface { name, default } => {
                let mut links = namespace.links.iter();
                match links.find(|link| sysctl_link_name(&link.name) == name) {
                    Some(link) => (Some(link.name.clone()), default),
                    None => continue,
                }
            }
        };
        if key.starts_with("net.ipv4.vs.") && (!ipvs || IPVS_READ_ONLY.contains(&key.as_str())) {
            continue;
        }
        replayed_count += 1;
        let value = value.split_ascii_whitespace().collect::<Vec<_>>().join(" ");
        let planned = namespace.sysctls.iter_mut().find(|own| own.key == *key);
        let optional = default == Some(value.as_str()) || is_default_without_sysctl(key, &value);
        match planned {
            Some(planned) => {
                planned.value = value;
                planned.optional = optional;
            }
            None => added.push(Sysctl {
                key: key.clone(),
                value,
                link,
                optional,
            }),
        }
    }
    // Sysctls without an interface are always written before interfaces are created.
    namespace.sysctls.extend(added);
    let sysctls = count_noun(replayed_count, "sysctl", "sysctls");
    report.add_replayed(format!("{sysctls} with an effect on packets"));
    let limits = ICMP_LIMITS.iter().flat_map(|(limit, mask)| [limit, mask]);
    let limits = limits.filter(|key| dumped.contains_key(**key)).count();
    if limits > 0 {
        report.add_simulated("unlimited ICMP errors: one source of the lab represents many");
    }
    if !unknown.is_empty() {
        report.add_omitted(
            format!(
                "{}: {}",
                count_noun(unknown.len(), "sysctl", "sysctls"),
                list_names(&unknown)
            ),
            "svclab does not know the effect",
            "packets may be handled differently",
        );
    }
    let mut listed = full_tables(dump, dumped);
    listed.extend(recycled_connections(dump, dumped));
    let omitted_count = dumped.len() - replayed_count - limits - unknown.len() - listed.len();
    report.omitted.append(&mut listed);
    if omitted_count > 0 {
        report.add_omitted(
            count_noun(omitted_count, "sysctl", "sysctls"),
            "without an effect on packets, or for interfaces that are not built",
            "",
        );
    }
}

/// Sysctl of kernels before v4.12 that drops packets (Linux v4.11, `net/ipv4/tcp_metrics.c`,
/// `tcp_peer_is_proven`).
const TW_RECYCLE: &str = "net.ipv4.tcp_tw_recycle";

/// Returns the sysctl as an omitted item if the node had it on.
fn recycled_connections(dump: &NodeDump, sysctls: &Sysctls) -> Option<OmittedItem> {
    let setting = sysctls.get(TW_RECYCLE)?;
    let value = setting.values.first().filter(|value| value.trim() != "0")?;
    let item = OmittedItem::new(
        FileLine::in_dump(dump, Format::Sysctls, setting.line),
        format!("{TW_RECYCLE} = {value}"),
        "kernels have no such sysctl since v4.12",
    );
    let effect = "the node drops SYNs of clients that share an address behind source NAT";
    Some(item.with_effect(effect))
}

/// Whether a kernel without the sysctl behaves as with this value. Without its module, a bridge
/// does not pass packets to iptables. Linux v6.5 was the first to retransmit a SYN every second
/// (`net/ipv4/tcp_timer.c`, `tcp_retransmit_timer`). For IPv6 sysctls, the addresses decide whether
/// IPv6 is required.
fn is_default_without_sysctl(key: &str, value: &str) -> bool {
    let absent_prefixes = ["net.bridge.", "net.ipv4.tcp_syn_linear_timeouts"];
    key.starts_with("net.ipv6.")
        || (value == "0" && absent_prefixes.iter().any(|begins| key.starts_with(begins)))
}
