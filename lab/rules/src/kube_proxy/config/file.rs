//! Writes the configuration file of a real kube-proxy, for settings that have no flag.
//!
//! In nftables mode up to v1.30, no flag sets `masqueradeAll` and the sync periods. In no version
//! does a flag set the masquerade bit: the flags are those of the other modes
//! (`cmd/kube-proxy/app/server.go` and `server_linux.go`, v1.30.5; `options.go`, v1.36.2). With a
//! file, kube-proxy ignores all flags except those of logging, `--hostname-override` and `--master`
//! (`Complete`, the same files).

use serde_json::{Value, json};

use super::flags::NFTABLES_GATED;
use super::{DetectLocalMode, KubeProxy, Mode};
use crate::kube_proxy::version::change::VersionRange;

/// Flags of iptables mode have no effect on nftables mode.
const FLAGS_IGNORED: VersionRange = VersionRange::until(30);

/// Default masquerade bit of nftables mode.
const DEFAULT_BIT: u8 = 14;

/// Whether `proxy` has a setting that affects the rules and has no flag.
#[must_use]
pub fn is_needed(proxy: &KubeProxy) -> bool {
    proxy.mode == Mode::Nftables
        && (proxy.masquerade_bit != DEFAULT_BIT
            || proxy.masquerade_all && proxy.version.has(&FLAGS_IGNORED))
}

/// Returns the configuration file that makes a kube-proxy behave as `proxy` configures, or `None`
/// if flags are sufficient.
#[must_use]
pub fn config_file(proxy: &KubeProxy) -> Option<String> {
    let is_file_preferred =
        proxy.args.is_empty() && proxy.mode == Mode::Nftables && proxy.version.has(&FLAGS_IGNORED);
    if !is_file_preferred && !is_needed(proxy) {
        return None;
    }
    let mut file = json!({
        "apiVersion": "kubeproxy.config.k8s.io/v1alpha1",
        "kind": "KubeProxyConfiguration",
        "mode": proxy.mode.to_string(),
        "conntrack": {"maxPerCore": 0, "tcpBeLiberal": proxy.tcp_be_liberal},
        "nftables": {
            "masqueradeAll": proxy.masquerade_all,
            "masqueradeBit": proxy.masquerade_bit,
            "minSyncPeriod": "1ms",
            "syncPeriod": "1h",
        },
    });
    if let Some(cidrs) = &proxy.cluster_cidr {
        file["clusterCIDR"] = String::from(cidrs.clone()).into();
    }
    if !proxy.node_port_addresses.is_empty() {
        let addresses = proxy.node_port_addresses.iter().copied();
        file["nodePortAddresses"] = addresses
            .map(|each| Value::from(String::from(each)))
            .collect();
    }
    if proxy.detect_local_mode != DetectLocalMode::ClusterCIDR {
        file["detectLocalMode"] = format!("{:?}", proxy.detect_local_mode).into();
    }
    for (field, value) in [
        ("bridgeInterface", &proxy.bridge_interface),
        ("interfaceNamePrefix", &proxy.interface_name_prefix),
    ] {
        if let Some(value) = value {
            file["detectLocal"][field] = value.as_str().into();
        }
    }
    if proxy.version.has(&NFTABLES_GATED) {
        file["featureGates"] = json!({"NFTablesProxyMode": true});
    }
    Some(file.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn proxy(version: &str, mode: Mode) -> KubeProxy {
        KubeProxy {
            mode,
            masquerade_all: true,
            ..KubeProxy::new(version.parse().unwrap())
        }
    }

    #[test]
    fn config_file_contains_settings_without_flags() {
        let old = proxy("v1.30.5", Mode::Nftables);
        let file: Value = serde_json::from_str(&config_file(&old).unwrap()).unwrap();
        assert_eq!(file["nftables"]["masqueradeAll"], true);
        assert_eq!(file["featureGates"]["NFTablesProxyMode"], true);
        assert!(is_needed(&old));
        let plain = KubeProxy {
            masquerade_all: false,
            args: vec!["--v=4".to_owned()],
            ..old
        };
        assert!(!is_needed(&plain) && config_file(&plain).is_none());
        for flagged in [
            proxy("v1.31", Mode::Nftables),
            proxy("v1.36.2", Mode::Nftables),
            proxy("v1.30.5", Mode::Iptables),
            proxy("v1.20.2", Mode::Ipvs),
        ] {
            assert_eq!(config_file(&flagged), None, "{flagged:?}");
        }
        let bit = KubeProxy {
            masquerade_bit: 15,
            bridge_interface: Some("cni0".to_owned()),
            detect_local_mode: DetectLocalMode::BridgeInterface,
            ..proxy("v1.36.2", Mode::Nftables)
        };
        let file: Value = serde_json::from_str(&config_file(&bit).unwrap()).unwrap();
        assert_eq!(file["nftables"]["masqueradeBit"], 15);
        assert_eq!(file["detectLocal"]["bridgeInterface"], "cni0");
        assert_eq!(file["detectLocalMode"], "BridgeInterface");
        assert_eq!(file.get("featureGates"), None);
    }
}
