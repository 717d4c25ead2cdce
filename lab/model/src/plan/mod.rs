//! Defines the plan of a lab: the contents of each namespace and the probes to run.
//!
//! The planner builds a plan without I/O, and an agent applies it. The same plan runs on the host,
//! in a guest, or on another machine over a pipe.

mod forget;
pub mod health;
mod link;
mod probe;
mod real_proxy;
mod size;
mod stage;
mod typed;

use ipnetwork::IpNetwork;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::net::IpAddr;

pub use crate::backend::Backend;
pub use crate::bridge_port::PortSettings;
pub use crate::routing::{
    MultipathRoute, NextHop, Route, RouteKind, RouteSettings, RoutingAction, RoutingRule,
};
pub use forget::{ConntrackFilter, ReplySource};
pub use health::HealthCheck;
pub use link::{ETHERNET_MTU, IPV6_MIN_MTU, Link, LinkKind};
pub use probe::{
    Count, Lifetime, MAX_DATAGRAM_BYTES, MAX_STREAM_BYTES, MaxWait, Probe, ProbeProtocol, Server,
    ServerKind, Target,
};
pub use real_proxy::{API_ADDRESS, Mode, NFTABLES_TABLE, RealProxy, SyncTarget};

pub use stage::{ApiUpdate, Delta, Stage, Step, delta};
pub use svclab_ruleset::Mac;
use svclab_ruleset::input::Input;
use svclab_ruleset::ipset::saved::Sets;
use svclab_ruleset::iptables::script::IptablesScript;
pub use svclab_ruleset::ipvs::VirtualServer;
use svclab_ruleset::nft::Ruleset;
pub use typed::{CommandLimits, NodeCommand};

/// Network of a cluster for one kernel, and the probes to run in it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Plan {
    /// Case name as the user writes it, used in messages.
    pub case: String,
    /// Namespaces with their contents.
    pub namespaces: Vec<Namespace>,
    /// Servers that run in the namespaces.
    pub servers: Vec<Server>,
    /// Health checks of the balancers. Each check has its first result before the first probe
    /// starts.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub health: Vec<HealthCheck>,
    /// Real kube-proxies. They have written their rules before the first probe starts.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub kube_proxies: Vec<RealProxy>,
    /// Kubernetes objects that the real kube-proxies receive.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub objects: Vec<serde_json::Value>,
    /// Commands to run on nodes after all rules have been written, in this order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub commands: Vec<NodeCommand>,
    /// Stages in which probes run, in order, at least one.
    pub stages: Vec<Stage>,
    /// Evidence to record in each stage.
    pub evidence: EvidenceRequest,
}

/// Returns a plan without namespaces, with one stage without probes.
impl Default for Plan {
    fn default() -> Self {
        Self {
            case: String::new(),
            namespaces: Vec::new(),
            servers: Vec::new(),
            health: Vec::new(),
            kube_proxies: Vec::new(),
            objects: Vec::new(),
            commands: Vec::new(),
            stages: vec![Stage::default()],
            evidence: EvidenceRequest::default(),
        }
    }
}

/// Network namespace and its contents.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Namespace {
    /// Name, unique in the plan: `node-1`, `pod/default/client`, `host/laptop`.
    pub name: String,
    /// Interfaces in order of creation. `lo` always exists and is up.
    pub links: Vec<Link>,
    /// Addresses of `lo` in addition to its default addresses.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub loopback: Vec<IpNetwork>,
    /// Routes, in the main table unless the route names another.
    pub routes: Vec<Route>,
    /// Multipath routes, added after the other routes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub multipath_routes: Vec<MultipathRoute>,
    /// Networks of interface addresses for which the agent removes the route that the kernel added,
    /// with the interface of each.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub removed_routes: Vec<(IpNetwork, String)>,
    /// Routing rules in addition to those of the kernel.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub routing_rules: Vec<RoutingRule>,
    /// Rules of [`RoutingRule::kernel_rules`] that the agent deletes after it added the others.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub removed_routing_rules: Vec<RoutingRule>,
    /// Static neighbours, so that no verdict depends on ARP.
    pub neighbours: Vec<Neighbour>,
    /// Forwarding entries of vxlan devices and bridges.
    pub forwarding: Vec<Forwarding>,
    /// Sysctls under `net.`, in the order of writing. Sysctls of an interface are written after the
    /// interface exists, all others before any interface exists.
    pub sysctls: Vec<Sysctl>,
    /// Input for `ipset restore`. Empty if there are no sets.
    #[serde(default, skip_serializing_if = "Input::is_empty")]
    pub ipset: Input<Sets>,
    /// Virtual servers of IPVS.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ipvs: Vec<VirtualServer>,
    /// Timeouts of IPVS connections. `None` keeps the defaults of the kernel.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ipvs_timeouts: Option<svclab_ruleset::ipvs::Timeouts>,
    /// Names of the nfacct objects that rules use, created before the rules.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub accounting: Vec<String>,
    /// Iptables rules, loaded after the sets that they name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub iptables: Option<Iptables>,
    /// Rules of the other iptables backend, if both are in use.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub other_iptables: Option<Iptables>,
    /// Input for `nft -f`. Empty if there are no tables.
    #[serde(default, skip_serializing_if = "Input::is_empty")]
    pub nft: Input<Ruleset>,
    /// Whether the nftables tables are created before the rules of iptables. At the same hook and
    /// priority, the kernel first runs the chain that was created last (Linux v6.12,
    /// `net/netfilter/core.c`, `nf_hook_entries_grow`).
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub nft_first: bool,
}

/// Input for `iptables-restore` and `ip6tables-restore`.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Iptables {
    /// Backend that loads the input.
    pub backend: Backend,
    /// IPv4 rules. Empty if there are none.
    pub v4: Input<IptablesScript>,
    /// IPv6 rules. Empty if there are none.
    #[serde(default, skip_serializing_if = "Input::is_empty")]
    pub v6: Input<IptablesScript>,
}

/// Static neighbour entry, which needs no resolution.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Neighbour {
    /// IP address of the neighbour.
    pub address: IpAddr,
    /// Link-layer address of the neighbour.
    pub mac: Mac,
    /// Name of the interface.
    pub dev: String,
}

/// Forwarding entry of a vxlan device or of a bridge.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Forwarding {
    /// Name of the vxlan device, of the bridge port, or of the bridge.
    pub dev: String,
    /// Destination link-layer address of the frames. A vxlan device sends frames to unknown
    /// addresses to the entries of the address that is all zeros.
    pub mac: Mac,
    /// Destination of the frames.
    pub to: ForwardingTarget,
}

/// Destination of the frames of a forwarding entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum ForwardingTarget {
    /// Tunnel end with this address, for an entry of a vxlan device.
    Remote(IpAddr),
    /// The bridge port. The bridge moves the entry to the port through which a frame from the address
    /// arrives (Linux v6.12, `net/bridge/br_fdb.c`, `br_fdb_update`).
    Port,
    /// The bridge port, also after frames from the address arrived through another port.
    StickyPort,
    /// The node itself, which receives the frames through the bridge.
    Node,
}

/// Renders the entry in the format of `bridge fdb`.
impl fmt::Display for Forwarding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} dev {}", self.mac, self.dev)?;
        match self.to {
            ForwardingTarget::Remote(remote) => write!(f, " dst {remote} self permanent"),
            ForwardingTarget::Port => f.write_str(" master static"),
            ForwardingTarget::StickyPort => f.write_str(" master static sticky"),
            ForwardingTarget::Node => f.write_str(" master permanent"),
        }
    }
}

/// Value for one sysctl.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Sysctl {
    /// Sysctl name with dots, as `sysctl` prints it, always under `net.`. A dot in an interface
    /// name is written as a slash, as `sysctl` does.
    pub key: String,
    /// Value to write.
    pub value: String,
    /// Interface that the sysctl belongs to. The agent writes the sysctl after creating the
    /// interface.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub link: Option<String>,
    /// Whether a kernel without the sysctl behaves as if it had this value. Old kernels lack the
    /// sysctl, and so do kernels that have not loaded its module.
    #[serde(default)]
    pub optional: bool,
}

/// Returns the sysctl whose change sets `key`, too: the kernel copies the state of forwarding to
/// all interfaces (Linux v6.12, `net/ipv4/devinet.c`, `inet_forward_change`, and
/// `net/ipv6/addrconf.c`, `addrconf_fixup_forwarding`). `None` for other sysctls.
#[must_use]
pub fn forwarding_switch(key: &str) -> Option<&'static str> {
    let interface = key.strip_suffix(".forwarding")?;
    if interface.starts_with("net.ipv4.conf.") {
        return Some("net.ipv4.ip_forward");
    }
    let is_one = interface.starts_with("net.ipv6.conf.") && interface != "net.ipv6.conf.all";
    is_one.then_some("net.ipv6.conf.all.forwarding")
}

/// Evidence that the agent records while probes run.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct EvidenceRequest {
    /// Namespaces in which to capture all packets.
    pub packets: Vec<String>,
    /// Namespaces in which to trace netfilter, conntrack and IPVS for each packet, to record the
    /// packets that the kernel drops, and to read interfaces, routes and neighbours back afterwards.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub trace: Vec<String>,
    /// Namespaces in which to compare kernel counters before and after (`/proc/net/netstat`,
    /// `/proc/net/snmp`, `/proc/net/snmp6`).
    pub counters: Vec<String>,
    /// Names of kernel counters that expectations use, by namespace. A counter that the kernel
    /// lacks is an error, because a misspelt counter would never increase.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub named_counters: BTreeMap<String, BTreeSet<String>>,
    /// Namespaces in which to read the rules and their counters back afterwards.
    pub rules: Vec<String>,
    /// Namespaces in which to read the sets back afterwards.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub sets: Vec<String>,
    /// Namespaces in which to read the virtual servers back afterwards.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ipvs: Vec<String>,
    /// Namespaces in which to read the interfaces back afterwards.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub links: Vec<String>,
}

impl EvidenceRequest {
    /// Returns a request for all evidence in all namespaces of a plan. The counters that
    /// expectations name must still exist.
    #[must_use]
    pub fn everything(plan: &Plan) -> Self {
        let names: Vec<String> = plan.namespaces.iter().map(|ns| ns.name.clone()).collect();
        Self {
            packets: names.clone(),
            trace: names.clone(),
            counters: names.clone(),
            named_counters: plan.evidence.named_counters.clone(),
            rules: names.clone(),
            sets: names.clone(),
            ipvs: names.clone(),
            links: names,
        }
    }
}

impl Namespace {
    /// Returns the rules of both iptables backends.
    pub fn iptables_rules(&self) -> impl Iterator<Item = &Iptables> + Clone {
        self.iptables.iter().chain(&self.other_iptables)
    }

    /// Whether the namespace has virtual servers or IPVS timeouts.
    #[must_use]
    pub fn uses_ipvs(&self) -> bool {
        !self.ipvs.is_empty() || self.ipvs_timeouts.is_some()
    }
}

impl Plan {
    /// Whether programs of the user run in the lab: real kube-proxies and `byHand` commands.
    #[must_use]
    pub fn runs_user_programs(&self) -> bool {
        !self.kube_proxies.is_empty() || !self.commands.is_empty()
    }

    /// Returns the namespace with a name. `None` if the plan has no such namespace.
    #[must_use]
    pub fn namespace(&self, name: &str) -> Option<&Namespace> {
        self.namespaces.iter().find(|ns| ns.name == name)
    }

    /// Returns the real kube-proxy of a namespace. `None` if none runs there.
    #[must_use]
    pub fn real_proxy(&self, namespace: &str) -> Option<&RealProxy> {
        let mut proxies = self.kube_proxies.iter();
        proxies.find(|proxy| proxy.namespace == namespace)
    }

    /// Returns the probes of all stages.
    pub fn probes(&self) -> impl Iterator<Item = &Probe> + Clone {
        self.stages.iter().flat_map(|stage| &stage.probes)
    }

    /// Returns the probes of all stages for changes.
    pub fn probes_mut(&mut self) -> impl Iterator<Item = &mut Probe> {
        self.stages.iter_mut().flat_map(|stage| &mut stage.probes)
    }

    /// Returns the probes of the first stage whose connections end in the stage.
    pub fn initial_probes(&self) -> impl Iterator<Item = &Probe> + Clone {
        let first = self.stages.iter().take(1);
        first.flat_map(|stage| stage.probes_with(Lifetime::Stage))
    }

    /// Keeps the first `count` stages. Probes whose connections stay open across a removed step are
    /// removed.
    pub fn truncate_stages(&mut self, count: usize) {
        self.stages.truncate(count);
        if let Some(last) = self.stages.last_mut() {
            last.probes
                .retain(|probe| probe.lifetime != Lifetime::Opened);
        }
    }

    /// Returns the steps between the stages.
    pub fn steps(&self) -> impl Iterator<Item = &Step> + Clone {
        self.stages.iter().filter_map(|stage| stage.step.as_ref())
    }

    /// Returns the index of the last stage with attempts of a probe. `None` if no stage has the
    /// probe.
    #[must_use]
    pub fn stage_of(&self, probe: &str) -> Option<usize> {
        let has_probe = |stage: &Stage| stage.probes.iter().any(|own| own.name == probe);
        self.stages.iter().rposition(has_probe)
    }
}
