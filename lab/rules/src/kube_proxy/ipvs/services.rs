//! Computes the state of ipvs mode for each service port: set entries, virtual servers and bound
//! addresses.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use super::IpvsContext;
use super::sets::{SetName, Sets};
use crate::kube_proxy::endpoints::Endpoint;
use crate::kube_proxy::history::{
    EXTERNAL_IPS_OBEY_POLICY, IPVS_BINDS_EXTERNAL, IPVS_CHAINS, IPVS_EXTERNAL_IPS_OBEY_POLICY,
    IPVS_HASHES_PORTS, IPVS_LOCAL_FALLS_BACK, IPVS_LOOP_BACK_LOCAL, IPVS_MASQUERADES_OWN_TRAFFIC,
    IPVS_NODE_PORTS_OBEY_POLICY, IPVS_OWN_ADDRESSES_NOT_BOUND, IPVS_POLICY_FOR_CLUSTER_IP,
    IPVS_POLICY_NEEDS_AFFINITY, IPVS_SCTP, IPVS_SCTP_ONE_ADDRESS, IPVS_UNSERVED_NODE_PORTS_KEPT,
};
use crate::kube_proxy::services::ServicePort;
use crate::kube_proxy::topology;
use svclab_model::plan::VirtualServer;
use svclab_ruleset::Protocol;
use svclab_ruleset::ipvs::{Forwarding, RealServer, SchedulerFlags, VirtualServerKey};
use svclab_ruleset::network::format_network;

/// Weight of every real server.
const WEIGHT: u32 = 1;

/// State for all services.
pub(super) struct IpvsObjects {
    /// Sets with their entries.
    pub sets: Sets,
    /// Virtual servers by key.
    pub servers: BTreeMap<VirtualServerKey, VirtualServer>,
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
pub(super) fn build_objects(context: &IpvsContext<'_>, ports: &[ServicePort]) -> IpvsObjects {
    let mut objects = IpvsObjects {
        sets: Sets::new(context.version, context.family),
        servers: BTreeMap::new(),
        bound: BTreeSet::new(),
        closed_to_node: Vec::new(),
    };
    for port in ports {
        if port.protocol == Protocol::Sctp && !context.version.has(&IPVS_SCTP) {
            continue;
        }
        let mut builder = ServiceBuilder {
            context,
            objects: &mut objects,
            port,
            endpoints: context.endpoints.get(port),
        };
        builder.add_loop_back_entries();
        builder.add_cluster_ip();
        builder.add_external_ips();
        builder.add_load_balancer_ips();
        builder.add_node_port();
    }
    for address in objects.bound.clone() {
        objects.sets.add(SetName::IpvsIps, address.to_string());
    }
    objects
}

/// Computes the state for one service port.
struct ServiceBuilder<'a> {
    context: &'a IpvsContext<'a>,
    objects: &'a mut IpvsObjects,
    port: &'a ServicePort,
    endpoints: &'a [Endpoint],
}

impl ServiceBuilder<'_> {
    /// Returns an entry of a set of addresses and ports.
    fn set_entry(&self, address: IpAddr) -> String {
        format!("{address},{}:{}", self.port.protocol, self.port.port)
    }

    /// Adds the endpoints of this node. A connection from an endpoint to itself through the service
    /// must be masqueraded.
    fn add_loop_back_entries(&mut self) {
        let version = self.context.version;
        for endpoint in self.endpoints {
            let is_included = endpoint.local || !version.has(&IPVS_LOOP_BACK_LOCAL);
            if is_included {
                let ip = endpoint.ip();
                let entry = format!(
                    "{ip},{}:{},{ip}",
                    self.port.protocol,
                    endpoint.address.port()
                );
                self.objects.sets.add(SetName::LoopBack, entry);
            }
        }
    }

    fn add_cluster_ip(&mut self) {
        let version = self.context.version;
        let address = self.port.cluster_ip;
        let is_requested = self.context.proxy.masquerade_all || self.context.local.is_some();
        if is_requested || version.has(&IPVS_MASQUERADES_OWN_TRAFFIC) {
            let entry = self.set_entry(address);
            self.objects.sets.add(SetName::ClusterIp, entry);
        }
        let local = self.port.internal_local
            || (self.port.external_local && version.has(&IPVS_POLICY_FOR_CLUSTER_IP));
        self.add_server(address, self.port.port, local, Bind::Always);
    }

    fn add_external_ips(&mut self) {
        let version = self.context.version;
        let obeys_policy = version.has(&EXTERNAL_IPS_OBEY_POLICY);
        let local = self.port.external_local && obeys_policy;
        let set = if local {
            SetName::ExternalIpLocal
        } else {
            SetName::ExternalIp
        };
        let only_local = self.port.external_local
            && (obeys_policy || version.has(&IPVS_EXTERNAL_IPS_OBEY_POLICY));
        let bind = if version.has(&IPVS_BINDS_EXTERNAL) {
            Bind::UnlessOwn
        } else {
            Bind::Never
        };
        for address in &self.port.external_ips {
            let entry = self.set_entry(*address);
            self.objects.sets.add(set, entry);
            self.add_server(*address, self.port.port, only_local, bind);
        }
    }

    fn add_load_balancer_ips(&mut self) {
        let version = self.context.version;
        let has_affinity = self.port.affinity_seconds.is_some();
        let only_local =
            self.port.external_local && (has_affinity || !version.has(&IPVS_POLICY_NEEDS_AFFINITY));
        let is_bound_by_config =
            version.has(&IPVS_BINDS_EXTERNAL) && self.context.proxy.bind_load_balancer_ips;
        let bind = if is_bound_by_config {
            Bind::UnlessOwn
        } else {
            Bind::Never
        };
        for address in &self.port.load_balancer_ips {
            let entry = self.set_entry(*address);
            let has_ranges = !self.port.source_ranges.is_empty();
            if version.has(&IPVS_CHAINS) || has_ranges {
                self.objects.sets.add(SetName::LoadBalancer, entry.clone());
            }
            if self.port.external_local {
                self.objects
                    .sets
                    .add(SetName::LoadBalancerLocal, entry.clone());
            } else {
                self.objects
                    .sets
                    .add(SetName::LoadBalancerMasq, entry.clone());
            }
            if has_ranges {
                self.objects.sets.add(SetName::LoadBalancerFw, entry);
                self.add_source_ranges(*address);
            }
            self.add_server(*address, self.port.port, only_local, bind);
        }
    }

    /// Adds the sources that may use a load balancer's `address`.
    fn add_source_ranges(&mut self, address: IpAddr) {
        let entry = self.set_entry(address);
        for range in &self.port.source_ranges {
            // ipset rejects a network of prefix 0, and kube-proxy only logs the error.
            if range.prefix() == 0 {
                self.objects.sets.record_rejected(SetName::SourceCidr);
                continue;
            }
            let net = format_network(*range);
            self.objects
                .sets
                .add(SetName::SourceCidr, format!("{entry},{net}"));
        }
        let IpvsContext {
            node,
            version,
            family,
            ..
        } = self.context;
        if node.is_admitted(&self.port.source_ranges, *version, *family) {
            // On the node, the kernel selects the load balancer address as source address.
            self.objects
                .sets
                .add(SetName::SourceIp, format!("{entry},{address}"));
        } else {
            let closed = (address, self.port.protocol, self.port.port);
            self.objects.closed_to_node.push(closed);
        }
    }

    fn add_node_port(&mut self) {
        let version = self.context.version;
        if let Some(number) = self.port.node_port {
            let is_unserved = self.context.node_ips.is_empty();
            if is_unserved && !version.has(&IPVS_UNSERVED_NODE_PORTS_KEPT) {
                return;
            }
            self.add_node_port_entries(number);
            let local = self.port.external_local && version.has(&IPVS_NODE_PORTS_OBEY_POLICY);
            for address in &self.context.node_ips {
                self.add_server(*address, number, local, Bind::Never);
            }
        }
        if let Some(number) = self.port.health_check_node_port {
            self.objects
                .sets
                .add(SetName::HealthCheck, number.to_string());
        }
    }

    fn add_node_port_entries(&mut self, number: u16) {
        let (all_set, local_set) = match self.port.protocol {
            Protocol::Tcp => (SetName::NodePortTcp, SetName::NodePortLocalTcp),
            Protocol::Udp => (SetName::NodePortUdp, SetName::NodePortLocalUdp),
            Protocol::Sctp => (SetName::NodePortSctp, SetName::NodePortLocalSctp),
        };
        let entries: Vec<String> = if self.objects.sets.has_ports(all_set) {
            vec![number.to_string()]
        } else {
            let is_single_address = self.context.version.has(&IPVS_SCTP_ONE_ADDRESS);
            let node_ips = &self.context.node_ips;
            let addresses = if is_single_address {
                self.context.node.ip.as_slice()
            } else {
                node_ips.as_slice()
            };
            addresses
                .iter()
                .map(|address| format!("{address},{}:{number}", self.port.protocol))
                .collect()
        };
        for entry in entries {
            if self.port.external_local {
                self.objects.sets.add(local_set, entry.clone());
                // Without separate chains, the set contains only ports to masquerade.
                if !self.context.version.has(&IPVS_CHAINS) {
                    continue;
                }
            }
            self.objects.sets.add(all_set, entry);
        }
    }

    /// Creates a virtual server and binds its address.
    fn add_server(&mut self, address: IpAddr, number: u16, only_local: bool, bind: Bind) {
        let key = VirtualServerKey::Address {
            protocol: self.port.protocol,
            address,
            port: number,
        };
        let server = VirtualServer {
            key,
            scheduler: self.context.scheduler.to_owned(),
            persistence: self.port.affinity_seconds,
            flags: SchedulerFlags {
                fallback: false,
                hash_port: self.context.scheduler == "mh"
                    && self.context.version.has(&IPVS_HASHES_PORTS),
            },
            servers: self.real_servers(only_local),
        };
        self.objects.servers.insert(key, server);
        let is_own_address = self.context.node.interfaces.contains(&address);
        let is_bound = match bind {
            Bind::Always => true,
            Bind::UnlessOwn => {
                !is_own_address || !self.context.version.has(&IPVS_OWN_ADDRESSES_NOT_BOUND)
            }
            Bind::Never => false,
        };
        if is_bound {
            self.objects.bound.insert(address);
        }
    }

    /// Returns the real servers of a virtual server, sorted by text. Versions up to v1.29 add them
    /// in this order. (`syncEndpoint`.)
    fn real_servers(&self, only_local: bool) -> Vec<RealServer> {
        let version = self.context.version;
        let selection = topology::select_endpoints(
            self.endpoints,
            self.port,
            version,
            self.context.node.locality(),
        );
        let endpoints = if !only_local {
            selection.cluster
        } else if version.has(&IPVS_LOCAL_FALLS_BACK) {
            if selection.local.is_empty() {
                selection.cluster
            } else {
                selection.local
            }
        } else {
            selection.cluster.into_iter().filter(|e| e.local).collect()
        };
        let mut addresses: Vec<_> = endpoints.iter().map(|endpoint| endpoint.address).collect();
        addresses.sort_by_key(ToString::to_string);
        addresses
            .into_iter()
            .map(|to| RealServer {
                address: to,
                weight: WEIGHT,
                method: Forwarding::Masquerade,
            })
            .collect()
    }
}
