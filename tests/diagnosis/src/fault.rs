//! A concrete fault: the change that breaks the healthy lab, and the objects that a correct answer
//! names.

use serde::Serialize;
use serde_json::Value;

use crate::args::Command;

/// Fault of a kind, drawn for one healthy lab.
#[derive(Debug, Clone)]
pub(crate) struct Fault {
    /// Description in one line.
    pub(crate) summary: String,
    pub(crate) change: Change,
    /// Objects at fault. An answer is correct if it names one of them.
    pub(crate) culprits: Vec<Culprit>,
    pub(crate) shown: Shown,
}

impl Fault {
    /// States that no dump of a node contains the fault.
    pub(crate) fn outside_dumps(mut self) -> Self {
        self.shown = Shown::Nowhere;
        self
    }

    /// States that only a comparison with a healthy dump shows the fault: the state by itself may be
    /// right.
    pub(crate) fn only_in_comparison(mut self) -> Self {
        self.shown = Shown::InComparison;
        self
    }

    /// States that kube-proxy wrote the object, so that its restart is near the fault.
    pub(crate) fn written_by_proxy(mut self) -> Self {
        for culprit in &mut self.culprits {
            culprit.near.extend(alternatives(&[["restart kube-proxy"]]));
        }
        self
    }

    /// Adds words that name the fault in a comparison of dumps.
    pub(crate) fn in_rules(mut self, all: &[&str]) -> Self {
        for culprit in &mut self.culprits {
            culprit
                .in_rules
                .extend(all.iter().map(|words| vec![(*words).to_owned()]));
        }
        self
    }
}

/// Dumps that show a fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Shown {
    /// The dump of a node.
    InDump,
    /// Only a healthy and a broken dump together.
    InComparison,
    Nowhere,
}

impl Shown {
    /// Whether a command can find the fault. Without the fault in a dump, equal dumps are a correct
    /// answer.
    pub(crate) fn can_be_found_by(self, command: Command) -> bool {
        match self {
            Self::InDump => true,
            Self::InComparison => !matches!(command, Command::Replay | Command::WhyDump),
            Self::Nowhere => !matches!(command, Command::Diff | Command::WhyDump),
        }
    }
}

/// Change that breaks the healthy lab.
#[derive(Debug, Clone)]
pub(crate) enum Change {
    /// Commands that run on a node, after all components have written their rules.
    Commands { node: String, commands: Vec<String> },
    /// Patches of the lab and its objects.
    Patches(Vec<Value>),
}

impl Change {
    /// Node with the fault; `None` if the fault is in the objects or in the lab's fields.
    pub(crate) fn node(&self) -> Option<&str> {
        match self {
            Self::Commands { node, .. } => Some(node),
            Self::Patches(_) => None,
        }
    }
}

/// Object at fault, and the words by which an answer names it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct Culprit {
    pub(crate) what: What,
    /// Node of the object, if it is on one node.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) node: Option<String>,
    /// Alternatives: a statement names the object if it contains all words of one of them.
    pub(crate) exact: Vec<Vec<String>>,
    /// Further alternatives in a comparison of dumps, which show the rules and not the field.
    pub(crate) in_rules: Vec<Vec<String>>,
    /// Alternatives: a statement points near the object if it contains all words of one of them.
    pub(crate) near: Vec<Vec<String>>,
}

/// Type of an object at fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) enum What {
    Rule,
    Policy,
    SetEntry,
    Route,
    RoutingRule,
    Neighbour,
    FdbEntry,
    Link,
    Address,
    Sysctl,
    Qdisc,
    Xfrm,
    Connection,
    VirtualServer,
    Field,
}

/// Words for something that should exist and does not.
const ABSENCE: [&str; 5] = ["missing", "lacks", "without", "absent", "no rule"];

fn alternatives<const N: usize>(all: &[[&str; N]]) -> Vec<Vec<String>> {
    all.iter()
        .map(|words| words.iter().map(|word| (*word).to_owned()).collect())
        .collect()
}

impl Culprit {
    fn new(what: What, node: Option<&str>) -> Self {
        Self {
            what,
            node: node.map(str::to_owned),
            exact: Vec::new(),
            in_rules: Vec::new(),
            near: Vec::new(),
        }
    }

    /// Rule of a chain, with texts of which each identifies the rule within the chain.
    pub(crate) fn rule(node: &str, chain: &str, texts: &[&str]) -> Self {
        let mut made = Self::new(What::Rule, Some(node));
        for text in texts {
            // `why` prints addresses without the length of a whole address.
            let text = text.strip_suffix("/32").unwrap_or(text);
            made.exact.extend(alternatives(&[[chain, text]]));
        }
        made.near = alternatives(&[[chain]]);
        made
    }

    /// Rule that was deleted. A statement that something of the chain is missing names the rule.
    pub(crate) fn missing_rule(node: &str, chain: &str, texts: &[&str]) -> Self {
        let mut made = Self::rule(node, chain, texts);
        for word in ABSENCE {
            made.exact.extend(alternatives(&[[chain, word]]));
        }
        made.near
            .extend(texts.iter().map(|text| vec![(*text).to_owned()]));
        made
    }

    /// Policy of a chain.
    pub(crate) fn policy(node: &str, chain: &str) -> Self {
        let mut made = Self::new(What::Policy, Some(node));
        made.exact = alternatives(&[[chain, "policy"]]);
        made.near = alternatives(&[[chain]]);
        made
    }

    /// Entry of an ipset, or element of a set or map of nftables.
    pub(crate) fn entry(node: &str, set: &str, key: &str) -> Self {
        let mut made = Self::new(What::SetEntry, Some(node));
        made.exact = alternatives(&[[set, key]]);
        made.near = alternatives(&[[set], [key]]);
        made
    }

    /// Route to a destination.
    pub(crate) fn route(node: &str, destination: &str) -> Self {
        let mut made = Self::new(What::Route, Some(node));
        let bare = destination.strip_suffix("/32").unwrap_or(destination);
        made.exact = alternatives(&[[bare, "route*"], [bare, "blackhole"], [bare, "prohibit"]]);
        if destination == "default" {
            made.exact.extend(alternatives(&[["0.0.0.0/0", "route*"]]));
        }
        made.near = alternatives(&[[bare], ["no route"], ["route to"]]);
        made
    }

    /// Routing rule, by its selector and its action.
    pub(crate) fn routing_rule(node: &str, selector: &str, action: &str) -> Self {
        let mut made = Self::new(What::RoutingRule, Some(node));
        made.exact = alternatives(&[[selector, action], [selector, "routing rule*"]]);
        made.near = alternatives(&[["routing rule*"], ["routing table"]]);
        made
    }

    /// Neighbour of an interface.
    pub(crate) fn neighbour(node: &str, address: &str, device: &str) -> Self {
        let mut made = Self::new(What::Neighbour, Some(node));
        made.exact = alternatives(&[[address, "neigh*"], [address, "hardware address"]]);
        made.near = alternatives(&[["neigh*"], [address], [device]]);
        made
    }

    /// Entry of a forwarding database, by one of the texts that identify it.
    pub(crate) fn fdb(node: &str, device: &str, texts: &[&str]) -> Self {
        let mut made = Self::new(What::FdbEntry, Some(node));
        for text in texts {
            made.exact.extend(alternatives(&[[device, text]]));
        }
        made.exact.extend(alternatives(&[
            [device, "fdb"],
            [device, "forwarding database"],
        ]));
        made.near = alternatives(&[[device]]);
        made
    }

    /// Property of an interface, by one of its names.
    pub(crate) fn link(node: &str, device: &str, properties: &[&str]) -> Self {
        let mut made = Self::new(What::Link, Some(node));
        for property in properties {
            made.exact.extend(alternatives(&[[device, property]]));
        }
        made.near = alternatives(&[[device]]);
        made
    }

    /// Address of an interface.
    pub(crate) fn address(node: &str, address: &str, device: &str) -> Self {
        let mut made = Self::new(What::Address, Some(node));
        made.exact = alternatives(&[[address, device]]);
        made.near = alternatives(&[[address]]);
        made
    }

    /// Sysctl by its dotted name.
    pub(crate) fn sysctl(node: &str, name: &str) -> Self {
        let mut made = Self::new(What::Sysctl, Some(node));
        made.exact = alternatives(&[[name]]);
        let last = name.rsplit('.').next().unwrap_or(name);
        made.near = alternatives(&[[format!("*{last}").as_str()]]);
        made
    }

    /// Queueing discipline of an interface.
    pub(crate) fn qdisc(node: &str, device: &str, name: &str) -> Self {
        let mut made = Self::new(What::Qdisc, Some(node));
        made.exact = alternatives(&[[device, "qdisc*"], [device, name]]);
        made.near = alternatives(&[["qdisc*"], [device]]);
        made
    }

    /// Policy of `xfrm` for packets to an address.
    pub(crate) fn xfrm(node: &str, destination: &str) -> Self {
        let mut made = Self::new(What::Xfrm, Some(node));
        made.exact = alternatives(&[[destination, "xfrm*"], [destination, "ipsec*"]]);
        made.near = alternatives(&[["xfrm*"], ["ipsec*"]]);
        made
    }

    /// Conntrack entries of connections to a service address that rewrite to a stale address.
    pub(crate) fn connection(node: &str, service: &str, stale: &str) -> Self {
        let mut made = Self::new(What::Connection, Some(node));
        made.exact = alternatives(&[
            [stale, "conntrack entry"],
            [stale, "stale"],
            // Their deletion names the address before the translation.
            [service, "delete the conntrack entries"],
        ]);
        made.near = alternatives(&[[stale]]);
        made
    }

    /// Virtual server of IPVS, and its property or real server.
    pub(crate) fn virtual_server(node: &str, server: &str, detail: &str) -> Self {
        let mut made = Self::new(What::VirtualServer, Some(node));
        made.exact = alternatives(&[[server, detail]]);
        made.near = alternatives(&[[server], [detail]]);
        made
    }

    /// Field of an object or component, by its owner (`default/db`, `kube-proxy`) and its names.
    pub(crate) fn field(owner: &str, names: &[&str]) -> Self {
        let mut made = Self::new(What::Field, None);
        for name in names {
            // Last part of `spec.kubeProxy.clusterCIDR`.
            let path = format!("*{name}");
            made.exact
                .extend(alternatives(&[[owner, name], ["declared", &path]]));
        }
        made.in_rules = alternatives(&[[owner]]);
        made.near = alternatives(&[[owner]]);
        made.near
            .extend(names.iter().map(|name| vec![(*name).to_owned()]));
        made
    }

    /// Adds words that name the object exactly.
    pub(crate) fn or_exact<const N: usize>(mut self, words: [&str; N]) -> Self {
        self.exact.extend(alternatives(&[words]));
        self
    }

    /// Adds words that point near the object.
    pub(crate) fn or_near<const N: usize>(mut self, words: [&str; N]) -> Self {
        self.near.extend(alternatives(&[words]));
        self
    }
}
