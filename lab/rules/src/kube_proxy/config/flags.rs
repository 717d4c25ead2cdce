//! Converts the kube-proxy configuration of a lab to command-line flags of a real kube-proxy.
//!
//! The flags are those of `cmd/kube-proxy/app/server.go` (v1.20.2; `options.go` in later versions).

use std::net::SocketAddr;

use super::{DetectLocalMode, KubeProxy, Mode};
use crate::kube_proxy::version::change::VersionRange;

/// nftables mode also requires its feature gate. (`NFTablesProxyMode` in
/// `pkg/features/kube_features.go`, v1.30.5, v1.31.0.)
pub(super) const NFTABLES_GATED: VersionRange = VersionRange::until(30);

/// Flags that svclab writes itself, or that select another source of the configuration. Each has the
/// field of `kubeProxy` that sets the flag; `None` if no field does.
const RESERVED_FLAGS: [(&str, Option<&str>); 19] = [
    ("master", None),
    ("kubeconfig", None),
    ("config", None),
    ("hostname-override", None),
    ("proxy-mode", Some("mode")),
    ("iptables-masquerade-bit", Some("masqueradeBit")),
    ("cluster-cidr", Some("clusterCIDR")),
    ("masquerade-all", Some("masqueradeAll")),
    ("nodeport-addresses", Some("nodePortAddresses")),
    ("ipvs-scheduler", Some("ipvsScheduler")),
    ("ipvs-strict-arp", Some("strictARP")),
    ("detect-local-mode", Some("detectLocalMode")),
    ("pod-bridge-interface", Some("bridgeInterface")),
    ("pod-interface-name-prefix", Some("interfaceNamePrefix")),
    ("ipvs-tcp-timeout", Some("tcpTimeout")),
    ("ipvs-tcpfin-timeout", Some("tcpFinTimeout")),
    ("ipvs-udp-timeout", Some("udpTimeout")),
    ("iptables-localhost-nodeports", Some("localhostNodePorts")),
    ("conntrack-tcp-be-liberal", Some("tcpBeLiberal")),
];

/// Flag that `args` must not contain.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReservedFlag {
    /// Name without dashes: `proxy-mode`.
    pub name: &'static str,
    /// Field of `kubeProxy` that sets the flag. `None` if no field does.
    pub field: Option<&'static str>,
}

/// Returns the flag of an argument, `--flag=value` or `--flag`, if `args` must not contain the flag.
/// kube-proxy accepts `_` for `-` in names of flags (k8s.io/component-base v0.36.0,
/// `cli/flag/flags.go`, `WordSepNormalizeFunc`).
#[must_use]
pub fn reserved_flag(argument: &str) -> Option<ReservedFlag> {
    let flag = argument.strip_prefix("--")?;
    let name = flag.split('=').next()?.replace('_', "-");
    let (name, field) = RESERVED_FLAGS
        .into_iter()
        .find(|(known, _)| *known == name)?;
    Some(ReservedFlag { name, field })
}

/// Returns the flags that make a kube-proxy on `node` behave as `proxy` configures. `api` is the
/// address of the API server.
#[must_use]
pub fn flags(proxy: &KubeProxy, node: &str, api: SocketAddr) -> Vec<String> {
    let mut arguments = vec![
        format!("--master=http://{api}"),
        format!("--hostname-override={node}"),
        // Inside a namespace, root cannot set the kernel's maximum number of conntrack entries.
        "--conntrack-max-per-core=0".to_owned(),
        // kube-proxy writes each change at once and does no periodic sync.
        "--iptables-min-sync-period=1ms".to_owned(),
        "--iptables-sync-period=1h".to_owned(),
        "--ipvs-min-sync-period=1ms".to_owned(),
        "--ipvs-sync-period=1h".to_owned(),
    ];
    arguments.extend(settings(proxy));
    arguments
}

/// Returns the flags for the settings of a kube-proxy, without those for its node and its API
/// server.
#[must_use]
pub fn settings(proxy: &KubeProxy) -> Vec<String> {
    let mut arguments = vec![
        format!("--proxy-mode={}", proxy.mode),
        format!("--iptables-masquerade-bit={}", proxy.masquerade_bit),
    ];
    if let Some(cidrs) = &proxy.cluster_cidr {
        arguments.push(format!("--cluster-cidr={}", String::from(cidrs.clone())));
    }
    if proxy.masquerade_all {
        arguments.push("--masquerade-all".to_owned());
    }
    if !proxy.node_port_addresses.is_empty() {
        let addresses = proxy.node_port_addresses.iter().copied().map(String::from);
        let addresses: Vec<String> = addresses.collect();
        arguments.push(format!("--nodeport-addresses={}", addresses.join(",")));
    }
    if !proxy.ipvs_scheduler.is_empty() {
        arguments.push(format!("--ipvs-scheduler={}", proxy.ipvs_scheduler));
    }
    if proxy.strict_arp {
        arguments.push("--ipvs-strict-arp".to_owned());
    }
    let local = match proxy.detect_local_mode {
        DetectLocalMode::ClusterCIDR => None,
        DetectLocalMode::NodeCIDR => Some("NodeCIDR"),
        DetectLocalMode::BridgeInterface => Some("BridgeInterface"),
        DetectLocalMode::InterfaceNamePrefix => Some("InterfaceNamePrefix"),
    };
    let texts = [
        ("detect-local-mode", local.map(str::to_owned)),
        ("pod-bridge-interface", proxy.bridge_interface.clone()),
        (
            "pod-interface-name-prefix",
            proxy.interface_name_prefix.clone(),
        ),
    ];
    let times = [
        ("ipvs-tcp-timeout", proxy.tcp_timeout),
        ("ipvs-tcpfin-timeout", proxy.tcp_fin_timeout),
        ("ipvs-udp-timeout", proxy.udp_timeout),
    ]
    .map(|(flag, time)| {
        (
            flag,
            (time.seconds() > 0).then(|| format!("{}s", time.seconds())),
        )
    });
    for (flag, value) in texts.into_iter().chain(times) {
        arguments.extend(value.map(|value| format!("--{flag}={value}")));
    }
    if !proxy.localhost_node_ports {
        arguments.push("--iptables-localhost-nodeports=false".to_owned());
    }
    if proxy.tcp_be_liberal {
        arguments.push("--conntrack-tcp-be-liberal".to_owned());
    }
    if proxy.mode == Mode::Nftables && proxy.version.has(&NFTABLES_GATED) {
        arguments.push("--feature-gates=NFTablesProxyMode=true".to_owned());
    }
    arguments.extend(proxy.args.iter().cloned());
    arguments
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reserved_flag_every_spelling_is_found() {
        for argument in ["--proxy-mode=ipvs", "--proxy-mode", "--proxy_mode=ipvs"] {
            let expected = ReservedFlag {
                name: "proxy-mode",
                field: Some("mode"),
            };
            assert_eq!(reserved_flag(argument), Some(expected), "{argument}");
        }
        for argument in [
            "ipvs",
            "--v=2",
            "--proxy-mode-x=1",
            "-v",
            "--iptables-sync-period=5s",
        ] {
            assert_eq!(reserved_flag(argument), None, "{argument}");
        }
    }
}
