//! Determines the owner of rules, chains, sets, servers and interfaces. The evidence is comments,
//! the names of chains and sets, and the addresses and ports in rules with comments.

pub mod nft;

use std::collections::HashMap;
use std::net::IpAddr;

use crate::difference::Owner;
use crate::node::NodeDump;
use svclab_ruleset::Protocol;
use svclab_ruleset::iptables::script::Table;
use svclab_ruleset::iptables::{Chain, Rule};
use svclab_ruleset::ipvs::VirtualServerKey;

/// Name prefixes of kube-proxy's chains that belong to one service port or one of its endpoints.
const SERVICE_CHAIN_PREFIXES: [&str; 6] = [
    "KUBE-SVC-",
    "KUBE-SVL-",
    "KUBE-EXT-",
    "KUBE-XLB-",
    "KUBE-FW-",
    "KUBE-SEP-",
];

/// Owners of chains and sets by name prefix.
const COMPONENT_PREFIXES: [(&str, &str); 20] = [
    ("KUBE-KUBELET-", "kubelet"),
    ("KUBE-IPTABLES-HINT", "kubelet"),
    ("KUBE-MARK-DROP", "kubelet"),
    ("KUBE-ROUTER-", "kube-router"),
    ("KUBE-POD-FW-", "kube-router"),
    ("KUBE-NWPLCY-", "kube-router"),
    ("KUBE-", "kube-proxy"),
    ("cali-", "calico"),
    ("cali40", "calico"),
    ("cali60", "calico"),
    ("FLANNEL-", "flannel"),
    ("DOCKER", "docker"),
    ("CNI-", "CNI plugins"),
    ("IP-MASQ-AGENT", "ip-masq-agent"),
    ("IP-MASQ", "ip-masq-agent"),
    ("CILIUM_", "cilium"),
    ("OLD_CILIUM_", "cilium"),
    ("WEAVE-", "weave"),
    ("LIBVIRT_", "libvirt"),
    ("ufw-", "ufw"),
];

/// Owners of rules by comment prefix.
const COMMENT_PREFIXES: [(&str, &str); 8] = [
    ("kubernetes ", "kube-proxy"),
    ("Kubernetes ", "kube-proxy"),
    ("kube-proxy ", "kube-proxy"),
    ("handle ClusterIPs", "kube-proxy"),
    ("flanneld ", "flannel"),
    ("cali:", "calico"),
    ("ip-masq-agent", "ip-masq-agent"),
    ("cilium", "cilium"),
];

/// Owners of interfaces by name prefix.
const LINK_PREFIXES: [(&str, &str); 11] = [
    ("kube-ipvs", "kube-proxy"),
    ("nodelocaldns", "node-local-dns"),
    ("flannel", "flannel"),
    ("cni", "CNI plugins"),
    ("cali", "calico"),
    ("vxlan.calico", "calico"),
    ("tunl0", "calico"),
    ("docker", "docker"),
    ("cilium_", "cilium"),
    ("lxc", "cilium"),
    ("weave", "weave"),
];

/// Components that set the neighbours and forwarding entries of their tunnels, by name prefix of the
/// interface.
const TUNNEL_PREFIXES: [(&str, &str); 4] = [
    ("flannel", "flannel"),
    ("vxlan.calico", "calico"),
    ("vxlan-v6.calico", "calico"),
    ("cilium_vxlan", "cilium"),
];

type Socket = (Protocol, IpAddr, u16);

/// Data from which owners are determined.
#[derive(Debug, Default)]
pub struct Owners {
    chains: HashMap<String, String>,
    sockets: HashMap<Socket, String>,
    node_ports: HashMap<(Protocol, u16), String>,
}

impl Owners {
    /// Collects the data from all the dumps.
    #[must_use]
    pub fn from_dumps(dumps: &[&NodeDump]) -> Self {
        let mut owners = Self::default();
        let chains = || {
            let rules = dumps.iter().flat_map(|dump| dump.rules.values());
            let tables = rules.flat_map(|dump| &dump.tables);
            tables.flat_map(|table| &table.chains)
        };
        for chain in chains() {
            for rule in &chain.rules {
                owners.add_rule(chain, rule);
            }
        }
        // Chains of a service lead to the chains of its endpoints in at most two steps.
        for _ in 0..2 {
            for chain in chains() {
                let Some(owner) = owners.chains.get(&chain.name).cloned() else {
                    continue;
                };
                for rule in &chain.rules {
                    if let Some(target) = rule.target().filter(|target| is_service_chain(target)) {
                        owners
                            .chains
                            .entry(target.into_owned())
                            .or_insert_with(|| owner.clone());
                    }
                }
            }
        }
        owners
    }

    fn add_rule(&mut self, chain: &Chain, rule: &Rule) {
        let Some(name) = service_port(rule) else {
            return;
        };
        if is_service_chain(&chain.name) {
            self.chains.insert(chain.name.clone(), name);
            return;
        }
        if let Some(target) = rule.target().filter(|target| is_service_chain(target)) {
            self.chains.insert(target.into_owned(), name.clone());
        }
        let parts = rule.parts();
        let protocol = parts.header("-p").and_then(Protocol::from_name);
        let port = protocol.and_then(|protocol| {
            let port = parts.match_module(protocol.name())?.value("--dport")?;
            port.parse::<u16>().ok()
        });
        let (Some(protocol), Some(port)) = (protocol, port) else {
            return;
        };
        let address = parts
            .header("-d")
            .and_then(|to| to.split('/').next()?.parse().ok());
        match address {
            Some(address) => {
                self.sockets.insert((protocol, address, port), name);
            }
            None => {
                self.node_ports.insert((protocol, port), name);
            }
        }
    }

    /// Returns the owner of a chain, or `None` if it is unknown.
    #[must_use]
    pub fn chain_owner(&self, table: Table, chain: &str) -> Option<Owner> {
        if let Some(service) = self.chains.get(chain) {
            return Some(Owner::Service(service.clone()));
        }
        // The chain in filter is the kubelet's; the chain in nat is kube-proxy's in ipvs mode.
        if chain == "KUBE-FIREWALL" && table == Table::Filter {
            return Some(Owner::Component("kubelet".to_owned()));
        }
        component_owner(chain, &COMPONENT_PREFIXES)
    }

    /// Returns the owner of a rule by its text, or `None` if it is unknown.
    #[must_use]
    pub fn rule_owner(&self, table: Table, chain: &str, rule: &str) -> Option<Owner> {
        if let Ok(rule) = Rule::from_words(rule) {
            if let Some(service) = service_port(&rule) {
                return Some(Owner::Service(service));
            }
            if !is_service_chain(chain)
                && let Some(target) = rule.target()
                && let Some(service) = self.chains.get(target.as_ref())
            {
                return Some(Owner::Service(service.clone()));
            }
            if table.built_in_chains().contains(&chain) {
                let by_target = rule
                    .target()
                    .and_then(|target| component_owner(&target, &COMPONENT_PREFIXES));
                let by_comment = || component_owner(&rule.comment()?, &COMMENT_PREFIXES);
                return by_target.or_else(by_comment);
            }
        }
        self.chain_owner(table, chain)
    }

    /// Returns the owner of a set or of one of its entries, or `None` if it is unknown.
    #[must_use]
    pub fn set_owner(&self, set: &str, entry: Option<&str>) -> Option<Owner> {
        let service = entry.and_then(|entry| {
            let mut parts = entry.split([',', ' ']);
            let first = parts.next()?;
            if let Ok(port) = first.parse::<u16>() {
                let protocol = Protocol::from_name(&set.rsplit('-').next()?.to_ascii_lowercase())?;
                return self.node_ports.get(&(protocol, port));
            }
            let address = first.parse().ok()?;
            let (protocol, port) = parts.next()?.split_once(':')?;
            let socket = (Protocol::from_name(protocol)?, address, port.parse().ok()?);
            self.sockets.get(&socket)
        });
        match service {
            Some(service) => Some(Owner::Service(service.clone())),
            None => component_owner(set, &COMPONENT_PREFIXES),
        }
    }

    /// Returns the owner of a virtual server, or `None` if it is unknown.
    #[must_use]
    pub fn server_owner(&self, server: &VirtualServerKey) -> Option<Owner> {
        let VirtualServerKey::Address {
            protocol,
            address,
            port,
        } = server
        else {
            return None;
        };
        let service = self.sockets.get(&(*protocol, *address, *port));
        let service = service.or_else(|| self.node_ports.get(&(*protocol, *port)));
        service.map(|service| Owner::Service(service.clone()))
    }
}

/// Returns the owner of an interface, or `None` if it is unknown.
#[must_use]
pub fn link_owner(name: &str) -> Option<Owner> {
    component_owner(name, &LINK_PREFIXES)
}

/// Returns the owner of the static neighbours and forwarding entries of an interface, or `None` if
/// no component sets such entries.
#[must_use]
pub fn tunnel_owner(interface: &str) -> Option<Owner> {
    component_owner(interface, &TUNNEL_PREFIXES)
}

fn component_owner(name: &str, prefixes: &[(&str, &str)]) -> Option<Owner> {
    let (_, owner) = prefixes
        .iter()
        .find(|(prefix, _)| name.starts_with(prefix))?;
    Some(Owner::Component((*owner).to_owned()))
}

fn is_service_chain(chain: &str) -> bool {
    SERVICE_CHAIN_PREFIXES
        .iter()
        .any(|begins| chain.starts_with(begins))
}

/// Returns the service port of a rule, according to its comment: `namespace/name:port`.
pub(crate) fn service_port(rule: &Rule) -> Option<String> {
    let comment = rule.comment()?;
    let first = comment.split(' ').next()?;
    first.contains('/').then(|| first.to_owned())
}
