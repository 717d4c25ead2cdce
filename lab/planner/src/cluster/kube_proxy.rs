//! Reports fields of a kube-proxy that its version or mode does not support or ignores.

use super::balancer::IPVS_SCHEDULERS;
use super::problem::{Problem, place};
use svclab_rules::kube_proxy::history::{NFT_INTERFACES_BY_NAME, NFTABLES_MODE, PRIMARY_ADDRESS};
use svclab_rules::kube_proxy::{DetectLocalMode, KubeProxy, Mode, NodePortAddress, reserved_flag};
use svclab_scenario::lab::LabSpec;
use svclab_scenario::tree::PathSegment;

/// Checks the kube-proxy of all nodes, and those of single nodes.
pub(super) fn check_kube_proxies(spec: &LabSpec, problems: &mut Vec<Problem>) {
    if let Some(proxy) = &spec.kube_proxy {
        check_kube_proxy(proxy, &place!["spec", "kubeProxy"], problems);
    }
    for (name, node) in &spec.nodes {
        if let Some(proxy) = &node.kube_proxy {
            check_kube_proxy(proxy, &place!["spec", "nodes", name, "kubeProxy"], problems);
        }
    }
}

fn check_kube_proxy(proxy: &KubeProxy, path: &[PathSegment], problems: &mut Vec<Problem>) {
    check_args(proxy, path, problems);
    let version = proxy.version;
    let mut add_problem = |field: &str, message: String, help: String| {
        let mut problem = Problem::in_lab(place!["spec"], message).with_help(help);
        problem.location.path = path.iter().cloned().chain([field.into()]).collect();
        problems.push(problem);
    };
    for (field, name) in [
        ("bridgeInterface", &proxy.bridge_interface),
        ("interfaceNamePrefix", &proxy.interface_name_prefix),
    ] {
        if let Some(name) = name.as_ref().filter(|name| !is_interface_name(name)) {
            add_problem(
                field,
                format!("`{}` is not a valid interface name", name.escape_debug()),
                "use a name of up to 15 letters, digits, `-`, `_` and `.`".to_owned(),
            );
        }
    }
    let scheduler = proxy.ipvs_scheduler.as_str();
    if !scheduler.is_empty() && !IPVS_SCHEDULERS.contains(&scheduler) {
        add_problem(
            "ipvsScheduler",
            format!("IPVS has no scheduler `{scheduler}`"),
            format!("the schedulers are {}", IPVS_SCHEDULERS.join(", ")),
        );
    }
    if let Some(since) = proxy.lacks_dual_stack() {
        add_problem(
            "clusterCIDR",
            format!("kube-proxy {version} accepts only one network in clusterCIDR"),
            format!("use v1.{since} or newer, or the network of one address family"),
        );
    }
    let is_primary = |address: &NodePortAddress| *address == NodePortAddress::Primary;
    if proxy.node_port_addresses.iter().any(is_primary) {
        if let Some(since) = PRIMARY_ADDRESS
            .first_minor()
            .filter(|_| !version.has(&PRIMARY_ADDRESS))
        {
            add_problem(
                "nodePortAddresses",
                format!("kube-proxy {version} does not support `primary` in nodePortAddresses"),
                format!("use v1.{since} or newer, or the networks of these addresses"),
            );
        } else if proxy.node_port_addresses.len() > 1 {
            add_problem(
                "nodePortAddresses",
                "kube-proxy accepts either `primary` alone or networks".to_owned(),
                "remove `primary` or the networks".to_owned(),
            );
        }
    }
    if proxy.mode == Mode::Nftables {
        check_nftables_mode(proxy, &mut add_problem);
    }
}

/// Checks the fields for nftables mode. `add_problem` receives the field, a message and a help.
fn check_nftables_mode(proxy: &KubeProxy, add_problem: &mut impl FnMut(&str, String, String)) {
    let version = proxy.version;
    if let Some(since) = NFTABLES_MODE
        .first_minor()
        .filter(|_| !version.has(&NFTABLES_MODE))
    {
        add_problem(
            "mode",
            format!("kube-proxy {version} has no nftables mode"),
            format!("use v1.{since} or newer, or another mode"),
        );
        return;
    }
    let ipvs_fields = [
        ("bindLoadBalancerIPs", !proxy.bind_load_balancer_ips),
        ("ipvsScheduler", !proxy.ipvs_scheduler.is_empty()),
        ("tcpTimeout", !proxy.tcp_timeout.is_zero()),
        ("tcpFinTimeout", !proxy.tcp_fin_timeout.is_zero()),
        ("udpTimeout", !proxy.udp_timeout.is_zero()),
        ("strictARP", proxy.strict_arp),
    ];
    for (field, _) in ipvs_fields.iter().filter(|(_, is_set)| *is_set) {
        add_problem(
            field,
            format!("`{field}` applies to ipvs mode; nftables mode ignores it"),
            "remove it, or set it where `mode` is ipvs".to_owned(),
        );
    }
    // `iif` matches only an interface with exactly this name (nftables v1.0.6, `ifindex_type_parse`
    // in `src/meta.c`).
    if proxy.binary.is_none()
        && proxy.detect_local_mode == DetectLocalMode::InterfaceNamePrefix
        && !version.has(&NFT_INTERFACES_BY_NAME)
        && let Some(since) = NFT_INTERFACES_BY_NAME.first_minor()
    {
        let prefix = proxy.interface_name_prefix.as_deref().unwrap_or_default();
        add_problem(
            "detectLocalMode",
            format!(
                "kube-proxy {version} writes `iif {prefix}*` in nftables mode, which nft rejects"
            ),
            format!("use v1.{since} or newer, or detect local traffic by clusterCIDR"),
        );
    }
}

/// Reports flags in `args` that would contradict the fields of the lab.
fn check_args(proxy: &KubeProxy, path: &[PathSegment], problems: &mut Vec<Problem>) {
    for (index, argument) in proxy.args.iter().enumerate() {
        let Some(flag) = reserved_flag(argument) else {
            continue;
        };
        let path = path.iter().cloned().chain(["args".into(), index.into()]);
        let message = format!(
            "`args` cannot contain `--{}`: svclab sets the flag",
            flag.name
        );
        let help = match flag.field {
            Some(field) => format!("write `{field}` under `kubeProxy`"),
            None => "remove the flag".to_owned(),
        };
        problems.push(Problem::at_path(path.collect(), message).with_help(help));
    }
}

/// Whether the text is a valid interface name, or its prefix, that needs no quotes in a rule.
fn is_interface_name(name: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    (1..=15).contains(&name.len()) && !name.starts_with('-') && name.bytes().all(is_plain)
}
