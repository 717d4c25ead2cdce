//! Configuration types of the components in a lab document. The crate `svclab_rules` interprets
//! them.

/// kube-proxy configuration: version, mode and flags.
pub type KubeProxyConfig = svclab_rules::kube_proxy::KubeProxy;

/// flannel configuration: version, network and backend.
pub type FlannelConfig = svclab_rules::flannel::Flannel;

/// Calico configuration: pools and masquerading.
pub type CalicoConfig = svclab_rules::calico::Calico;

/// ip-masq-agent configuration: destinations that are not masqueraded.
pub type IpMasqAgentConfig = svclab_rules::ip_masq_agent::IpMasqAgent;

/// Docker configuration: bridge and masqueraded subnet.
pub type DockerConfig = svclab_rules::docker::Docker;
