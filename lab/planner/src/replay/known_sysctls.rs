//! Lists sysctls: those that a replay writes, and those that packets of a lab cannot notice.

/// Effect of a sysctl on the packets of a lab.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SysctlEffect<'k> {
    /// Affects packets of the whole namespace. `default` is the value of a kernel that does not
    /// have the sysctl; `None` if there is no such value.
    Global { default: Option<&'static str> },
    /// Affects packets of an interface.
    Interface {
        name: &'k str,
        default: Option<&'static str>,
    },
    /// Has no effect on the packets of a lab.
    None,
    /// Limits a table that all namespaces share.
    SharedLimit,
    /// Its effect is not known.
    Unknown,
}

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

/// Sysctls with the default values of the kernel (Linux v6.12,
/// `Documentation/networking/ip-sysctl.rst`, `nf_conntrack-sysctl.rst`;
/// `net/netfilter/nf_conntrack_proto_tcp.c`, `_udp.c`, `_icmp.c`, `_generic.c`). A kernel
/// without the sysctl behaves as with the default.
const DEFAULTS: [(&str, &str); 46] = [
    ("net.bridge.bridge-nf-filter-pppoe-tagged", "0"),
    ("net.bridge.bridge-nf-filter-vlan-tagged", "0"),
    ("net.bridge.bridge-nf-pass-vlan-input-dev", "0"),
    ("net.ipv4.fib_multipath_hash_fields", "7"),
    ("net.ipv4.fib_multipath_use_neigh", "0"),
    ("net.ipv4.icmp_echo_ignore_broadcasts", "1"),
    ("net.ipv4.icmp_errors_use_inbound_ifaddr", "0"),
    ("net.ipv4.ip_default_ttl", "64"),
    ("net.ipv4.ip_early_demux", "1"),
    ("net.ipv4.ip_forward_use_pmtu", "0"),
    ("net.ipv4.ip_local_reserved_ports", ""),
    ("net.ipv4.ip_no_pmtu_disc", "0"),
    ("net.ipv4.ip_unprivileged_port_start", "1024"),
    ("net.ipv4.raw_l3mdev_accept", "1"),
    ("net.ipv4.tcp_abort_on_overflow", "0"),
    ("net.ipv4.tcp_base_mss", "1024"),
    ("net.ipv4.tcp_early_demux", "1"),
    ("net.ipv4.tcp_ecn", "2"),
    ("net.ipv4.tcp_l3mdev_accept", "0"),
    ("net.ipv4.tcp_min_snd_mss", "48"),
    ("net.ipv4.tcp_mtu_probing", "0"),
    ("net.ipv4.tcp_sack", "1"),
    ("net.ipv4.tcp_synack_retries", "5"),
    ("net.ipv4.tcp_window_scaling", "1"),
    ("net.ipv4.udp_early_demux", "1"),
    ("net.ipv4.udp_l3mdev_accept", "0"),
    ("net.netfilter.nf_conntrack_checksum", "1"),
    ("net.netfilter.nf_conntrack_generic_timeout", "600"),
    ("net.netfilter.nf_conntrack_icmp_timeout", "30"),
    ("net.netfilter.nf_conntrack_icmpv6_timeout", "30"),
    ("net.netfilter.nf_conntrack_tcp_ignore_invalid_rst", "0"),
    ("net.netfilter.nf_conntrack_tcp_max_retrans", "3"),
    ("net.netfilter.nf_conntrack_tcp_timeout_close", "10"),
    ("net.netfilter.nf_conntrack_tcp_timeout_close_wait", "60"),
    (
        "net.netfilter.nf_conntrack_tcp_timeout_established",
        "432000",
    ),
    ("net.netfilter.nf_conntrack_tcp_timeout_fin_wait", "120"),
    ("net.netfilter.nf_conntrack_tcp_timeout_last_ack", "30"),
    ("net.netfilter.nf_conntrack_tcp_timeout_max_retrans", "300"),
    ("net.netfilter.nf_conntrack_tcp_timeout_syn_recv", "60"),
    ("net.netfilter.nf_conntrack_tcp_timeout_syn_sent", "120"),
    ("net.netfilter.nf_conntrack_tcp_timeout_time_wait", "120"),
    (
        "net.netfilter.nf_conntrack_tcp_timeout_unacknowledged",
        "300",
    ),
    ("net.netfilter.nf_conntrack_udp_timeout", "30"),
    ("net.netfilter.nf_conntrack_udp_timeout_stream", "120"),
    ("net.netfilter.nf_flowtable_tcp_timeout", "30"),
    ("net.netfilter.nf_flowtable_udp_timeout", "30"),
];

/// IPv4 sysctls of interfaces, by their last part, with their defaults as in [`DEFAULTS`]. The
/// first 16 differ between distributions and between kernels, and have none.
const INTERFACE: [(&str, Option<&str>); 21] = [
    ("accept_local", None),
    ("accept_redirects", None),
    ("accept_source_route", None),
    ("arp_announce", None),
    ("arp_filter", None),
    ("arp_ignore", None),
    ("disable_ipv6", None),
    ("disable_policy", None),
    ("disable_xfrm", None),
    ("forwarding", None),
    ("proxy_arp", None),
    ("route_localnet", None),
    ("rp_filter", None),
    ("secure_redirects", None),
    ("send_redirects", None),
    ("src_valid_mark", None),
    ("bc_forwarding", Some("0")),
    ("drop_unicast_in_l2_multicast", Some("0")),
    ("ignore_routes_with_linkdown", Some("0")),
    ("medium_id", Some("0")),
    ("proxy_arp_pvlan", Some("0")),
];

/// Sysctls of interfaces without an effect on packets of a lab, by their last part: multicast,
/// gratuitous ARP, logs, and addresses that change.
const INTERFACE_WITHOUT_EFFECT: [&str; 13] = [
    "arp_accept",
    "arp_evict_nocarrier",
    "arp_notify",
    "bootp_relay",
    "drop_gratuitous_arp",
    "force_igmp_version",
    "igmpv2_unsolicited_report_interval",
    "igmpv3_unsolicited_report_interval",
    "log_martians",
    "mc_forwarding",
    "promote_secondaries",
    "shared_media",
    "tag",
];

/// Further sysctls without an effect on packets of a lab, by prefix: buffers, memory, congestion,
/// keep-alive, multicast, timers of neighbours, logs and counters; protocols that probes do not
/// use; and IPv6 of interfaces, because the plan decides about IPv6 as on a kernel without it.
const PREFIXES_WITHOUT_EFFECT: [&str; 62] = [
    "net.bridge.bridge-nf-call-arptables",
    "net.core.",
    "net.ipv4.cipso_",
    "net.ipv4.conf.all.forwarding",
    "net.ipv4.fib_multipath_hash_seed",
    "net.ipv4.fib_notify_on_flag_change",
    "net.ipv4.fib_sync_mem",
    "net.ipv4.icmp_echo_enable_probe",
    "net.ipv4.icmp_ignore_bogus_error_responses",
    "net.ipv4.icmp_msgs_",
    "net.ipv4.icmp_ratelimit",
    "net.ipv4.icmp_ratemask",
    "net.ipv4.igmp_",
    "net.ipv4.inet_peer_",
    "net.ipv4.ip_autobind_reuse",
    "net.ipv4.ip_dynaddr",
    "net.ipv4.ipfrag_",
    "net.ipv4.neigh.",
    "net.ipv4.nexthop_compat_mode",
    "net.ipv4.ping_group_range",
    "net.ipv4.route.",
    "net.ipv4.tcp_",
    "net.ipv4.udp_",
    "net.ipv4.xfrm4_gc_thresh",
    "net.ipv6.anycast_src_echo_reply",
    "net.ipv6.auto_flowlabels",
    "net.ipv6.bindv6only",
    "net.ipv6.calipso_",
    "net.ipv6.conf.",
    "net.ipv6.fib_",
    "net.ipv6.flowlabel_",
    "net.ipv6.icmp.",
    "net.ipv6.idgen_",
    "net.ipv6.ioam6_",
    "net.ipv6.ip6frag_",
    "net.ipv6.ip_nonlocal_bind",
    "net.ipv6.max_",
    "net.ipv6.mld_",
    "net.ipv6.neigh.",
    "net.ipv6.route.",
    "net.ipv6.seg6_",
    "net.ipv6.xfrm6_gc_thresh",
    "net.iw_cm.",
    "net.mptcp.",
    "net.netfilter.nf_conntrack_acct",
    "net.netfilter.nf_conntrack_buckets",
    "net.netfilter.nf_conntrack_count",
    "net.netfilter.nf_conntrack_dccp_",
    "net.netfilter.nf_conntrack_events",
    "net.netfilter.nf_conntrack_expect_max",
    "net.netfilter.nf_conntrack_frag6_",
    "net.netfilter.nf_conntrack_gre_",
    "net.netfilter.nf_conntrack_log_invalid",
    "net.netfilter.nf_conntrack_sctp_",
    "net.netfilter.nf_conntrack_timestamp",
    "net.netfilter.nf_hooks_lwtunnel",
    "net.netfilter.nf_log",
    "net.sctp.",
    "net.smc.",
    "net.sunrpc.",
    "net.unix.",
    // Limits only which `vrf` interfaces can be created.
    "net.vrf.strict_mode",
];

/// Names of the maximum number of tracked connections. Only the first network namespace can change
/// it (Linux v6.12, `net/netfilter/nf_conntrack_standalone.c`, `nf_conntrack_standalone_init_sysctl`).
pub(super) const CONNTRACK_MAX: [&str; 2] =
    ["net.netfilter.nf_conntrack_max", "net.nf_conntrack_max"];

/// Returns the effect of a sysctl. `key` is its name as `sysctl` prints it.
pub(super) fn effect(key: &str) -> SysctlEffect<'_> {
    if let Some((_, default)) = DEFAULTS.iter().find(|(name, _)| *name == key) {
        return SysctlEffect::Global {
            default: Some(default),
        };
    }
    if GLOBAL_PREFIXES.iter().any(|prefix| key.starts_with(prefix)) {
        return SysctlEffect::Global { default: None };
    }
    if CONNTRACK_MAX.contains(&key) {
        return SysctlEffect::SharedLimit;
    }
    if let Some(effect) = interface_effect(key) {
        return effect;
    }
    let mut prefixes = PREFIXES_WITHOUT_EFFECT.iter();
    if !key.starts_with("net.") || prefixes.any(|prefix| key.starts_with(prefix)) {
        return SysctlEffect::None;
    }
    SysctlEffect::Unknown
}

/// Returns the effect of a sysctl of an interface, or of `all` or `default`. `None` for others.
fn interface_effect(key: &str) -> Option<SysctlEffect<'_>> {
    let (family, rest) = key.strip_prefix("net.")?.split_once(".conf.")?;
    let (interface, last) = rest.rsplit_once('.')?;
    // Forwarding for `all` is the same as `ip_forward`, and writing it resets other sysctls.
    let is_ip_forward = interface == "all" && last == "forwarding" && family == "ipv4";
    // The plan decides about IPv6, as on a kernel without IPv6.
    let is_ignored_v6 = family == "ipv6" && last != "disable_ipv6" && last != "forwarding";
    if is_ip_forward || is_ignored_v6 || INTERFACE_WITHOUT_EFFECT.contains(&last) {
        return Some(SysctlEffect::None);
    }
    let (_, default) = INTERFACE.iter().find(|(name, _)| *name == last)?;
    let default = *default;
    Some(match interface {
        // The loopback interface exists from the beginning.
        "all" | "default" | "lo" => SysctlEffect::Global { default },
        name => SysctlEffect::Interface { name, default },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn effect_of_each_kind_of_sysctl_is_known() {
        let global = |default| SysctlEffect::Global { default };
        for (key, expected) in [
            ("net.ipv4.ip_forward", global(None)),
            ("net.ipv4.ip_forward_use_pmtu", global(Some("0"))),
            ("net.ipv4.conf.all.rp_filter", global(None)),
            ("net.ipv4.conf.all.forwarding", SysctlEffect::None),
            ("net.ipv4.conf.all.tag", SysctlEffect::None),
            ("net.ipv4.conf.default.medium_id", global(Some("0"))),
            (
                "net.ipv4.conf.eth0/100.rp_filter",
                SysctlEffect::Interface {
                    name: "eth0/100",
                    default: None,
                },
            ),
            ("net.ipv4.conf.lo.rp_filter", global(None)),
            ("net.ipv4.conf.eth0.new_in_linux_9", SysctlEffect::Unknown),
            ("net.ipv6.conf.eth0.accept_ra", SysctlEffect::None),
            ("net.netfilter.nf_conntrack_max", SysctlEffect::SharedLimit),
            ("net.netfilter.nf_conntrack_udp_timeout", global(Some("30"))),
            ("net.ipv4.tcp_rmem", SysctlEffect::None),
            ("net.mpls.platform_labels", SysctlEffect::Unknown),
            ("kernel.hostname", SysctlEffect::None),
        ] {
            assert_eq!(effect(key), expected, "{key}");
        }
    }
}
