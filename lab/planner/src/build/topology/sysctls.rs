//! Sets all sysctls that affect packets, because a new namespace copies some values from the host.

use crate::cluster::{Cluster, FABRIC, INTERNET, Node, Problem, place};
use svclab_diagnostic::suggest::did_you_mean;
use svclab_model::plan::{LinkKind, Namespace, Sysctl};
use svclab_rules::kube_proxy::{self, Mode};

use crate::build::topology::pod::is_calico_interface;

/// IPv4 sysctls of an interface, with the value that has no effect on packets. For sysctls that the
/// kernel combines from `all` and the interface (by maximum, OR or AND), both are 0, so that a lab
/// can set `all` only.
const V4_DEFAULTS: [(&str, &str); 14] = [
    ("rp_filter", "0"),
    ("accept_local", "0"),
    ("route_localnet", "0"),
    ("send_redirects", "0"),
    ("accept_redirects", "0"),
    ("secure_redirects", "0"),
    ("accept_source_route", "0"),
    ("arp_ignore", "0"),
    ("arp_announce", "0"),
    ("arp_filter", "0"),
    ("proxy_arp", "0"),
    ("src_valid_mark", "0"),
    ("log_martians", "0"),
    ("drop_unicast_in_l2_multicast", "0"),
];

/// IPv6 sysctls of an interface: only addresses of the plan, usable immediately.
const V6_DEFAULTS: [(&str, &str); 5] = [
    ("accept_dad", "0"),
    ("dad_transmits", "0"),
    ("accept_ra", "0"),
    ("autoconf", "0"),
    ("router_solicitations", "0"),
];

/// Rate limit of ICMP errors and mask of the limited types, by family. The mask `0` limits no type.
///
/// By default, the kernel sends one host six errors and then one per second, and all hosts about
/// fifty in a burst (Linux v6.12, `net/ipv4/icmp.c`, `icmpv4_xrlim_allow` and `icmp_global_allow`;
/// `net/ipv6/icmp.c`). A cluster has many sources, but a probe sends many connections from one.
/// With the limit, the split into refused and timed-out connections would depend on timing.
///
/// Errors of a router without a route stay limited, by sysctls that no namespace has
/// (`net/ipv4/route.c`, `ip_error`). `ICMPv6` has no type 0.
pub const ICMP_LIMITS: [(&str, &str); 2] = [
    ("net.ipv4.icmp_ratelimit", "net.ipv4.icmp_ratemask"),
    ("net.ipv6.icmp.ratelimit", "net.ipv6.icmp.ratemask"),
];

/// Oldest kernel version on which labs run.
const MIN_KERNEL: kube_proxy::ipvs::KernelVersion = (6, 1);

/// Sets all sysctls of a namespace: first the values of its role, last those of the lab.
pub fn set_sysctls(namespace: &mut Namespace, cluster: &Cluster, problems: &mut Vec<Problem>) {
    let node = cluster
        .nodes
        .iter()
        .find(|node| node.name == namespace.name);
    let is_forwarding = node.is_some() || [FABRIC, INTERNET].contains(&namespace.name.as_str());
    let v6 = cluster.has_ipv6();
    let links: Vec<String> = namespace
        .links
        .iter()
        .map(|link| link.name.clone())
        .collect();
    let mut sysctls = SysctlList {
        sysctls: Vec::new(),
    };
    let flag = |yes: bool| if yes { "1" } else { "0" };
    // Comes first, because writing this sysctl resets others.
    sysctls.set_global("net.ipv4.ip_forward", flag(is_forwarding), false);
    sysctls.set_global("net.ipv4.ip_nonlocal_bind", "0", false);
    sysctls.set_global("net.ipv4.fwmark_reflect", "0", false);
    sysctls.set_global("net.ipv4.ping_group_range", "0 0", false);
    // A bridge with multicast snooping joins a multicast group and sends a report at some time,
    // which would count as a packet in rules (Linux v6.12, `net/bridge/br_multicast.c`,
    // `br_ip4_multicast_join_snoopers`). Without multicast, neither the sysctl nor the report
    // exists.
    sysctls.set_global("net.ipv4.igmp_link_local_mcast_reports", "0", true);
    let is_set_by_lab =
        |key: &str| node.is_some_and(|node| node.sysctls.iter().any(|(own, _)| own == key));
    for (limit, mask) in ICMP_LIMITS {
        // A lab that sets a limit gets the default mask of the kernel.
        if !is_set_by_lab(limit) && (v6 || mask.starts_with("net.ipv4.")) {
            sysctls.set_global(mask, "0", false);
        }
    }
    for interface in ["all", "default"]
        .into_iter()
        .chain(links.iter().map(String::as_str))
    {
        for (key, value) in V4_DEFAULTS {
            sysctls.set_for_interface(
                4,
                interface,
                key,
                value,
                key == "drop_unicast_in_l2_multicast",
            );
        }
        // A kernel without IPv6 has none of these sysctls, and needs none.
        sysctls.set_for_interface(6, interface, "disable_ipv6", flag(!v6), !v6);
        if v6 {
            for (key, value) in V6_DEFAULTS {
                sysctls.set_for_interface(6, interface, key, value, false);
            }
        }
    }
    if v6 {
        sysctls.set_global("net.ipv6.conf.all.forwarding", flag(is_forwarding), false);
    }
    if namespace
        .links
        .iter()
        .any(|link| link.kind == LinkKind::Bridge)
    {
        set_bridge_sysctls(&mut sysctls, node.is_some(), namespace.iptables.is_some());
    }
    if !namespace.ipvs.is_empty() {
        // Rules can rewrite packets of IPVS only if IPVS keeps conntrack entries.
        let has_nat = cluster
            .balancers
            .iter()
            .any(|balancer| !balancer.spec.keep_source);
        sysctls.set_global("net.ipv4.vs.conntrack", flag(has_nat), false);
    }
    if let Some(node) = node {
        set_node_sysctls(&mut sysctls, node, &links);
        set_lab_sysctls(&mut sysctls, node, &links, problems);
    }
    namespace.sysctls = sysctls.sysctls;
}

/// Sets whether bridged packets traverse iptables rules. Nodes require this, as the kubelet does:
/// without it, no service is reachable from the same bridge. A bridge of the fabric does not.
fn set_bridge_sysctls(settings: &mut SysctlList, node: bool, rules: bool) {
    let (value, optional) = if node || rules {
        ("1", false)
    } else {
        ("0", true)
    };
    settings.set_global("net.bridge.bridge-nf-call-iptables", value, optional);
    settings.set_global("net.bridge.bridge-nf-call-ip6tables", value, optional);
    settings.set_global("net.bridge.bridge-nf-call-arptables", "0", true);
}

/// Sets the sysctls that components of a node set.
fn set_node_sysctls(settings: &mut SysctlList, node: &Node, links: &[String]) {
    let proxy = node.generated_proxy();
    if proxy.is_some_and(|proxy| proxy.mode == Mode::Iptables && proxy.localhost_node_ports) {
        // kubernetes v1.20.2, `pkg/proxy/iptables/proxier.go`, `NewProxier`: node ports serve on
        // 127.0.0.1.
        settings.set_for_interface(4, "all", "route_localnet", "1", false);
    }
    if let Some(proxy) = proxy.filter(|proxy| proxy.mode == Mode::Ipvs) {
        for setting in kube_proxy::ipvs::sysctls(proxy) {
            // Labs run on kernels newer than any that kube-proxy distinguishes.
            if setting.is_set_on(MIN_KERNEL) {
                settings.set_global(setting.key, setting.value, false);
            }
        }
    }
    for link in links.iter().filter(|link| is_calico_interface(link)) {
        // Felix, `dataplane/linux/endpoint_mgr.go`, `configureInterface`: the node replies to ARP
        // requests for the gateway of the pod.
        settings.set_for_interface(4, link, "proxy_arp", "1", false);
        settings.set_for_interface(4, link, "route_localnet", "1", false);
    }
}

/// Sets the sysctls of the lab for a node.
fn set_lab_sysctls(
    settings: &mut SysctlList,
    node: &Node,
    links: &[String],
    problems: &mut Vec<Problem>,
) {
    for (key, value) in &node.sysctls {
        let path = || place!["spec", "nodes", &node.name, "sysctls", key];
        if !key.starts_with("net.") {
            problems.push(
                Problem::in_lab(
                    path(),
                    format!("`{key}` is not a sysctl of a network namespace"),
                )
                .at_key()
                .with_help(
                    "use sysctls that start with `net.`: all others apply to the whole machine"
                        .to_owned(),
                ),
            );
            continue;
        }
        match parse_interface_key(key) {
            Some((_, dev, last)) if ["all", "default", "lo"].contains(&dev.as_str()) => {
                settings.set_global(key, value, false);
                // The kernel sets all interfaces (Linux v6.12, `net/ipv6/addrconf.c`,
                // `addrconf_disable_ipv6`). Those of the lab are created later, each with a value.
                for link in links
                    .iter()
                    .filter(|_| dev == "all" && last == "disable_ipv6")
                {
                    settings.set_for_interface(6, link, &last, value, false);
                }
            }
            Some((family, dev, last)) if links.contains(&dev) => {
                settings.set_for_interface(family, &dev, &last, value, false);
            }
            Some((_, dev, _)) => problems.push(
                Problem::in_lab(
                    path(),
                    format!("node `{}` has no interface `{dev}`", node.name),
                )
                .at_key()
                .with_help(
                    did_you_mean(&dev, links.iter().map(String::as_str))
                        .or_else(|| Some(format!("its interfaces are {}", links.join(", ")))),
                ),
            ),
            None => settings.set_global(key, value, is_default_without_sysctl(key, value)),
        }
    }
}

/// Whether a kernel without this sysctl behaves as with this value: kernels before 6.5 never
/// retransmit a SYN every second.
fn is_default_without_sysctl(key: &str, value: &str) -> bool {
    (key, value) == ("net.ipv4.tcp_syn_linear_timeouts", "0")
}

/// Splits `net.ipv4.conf.eth0.rp_filter` into family, interface and last part. A dot in the
/// interface name may be written as a dot or a slash. `None` for other keys.
fn parse_interface_key(key: &str) -> Option<(u8, String, String)> {
    let (family, rest) = key
        .strip_prefix("net.ipv4.conf.")
        .map(|rest| (4, rest))
        .or_else(|| key.strip_prefix("net.ipv6.conf.").map(|rest| (6, rest)))?;
    let (dev, last) = rest.rsplit_once('.')?;
    Some((family, dev.replace('/', "."), last.to_owned()))
}

struct SysctlList {
    sysctls: Vec<Sysctl>,
}

impl SysctlList {
    /// Sets a sysctl that belongs to no created interface.
    fn set_global(&mut self, key: &str, value: &str, optional: bool) {
        self.insert(Sysctl {
            key: key.to_owned(),
            value: value.to_owned(),
            link: None,
            optional,
        });
    }

    /// Sets a sysctl of an interface, of `all` or of `default`.
    fn set_for_interface(
        &mut self,
        family: u8,
        dev: &str,
        last: &str,
        value: &str,
        optional: bool,
    ) {
        self.insert(Sysctl {
            key: format!("net.ipv{family}.conf.{}.{last}", dev.replace('.', "/")),
            value: value.to_owned(),
            link: (!["all", "default"].contains(&dev)).then(|| dev.to_owned()),
            optional,
        });
    }

    /// Replaces an existing value in its position, so the last value applies.
    fn insert(&mut self, setting: Sysctl) {
        match self.sysctls.iter_mut().find(|made| made.key == setting.key) {
            Some(made) => *made = setting,
            None => self.sysctls.push(setting),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parse_interface_key_dot_or_slash_gives_same_name() {
        let expected =
            |family, dev: &str, last: &str| Some((family, dev.to_owned(), last.to_owned()));
        assert_eq!(
            parse_interface_key("net.ipv4.conf.flannel/1.rp_filter"),
            expected(4, "flannel.1", "rp_filter")
        );
        assert_eq!(
            parse_interface_key("net.ipv4.conf.flannel.1.rp_filter"),
            expected(4, "flannel.1", "rp_filter")
        );
        assert_eq!(
            parse_interface_key("net.ipv6.conf.eth0.accept_ra"),
            expected(6, "eth0", "accept_ra")
        );
        assert_eq!(parse_interface_key("net.ipv4.ip_forward"), None);
    }
}
