//! What a lab says of a node besides its Node object.

use std::borrow::Cow;
use std::fmt;
use std::time::Duration;

use indexmap::IndexMap;
use ipnetwork::IpNetwork;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::value::MapAccessDeserializer;
use serde::de::{self, Deserialize, Deserializer, MapAccess, Visitor};

use super::components::KubeProxyConfig;
use super::values::SysctlValue;
use svclab_rules::flannel::EarlierFlannel;

/// What a Node object does not say.
#[derive(Debug, Clone, PartialEq, Default, serde::Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct NodeSpec {
    /// The subnet the node's own address lies in, `172.18.1.0/24`.
    #[serde(default, deserialize_with = "super::values::subnet_option")]
    #[schemars(with = "Option<String>")]
    pub subnet: Option<IpNetwork>,
    /// Sysctls by their dotted names, set on top of a node's own:
    /// `net.ipv4.conf.all.rp_filter: 1`.
    #[serde(default)]
    pub sysctls: IndexMap<String, SysctlValue>,
    /// What an earlier life of the machine left on it.
    #[serde(default)]
    pub leftovers: Leftovers,
    /// What somebody did on it by hand, after all components had written.
    #[serde(default)]
    pub by_hand: ByHand,
    /// A dump of the node, such as `scripts/collect-node` writes, that takes the place of
    /// what the lab's components would make of it: a tarball, a directory or a file,
    /// by its path from the lab's.
    #[serde(default)]
    pub dump: Option<String>,
    /// What of the dump cannot be built is left out; without it the lab is refused.
    #[serde(default)]
    pub lenient: bool,
    /// This node's kube-proxy, in place of the lab's.
    #[serde(default)]
    pub kube_proxy: Option<KubeProxyConfig>,
}

/// What somebody did on a machine by hand.
#[derive(Debug, Clone, PartialEq, Eq, Default, serde::Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ByHand {
    /// Lines as `iptables-restore --noflush` reads them, tables included; `-F
    /// CHAIN` empties a chain.
    #[serde(default)]
    pub iptables: Vec<String>,
    /// Programs with their arguments, one after the other, once all rules were
    /// written, those of a real kube-proxy too: `ipset del KUBE-CLUSTER-IP
    /// 10.96.0.10,tcp:80`. They are this machine's, in the node's namespace.
    #[serde(default)]
    pub commands: Vec<String>,
    /// Time that each command may take: `2m`. 30 s by default, at most 10 min.
    #[serde(default, deserialize_with = "super::values::unbounded")]
    #[schemars(with = "Option<String>")]
    pub time_limit: Option<Duration>,
    /// Number of bytes that each command may print on standard output and standard error
    /// together. 1048576 (1 MiB) by default, at most 67108864 (64 MiB).
    #[serde(default)]
    #[schemars(range(min = 1, max = 67_108_864))]
    pub output_limit: Option<u64>,
    /// Number of processes and threads that the commands may have at once. 256 by
    /// default, at most 4096.
    #[serde(default)]
    #[schemars(range(min = 1, max = 4096))]
    pub process_limit: Option<u64>,
}

impl ByHand {
    /// The longest time limit of a command.
    pub const MAX_TIME: Duration = Duration::from_mins(10);
    /// The highest limit of a command's output, in bytes.
    pub const MAX_OUTPUT: u64 = 64 << 20;
    /// The highest limit of a command's processes.
    pub const MAX_PROCESSES: u64 = 4096;
}

/// What an earlier life of a machine left on it.
#[derive(Debug, Clone, PartialEq, Eq, Default, serde::Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Leftovers {
    /// Lines as `iptables-save` prints them, tables included.
    #[serde(default)]
    pub iptables: Vec<String>,
    /// Lines as `ipset save` prints them.
    #[serde(default)]
    pub ipset: Vec<String>,
    /// The rules of an earlier flannel that was not torn down: `none` (the
    /// default), or the network and the node's subnet it was configured with.
    #[serde(default)]
    pub flannel: FlannelLeftover,
}

/// The rules an earlier flannel left.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum FlannelLeftover {
    /// None.
    #[default]
    None,
    /// Those of a flannel with another network or subnet.
    Of(EarlierFlannel),
}

impl<'de> Deserialize<'de> for FlannelLeftover {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct LeftoverVisitor;

        impl<'de> Visitor<'de> for LeftoverVisitor {
            type Value = FlannelLeftover;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("`none` or {version, network, lease}")
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<FlannelLeftover, E> {
                match text {
                    "none" => Ok(FlannelLeftover::None),
                    _ => Err(E::invalid_value(de::Unexpected::Str(text), &self)),
                }
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<FlannelLeftover, A::Error> {
                EarlierFlannel::deserialize(MapAccessDeserializer::new(map))
                    .map(FlannelLeftover::Of)
            }
        }

        deserializer.deserialize_any(LeftoverVisitor)
    }
}

impl JsonSchema for FlannelLeftover {
    fn schema_name() -> Cow<'static, str> {
        "FlannelLeftover".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let lease = generator.subschema_for::<EarlierFlannel>();
        json_schema!({"anyOf": [{"const": "none"}, lease]})
    }
}
