//! Computes the state of ipvs mode for each service port: set entries, virtual servers and bound
//! addresses.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use ipnetwork::IpNetwork;

use super::Context;
use super::sets::{Name, Sets};
use crate::kube_proxy::endpoints::Endpoint;
use crate::kube_proxy::history::{
    EXTERNAL_IPS_OBEY_POLICY, IPVS_BINDS_EXTERNAL, IPVS_CHAINS, IPVS_EXTERNAL_IPS_OBEYED,
    IPVS_HASHES_PORTS, IPVS_LOCAL_FALLS_BACK, IPVS_LOOP_BACK_LOCAL, IPVS_MASQUERADES_OWN_TRAFFIC,
    IPVS_NODE_PORTS_OBEY_POLICY, IPVS_OWN_ADDRESSES_NOT_BOUND, IPVS_POLICY_FOR_CLUSTER_IP,
    IPVS_POLICY_NEEDS_AFFINITY, IPVS_SCTP, IPVS_SCTP_ONE_ADDRESS, IPVS_UNSERVED_NODE_PORTS_KEPT,
};
use crate::kube_proxy::services::{Protocol, ServicePort};
use crate::kube_proxy::topology;
use svclab_model::plan::VirtualServer;
use svclab_ruleset::ipvs::{Forwarding, RealServer, SchedulerFlags, Transport, Virtual};

/// Weight of every real server.
const WEIGHT: u32 = 1;

/// State for all services.
pub(super) struct Made {
    /// Sets with their entries.
    pub sets: Sets,
    /// Virtual servers by key.
    pub servers: BTreeMap<Virtual, VirtualServer>,
    /// Addresses of the dummy interface.
    pub bound: BTreeSet<IpAddr>,
    /// Load balancer addresses that the node itself may not use, with protocol and port.
    pub closed_to_node: Vec<(IpAddr, Protocol, u16)>,
}

/// Condition under which an address is bound to the dummy interface.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Bind {
    Always,
    /// Bound unless another interface of the node has the address; see
    /// [`IPVS_OWN_ADDRESSES_NOT_BOUND`].
    UnlessOwn,
    Never,
}

/// Computes the state for `ports`.
pub(super) fn make(context: &Context<'_>, ports: &[ServicePort]) -> Made {
    let mut made = Made {
        sets: Sets::new(context.version, context.family),
        servers: BTreeMap::new(),
        bound: BTreeSet::new(),
        closed_to_node: Vec::new(),
    };
    for port in ports {
        if port.protocol == Protocol::Sctp && !context.version.has(&IPVS_SCTP) {
            continue;
        }
        let mut maker = Maker {
            context,
            made: &mut made,
            port,
            endpoints: context.endpoints.of(port),
        };
        maker.loop_back();
        maker.cluster_ip();
        maker.external_ips();
        maker.load_balancer_ips();
        maker.node_port();
    }
    for address in made.bound.clone() {
        made.sets.add(Name::IpvsIps, address.to_string());
    }
    made
}

/// Computes the state for one service port.
struct Maker<'a> {
    context: &'a Context<'a>,
    made: &'a mut Made,
    port: &'a ServicePort,
    endpoints: &'a [Endpoint],
}

impl Maker<'_> {
    /// Returns an entry of a set of addresses and ports.
    fn entry(&self, address: IpAddr) -> String {
        format!("{address},{}:{}", self.port.protocol, self.port.port)
    }

    /// Adds the endpoints of this node. A connection from an endpoint to itself through the service
    /// must be masqueraded.
    fn loop_back(&mut self) {
        let version = self.context.version;
        for endpoint in self.endpoints {
            let here = endpoint.local || !version.has(&IPVS_LOOP_BACK_LOCAL);
            if here {
                let ip = endpoint.ip();
                let entry = format!(
                    "{ip},{}:{},{ip}",
                    self.port.protocol,
                    endpoint.address.port()
                );
                self.made.sets.add(Name::LoopBack, entry);
            }
        }
    }

    fn cluster_ip(&mut self) {
        let version = self.context.version;
        let address = self.port.cluster_ip;
        let asked = self.context.proxy.masquerade_all || self.context.local.is_some();
        if asked || version.has(&IPVS_MASQUERADES_OWN_TRAFFIC) {
            let entry = self.entry(address);
            self.made.sets.add(Name::ClusterIp, entry);
        }
        let local = self.port.internal_local
            || (self.port.external_local && version.has(&IPVS_POLICY_FOR_CLUSTER_IP));
        self.serve(address, self.port.port, local, Bind::Always);
    }

    fn external_ips(&mut self) {
        let version = self.context.version;
        let obeys = version.has(&EXTERNAL_IPS_OBEY_POLICY);
        let local = self.port.external_local && obeys;
        let set = if local {
            Name::ExternalIpLocal
        } else {
            Name::ExternalIp
        };
        let only_local =
            self.port.external_local && (obeys || version.has(&IPVS_EXTERNAL_IPS_OBEYED));
        let bind = if version.has(&IPVS_BINDS_EXTERNAL) {
            Bind::UnlessOwn
        } else {
            Bind::Never
        };
        for address in &self.port.external_ips {
            let entry = self.entry(*address);
            self.made.sets.add(set, entry);
            self.serve(*address, self.port.port, only_local, bind);
        }
    }

    fn load_balancer_ips(&mut self) {
        let version = self.context.version;
        let affine = self.port.affinity_seconds.is_some();
        let only_local =
            self.port.external_local && (affine || !version.has(&IPVS_POLICY_NEEDS_AFFINITY));
        let bound = version.has(&IPVS_BINDS_EXTERNAL) && self.context.proxy.bind_load_balancer_ips;
        let bind = if bound { Bind::UnlessOwn } else { Bind::Never };
        for address in &self.port.load_balancer_ips {
            let entry = self.entry(*address);
            let ranges = !self.port.source_ranges.is_empty();
            if version.has(&IPVS_CHAINS) || ranges {
                self.made.sets.add(Name::LoadBalancer, entry.clone());
            }
            if self.port.external_local {
                self.made.sets.add(Name::LoadBalancerLocal, entry.clone());
            } else {
                self.made.sets.add(Name::LoadBalancerMasq, entry.clone());
            }
            if ranges {
                self.made.sets.add(Name::LoadBalancerFw, entry);
                self.source_ranges(*address);
            }
            self.serve(*address, self.port.port, only_local, bind);
        }
    }

    /// Adds the sources that may use a load balancer's `address`.
    fn source_ranges(&mut self, address: IpAddr) {
        let entry = self.entry(address);
        for range in &self.port.source_ranges {
            // ipset rejects a network of prefix 0, and kube-proxy only logs the error.
            if range.prefix() == 0 {
                self.made.sets.refused(Name::SourceCidr);
                continue;
            }
            let net = text(*range);
            self.made
                .sets
                .add(Name::SourceCidr, format!("{entry},{net}"));
        }
        let Context {
            node,
            version,
            family,
            ..
        } = self.context;
        if node.is_admitted(&self.port.source_ranges, *version, *family) {
            // On the node, the kernel selects the load balancer address as source address.
            self.made
                .sets
                .add(Name::SourceIp, format!("{entry},{address}"));
        } else {
            let closed = (address, self.port.protocol, self.port.port);
            self.made.closed_to_node.push(closed);
        }
    }

    fn node_port(&mut self) {
        let version = self.context.version;
        if let Some(number) = self.port.node_port {
            let unserved = self.context.node_ips.is_empty();
            if unserved && !version.has(&IPVS_UNSERVED_NODE_PORTS_KEPT) {
                return;
            }
            self.node_port_sets(number);
            let local = self.port.external_local && version.has(&IPVS_NODE_PORTS_OBEY_POLICY);
            for address in &self.context.node_ips {
                self.serve(*address, number, local, Bind::Never);
            }
        }
        if let Some(number) = self.port.health_check_node_port {
            self.made.sets.add(Name::HealthCheck, number.to_string());
        }
    }

    fn node_port_sets(&mut self, number: u16) {
        let (all, local) = match self.port.protocol {
            Protocol::Tcp => (Name::NodePortTcp, Name::NodePortLocalTcp),
            Protocol::Udp => (Name::NodePortUdp, Name::NodePortLocalUdp),
            Protocol::Sctp => (Name::NodePortSctp, Name::NodePortLocalSctp),
        };
        let entries: Vec<String> = if self.made.sets.is_ports(all) {
            vec![number.to_string()]
        } else {
            let one = self.context.version.has(&IPVS_SCTP_ONE_ADDRESS);
            let all = &self.context.node_ips;
            let addresses = if one {
                self.context.node.ip.as_slice()
            } else {
                all.as_slice()
            };
            addresses
                .iter()
                .map(|address| format!("{address},{}:{number}", self.port.protocol))
                .collect()
        };
        for entry in entries {
            if self.port.external_local {
                self.made.sets.add(local, entry.clone());
                // Without separate chains, the set contains only ports to masquerade.
                if !self.context.version.has(&IPVS_CHAINS) {
                    continue;
                }
            }
            self.made.sets.add(all, entry);
        }
    }

    /// Creates a virtual server and binds its address.
    fn serve(&mut self, address: IpAddr, number: u16, only_local: bool, bind: Bind) {
        let takes = Virtual::Address {
            protocol: match self.port.protocol {
                Protocol::Tcp => Transport::Tcp,
                Protocol::Udp => Transport::Udp,
                Protocol::Sctp => Transport::Sctp,
            },
            address,
            port: number,
        };
        let server = VirtualServer {
            takes,
            scheduler: self.context.scheduler.to_owned(),
            persistence: self.port.affinity_seconds,
            flags: SchedulerFlags {
                fallback: false,
                port: self.context.scheduler == "mh"
                    && self.context.version.has(&IPVS_HASHES_PORTS),
            },
            servers: self.real_servers(only_local),
        };
        self.made.servers.insert(takes, server);
        let own = self.context.node.interfaces.contains(&address);
        let bound = match bind {
            Bind::Always => true,
            Bind::UnlessOwn => !own || !self.context.version.has(&IPVS_OWN_ADDRESSES_NOT_BOUND),
            Bind::Never => false,
        };
        if bound {
            self.made.bound.insert(address);
        }
    }

    /// Returns the real servers of a virtual server, sorted by text. Versions up to v1.29 add them
    /// in this order. (`syncEndpoint`.)
    fn real_servers(&self, only_local: bool) -> Vec<RealServer> {
        let version = self.context.version;
        let chosen = topology::choose(
            self.endpoints,
            self.port,
            version,
            self.context.node.place(),
        );
        let endpoints = if !only_local {
            chosen.cluster
        } else if version.has(&IPVS_LOCAL_FALLS_BACK) {
            if chosen.local.is_empty() {
                chosen.cluster
            } else {
                chosen.local
            }
        } else {
            chosen.cluster.into_iter().filter(|e| e.local).collect()
        };
        let mut addresses: Vec<_> = endpoints.iter().map(|endpoint| endpoint.address).collect();
        addresses.sort_by_key(ToString::to_string);
        addresses
            .into_iter()
            .map(|to| RealServer {
                to,
                weight: WEIGHT,
                forwarding: Forwarding::Masquerade,
            })
            .collect()
    }
}

/// Renders a network as `ipset save` does.
fn text(range: IpNetwork) -> String {
    let full = if range.is_ipv4() { 32 } else { 128 };
    if range.prefix() == full {
        range.ip().to_string()
    } else {
        format!("{}/{}", range.network(), range.prefix())
    }
}
