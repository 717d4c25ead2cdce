//! What a lab says of a load balancer. A cloud's name is a choice of these
//! properties, never more.

use std::net::IpAddr;
use std::time::Duration;

use ipnetwork::IpNetwork;
use schemars::JsonSchema;

/// A load balancer in front of a service of type `LoadBalancer`; its addresses
/// are those in the service's status, its ports the service's.
#[derive(Debug, Clone, PartialEq, Eq, serde::Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct LoadBalancerSpec {
    /// The service, as `NAMESPACE/NAME`.
    pub service: String,
    /// Whether a packet keeps its source on the way to the backend; it does by
    /// default.
    #[serde(default = "yes")]
    pub keep_source: bool,
    /// Whether the balancer never forwards a packet to the backend whose address
    /// is the packet's source; it may by default.
    #[serde(default)]
    pub skip_own_source: bool,
    /// Asks its backends whether they are well: `healthCheckNodePort` where the
    /// traffic policy is `Local`, the node port otherwise. Every backend counts
    /// as well without it.
    #[serde(default)]
    pub health_check: Option<HealthCheck>,
    /// What becomes of a packet when no backend is left.
    #[serde(default)]
    pub no_backend: NoBackend,
    /// What its backends are: the nodes' ports (the default) or the pods.
    #[serde(default)]
    pub target: Target,
    /// The nodes that are its backends; all of them when absent.
    #[serde(default)]
    pub backends: Option<Vec<String>>,
    /// Its scheduler, by IPVS's name; `rr` by default.
    #[serde(default = "round_robin")]
    pub scheduler: String,
    /// It stands outside, and what leaves the cluster for it gets another source.
    #[serde(default)]
    pub public: Option<Public>,
    /// Who may reach its backends through it; everybody when absent.
    #[serde(default)]
    pub security_group: Option<SecurityGroup>,
    /// It speaks layer 7: it connects to a backend itself, and tries the next
    /// when none answers within this time, such as `4s`.
    #[serde(default, deserialize_with = "super::values::duration")]
    #[schemars(with = "Option<String>")]
    pub retry_after: Option<Duration>,
}

fn yes() -> bool {
    true
}

fn round_robin() -> String {
    "rr".to_owned()
}

/// How a balancer asks its backends whether they are well.
#[derive(Debug, Clone, PartialEq, Eq, Default, serde::Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct HealthCheck {
    /// How long between two questions; `1s` by default. An answer is waited for
    /// five times as long.
    #[serde(default, deserialize_with = "super::values::duration")]
    #[schemars(with = "Option<String>")]
    pub every: Option<Duration>,
}

/// What a balancer does with a packet when no backend is left.
#[derive(
    Debug,
    Clone,
    Copy,
    PartialEq,
    Eq,
    Hash,
    Default,
    serde::Deserialize,
    serde::Serialize,
    JsonSchema,
)]
#[serde(rename_all = "lowercase")]
pub enum NoBackend {
    /// Drops it, as clouds do.
    #[default]
    Drop,
    /// Answers with an ICMP error, as IPVS does.
    Refuse,
}

/// What a balancer forwards to.
#[derive(
    Debug,
    Clone,
    Copy,
    PartialEq,
    Eq,
    Hash,
    Default,
    serde::Deserialize,
    serde::Serialize,
    JsonSchema,
)]
#[serde(rename_all = "camelCase")]
pub enum Target {
    /// The service's node port on each backend node.
    #[default]
    NodePort,
    /// The service's endpoints themselves.
    Pods,
}

/// A balancer on the far side of address translation.
#[derive(Debug, Clone, PartialEq, Eq, serde::Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Public {
    /// The source that packets of nodes and pods get on their way out.
    #[schemars(with = "String")]
    pub egress: IpAddr,
}

/// A firewall in front of a balancer's backends.
#[derive(Debug, Clone, PartialEq, Eq, serde::Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct SecurityGroup {
    /// The sources that may pass; nobody else's packets do.
    #[serde(deserialize_with = "super::values::subnets")]
    #[schemars(with = "Vec<String>")]
    pub allow: Vec<IpNetwork>,
}
