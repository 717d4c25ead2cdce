//! Exactly what to apply, namespace by namespace, and what to probe: the
//! contract between the pure half of svclab and an agent. The same plan runs on
//! the host, in a guest, or on another machine over a pipe.

pub mod delta;
mod forget;
pub mod health;
mod link;
mod probe;
mod real_proxy;
mod routing;
mod size;
mod step;
mod typed;

use ipnetwork::IpNetwork;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

pub use delta::Delta;
pub use forget::{AnsweredBy, Forget};
pub use health::HealthCheck;
pub use link::{Link, LinkKind, Mac};
pub use probe::{Count, Patience, Probe, Protocol, Server, ServerKind, Target};
pub use real_proxy::{API, Heard, Mode, NFTABLES_TABLE, RealProxy};
pub use routing::{Lookup, PolicyRule, Route, RouteKind, Spread, Way};
pub use step::{Step, Told, probes_by_stage};
pub use svclab_ruleset::ipvs::VirtualServer;
pub use typed::{CommandLimits, Typed};

/// A cluster's network as one kernel is to build it, and what to try in it.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Plan {
    /// The case this plan is for, as a user names it; for messages.
    pub case: String,
    /// The namespaces, each with everything that is in it.
    pub namespaces: Vec<Namespace>,
    /// The servers that answer, each in a namespace.
    pub servers: Vec<Server>,
    /// What to try once everything stands, in this order.
    pub probes: Vec<Probe>,
    /// What balancers ask of their backends. Every question has had its first
    /// answer before anything is tried.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub health: Vec<HealthCheck>,
    /// Real kube-proxies, which have written their rules before anything is tried.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub proxies: Vec<RealProxy>,
    /// The Kubernetes objects that they are told of.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub objects: Vec<serde_json::Value>,
    /// What changes afterwards, one step after the other, and what is tried then.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub steps: Vec<Step>,
    /// What is typed on nodes when all that was written, in this order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub typed: Vec<Typed>,
    /// What to look at while probing.
    pub watch: Watch,
}

/// One network namespace and everything in it.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Namespace {
    /// Unique in the plan: `node-1`, `pod/default/client`, `host/laptop`.
    pub name: String,
    /// Interfaces in the order they are made. `lo` is always there and up.
    pub links: Vec<Link>,
    /// Addresses of `lo` besides its own.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub loopback: Vec<IpNetwork>,
    /// Routes of the main table unless one says otherwise.
    pub routes: Vec<Route>,
    /// Routes of several ways, added after the others.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub spread: Vec<Spread>,
    /// Networks of interfaces' addresses to which the kernel's own routes are taken away:
    /// each with its interface.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unrouted: Vec<(IpNetwork, String)>,
    /// Rules by which packets look for their route, besides the kernel's own three.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub policy: Vec<PolicyRule>,
    /// Static neighbours, so that no verdict hangs on ARP.
    pub neighbours: Vec<Neighbour>,
    /// Forwarding entries of vxlan devices.
    pub forwarding: Vec<Forwarding>,
    /// Kernel settings under `net.`, applied in this order: those that name an
    /// interface after it was made, all others before.
    pub sysctls: Vec<Sysctl>,
    /// Input for `ipset restore`; empty when there is none.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub ipset: String,
    /// Virtual servers of IPVS.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ipvs: Vec<VirtualServer>,
    /// How long IPVS remembers connections; as the kernel has it without this.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ipvs_timeouts: Option<svclab_ruleset::ipvs::Timeouts>,
    /// The names of the nfacct objects that rules count with, made before them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub accounting: Vec<String>,
    /// Rules, loaded after the sets they name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub iptables: Option<Iptables>,
    /// Rules of the other iptables, where both are in use.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub beside: Option<Iptables>,
    /// Input for `nft -f`; empty when there is none.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub nft: String,
}

/// Which iptables writes the rules. The two live side by side in a kernel.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize, schemars::JsonSchema,
)]
#[serde(rename_all = "lowercase")]
pub enum Backend {
    /// `iptables-nft-restore`: `nf_tables` in the kernel.
    #[default]
    Nft,
    /// `iptables-legacy-restore`: `x_tables` in the kernel.
    Legacy,
}

impl Backend {
    /// The word in the programs' names: `nft` or `legacy`.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Nft => "nft",
            Self::Legacy => "legacy",
        }
    }
}

/// Input for `iptables-restore` and `ip6tables-restore`.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Iptables {
    /// Which of the two iptables loads it.
    pub backend: Backend,
    /// IPv4 rules; empty when there are none.
    pub v4: String,
    /// IPv6 rules; empty when there are none.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub v6: String,
}

/// A neighbour that needs no resolving.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Neighbour {
    /// The neighbour's address.
    pub address: IpAddr,
    /// Its link-layer address.
    pub mac: Mac,
    /// The interface, by name.
    pub dev: String,
}

/// Where a vxlan device sends frames for a link-layer address.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Forwarding {
    /// The vxlan device, by name.
    pub dev: String,
    /// Frames for this link-layer address …
    pub mac: Mac,
    /// … go to this tunnel end.
    pub to: IpAddr,
}

/// One kernel setting.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sysctl {
    /// Dotted, as `sysctl` prints it; always under `net.`. An interface whose
    /// name holds a dot is written with a slash, as `sysctl` does.
    pub key: String,
    /// The value.
    pub value: String,
    /// The interface it speaks of: it is written after that one was made.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub link: Option<String>,
    /// A kernel that lacks the setting (an older one, or one whose module is
    /// not loaded) behaves as if it were set so.
    #[serde(default)]
    pub optional: bool,
}

/// What the agent looks at while the probes run.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Watch {
    /// Namespaces whose every packet is kept.
    pub packets: Vec<String>,
    /// Namespaces whose netfilter, conntrack and IPVS are asked what they do with each
    /// packet, and whose kernel is asked which it drops.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub trace: Vec<String>,
    /// Namespaces whose kernel counters (`/proc/net/netstat`, `/proc/net/snmp`)
    /// are compared before and after.
    pub counters: Vec<String>,
    /// Names of kernel counters that expectations ask for, by namespace. A kernel without
    /// one of them is an error, because a misspelt counter would never grow.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub named_counters: BTreeMap<String, BTreeSet<String>>,
    /// Namespaces whose rules are read back, with their counters, afterwards.
    pub rules: Vec<String>,
    /// Namespaces whose sets are read back afterwards.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub sets: Vec<String>,
    /// Namespaces whose virtual servers are read back afterwards.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ipvs: Vec<String>,
    /// Namespaces whose interfaces are read back afterwards.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub links: Vec<String>,
}

impl Watch {
    /// Everything there is to see of a plan.
    #[must_use]
    pub fn everything(plan: &Plan) -> Self {
        let names: Vec<String> = plan.namespaces.iter().map(|ns| ns.name.clone()).collect();
        Self {
            packets: names.clone(),
            trace: names.clone(),
            counters: names.clone(),
            named_counters: BTreeMap::new(),
            rules: names.clone(),
            sets: names.clone(),
            ipvs: names.clone(),
            links: names,
        }
    }
}

impl Namespace {
    /// Whether it asks anything of IPVS.
    #[must_use]
    pub fn uses_ipvs(&self) -> bool {
        !self.ipvs.is_empty() || self.ipvs_timeouts.is_some()
    }
}

impl Plan {
    /// The namespace of that name.
    #[must_use]
    pub fn namespace(&self, name: &str) -> Option<&Namespace> {
        self.namespaces.iter().find(|ns| ns.name == name)
    }

    /// After which step a probe is tried, or spoken on that is open across it, from 0;
    /// none of one that is over before the first.
    #[must_use]
    pub fn step_of(&self, probe: &str) -> Option<usize> {
        self.steps.iter().position(|step| {
            let mut own = step.probes.iter().chain(&step.open);
            own.any(|own| own.name == probe)
        })
    }
}
