//! Replays the sysctls of a dumped node that affect packets.

use super::naming::sysctl_link_name;
use super::report::{ReplayReport, count_noun};
use crate::build::topology::sysctls::ICMP_LIMITS;
use svclab_dump::NodeDump;
use svclab_model::plan::{Namespace, Sysctl};

/// Sysctls that do not belong to an interface, by prefix.
const GLOBAL_PREFIXES: [&str; 17] = [
    "net.ipv4.ip_forward",
    "net.ipv4.ip_nonlocal_bind",
    "net.ipv4.ip_local_port_range",
    "net.ipv4.fwmark_reflect",
    "net.ipv4.fib_multipath_hash_policy",
    "net.ipv4.icmp_echo_ignore_all",
    "net.ipv4.tcp_fwmark_accept",
    "net.ipv4.tcp_syn_linear_timeouts",
    "net.ipv4.tcp_syn_retries",
    "net.ipv4.tcp_timestamps",
    "net.ipv4.vs.",
    "net.netfilter.nf_conntrack_tcp_be_liberal",
    "net.netfilter.nf_conntrack_tcp_loose",
    "net.bridge.bridge-nf-call-iptables",
    "net.bridge.bridge-nf-call-ip6tables",
    "net.ipv6.fwmark_reflect",
    "net.ipv6.conf.all.forwarding",
];

/// Sysctls of interfaces, by their last part.
const LINK_SYSCTLS: [&str; 16] = [
    "accept_local",
    "accept_redirects",
    "accept_source_route",
    "arp_announce",
    "arp_filter",
    "arp_ignore",
    "disable_ipv6",
    "disable_policy",
    "disable_xfrm",
    "forwarding",
    "proxy_arp",
    "route_localnet",
    "rp_filter",
    "secure_redirects",
    "send_redirects",
    "src_valid_mark",
];

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
    for (key, setting) in dumped {
        let Some(value) = setting.values.first() else {
            continue;
        };
        let link = match packet_scope(key) {
            None => continue,
            Some(SysctlScope::Global) => None,
            Some(SysctlScope::Link(dev)) => {
                let mut links = namespace.links.iter();
                match links.find(|link| sysctl_link_name(&link.name) == dev) {
                    Some(link) => Some(link.name.clone()),
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
        let optional = is_default_without_sysctl(key, &value);
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
    let omitted_count = dumped.len() - replayed_count - limits;
    if omitted_count > 0 {
        report.add_omitted(
            count_noun(omitted_count, "sysctl", "sysctls"),
            "without an effect on packets, or for interfaces that are not built",
            "",
        );
    }
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

enum SysctlScope<'k> {
    Global,
    Link(&'k str),
}

/// Returns the interface of a sysctl that affects packets; `None` for other sysctls.
fn packet_scope(key: &str) -> Option<SysctlScope<'_>> {
    if GLOBAL_PREFIXES.iter().any(|begins| key.starts_with(begins)) {
        return Some(SysctlScope::Global);
    }
    let (family, rest) = key.strip_prefix("net.")?.split_once(".conf.")?;
    let (dev, last) = rest.rsplit_once('.')?;
    // Forwarding for `all` is the same as `ip_forward`, and writing it resets other sysctls.
    let is_ip_forward = dev == "all" && last == "forwarding" && family == "ipv4";
    // The plan decides about IPv6, as on a kernel without IPv6.
    let is_ignored_v6 = family == "ipv6" && last != "disable_ipv6" && last != "forwarding";
    if !LINK_SYSCTLS.contains(&last) || is_ip_forward || is_ignored_v6 {
        return None;
    }
    match dev {
        "lo" => None,
        "all" | "default" => Some(SysctlScope::Global),
        dev => Some(SysctlScope::Link(dev)),
    }
}
