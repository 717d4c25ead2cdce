//! Writes the objects of nftables mode for each service port: its chains, and its entries in the
//! sets and maps.

use std::fmt::Write as _;
use std::net::IpAddr;

use indexmap::IndexMap;

use super::names::{EndpointNames, PortNames};
use super::{Context, local, names};
use crate::kube_proxy::endpoints::{Endpoint, EndpointMap};
use crate::kube_proxy::history::{
    NFT_ENDPOINT_MAPS, NFT_FIREWALL_COMMENTS, NFT_FIREWALL_SETS, NFT_MASQUERADE_BY_PORT,
};
use crate::kube_proxy::services::ServicePort;
use crate::kube_proxy::topology::{self, Chosen};
use svclab_ruleset::nft::{Chain, Element, Rule, Set};

/// Objects for all services.
#[derive(Debug, Default)]
pub(super) struct Made {
    pub entries: Entries,
    /// Sets of clients with affinity to an endpoint.
    pub affinity: Vec<Set>,
    pub chains: Vec<Chain>,
}

/// Entries of services in each set and map.
#[derive(Debug, Default)]
pub(super) struct Entries {
    pub hairpin: Elements,
    pub cluster_ips: Elements,
    pub no_endpoint_services: Elements,
    pub no_endpoint_node_ports: Elements,
    pub firewall: Elements,
    pub firewall_allow: Elements,
    pub service_ips: Elements,
    pub service_node_ports: Elements,
}

/// Entries of one set or map. If several entries have one key, the last is kept.
#[derive(Debug, Default)]
pub(super) struct Elements(IndexMap<String, Element>);

impl Elements {
    fn put(&mut self, element: Element) {
        self.0.insert(element.key.clone(), element);
    }

    /// Returns the entries in the order in which their keys were first added.
    pub fn into_elements(self) -> Vec<Element> {
        self.0.into_values().collect()
    }
}

/// Computes the objects for `ports` and their `endpoints`.
pub(super) fn make(context: &Context<'_>, ports: &[ServicePort], endpoints: &EndpointMap) -> Made {
    let mut made = Made::default();
    for port in ports {
        let of_port = endpoints.of(port);
        let chosen = topology::choose(of_port, port, context.version, context.node.place());
        let service = Service::new(context, port, &chosen);
        service.enter(&mut made.entries);
        service.write(&mut made);
    }
    made
}

/// Service port as one node serves it.
struct Service<'a> {
    context: &'a Context<'a>,
    port: &'a ServicePort,
    chosen: &'a Chosen<'a>,
    names: PortNames,
    /// Endpoints that have a chain, with their names.
    named: Vec<(&'a Endpoint, EndpointNames)>,
}

impl<'a> Service<'a> {
    fn new(context: &'a Context<'a>, port: &'a ServicePort, chosen: &'a Chosen<'a>) -> Self {
        let names = PortNames::of(port);
        let chains = port.affinity_seconds.is_some() || !context.version.has(&NFT_ENDPOINT_MAPS);
        let endpoints = chosen.reachable.iter().filter(|_| chains);
        let with_names = endpoints.map(|endpoint| (*endpoint, names.endpoint(endpoint)));
        Self {
            context,
            port,
            chosen,
            named: with_names.collect(),
            names,
        }
    }

    /// Whether traffic to the cluster IP has an endpoint.
    fn serves_inside(&self) -> bool {
        self.chosen.any && !(self.port.internal_local && self.chosen.local.is_empty())
    }

    /// Whether traffic from outside has an endpoint.
    fn serves_outside(&self) -> bool {
        self.chosen.any && !(self.port.external_local && self.chosen.local.is_empty())
    }

    /// Returns the chain for traffic to the cluster IP.
    fn inside(&self) -> &str {
        if self.port.internal_local {
            &self.names.local
        } else {
            &self.names.cluster
        }
    }

    /// Returns the verdict for traffic without an endpoint.
    fn refusal(&self) -> String {
        if self.chosen.any {
            "drop".to_owned()
        } else {
            format!("goto {}", names::REJECT)
        }
    }

    /// Returns the key of an address and the service's port.
    fn socket(&self, ip: IpAddr) -> String {
        format!("{ip} . {} . {}", self.port.protocol, self.port.port)
    }

    /// Adds a comment with the service port's name to an entry.
    fn noted(&self, element: Element) -> Element {
        Element {
            comment: Some(self.port.name.clone()),
            ..element
        }
    }

    fn enter(&self, entries: &mut Entries) {
        let port = self.port;
        let version = self.context.version;
        let maps = version.has(&NFT_ENDPOINT_MAPS);
        for endpoint in self.chosen.reachable.iter().filter(|e| maps && e.local) {
            let ip = endpoint.ip();
            let number = endpoint.address.port();
            entries.hairpin.put(Element::of_set(format!(
                "{ip} . {ip} . {} . {number}",
                port.protocol
            )));
        }
        let own = port.cluster_ip;
        entries.cluster_ips.put(Element::of_set(own.to_string()));
        if self.serves_inside() {
            let to = format!("goto {}", self.inside());
            entries
                .service_ips
                .put(Element::of_map(self.socket(own), to));
        } else {
            let refused = Element::of_map(self.socket(own), self.refusal());
            entries.no_endpoint_services.put(self.noted(refused));
        }
        for ip in port.external_ips.iter().chain(&port.load_balancer_ips) {
            if self.chosen.any {
                let to = format!("goto {}", self.names.external);
                entries
                    .service_ips
                    .put(Element::of_map(self.socket(*ip), to));
            }
            if !self.serves_outside() {
                let refused = Element::of_map(self.socket(*ip), self.refusal());
                entries.no_endpoint_services.put(self.noted(refused));
            }
        }
        if !port.source_ranges.is_empty() {
            self.guard(entries);
        }
        if let Some(node_port) = port.node_port {
            let key = format!("{} . {node_port}", port.protocol);
            if self.chosen.any {
                let to = format!("goto {}", self.names.external);
                entries
                    .service_node_ports
                    .put(Element::of_map(key.clone(), to));
            }
            if !self.serves_outside() {
                let refused = Element::of_map(key, self.refusal());
                entries.no_endpoint_node_ports.put(self.noted(refused));
            }
        }
    }

    /// Adds the load balancer addresses to the addresses with source ranges.
    fn guard(&self, entries: &mut Entries) {
        let version = self.context.version;
        let port = self.port;
        for ip in &port.load_balancer_ips {
            let socket = self.socket(*ip);
            if !version.has(&NFT_FIREWALL_SETS) {
                let to = format!("goto {}", self.names.firewall);
                let element = Element::of_map(socket, to);
                entries
                    .firewall
                    .put(if version.has(&NFT_FIREWALL_COMMENTS) {
                        self.noted(element)
                    } else {
                        element
                    });
                continue;
            }
            entries
                .firewall
                .put(self.noted(Element::of_set(socket.clone())));
            for range in &port.source_ranges {
                let element = Element::of_set(format!("{socket} . {range}"));
                entries.firewall_allow.put(self.noted(element));
            }
            if self.admits_node() {
                entries
                    .firewall_allow
                    .put(Element::of_set(format!("{socket} . {ip}")));
            }
        }
    }

    /// Whether source ranges admit the node itself.
    fn admits_node(&self) -> bool {
        let Self { context, port, .. } = self;
        let node = context.node;
        node.is_admitted(&port.source_ranges, context.version, context.family)
    }

    fn write(&self, made: &mut Made) {
        let Self { port, chosen, .. } = self;
        if port.affinity_seconds.is_some() {
            made.affinity
                .extend(self.named.iter().map(|(_, names)| Set {
                    name: names.affinity(),
                    holds: format!("type {}", self.context.address_type()),
                    flags: vec!["dynamic".to_owned(), "timeout".to_owned()],
                    timeout: port.affinity_seconds.map(u64::from),
                    ..Set::default()
                }));
        }
        made.chains.extend(self.endpoints());
        if !chosen.cluster.is_empty() && port.uses_cluster_endpoints() {
            let inside = !port.internal_local;
            made.chains
                .push(self.spread(&self.names.cluster, &chosen.cluster, inside));
        }
        if !chosen.local.is_empty() && port.uses_local_endpoints() {
            let inside = port.internal_local;
            made.chains
                .push(self.spread(&self.names.local, &chosen.local, inside));
        }
        if chosen.any && port.externally_accessible() {
            made.chains.push(self.outside());
        }
        let guards = !port.source_ranges.is_empty() && !port.load_balancer_ips.is_empty();
        if guards && !self.context.version.has(&NFT_FIREWALL_SETS) {
            made.chains.push(self.firewall());
        }
    }

    /// Returns the chains of the endpoints that have one.
    fn endpoints(&self) -> impl Iterator<Item = Chain> + '_ {
        let Self { context, port, .. } = self;
        let ip = context.ip();
        self.named.iter().map(move |(endpoint, names)| {
            let mut chain = Chain::regular(names.chain.as_str());
            if !context.version.has(&NFT_ENDPOINT_MAPS) {
                let own = endpoint.ip();
                chain.rule(format!("{ip} saddr {own} {}", context.masquerade()));
            }
            if port.affinity_seconds.is_some() {
                chain.rule(format!("update @{} {{ {ip} saddr }}", names.affinity()));
            }
            chain.rule(format!(
                "meta l4proto {} dnat to {}",
                port.protocol, endpoint.address
            ));
            chain
        })
    }

    /// Returns the chain that distributes traffic over endpoints. `inside` is whether traffic to
    /// the cluster IP traverses the chain.
    fn spread(&self, name: &str, endpoints: &[&Endpoint], inside: bool) -> Chain {
        let Self { context, port, .. } = self;
        let mut chain = Chain::regular(name);
        if inside && self.serves_inside() {
            chain.rules.extend(self.masquerade_inside());
        }
        let count = endpoints.len();
        if self.named.is_empty() {
            let to: Vec<String> = (0..)
                .zip(endpoints)
                .map(|(at, e)| format!("{at} : {} . {}", e.ip(), e.address.port()))
                .collect();
            chain.rule(format!(
                "meta l4proto {} dnat {} addr . port to numgen random mod {count} map {{ {} }}",
                port.protocol,
                context.ip(),
                to.join(", ")
            ));
            return chain;
        }
        let names: Vec<&EndpointNames> = endpoints
            .iter()
            .filter_map(|endpoint| {
                let named = self.named.iter();
                let mut own = named.filter(|(known, _)| std::ptr::eq(*known, *endpoint));
                own.next().map(|(_, names)| names)
            })
            .collect();
        if port.affinity_seconds.is_some() {
            for names in &names {
                chain.rule(format!(
                    "{} saddr @{} goto {}",
                    context.ip(),
                    names.affinity(),
                    names.chain
                ));
            }
        }
        let mut rule = format!("numgen random mod {count} vmap {{ ");
        for (at, names) in names.iter().enumerate() {
            let comma = if at == 0 { "" } else { ", " };
            let _ = write!(rule, "{comma}{at} : goto {}", names.chain);
        }
        rule.push_str(" }");
        chain.rule(rule);
        chain
    }

    /// Returns the rule that masquerades traffic to the cluster IP, up to v1.35.
    fn masquerade_inside(&self) -> Option<Rule> {
        let Self { context, port, .. } = self;
        if context.version.has(&NFT_ENDPOINT_MAPS) {
            return None;
        }
        let not_local = if context.proxy.masquerade_all {
            String::new()
        } else {
            local::if_not_local(context)? + " "
        };
        let to = if context.version.has(&NFT_MASQUERADE_BY_PORT) {
            format!("{} {} dport {}", port.cluster_ip, port.protocol, port.port)
        } else {
            port.cluster_ip.to_string()
        };
        Some(Rule::new(format!(
            "{} daddr {to} {not_local}{}",
            context.ip(),
            context.masquerade()
        )))
    }

    /// Returns the chain for traffic from outside.
    fn outside(&self) -> Chain {
        let Self { context, names, .. } = self;
        let masquerade = context.masquerade();
        let mut chain = Chain::regular(names.external.as_str());
        if self.port.external_local {
            let all = &names.cluster;
            if let Some(local) = local::if_local(context) {
                chain.rules.push(
                    Rule::new(format!("{local} goto {all}")).comment("short-circuit pod traffic"),
                );
            }
            let own = "fib saddr type local";
            chain
                .rules
                .push(Rule::new(format!("{own} {masquerade}")).comment("masquerade local traffic"));
            chain.rules.push(
                Rule::new(format!("{own} goto {all}")).comment("short-circuit local traffic"),
            );
            if self.serves_outside() {
                chain.rule(format!("goto {}", names.local));
            }
        } else {
            let rule = Rule::new(masquerade);
            chain
                .rules
                .push(if context.version.has(&NFT_ENDPOINT_MAPS) {
                    rule.comment("masquerade")
                } else {
                    rule
                });
            if self.serves_outside() {
                chain.rule(format!("goto {}", names.cluster));
            }
        }
        chain
    }

    /// Returns the chain that drops traffic from sources that the source ranges do not admit.
    fn firewall(&self) -> Chain {
        let Self { context, port, .. } = self;
        let mut admitted: Vec<String> = port.source_ranges.iter().map(network).collect();
        if self.admits_node() {
            admitted.extend(port.load_balancer_ips.iter().map(ToString::to_string));
        }
        let mut chain = Chain::regular(self.names.firewall.as_str());
        chain.rule(format!(
            "{} saddr != {{ {} }} drop",
            context.ip(),
            admitted.join(", ")
        ));
        chain
    }
}

/// Renders a network as Go does: without the host bits.
fn network(range: &ipnetwork::IpNetwork) -> String {
    format!("{}/{}", range.network(), range.prefix())
}
