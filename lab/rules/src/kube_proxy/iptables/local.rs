//! Evaluates `detectLocalMode`: the match with which kube-proxy detects packets from local pods.
//! (kubernetes/kubernetes `pkg/proxy/util/iptables/traffic.go` v1.18.2 to v1.27.1,
//! `pkg/proxy/util/localdetector.go` v1.36; `cmd/kube-proxy/app/server_linux.go` selects the
//! detector.)

use ipnetwork::IpNetwork;

use crate::kube_proxy::history::{DETECT_LOCAL_BY_INTERFACE, DETECT_LOCAL_MODE};
use crate::kube_proxy::{DetectLocalMode, Family, KubeProxy, KubeProxyError, Node};

/// Property that identifies traffic from local pods.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::kube_proxy) enum LocalTraffic {
    /// Source network of the packet.
    Source(IpNetwork),
    /// Name of the input interface.
    Interface(String),
    /// Prefix of the name of the input interface.
    InterfacePrefix(String),
}

impl LocalTraffic {
    /// Returns the detector of `proxy` on `node`, or `None` if no network is configured.
    pub(crate) fn new(
        proxy: &KubeProxy,
        node: &Node<'_>,
        family: Family,
    ) -> Result<Option<Self>, KubeProxyError> {
        let mode = proxy.detect_local_mode;
        let required_change = match mode {
            DetectLocalMode::ClusterCIDR => None,
            DetectLocalMode::NodeCIDR => Some(&DETECT_LOCAL_MODE),
            DetectLocalMode::BridgeInterface | DetectLocalMode::InterfaceNamePrefix => {
                Some(&DETECT_LOCAL_BY_INTERFACE)
            }
        };
        if let Some(change) = required_change
            && !proxy.version.has(change)
            && let Some(since) = change.first_minor()
        {
            return Err(KubeProxyError::UnsupportedDetectLocalMode {
                version: proxy.version,
                mode,
                since,
            });
        }
        let missing_field = |field| KubeProxyError::MissingDetectLocalField { mode, field };
        Ok(match mode {
            DetectLocalMode::ClusterCIDR => {
                let cidrs = proxy.cluster_cidr.as_ref();
                cidrs
                    .and_then(|cidrs| cidrs.for_family(family))
                    .map(Self::Source)
            }
            DetectLocalMode::NodeCIDR => pod_cidr(node, family)?.map(Self::Source),
            DetectLocalMode::BridgeInterface => {
                let name = proxy.bridge_interface.as_ref();
                let name = name.ok_or_else(|| missing_field("bridgeInterface"))?;
                Some(Self::Interface(name.clone()))
            }
            DetectLocalMode::InterfaceNamePrefix => {
                let prefix = proxy.interface_name_prefix.as_ref();
                let prefix = prefix.ok_or_else(|| missing_field("interfaceNamePrefix"))?;
                Some(Self::InterfacePrefix(prefix.clone()))
            }
        })
    }

    /// Returns iptables arguments that match packets from local pods.
    pub(crate) fn local_match(&self) -> String {
        match self {
            Self::Source(network) => format!("-s {network}"),
            Self::Interface(name) => format!("-i {name}"),
            Self::InterfacePrefix(prefix) => format!("-i {prefix}+"),
        }
    }

    /// Returns iptables arguments that match packets from other sources.
    pub(crate) fn nonlocal_match(&self) -> String {
        format!("! {}", self.local_match())
    }
}

fn pod_cidr(node: &Node<'_>, family: Family) -> Result<Option<IpNetwork>, KubeProxyError> {
    if let Some(invalid) = &node.object.invalid {
        return Err(KubeProxyError::PodCidr {
            node: node.name.to_owned(),
            value: invalid.value.clone(),
        });
    }
    let mut cidrs = node.object.pod_cidrs.iter().copied();
    Ok(cidrs.find(|cidr| Family::from_ip(cidr.ip()) == family))
}
