//! Lists sysctls that decide what happens to packets, and that a plan does not set.

/// Sysctls with the default value of the kernel (Linux v6.12,
/// `Documentation/networking/ip-sysctl.rst` and `nf_conntrack-sysctl.rst`). The agent records their
/// values, and those of planned sysctls that differ from the plan.
pub const KERNEL_DEFAULTS: [(&str, &str); 10] = [
    ("net.ipv4.ip_default_ttl", "64"),
    ("net.ipv4.ip_local_reserved_ports", ""),
    ("net.netfilter.nf_conntrack_checksum", "1"),
    ("net.netfilter.nf_conntrack_tcp_be_liberal", "0"),
    ("net.netfilter.nf_conntrack_tcp_loose", "1"),
    ("net.netfilter.nf_conntrack_tcp_timeout_syn_recv", "60"),
    ("net.netfilter.nf_conntrack_tcp_timeout_syn_sent", "120"),
    (
        "net.netfilter.nf_conntrack_tcp_timeout_established",
        "432000",
    ),
    ("net.netfilter.nf_conntrack_udp_timeout", "30"),
    ("net.netfilter.nf_conntrack_udp_timeout_stream", "120"),
];
