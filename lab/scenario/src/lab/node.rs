//! Node properties of a lab that Node objects do not define.

use std::borrow::Cow;
use std::fmt;
use std::time::Duration;

use indexmap::IndexMap;
use ipnetwork::IpNetwork;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::value::MapAccessDeserializer;
use serde::de::{self, Deserialize, Deserializer, MapAccess, Visitor};

use crate::decode::values::SysctlValue;
use crate::lab::components::KubeProxyConfig;
use svclab_rules::flannel::EarlierFlannel;

/// Node properties that a Node object does not define.
#[derive(Debug, Clone, PartialEq, Default, serde::Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct NodeSpec {
    /// Subnet of the node's own address, such as `172.18.1.0/24`.
    #[serde(default, deserialize_with = "crate::decode::values::subnet_option")]
    #[schemars(with = "Option<String>")]
    pub subnet: Option<IpNetwork>,
    /// Sysctls by dotted name, such as `net.ipv4.conf.all.rp_filter: 1`. They override those that
    /// svclab sets on every node.
    #[serde(default)]
    pub sysctls: IndexMap<String, SysctlValue>,
    /// State that earlier software left on the machine.
    #[serde(default)]
    pub leftovers: Leftovers,
    /// Manual changes on the node, applied after all components have written their rules.
    #[serde(default)]
    pub by_hand: ByHand,
    /// Dump of the node, for example from `svclab collect-node`, which replaces the state that the
    /// lab's components would create. The value is the path of an archive, directory or file,
    /// relative to the lab's file.
    #[serde(default)]
    pub dump: Option<String>,
    /// Whether parts of the dump that cannot be built are omitted; by default, such a dump is an
    /// error.
    #[serde(default)]
    pub lenient: bool,
    /// kube-proxy of this node, instead of the lab's.
    #[serde(default)]
    pub kube_proxy: Option<KubeProxyConfig>,
}

/// Manual changes on a machine.
#[derive(Debug, Clone, PartialEq, Eq, Default, serde::Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ByHand {
    /// Lines in the format of `iptables-restore --noflush`, including table lines. `-F CHAIN`
    /// empties a chain, and `-X CHAIN` deletes an empty chain.
    #[serde(default)]
    pub iptables: Vec<String>,
    /// Commands with arguments, run one after the other in the node's namespace: `ipset del
    /// KUBE-CLUSTER-IP 10.96.0.10,tcp:80`. They run after all rules are written, including those of
    /// a real kube-proxy. The programs are those of the machine that runs the lab.
    #[serde(default)]
    pub commands: Vec<String>,
    /// Time limit of each command, such as `2m`; default 30 s, at most 10 min.
    #[serde(default, deserialize_with = "crate::decode::values::unbounded")]
    #[schemars(with = "Option<String>")]
    pub time_limit: Option<Duration>,
    /// Maximum number of bytes that each command prints on standard output and standard error
    /// together; default 1048576 (1 MiB), at most 67108864 (64 MiB).
    #[serde(default)]
    #[schemars(range(min = 1, max = 67_108_864))]
    pub output_limit: Option<u64>,
    /// Maximum number of simultaneous processes and threads of the commands; default 256, at most
    /// 4096.
    #[serde(default)]
    #[schemars(range(min = 1, max = 4096))]
    pub process_limit: Option<u64>,
}

impl ByHand {
    /// Maximum time limit of a command.
    pub const MAX_TIME_LIMIT: Duration = Duration::from_mins(10);
    /// Maximum output limit of a command, in bytes.
    pub const MAX_OUTPUT: u64 = 64 << 20;
    /// Maximum process limit of the commands.
    pub const MAX_PROCESSES: u64 = 4096;
}

/// State that earlier software left on a machine.
#[derive(Debug, Clone, PartialEq, Eq, Default, serde::Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Leftovers {
    /// Lines in the format of `iptables-save`, including table lines.
    #[serde(default)]
    pub iptables: Vec<String>,
    /// Lines in the format of `ipset save`.
    #[serde(default)]
    pub ipset: Vec<String>,
    /// Rules of an earlier flannel that was not removed: `none` (the default), or the network and
    /// the node's subnet of its configuration.
    #[serde(default)]
    pub flannel: FlannelLeftover,
}

/// Rules that an earlier flannel left.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum FlannelLeftover {
    /// No rules of an earlier flannel.
    #[default]
    None,
    /// Rules of a flannel with another network or subnet.
    Earlier(EarlierFlannel),
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
                    .map(FlannelLeftover::Earlier)
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
