//! Load balancers in a lab. The name of a cloud product is only a preset of these properties.

use std::borrow::Cow;
use std::fmt;
use std::net::IpAddr;
use std::time::Duration;

use indexmap::IndexMap;
use ipnetwork::IpNetwork;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::value::MapAccessDeserializer;
use serde::de::{self, Deserialize, Deserializer, MapAccess, Unexpected, Visitor};

/// Load balancer in front of a service of type `LoadBalancer`. Its addresses come from the
/// service's status, its ports from the service.
#[derive(Debug, Clone, PartialEq, Eq, serde::Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct LoadBalancerSpec {
    /// Service that it balances, in the form `NAMESPACE/NAME`.
    pub service: String,
    /// Whether a packet keeps its source address on the way to the backend; default `true`.
    #[serde(default = "default_true")]
    pub keep_source: bool,
    /// Whether the balancer never forwards a packet to the backend whose address is the packet's
    /// source; default `false`.
    #[serde(default)]
    pub skip_own_source: bool,
    /// Health checks of the backends. They use `healthCheckNodePort` if the traffic policy is
    /// `Local`, the node port otherwise. When absent, every backend counts as healthy.
    #[serde(default)]
    pub health_check: Option<HealthCheck>,
    /// Action on a packet if no backend is available; default `drop`.
    #[serde(default)]
    pub no_backend: NoBackend,
    /// Kind of backends: node ports or pods; default `nodePort`.
    #[serde(default)]
    pub target: BalancerTarget,
    /// Names of the nodes that are backends; all nodes when absent.
    #[serde(default)]
    pub backends: Option<Vec<String>>,
    /// IPVS name of the scheduler; default `rr`.
    #[serde(default = "round_robin")]
    pub scheduler: String,
    /// Set if the balancer is outside the cluster, so that packets from the cluster reach it with
    /// another source address.
    #[serde(default)]
    pub public: Option<Public>,
    /// Firewall for packets that the balancer forwards to its backends. When absent, every source
    /// is allowed.
    #[serde(default)]
    pub security_group: Option<SecurityGroup>,
    /// Makes this a layer 7 balancer, which connects to a backend itself. The balancer tries the
    /// next backend if none answers within this time, such as `4s`.
    #[serde(default, deserialize_with = "crate::decode::values::duration")]
    #[schemars(with = "Option<String>")]
    pub retry_after: Option<Duration>,
}

impl LoadBalancerSpec {
    /// Returns the balancer of a service with all defaults.
    #[must_use]
    pub fn new(service: String) -> Self {
        Self {
            service,
            keep_source: default_true(),
            skip_own_source: false,
            health_check: None,
            no_backend: NoBackend::default(),
            target: BalancerTarget::default(),
            backends: None,
            scheduler: round_robin(),
            public: None,
            security_group: None,
            retry_after: None,
        }
    }
}

/// Load balancers of a lab.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct LoadBalancers {
    /// Whether svclab makes the load balancers that the services need.
    pub is_auto: bool,
    /// Load balancers by name. For `auto`, those of the services of the case.
    pub by_name: IndexMap<String, LoadBalancerSpec>,
}

/// Value of `loadBalancers` for balancers that svclab makes.
const AUTO: &str = "auto";

impl<'de> Deserialize<'de> for LoadBalancers {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct BalancersVisitor;

        impl<'de> Visitor<'de> for BalancersVisitor {
            type Value = LoadBalancers;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("`auto`, or a map of load balancers by name")
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<LoadBalancers, E> {
                if text != AUTO {
                    return Err(E::invalid_value(Unexpected::Str(text), &self));
                }
                Ok(LoadBalancers {
                    is_auto: true,
                    by_name: IndexMap::new(),
                })
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<LoadBalancers, A::Error> {
                Ok(LoadBalancers {
                    is_auto: false,
                    by_name: IndexMap::deserialize(MapAccessDeserializer::new(map))?,
                })
            }
        }

        deserializer.deserialize_any(BalancersVisitor)
    }
}

impl JsonSchema for LoadBalancers {
    fn schema_name() -> Cow<'static, str> {
        "LoadBalancers".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let balancer = generator.subschema_for::<LoadBalancerSpec>();
        json_schema!({
            "description": "Load balancers by name, or `auto`.",
            "anyOf": [
                {"const": AUTO},
                {"type": "object", "additionalProperties": balancer},
            ],
        })
    }
}

fn default_true() -> bool {
    true
}

fn round_robin() -> String {
    "rr".to_owned()
}

/// Health checks of a balancer's backends.
#[derive(Debug, Clone, PartialEq, Eq, Default, serde::Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct HealthCheck {
    /// Interval between two health checks; default `1s`. The timeout of a check is five times the
    /// interval.
    #[serde(default, deserialize_with = "crate::decode::values::duration")]
    #[schemars(with = "Option<String>")]
    pub every: Option<Duration>,
}

/// Action of a balancer on a packet if no backend is available.
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
    /// Drops the packet, as cloud balancers do.
    #[default]
    Drop,
    /// Answers with an ICMP error, as IPVS does.
    Refuse,
}

/// Kind of a balancer's backends.
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
pub enum BalancerTarget {
    /// Service's node port on each backend node.
    #[default]
    NodePort,
    /// Endpoints of the service.
    Pods,
}

/// Balancer behind a source NAT of the cluster.
#[derive(Debug, Clone, PartialEq, Eq, serde::Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Public {
    /// Source address of packets from nodes and pods after the translation.
    #[schemars(with = "String")]
    pub egress: IpAddr,
}

/// Firewall in front of a balancer's backends.
#[derive(Debug, Clone, PartialEq, Eq, serde::Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct SecurityGroup {
    /// Subnets whose packets may pass. All other packets are dropped.
    #[serde(deserialize_with = "crate::decode::values::subnets")]
    #[schemars(with = "Vec<String>")]
    pub allow: Vec<IpNetwork>,
}
