//! How kube-proxy tells that a packet comes from a pod of the cluster.
//! (kubernetes/kubernetes `pkg/proxy/util/iptables/traffic.go` v1.18.2 to
//! v1.27.1, `pkg/proxy/util/localdetector.go` v1.36; which one runs is decided
//! in `cmd/kube-proxy/app/server_linux.go`.)

use ipnetwork::IpNetwork;

use crate::rules::kube_proxy::history::{DETECT_LOCAL_BY_INTERFACE, DETECT_LOCAL_MODE};
use crate::rules::kube_proxy::{DetectLocalMode, Family, KubeProxy, KubeProxyError, Node};

/// Words that match traffic from local pods.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::rules::kube_proxy) struct LocalTraffic {
    matching: String,
}

impl LocalTraffic {
    /// The detector of `proxy` on `node`; none if it has nothing to go by.
    pub fn of(
        proxy: &KubeProxy,
        node: &Node<'_>,
        family: Family,
    ) -> Result<Option<Self>, KubeProxyError> {
        let mode = proxy.detect_local_mode;
        let known = match mode {
            DetectLocalMode::ClusterCIDR => None,
            DetectLocalMode::NodeCIDR => Some(&DETECT_LOCAL_MODE),
            DetectLocalMode::BridgeInterface | DetectLocalMode::InterfaceNamePrefix => {
                Some(&DETECT_LOCAL_BY_INTERFACE)
            }
        };
        if let Some(change) = known
            && !proxy.version.has(change)
            && let Some(since) = change.came()
        {
            return Err(KubeProxyError::DetectLocalUnknown {
                version: proxy.version,
                mode,
                since,
            });
        }
        let needs = |field| KubeProxyError::DetectLocal { mode, field };
        let matching = match mode {
            DetectLocalMode::ClusterCIDR => {
                let cidrs = proxy.cluster_cidr.as_ref();
                cidrs.and_then(|cidrs| cidrs.of(family)).map(source)
            }
            DetectLocalMode::NodeCIDR => pod_cidr(node, family)?.map(source),
            DetectLocalMode::BridgeInterface => {
                let name = proxy.bridge_interface.as_ref();
                Some(interface(name.ok_or_else(|| needs("bridgeInterface"))?))
            }
            DetectLocalMode::InterfaceNamePrefix => {
                let prefix = proxy.interface_name_prefix.as_ref();
                let prefix = prefix.ok_or_else(|| needs("interfaceNamePrefix"))?;
                Some(interface(&format!("{prefix}+")))
            }
        };
        Ok(matching.map(|matching| Self { matching }))
    }

    /// Words that match what comes from a local pod.
    pub fn if_local(&self) -> String {
        self.matching.clone()
    }

    /// Words that match what does not.
    pub fn if_not_local(&self) -> String {
        format!("! {}", self.matching)
    }
}

fn source(network: IpNetwork) -> String {
    format!("-s {network}")
}

fn interface(name: &str) -> String {
    format!("-i {name}")
}

fn pod_cidr(node: &Node<'_>, family: Family) -> Result<Option<IpNetwork>, KubeProxyError> {
    let Some(spec) = node.object.spec.as_ref() else {
        return Ok(None);
    };
    let listed = spec.pod_cidrs.as_deref().unwrap_or(&[]);
    for text in spec.pod_cidr.iter().chain(listed) {
        let cidr: IpNetwork = text.parse().map_err(|_| KubeProxyError::PodCidr {
            node: node.name.to_owned(),
            value: text.clone(),
        })?;
        if Family::of(cidr.ip()) == family {
            return Ok(Some(cidr));
        }
    }
    Ok(None)
}
