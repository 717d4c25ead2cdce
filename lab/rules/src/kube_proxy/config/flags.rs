//! Converts the kube-proxy configuration of a lab to command-line flags of a real kube-proxy.
//!
//! The flags are those of `cmd/kube-proxy/app/server.go` (v1.20.2; `options.go` in later versions).

use std::net::SocketAddr;

use super::{DetectLocalMode, KubeProxy, Mode};
use crate::kube_proxy::version::change::VersionRange;

/// nftables mode also requires its feature gate. (`NFTablesProxyMode` in
/// `pkg/features/kube_features.go`, v1.30.5, v1.31.0.)
pub(super) const NFTABLES_GATED: VersionRange = VersionRange::until(30);

/// Returns the flags that make a kube-proxy on `node` behave as `proxy` configures. `api` is the
/// address of the API server.
#[must_use]
pub fn flags(proxy: &KubeProxy, node: &str, api: SocketAddr) -> Vec<String> {
    let mut arguments = vec![
        format!("--master=http://{api}"),
        format!("--hostname-override={node}"),
        format!("--proxy-mode={}", proxy.mode),
        // Inside a namespace, root cannot set the kernel's maximum number of conntrack entries.
        "--conntrack-max-per-core=0".to_owned(),
        // kube-proxy writes each change at once and does no periodic sync.
        "--iptables-min-sync-period=1ms".to_owned(),
        "--iptables-sync-period=1h".to_owned(),
        "--ipvs-min-sync-period=1ms".to_owned(),
        "--ipvs-sync-period=1h".to_owned(),
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
