//! The configuration of each component, as the lab document carries it. The
//! component's own module under `rules` knows what it means.

/// kube-proxy's: its version, mode and flags.
pub type KubeProxyConfig = serde_json::Value;

/// flannel's: its version, network and backend.
pub type FlannelConfig = serde_json::Value;

/// Calico's: its pools and what it masquerades.
pub type CalicoConfig = serde_json::Value;

/// ip-masq-agent's: the destinations it does not masquerade.
pub type IpMasqAgentConfig = serde_json::Value;

/// Docker's: its bridge and the subnet it masquerades.
pub type DockerConfig = serde_json::Value;
