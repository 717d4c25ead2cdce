//! The configuration of each component, as the lab document carries it. The
//! component's own module under `rules` knows what it means.

/// kube-proxy's: its version, mode and flags.
pub type KubeProxyConfig = svclab_rules::kube_proxy::KubeProxy;

/// flannel's: its version, network and backend.
pub type FlannelConfig = svclab_rules::flannel::Flannel;

/// Calico's: its pools and what it masquerades.
pub type CalicoConfig = svclab_rules::calico::Calico;

/// ip-masq-agent's: the destinations it does not masquerade.
pub type IpMasqAgentConfig = svclab_rules::ip_masq_agent::IpMasqAgent;

/// Docker's: its bridge and the subnet it masquerades.
pub type DockerConfig = svclab_rules::docker::Docker;
