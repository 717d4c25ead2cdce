//! The configuration of each component, as the lab document carries it. The
//! component's own module under `rules` knows what it means.

/// kube-proxy's: its version, mode and flags.
pub type KubeProxyConfig = crate::rules::kube_proxy::KubeProxy;

/// flannel's: its version, network and backend.
pub type FlannelConfig = crate::rules::flannel::Flannel;

/// Calico's: its pools and what it masquerades.
pub type CalicoConfig = crate::rules::calico::Calico;

/// ip-masq-agent's: the destinations it does not masquerade.
pub type IpMasqAgentConfig = crate::rules::ip_masq_agent::IpMasqAgent;

/// Docker's: its bridge and the subnet it masquerades.
pub type DockerConfig = crate::rules::docker::Docker;
