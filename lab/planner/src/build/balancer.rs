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

use super::topology::{Port, Topology, everywhere};
use crate::cluster::{Balancer, BalancerBackend, BalancerPort, Cluster, FABRIC, INTERNET};
use svclab_model::plan::health::{Guarded, Question};
use svclab_model::plan::{HealthCheck, LinkKind, Protocol, Server, ServerKind, VirtualServer};
use svclab_ruleset::iptables::script::{Script, Table};
use svclab_ruleset::ipvs::{Forwarding, RealServer, SchedulerFlags, Virtual};
use svclab_scenario::lab::NoBackend;

/// Interface that has the addresses of the balancers.
const HOLDER: &str = "lb";

/// First firewall mark. Each port of each address uses one mark. With `skipOwnSource`, each backend
/// uses one more, so that its own packets do not return to it.
const FIRST_MARK: u32 = 100;

/// Default interval of health checks.
const EVERY: Duration = Duration::from_secs(1);

/// Link between the router and the public router.
const NEAR: Ipv4Addr = Ipv4Addr::new(198, 18, 0, 1);
const FAR: Ipv4Addr = Ipv4Addr::new(198, 18, 0, 2);
const CABLE: u8 = 30;

/// Rules and virtual servers of the balancers in one namespace.
#[derive(Debug, Default)]
pub struct Balancing {
    pub script: Script,
    pub ipvs: Vec<VirtualServer>,
}

/// All objects of the balancers of a cluster.
#[derive(Debug, Default)]
pub struct Made {
    pub namespaces: IndexMap<&'static str, Balancing>,
    /// Health checks of the backends.
    pub health: Vec<HealthCheck>,
    /// Balancers on layer 7.
    pub servers: Vec<Server>,
}

/// Returns the namespace of a balancer.
fn place_of(balancer: &Balancer) -> &'static str {
    if balancer.spec.public.is_some() {
        INTERNET
    } else {
        FABRIC
    }
}

/// Adds the addresses of all balancers to the topology, and the router of public balancers.
pub fn place(topology: &mut Topology, cluster: &Cluster) {
    if cluster
        .balancers
        .iter()
        .any(|balancer| balancer.spec.public.is_some())
    {
        let (near, far) = (Port::new(FABRIC, INTERNET), Port::new(INTERNET, FABRIC));
        let address = |ip: Ipv4Addr| {
            IpNetwork::new(ip.into(), CABLE)
                .into_iter()
                .collect::<Vec<_>>()
        };
        topology.cable(&near, address(NEAR), &far, address(FAR));
        topology.segment(vec![near, far]);
        topology.route(INTERNET, everywhere(NEAR.into()), Some(NEAR.into()), FABRIC);
    }
    for place in [FABRIC, INTERNET] {
        let here = cluster
            .balancers
            .iter()
            .filter(|balancer| place_of(balancer) == place);
        let mut addresses: Vec<IpNetwork> = Vec::new();
        for address in here
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
        topology.link(&Port::new(place, HOLDER), LinkKind::Dummy, addresses);
    }
    for balancer in &cluster.balancers {
        let Some(public) = &balancer.spec.public else {
            continue;
        };
        for address in balancer
            .addresses
            .iter()
            .chain([&public.egress])
            .filter(|address| address.is_ipv4())
        {
            let to = IpNetwork::from(*address);
            if !topology
                .namespace(FABRIC)
                .routes
                .iter()
                .any(|route| route.to == to)
            {
                topology.route(FABRIC, to, Some(FAR.into()), INTERNET);
            }
        }
    }
}

/// Builds the rules, virtual servers, health checks and layer 7 proxies of all balancers.
#[must_use]
pub fn make(cluster: &Cluster) -> Made {
    let mut made = Made::default();
    let mut mark = FIRST_MARK;
    for balancer in &cluster.balancers {
        let mut guarded: Vec<(BalancerBackend, Guarded)> = Vec::new();
        for address in balancer
            .addresses
            .iter()
            .filter(|address| address.is_ipv4())
        {
            for port in &balancer.ports {
                if let Some(retry_after) = balancer.spec.retry_after {
                    made.servers
                        .push(proxy(balancer, *address, port, retry_after));
                    continue;
                }
                let services = services(balancer, port, &mut mark);
                let here = made.namespaces.entry(place_of(balancer)).or_default();
                for (mark, own, service) in services {
                    marking(&mut here.script, *address, port, mark, own);
                    if !balancer.spec.keep_source {
                        here.script.table(Table::Nat).command(format!(
                            "-A POSTROUTING -m mark --mark {mark} -j MASQUERADE"
                        ));
                    }
                    for backend in port
                        .backends
                        .iter()
                        .filter(|backend| Some(backend.to.ip()) != own)
                    {
                        guarded.push((
                            *backend,
                            Guarded {
                                takes: service.takes,
                                to: backend.to,
                            },
                        ));
                    }
                    here.ipvs.push(service);
                }
            }
        }
        unreachable_or_not(&mut made, balancer);
        security(&mut made, balancer);
        egress(&mut made, cluster, balancer);
        made.health.extend(health(balancer, &guarded));
    }
    made
}

/// Builds the virtual servers of a port: one for all sources, and with `skipOwnSource` one for each
/// backend's own packets. Each result has the mark, the address of that backend, and the server.
fn services(
    balancer: &Balancer,
    port: &BalancerPort,
    mark: &mut u32,
) -> Vec<(u32, Option<IpAddr>, VirtualServer)> {
    let mut owners: Vec<Option<IpAddr>> = vec![None];
    if balancer.spec.skip_own_source {
        owners.extend(port.backends.iter().map(|backend| Some(backend.to.ip())));
    }
    owners
        .into_iter()
        .map(|own| {
            let this = *mark;
            *mark += 1;
            let servers = port
                .backends
                .iter()
                .filter(|backend| Some(backend.to.ip()) != own)
                .map(|backend| RealServer {
                    to: backend.to,
                    weight: 1,
                    forwarding: Forwarding::Masquerade,
                })
                .collect();
            let takes = Virtual::FwMark {
                mark: this,
                v6: false,
            };
            let service = VirtualServer {
                takes,
                scheduler: balancer.spec.scheduler.clone(),
                persistence: None,
                flags: SchedulerFlags::default(),
                servers,
            };
            (this, own, service)
        })
        .collect()
}

/// Adds the rule that marks the packets of a balancer. The last matching rule sets the mark, so
/// rules for one source must follow the rule for all sources.
fn marking(
    script: &mut Script,
    address: IpAddr,
    port: &BalancerPort,
    mark: u32,
    own: Option<IpAddr>,
) {
    let source = own.map(|own| format!("-s {own} ")).unwrap_or_default();
    script.table(Table::Mangle).command(format!(
        "-A PREROUTING {source}-d {address} -p {protocol} --dport {port} -j MARK --set-mark {mark}",
        protocol = port.protocol,
        port = port.port,
    ));
}

/// Drops the ICMP errors that IPVS sends without a backend, unless the lab expects them: most
/// clouds do not reply at all.
fn unreachable_or_not(made: &mut Made, balancer: &Balancer) {
    if balancer.spec.no_backend == NoBackend::Refuse || balancer.spec.retry_after.is_some() {
        return;
    }
    let filter = made
        .namespaces
        .entry(place_of(balancer))
        .or_default()
        .script
        .table(Table::Filter);
    for address in balancer
        .addresses
        .iter()
        .filter(|address| address.is_ipv4())
    {
        filter.command(format!(
            "-A OUTPUT -s {address} -p icmp --icmp-type port-unreachable -j DROP"
        ));
    }
}

/// Adds the security group of a balancer. A security group drops packets that the balancer sends
/// on, by the source address of the client. A balancer on layer 7 opens its own connections, so its
/// security group drops packets that the balancer receives.
fn security(made: &mut Made, balancer: &Balancer) {
    let Some(group) = &balancer.spec.security_group else {
        return;
    };
    let chain = format!("SG-{}", balancer.name.chars().take(20).collect::<String>());
    let filter = made
        .namespaces
        .entry(place_of(balancer))
        .or_default()
        .script
        .table(Table::Filter);
    filter.chain(&chain);
    for allowed in group.allow.iter().filter(|allowed| allowed.is_ipv4()) {
        filter.command(format!("-A {chain} -s {allowed} -j RETURN"));
    }
    filter.command(format!(
        "-A {chain} -m comment --comment \"security group of {}\" -j DROP",
        balancer.name
    ));
    let hook = if balancer.spec.retry_after.is_some() {
        "INPUT"
    } else {
        "OUTPUT"
    };
    for (to, protocol) in guarded_by_security(balancer) {
        // IPVS marks what it sends as untracked unless the sysctl `net.ipv4.vs.conntrack` is
        // set (Linux v6.12, `net/netfilter/ipvs/ip_vs_xmit.c`, `ip_vs_nat_send_or_cont`).
        filter.command(format!(
            "-A {hook} -d {} -p {protocol} --dport {} -m conntrack --ctstate NEW,UNTRACKED -j {chain}",
            to.ip(),
            to.port(),
        ));
    }
}

/// Returns the addresses and ports that a security group protects.
fn guarded_by_security(balancer: &Balancer) -> Vec<(SocketAddr, &str)> {
    let of_port = |port: &BalancerPort| -> Vec<SocketAddr> {
        if balancer.spec.retry_after.is_some() {
            let own = balancer.addresses.iter().filter(|own| own.is_ipv4());
            own.map(|own| SocketAddr::new(*own, port.port)).collect()
        } else {
            port.backends.iter().map(|backend| backend.to).collect()
        }
    };
    let ports = balancer.ports.iter();
    ports
        .flat_map(|port| {
            of_port(port)
                .into_iter()
                .map(|to| (to, port.protocol.as_str()))
        })
        .collect()
}

/// Adds the source NAT of packets that leave the cluster for a public balancer.
fn egress(made: &mut Made, cluster: &Cluster, balancer: &Balancer) {
    let Some(public) = &balancer.spec.public else {
        return;
    };
    let own = cluster.nodes.iter().flat_map(|node| {
        node.addresses
            .iter()
            .map(|address| IpNetwork::from(address.ip()))
            .chain(node.pod_cidrs.iter().copied())
    });
    let sources: Vec<IpNetwork> = own.filter(IpNetwork::is_ipv4).collect();
    let nat = made
        .namespaces
        .entry(FABRIC)
        .or_default()
        .script
        .table(Table::Nat);
    for address in balancer
        .addresses
        .iter()
        .filter(|address| address.is_ipv4())
    {
        for source in &sources {
            nat.command(format!(
                "-A POSTROUTING -s {source} -d {address} -o {INTERNET} -j SNAT --to-source {}",
                public.egress
            ));
        }
    }
}

fn proxy(
    balancer: &Balancer,
    address: IpAddr,
    port: &BalancerPort,
    retry_after: Duration,
) -> Server {
    Server {
        namespace: place_of(balancer).to_owned(),
        name: balancer.reference().to_string(),
        address: Some(address),
        protocol: Protocol::Tcp,
        port: port.port,
        kind: ServerKind::Forwards {
            backends: port.backends.iter().map(|backend| backend.to).collect(),
            retry_after,
        },
    }
}

/// Builds one health check for each backend. The check uses the node's health check port if the
/// service has one, otherwise the port of the backend.
fn health(balancer: &Balancer, guarded: &[(BalancerBackend, Guarded)]) -> Vec<HealthCheck> {
    let Some(check) = &balancer.spec.health_check else {
        return Vec::new();
    };
    let mut checks: IndexMap<SocketAddr, HealthCheck> = IndexMap::new();
    for (backend, guards) in guarded {
        let (asked, question) = match balancer.health_check_node_port {
            Some(port) => (
                SocketAddr::new(backend.to.ip(), port),
                Question::Get {
                    path: "/healthz".to_owned(),
                },
            ),
            None => (backend.to, Question::Connect),
        };
        checks
            .entry(asked)
            .or_insert_with(|| HealthCheck {
                namespace: place_of(balancer).to_owned(),
                backend: asked,
                bind: None,
                question,
                every: check.every.unwrap_or(EVERY),
                guards: Vec::new(),
            })
            .guards
            .push(guards.clone());
    }
    checks.into_values().collect()
}
