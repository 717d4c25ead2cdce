//! One thing that an operator would change, in a lab or in what its nodes hold.

use ipnetwork::{IpNetwork, Ipv4Network};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use svclab_model::plan::{Backend, PolicyRule, Route};

/// How the chains begin that components write, and write again.
const COMPONENTS: [&str; 5] = ["KUBE-", "IP-MASQ-AGENT", "cali", "FLANNEL-", "DOCKER"];

/// How the devices are called whose routes a component writes.
const OVERLAYS: [&str; 6] = ["flannel", "cali", "vxlan.calico", "tunl", "cni", "cbr"];

/// One thing that is changed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(
    tag = "what",
    rename_all = "camelCase",
    rename_all_fields = "camelCase"
)]
pub enum Change {
    /// A traffic policy of a service becomes `Cluster`.
    Policy {
        /// The service, `NAMESPACE/NAME`.
        service: String,
        /// `externalTrafficPolicy` or `internalTrafficPolicy`.
        field: PolicyField,
    },
    /// kube-proxy learns the pods' networks.
    ClusterCidr {
        /// The networks, as `--cluster-cidr` takes them.
        networks: String,
    },
    /// kube-proxy masquerades all that goes to cluster IPs.
    MasqueradeAll,
    /// The underlay lets packets pass whose source is not an address of the node that sends
    /// them.
    ForeignSources,
    /// What was done on a node by hand is undone.
    ByHand {
        /// The node.
        node: String,
    },
    /// kube-proxy starts anew on a node whose rules were dumped, and writes its own again.
    Restart {
        /// The node.
        node: String,
    },
    /// A balancer forwards from an address of its own.
    OwnSource {
        /// The balancer.
        balancer: String,
    },
    /// A balancer never forwards a packet to the backend that it came from.
    SkipOwnSource {
        /// The balancer.
        balancer: String,
    },
    /// A balancer asks its backends whether they are well.
    HealthCheck {
        /// The balancer.
        balancer: String,
    },
    /// A balancer's security group goes.
    SecurityGroup {
        /// The balancer.
        balancer: String,
    },
    /// A node becomes one of a balancer's backends.
    AnotherBackend {
        /// The balancer.
        balancer: String,
        /// The node.
        node: String,
    },
    /// A node is none of a balancer's backends any more.
    Backend {
        /// The balancer.
        balancer: String,
        /// The node.
        node: String,
    },
    /// Settings of the kernel get another value.
    Sysctl {
        /// Where: nodes, pods, machines outside.
        namespaces: Vec<String>,
        /// Their names: `net.ipv4.conf.all.rp_filter`.
        keys: Vec<String>,
        /// The value.
        value: String,
    },
    /// A rule of iptables goes.
    Rule {
        /// Where it is.
        namespace: String,
        /// Which iptables it is of, and whether it is of IPv6.
        #[schemars(with = "String")]
        backend: Backend,
        /// Whether it is of `ip6tables`.
        v6: bool,
        /// Its table.
        table: String,
        /// Its chain.
        chain: String,
        /// Its number in the chain, from 1.
        number: u32,
        /// Its text from its first match on.
        rule: String,
    },
    /// An entry of a set goes.
    Entry {
        /// Where the set is.
        namespace: String,
        /// The set.
        set: String,
        /// The entry.
        entry: String,
    },
    /// A rule of nftables goes.
    NativeRule {
        /// Where it is.
        namespace: String,
        /// Its table with its family: `ip kube-proxy`.
        table: String,
        /// Its chain.
        chain: String,
        /// Its number in the chain, from 1.
        number: u32,
        /// Its text.
        rule: String,
    },
    /// ip-masq-agent masquerades what goes to a network, too.
    Masqueraded {
        /// The network.
        #[schemars(with = "String")]
        network: Ipv4Network,
    },
    /// A route goes.
    Route {
        /// Where it is.
        namespace: String,
        /// The route.
        #[schemars(with = "serde_json::Value")]
        route: Box<Route>,
    },
    /// A route comes.
    NewRoute {
        /// Where it is to be.
        namespace: String,
        /// The route.
        #[schemars(with = "serde_json::Value")]
        route: Box<Route>,
    },
    /// A rule that says in which table packets look for their route goes.
    RoutingRule {
        /// Where it is.
        namespace: String,
        /// The rule.
        #[schemars(with = "serde_json::Value")]
        rule: Box<PolicyRule>,
    },
    /// An entry of a set or map of nftables goes.
    Element {
        /// Where it is.
        namespace: String,
        /// Its table with its family: `ip kube-proxy`.
        table: String,
        /// The set or map.
        set: String,
        /// The key.
        key: String,
    },
}

/// A field of a service that says which endpoints serve.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum PolicyField {
    /// `externalTrafficPolicy`.
    ExternalTrafficPolicy,
    /// `internalTrafficPolicy`.
    InternalTrafficPolicy,
}

/// What kind of thing is changed.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "camelCase")]
pub enum Level {
    /// What an operator says: a flag, a field, a setting, a rule of somebody's own. It
    /// stays as it is changed.
    Said,
    /// What a component writes of that: a rule or entry of kube-proxy's. It shows where a
    /// connection is decided; kube-proxy writes it again.
    Written,
}

/// Why a change cannot be made there.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Unchangeable {
    /// It is as it would become.
    #[error("it is so already")]
    Already,
    /// There is no such thing in the plan.
    #[error("{0} has no such thing")]
    Absent(String),
    /// What a namespace holds cannot be read.
    #[error("what {0} holds cannot be read")]
    Unreadable(String),
}

impl Change {
    /// Whether an operator says it, or a component writes it.
    #[must_use]
    pub fn level(&self) -> Level {
        let written = match self {
            Self::Rule { chain, rule, .. } => {
                let own = |chain: &str| COMPONENTS.iter().any(|own| chain.starts_with(own));
                own(chain) || rule.rsplit_once("-j ").is_some_and(|(_, to)| own(to))
            }
            Self::Entry { set, .. } => set.starts_with("KUBE-") || set.starts_with("cali"),
            Self::Element { table, .. } | Self::NativeRule { table, .. } => {
                table.ends_with(" kube-proxy")
            }
            Self::Route { route, .. } | Self::NewRoute { route, .. } => {
                OVERLAYS.iter().any(|own| route.dev.starts_with(own))
            }
            _ => false,
        };
        if written { Level::Written } else { Level::Said }
    }

    /// Whether kube-proxy writes its rules again on that node for it.
    #[must_use]
    pub fn restarts(&self, on: &str) -> bool {
        match self {
            Self::Policy { .. } | Self::ClusterCidr { .. } | Self::MasqueradeAll => true,
            Self::Restart { node } => node == on,
            _ => false,
        }
    }

    /// Whether rules are written again for it as a whole, of which few may matter.
    #[must_use]
    pub const fn writes_much(&self) -> bool {
        matches!(self, Self::Restart { .. } | Self::ByHand { .. })
    }
}

/// The networks of pods, as `--cluster-cidr` takes them: the smallest of each family that
/// holds all that nodes say.
pub(super) fn networks(all: impl Iterator<Item = IpNetwork>) -> Option<String> {
    let mut families: [Option<IpNetwork>; 2] = [None, None];
    for network in all {
        let held = &mut families[usize::from(network.is_ipv6())];
        *held = Some(match *held {
            None => network,
            Some(held) => around(held, network),
        });
    }
    let told: Vec<String> = families
        .into_iter()
        .flatten()
        .map(|network| network.to_string())
        .collect();
    (!told.is_empty()).then(|| told.join(","))
}

/// The smallest network that holds both, of one family.
fn around(one: IpNetwork, other: IpNetwork) -> IpNetwork {
    let mut prefix = one.prefix().min(other.prefix());
    loop {
        let made = IpNetwork::new(one.ip(), prefix)
            .and_then(|made| IpNetwork::new(made.network(), prefix));
        match made {
            Ok(made) if made.contains(other.ip()) || prefix == 0 => return made,
            Ok(_) => prefix -= 1,
            Err(_) => return one,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_smallest_network_that_holds_all_is_told_by_family() {
        let told = |all: &[&str]| {
            let all = all.iter().map(|text| text.parse().expect("a network"));
            networks(all)
        };
        let one = told(&["10.244.1.0/24", "10.244.2.0/24"]);
        assert_eq!(one.as_deref(), Some("10.244.0.0/22"));
        let one = told(&["10.244.1.0/24"]);
        assert_eq!(one.as_deref(), Some("10.244.1.0/24"));
        let both = told(&[
            "10.0.0.0/24",
            "fd00:1::/64",
            "192.168.0.0/16",
            "fd00:2::/64",
        ]);
        assert_eq!(both.as_deref(), Some("0.0.0.0/0,fd00::/30"));
        assert_eq!(told(&[]), None);
    }

    #[test]
    fn what_components_write_is_told_from_what_an_operator_says() {
        let rule = |chain: &str, rule: &str| {
            Change::Rule {
                namespace: "node-1".to_owned(),
                backend: Backend::Nft,
                v6: false,
                table: "nat".to_owned(),
                chain: chain.to_owned(),
                number: 1,
                rule: rule.to_owned(),
            }
            .level()
        };
        assert_eq!(rule("KUBE-SERVICES", "-j RETURN"), Level::Written);
        assert_eq!(
            rule("OUTPUT", "-m comment -j KUBE-SERVICES"),
            Level::Written
        );
        assert_eq!(rule("POSTROUTING", "-s 10.0.0.0/8 -j RETURN"), Level::Said);
        assert_eq!(Change::MasqueradeAll.level(), Level::Said);
    }
}
