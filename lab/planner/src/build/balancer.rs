//! Builds load balancers: IPVS in the router between the nodes, or, for public balancers, in a
//! router beyond it.
//!
//! A balancer that keeps the source receives replies addressed to the client. This works because
//! all packets between machines cross the router, which reverses the rewrite. The fabric of a cloud
//! does the same, and therefore loses a reply that never leaves the node.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;

use indexmap::IndexMap;
use ipnetwork::IpNetwork;

use crate::build::topology::{Port, Topology, default_destination};
use crate::cluster::{Balancer, BalancerBackend, BalancerPort, Cluster, FABRIC, INTERNET};
use svclab_model::plan::health::{GuardedServer, HealthRequest};
use svclab_model::plan::{HealthCheck, LinkKind, ProbeProtocol, Server, ServerKind, VirtualServer};
use svclab_ruleset::iptables::script::{IptablesScript, Table, TableScript};
use svclab_ruleset::ipvs::{Forwarding, RealServer, SchedulerFlags, VirtualServerKey};
use svclab_scenario::lab::NoBackend;

/// Interface that has the addresses of the balancers.
const BALANCER_INTERFACE: &str = "lb";

/// First firewall mark. Each port of each address uses one mark. With `skipOwnSource`, each backend
/// uses one more, so that its own packets do not return to it.
const FIRST_MARK: u32 = 100;

/// Default interval of health checks.
const DEFAULT_HEALTH_CHECK_INTERVAL: Duration = Duration::from_secs(1);

/// Link between the router and the public router.
const ROUTER_ADDRESS: Ipv4Addr = Ipv4Addr::new(198, 18, 0, 1);
const PUBLIC_ROUTER_ADDRESS: Ipv4Addr = Ipv4Addr::new(198, 18, 0, 2);
const LINK_PREFIX: u8 = 30;

/// Rules and virtual servers of the balancers in one namespace.
#[derive(Debug, Default)]
pub struct NamespaceBalancers {
    pub v4: IptablesScript,
    pub v6: IptablesScript,
    pub ipvs: Vec<VirtualServer>,
}

impl NamespaceBalancers {
    /// Returns the table of the family of an address.
    fn table_mut(&mut self, address: IpAddr, table: Table) -> &mut TableScript {
        let script = match address {
            IpAddr::V4(_) => &mut self.v4,
            IpAddr::V6(_) => &mut self.v6,
        };
        script.table_mut(table)
    }
}

/// All objects of the balancers of a cluster.
#[derive(Debug, Default)]
pub struct BalancerObjects {
    pub namespaces: IndexMap<&'static str, NamespaceBalancers>,
    /// Health checks of the backends.
    pub health: Vec<HealthCheck>,
    /// Balancers on layer 7.
    pub servers: Vec<Server>,
}

/// Returns the namespace of a balancer.
fn balancer_namespace(balancer: &Balancer) -> &'static str {
    if balancer.spec.public.is_some() {
        INTERNET
    } else {
        FABRIC
    }
}

/// Adds the addresses of all balancers to the topology, and the router of public balancers.
pub fn add_to_topology(topology: &mut Topology, cluster: &Cluster) {
    if cluster
        .balancers
        .iter()
        .any(|balancer| balancer.spec.public.is_some())
    {
        let (router_port, public_router_port) =
            (Port::new(FABRIC, INTERNET), Port::new(INTERNET, FABRIC));
        let address = |ip: Ipv4Addr| {
            IpNetwork::new(ip.into(), LINK_PREFIX)
                .into_iter()
                .collect::<Vec<_>>()
        };
        topology.veth_pair(
            &router_port,
            address(ROUTER_ADDRESS),
            &public_router_port,
            address(PUBLIC_ROUTER_ADDRESS),
        );
        topology.segment(vec![router_port, public_router_port]);
        topology.route(
            INTERNET,
            default_destination(ROUTER_ADDRESS.into()),
            Some(ROUTER_ADDRESS.into()),
            FABRIC,
        );
    }
    for place in [FABRIC, INTERNET] {
        let balancers = cluster
            .balancers
            .iter()
            .filter(|balancer| balancer_namespace(balancer) == place);
        let mut addresses: Vec<IpNetwork> = Vec::new();
        for address in balancers
            .flat_map(|balancer| &balancer.addresses)
            .map(|address| IpNetwork::from(*address))
        {
            if !addresses.contains(&address) {
                addresses.push(address);
            }
        }
        if addresses.is_empty() {
            continue;
        }
        topology.link(
            &Port::new(place, BALANCER_INTERFACE),
            LinkKind::Dummy,
            addresses,
        );
    }
    for balancer in &cluster.balancers {
        let Some(public) = &balancer.spec.public else {
            continue;
        };
        for address in balancer.addresses.iter().chain([&public.egress]) {
            let to = IpNetwork::from(*address);
            if !topology
                .namespace(FABRIC)
                .routes
                .iter()
                .any(|route| route.to == to)
            {
                topology.route(FABRIC, to, Some(PUBLIC_ROUTER_ADDRESS.into()), INTERNET);
            }
        }
    }
}

/// Builds the rules, virtual servers, health checks and layer 7 proxies of all balancers.
#[must_use]
pub fn build(cluster: &Cluster) -> BalancerObjects {
    let mut objects = BalancerObjects::default();
    let mut mark = FIRST_MARK;
    for balancer in &cluster.balancers {
        let mut guarded: Vec<(BalancerBackend, GuardedServer)> = Vec::new();
        for address in &balancer.addresses {
            for port in &balancer.ports {
                if let Some(retry_after) = balancer.spec.retry_after {
                    objects
                        .servers
                        .push(layer7_server(balancer, *address, port, retry_after));
                    continue;
                }
                let services = services(balancer, *address, port, &mut mark);
                let namespace = objects
                    .namespaces
                    .entry(balancer_namespace(balancer))
                    .or_default();
                for (mark, own_address, service) in services {
                    add_mark_rule(namespace, *address, port, mark, own_address);
                    if !balancer.spec.keep_source {
                        namespace.table_mut(*address, Table::Nat).append(
                            "POSTROUTING",
                            format!("-m mark --mark {mark} -j MASQUERADE"),
                        );
                    }
                    for backend in port
                        .backends_of(*address)
                        .filter(|backend| Some(backend.to.ip()) != own_address)
                    {
                        guarded.push((
                            *backend,
                            GuardedServer {
                                key: service.key,
                                address: backend.to,
                            },
                        ));
                    }
                    namespace.ipvs.push(service);
                }
            }
        }
        add_icmp_policy(&mut objects, balancer);
        add_security_group(&mut objects, balancer);
        add_egress_nat(&mut objects, cluster, balancer);
        objects.health.extend(health_checks(balancer, &guarded));
    }
    objects
}

/// Builds the virtual servers of a port: one for all sources, and with `skipOwnSource` one for each
/// backend's own packets. Each result has the mark, the address of that backend, and the server.
fn services(
    balancer: &Balancer,
    address: IpAddr,
    port: &BalancerPort,
    mark: &mut u32,
) -> Vec<(u32, Option<IpAddr>, VirtualServer)> {
    let mut owners: Vec<Option<IpAddr>> = vec![None];
    if balancer.spec.skip_own_source {
        let backends = port.backends_of(address);
        owners.extend(backends.map(|backend| Some(backend.to.ip())));
    }
    owners
        .into_iter()
        .map(|own_address| {
            let own_mark = *mark;
            *mark += 1;
            let servers = port
                .backends_of(address)
                .filter(|backend| Some(backend.to.ip()) != own_address)
                .map(|backend| RealServer {
                    address: backend.to,
                    weight: 1,
                    method: Forwarding::Masquerade,
                })
                .collect();
            let key = VirtualServerKey::FwMark {
                mark: own_mark,
                is_v6: address.is_ipv6(),
            };
            let service = VirtualServer {
                key,
                scheduler: balancer.spec.scheduler.clone(),
                persistence: None,
                flags: SchedulerFlags::default(),
                servers,
            };
            (own_mark, own_address, service)
        })
        .collect()
}

/// Adds the rule that marks the packets of a balancer. The last matching rule sets the mark, so
/// rules for one source must follow the rule for all sources.
fn add_mark_rule(
    namespace: &mut NamespaceBalancers,
    address: IpAddr,
    port: &BalancerPort,
    mark: u32,
    own_address: Option<IpAddr>,
) {
    let source = own_address
        .map(|own| format!("-s {own} "))
        .unwrap_or_default();
    namespace.table_mut(address, Table::Mangle).append(
        "PREROUTING",
        format!(
            "{source}-d {address} -p {protocol} --dport {port} -j MARK --set-mark {mark}",
            protocol = port.protocol,
            port = port.port,
        ),
    );
}

/// Drops the ICMP errors that IPVS sends without a backend, unless the lab expects them: most
/// clouds do not reply at all.
fn add_icmp_policy(objects: &mut BalancerObjects, balancer: &Balancer) {
    if balancer.spec.no_backend == NoBackend::Refuse || balancer.spec.retry_after.is_some() {
        return;
    }
    let namespace = objects
        .namespaces
        .entry(balancer_namespace(balancer))
        .or_default();
    for address in &balancer.addresses {
        let error = match address {
            IpAddr::V4(_) => "-p icmp --icmp-type port-unreachable",
            IpAddr::V6(_) => "-p icmpv6 --icmpv6-type port-unreachable",
        };
        namespace
            .table_mut(*address, Table::Filter)
            .append("OUTPUT", format!("-s {address} {error} -j DROP"));
    }
}

/// Adds the security group of a balancer. A security group drops packets that the balancer sends
/// on, by the source address of the client. A balancer on layer 7 opens its own connections, so its
/// security group drops packets that the balancer receives.
fn add_security_group(objects: &mut BalancerObjects, balancer: &Balancer) {
    let Some(group) = &balancer.spec.security_group else {
        return;
    };
    let chain = format!("SG-{}", balancer.name.chars().take(20).collect::<String>());
    let namespace = objects
        .namespaces
        .entry(balancer_namespace(balancer))
        .or_default();
    for (is_v4, script) in [(true, &mut namespace.v4), (false, &mut namespace.v6)] {
        if balancer.addresses.iter().all(|own| own.is_ipv4() != is_v4) {
            continue;
        }
        let filter = script.table_mut(Table::Filter);
        filter.declare_chain(&chain);
        let allowed = group.allow.iter().filter(|own| own.is_ipv4() == is_v4);
        for allowed in allowed {
            filter.append(&chain, format!("-s {allowed} -j RETURN"));
        }
        filter.append(
            &chain,
            format!(
                "-m comment --comment \"securityGroup of {}\" -j DROP",
                balancer.name
            ),
        );
    }
    let hook = if balancer.spec.retry_after.is_some() {
        "INPUT"
    } else {
        "OUTPUT"
    };
    for (to, protocol) in protected_addresses(balancer) {
        // IPVS marks what it sends as untracked unless the sysctl `net.ipv4.vs.conntrack` is
        // set (Linux v6.12, `net/netfilter/ipvs/ip_vs_xmit.c`, `ip_vs_nat_send_or_cont`).
        namespace.table_mut(to.ip(), Table::Filter).append(
            hook,
            format!(
                "-d {} -p {protocol} --dport {} -m conntrack --ctstate NEW,UNTRACKED -j {chain}",
                to.ip(),
                to.port(),
            ),
        );
    }
}

/// Returns the addresses and ports that a security group protects.
fn protected_addresses(balancer: &Balancer) -> Vec<(SocketAddr, &str)> {
    let port_addresses = |port: &BalancerPort| -> Vec<SocketAddr> {
        if balancer.spec.retry_after.is_some() {
            let addresses = balancer.addresses.iter();
            addresses
                .map(|own| SocketAddr::new(*own, port.port))
                .collect()
        } else {
            port.backends.iter().map(|backend| backend.to).collect()
        }
    };
    let ports = balancer.ports.iter();
    ports
        .flat_map(|port| {
            port_addresses(port)
                .into_iter()
                .map(|to| (to, port.protocol.as_str()))
        })
        .collect()
}

/// Adds the source NAT of packets that leave the cluster for a public balancer.
fn add_egress_nat(objects: &mut BalancerObjects, cluster: &Cluster, balancer: &Balancer) {
    let Some(public) = &balancer.spec.public else {
        return;
    };
    let networks = cluster.nodes.iter().enumerate().flat_map(|(index, node)| {
        node.addresses
            .iter()
            .map(|address| IpNetwork::from(address.ip()))
            .chain(node.pod_cidrs.iter().copied())
            .chain(cluster.pod_addresses_outside(index).map(IpNetwork::from))
    });
    let sources: Vec<IpNetwork> = networks.filter(IpNetwork::is_ipv4).collect();
    let namespace = objects.namespaces.entry(FABRIC).or_default();
    let nat = namespace.v4.table_mut(Table::Nat);
    for address in &balancer.addresses {
        for source in &sources {
            nat.append(
                "POSTROUTING",
                format!(
                    "-s {source} -d {address} -o {INTERNET} -j SNAT --to-source {}",
                    public.egress
                ),
            );
        }
    }
}

fn layer7_server(
    balancer: &Balancer,
    address: IpAddr,
    port: &BalancerPort,
    retry_after: Duration,
) -> Server {
    Server {
        namespace: balancer_namespace(balancer).to_owned(),
        name: balancer.reference().to_string(),
        address: Some(address),
        protocol: ProbeProtocol::Tcp,
        port: port.port,
        kind: ServerKind::L7Proxy {
            backends: port
                .backends_of(address)
                .map(|backend| backend.to)
                .collect(),
            retry_after,
        },
    }
}

/// Builds one health check for each backend. The check uses the node's health check port if the
/// service has one, otherwise the port of the backend.
fn health_checks(
    balancer: &Balancer,
    guarded: &[(BalancerBackend, GuardedServer)],
) -> Vec<HealthCheck> {
    let Some(check) = &balancer.spec.health_check else {
        return Vec::new();
    };
    let mut checks: IndexMap<SocketAddr, HealthCheck> = IndexMap::new();
    for (backend, guards) in guarded {
        let (address, question) = match balancer.health_check_node_port {
            Some(port) => (
                SocketAddr::new(backend.to.ip(), port),
                HealthRequest::Get {
                    path: "/healthz".to_owned(),
                },
            ),
            None => (backend.to, HealthRequest::Connect),
        };
        checks
            .entry(address)
            .or_insert_with(|| HealthCheck {
                namespace: balancer_namespace(balancer).to_owned(),
                backend: address,
                bind: None,
                request: question,
                interval: check.every.unwrap_or(DEFAULT_HEALTH_CHECK_INTERVAL),
                real_servers: Vec::new(),
            })
            .real_servers
            .push(guards.clone());
    }
    checks.into_values().collect()
}
