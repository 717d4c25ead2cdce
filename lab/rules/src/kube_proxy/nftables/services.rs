//! Writes the objects of nftables mode for each service port: its chains, and its entries in the
//! sets and maps.

use std::fmt::Write as _;
use std::net::IpAddr;

use indexmap::IndexMap;

use super::names::{EndpointNames, PortNames};
use super::{NftablesContext, local, names};
use crate::kube_proxy::endpoints::{Endpoint, EndpointMap};
use crate::kube_proxy::history::{
    NFT_ENDPOINT_MAPS, NFT_FIREWALL_COMMENTS, NFT_FIREWALL_SETS, NFT_MASQUERADE_BY_PORT,
};
use crate::kube_proxy::services::ServicePort;
use crate::kube_proxy::topology::{self, EndpointSelection};
use svclab_ruleset::nft::{Chain, Element, Rule, Set};

/// Objects for all services.
#[derive(Debug, Default)]
pub(super) struct NftObjects {
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
    fn insert(&mut self, element: Element) {
        self.0.insert(element.key.clone(), element);
    }

    /// Returns the entries in the order in which their keys were first added.
    pub(crate) fn into_elements(self) -> Vec<Element> {
        self.0.into_values().collect()
    }
}

/// Computes the objects for `ports` and their `endpoints`.
pub(super) fn build_objects(
    context: &NftablesContext<'_>,
    ports: &[ServicePort],
    endpoints: &EndpointMap,
) -> NftObjects {
    let mut objects = NftObjects::default();
    for port in ports {
        let port_endpoints = endpoints.get(port);
        let selection = topology::select_endpoints(
            port_endpoints,
            port,
            context.version,
            context.node.locality(),
        );
        let writer = ServiceWriter::new(context, port, &selection);
        writer.add_entries(&mut objects.entries);
        writer.add_objects(&mut objects);
    }
    objects
}

/// Service port as one node serves it.
struct ServiceWriter<'a> {
    context: &'a NftablesContext<'a>,
    port: &'a ServicePort,
    selection: &'a EndpointSelection<'a>,
    names: PortNames,
    /// Endpoints that have a chain, with their names.
    endpoint_names: Vec<(&'a Endpoint, EndpointNames)>,
}

impl<'a> ServiceWriter<'a> {
    fn new(
        context: &'a NftablesContext<'a>,
        port: &'a ServicePort,
        selection: &'a EndpointSelection<'a>,
    ) -> Self {
        let names = PortNames::new(port);
        let chains = port.affinity_seconds.is_some() || !context.version.has(&NFT_ENDPOINT_MAPS);
        let endpoints = selection.reachable.iter().filter(|_| chains);
        let with_names = endpoints.map(|endpoint| (*endpoint, names.endpoint(endpoint)));
        Self {
            context,
            port,
            selection,
            endpoint_names: with_names.collect(),
            names,
        }
    }

    /// Whether traffic to the cluster IP has an endpoint.
    fn has_internal_endpoints(&self) -> bool {
        self.selection.has_any && !(self.port.internal_local && self.selection.local.is_empty())
    }

    /// Whether traffic from outside has an endpoint.
    fn has_external_endpoints(&self) -> bool {
        self.selection.has_any && !(self.port.external_local && self.selection.local.is_empty())
    }

    /// Returns the chain for traffic to the cluster IP.
    fn internal_chain(&self) -> &str {
        if self.port.internal_local {
            &self.names.local
        } else {
            &self.names.cluster
        }
    }

    /// Returns the verdict for traffic without an endpoint.
    fn reject_verdict(&self) -> String {
        if self.selection.has_any {
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
    fn with_comment(&self, element: Element) -> Element {
        Element {
            comment: Some(self.port.name.clone()),
            ..element
        }
    }

    fn add_entries(&self, entries: &mut Entries) {
        let port = self.port;
        let version = self.context.version;
        let has_maps = version.has(&NFT_ENDPOINT_MAPS);
        for endpoint in self
            .selection
            .reachable
            .iter()
            .filter(|e| has_maps && e.local)
        {
            let ip = endpoint.ip();
            let number = endpoint.address.port();
            entries.hairpin.insert(Element::set_element(format!(
                "{ip} . {ip} . {} . {number}",
                port.protocol
            )));
        }
        let cluster_ip = port.cluster_ip;
        entries
            .cluster_ips
            .insert(Element::set_element(cluster_ip.to_string()));
        if self.has_internal_endpoints() {
            let to = format!("goto {}", self.internal_chain());
            entries
                .service_ips
                .insert(Element::map_element(self.socket(cluster_ip), to));
        } else {
            let refused = Element::map_element(self.socket(cluster_ip), self.reject_verdict());
            entries
                .no_endpoint_services
                .insert(self.with_comment(refused));
        }
        for ip in port.external_ips.iter().chain(&port.load_balancer_ips) {
            if self.selection.has_any {
                let to = format!("goto {}", self.names.external);
                entries
                    .service_ips
                    .insert(Element::map_element(self.socket(*ip), to));
            }
            if !self.has_external_endpoints() {
                let refused = Element::map_element(self.socket(*ip), self.reject_verdict());
                entries
                    .no_endpoint_services
                    .insert(self.with_comment(refused));
            }
        }
        if !port.source_ranges.is_empty() {
            self.add_firewall_entries(entries);
        }
        if let Some(node_port) = port.node_port {
            let key = format!("{} . {node_port}", port.protocol);
            if self.selection.has_any {
                let to = format!("goto {}", self.names.external);
                entries
                    .service_node_ports
                    .insert(Element::map_element(key.clone(), to));
            }
            if !self.has_external_endpoints() {
                let refused = Element::map_element(key, self.reject_verdict());
                entries
                    .no_endpoint_node_ports
                    .insert(self.with_comment(refused));
            }
        }
    }

    /// Adds the load balancer addresses to the addresses with source ranges.
    fn add_firewall_entries(&self, entries: &mut Entries) {
        let version = self.context.version;
        let port = self.port;
        for ip in &port.load_balancer_ips {
            let socket = self.socket(*ip);
            if !version.has(&NFT_FIREWALL_SETS) {
                let to = format!("goto {}", self.names.firewall);
                let element = Element::map_element(socket, to);
                entries
                    .firewall
                    .insert(if version.has(&NFT_FIREWALL_COMMENTS) {
                        self.with_comment(element)
                    } else {
                        element
                    });
                continue;
            }
            entries
                .firewall
                .insert(self.with_comment(Element::set_element(socket.clone())));
            for range in &port.source_ranges {
                let element = Element::set_element(format!("{socket} . {range}"));
                entries.firewall_allow.insert(self.with_comment(element));
            }
            if self.admits_node() {
                entries
                    .firewall_allow
                    .insert(Element::set_element(format!("{socket} . {ip}")));
            }
        }
    }

    /// Whether source ranges admit the node itself.
    fn admits_node(&self) -> bool {
        let Self { context, port, .. } = self;
        let node = context.node;
        node.is_admitted(&port.source_ranges, context.version, context.family)
    }

    fn add_objects(&self, objects: &mut NftObjects) {
        let Self {
            port,
            selection: chosen,
            ..
        } = self;
        if port.affinity_seconds.is_some() {
            objects
                .affinity
                .extend(self.endpoint_names.iter().map(|(_, names)| Set {
                    name: names.affinity(),
                    type_line: format!("type {}", self.context.address_type()),
                    flags: vec!["dynamic".to_owned(), "timeout".to_owned()],
                    timeout: port.affinity_seconds.map(u64::from),
                    ..Set::default()
                }));
        }
        objects.chains.extend(self.endpoint_chains());
        if !chosen.cluster.is_empty() && port.has_cluster_traffic() {
            let is_cluster_ip_chain = !port.internal_local;
            objects.chains.push(self.balance_chain(
                &self.names.cluster,
                &chosen.cluster,
                is_cluster_ip_chain,
            ));
        }
        if !chosen.local.is_empty() && port.has_local_traffic() {
            let is_cluster_ip_chain = port.internal_local;
            objects.chains.push(self.balance_chain(
                &self.names.local,
                &chosen.local,
                is_cluster_ip_chain,
            ));
        }
        if chosen.has_any && port.is_externally_accessible() {
            objects.chains.push(self.external_chain());
        }
        let has_firewall = !port.source_ranges.is_empty() && !port.load_balancer_ips.is_empty();
        if has_firewall && !self.context.version.has(&NFT_FIREWALL_SETS) {
            objects.chains.push(self.firewall_chain());
        }
    }

    /// Returns the chains of the endpoints that have one.
    fn endpoint_chains(&self) -> impl Iterator<Item = Chain> + '_ {
        let Self { context, port, .. } = self;
        let ip = context.family.nft();
        self.endpoint_names.iter().map(move |(endpoint, names)| {
            let mut chain = Chain::regular(names.chain.as_str());
            if !context.version.has(&NFT_ENDPOINT_MAPS) {
                let endpoint_ip = endpoint.ip();
                chain.push_rule(format!("{ip} saddr {endpoint_ip} {}", context.masquerade()));
            }
            if port.affinity_seconds.is_some() {
                chain.push_rule(format!("update @{} {{ {ip} saddr }}", names.affinity()));
            }
            chain.push_rule(format!(
                "meta l4proto {} dnat to {}",
                port.protocol, endpoint.address
            ));
            chain
        })
    }

    /// Returns the chain that distributes traffic over endpoints. `inside` is whether traffic to
    /// the cluster IP traverses the chain.
    fn balance_chain(
        &self,
        name: &str,
        endpoints: &[&Endpoint],
        is_cluster_ip_chain: bool,
    ) -> Chain {
        let Self { context, port, .. } = self;
        let mut chain = Chain::regular(name);
        if is_cluster_ip_chain && self.has_internal_endpoints() {
            chain.rules.extend(self.masquerade_rule());
        }
        let count = endpoints.len();
        if self.endpoint_names.is_empty() {
            let to: Vec<String> = (0..)
                .zip(endpoints)
                .map(|(index, e)| format!("{index} : {} . {}", e.ip(), e.address.port()))
                .collect();
            chain.push_rule(format!(
                "meta l4proto {} dnat {} addr . port to numgen random mod {count} map {{ {} }}",
                port.protocol,
                context.family.nft(),
                to.join(", ")
            ));
            return chain;
        }
        let names: Vec<&EndpointNames> = endpoints
            .iter()
            .filter_map(|endpoint| {
                let named = self.endpoint_names.iter();
                let mut matching =
                    named.filter(|(candidate, _)| std::ptr::eq(*candidate, *endpoint));
                matching.next().map(|(_, names)| names)
            })
            .collect();
        if port.affinity_seconds.is_some() {
            for names in &names {
                chain.push_rule(format!(
                    "{} saddr @{} goto {}",
                    context.family.nft(),
                    names.affinity(),
                    names.chain
                ));
            }
        }
        let mut rule = format!("numgen random mod {count} vmap {{ ");
        for (index, names) in names.iter().enumerate() {
            let comma = if index == 0 { "" } else { ", " };
            let _ = write!(rule, "{comma}{index} : goto {}", names.chain);
        }
        rule.push_str(" }");
        chain.push_rule(rule);
        chain
    }

    /// Returns the rule that masquerades traffic to the cluster IP, up to v1.35.
    fn masquerade_rule(&self) -> Option<Rule> {
        let Self { context, port, .. } = self;
        if context.version.has(&NFT_ENDPOINT_MAPS) {
            return None;
        }
        let not_local = if context.proxy.masquerade_all {
            String::new()
        } else {
            local::nonlocal_match(context)? + " "
        };
        let to = if context.version.has(&NFT_MASQUERADE_BY_PORT) {
            format!("{} {} dport {}", port.cluster_ip, port.protocol, port.port)
        } else {
            port.cluster_ip.to_string()
        };
        Some(Rule::new(format!(
            "{} daddr {to} {not_local}{}",
            context.family.nft(),
            context.masquerade()
        )))
    }

    /// Returns the chain for traffic from outside.
    fn external_chain(&self) -> Chain {
        let Self { context, names, .. } = self;
        let masquerade = context.masquerade();
        let mut chain = Chain::regular(names.external.as_str());
        if self.port.external_local {
            let cluster_chain = &names.cluster;
            if let Some(local) = local::local_match(context) {
                chain.rules.push(
                    Rule::new(format!("{local} goto {cluster_chain}"))
                        .with_comment("short-circuit pod traffic"),
                );
            }
            let source_match = "fib saddr type local";
            chain.rules.push(
                Rule::new(format!("{source_match} {masquerade}"))
                    .with_comment("masquerade local traffic"),
            );
            chain.rules.push(
                Rule::new(format!("{source_match} goto {cluster_chain}"))
                    .with_comment("short-circuit local traffic"),
            );
            if self.has_external_endpoints() {
                chain.push_rule(format!("goto {}", names.local));
            }
        } else {
            let rule = Rule::new(masquerade);
            chain
                .rules
                .push(if context.version.has(&NFT_ENDPOINT_MAPS) {
                    rule.with_comment("masquerade")
                } else {
                    rule
                });
            if self.has_external_endpoints() {
                chain.push_rule(format!("goto {}", names.cluster));
            }
        }
        chain
    }

    /// Returns the chain that drops traffic from sources that the source ranges do not admit.
    fn firewall_chain(&self) -> Chain {
        let Self { context, port, .. } = self;
        let mut admitted: Vec<String> = port.source_ranges.iter().map(render_network).collect();
        if self.admits_node() {
            admitted.extend(port.load_balancer_ips.iter().map(ToString::to_string));
        }
        let mut chain = Chain::regular(self.names.firewall.as_str());
        chain.push_rule(format!(
            "{} saddr != {{ {} }} drop",
            context.family.nft(),
            admitted.join(", ")
        ));
        chain
    }
}

/// Renders a network as Go does: without the host bits.
fn render_network(range: &ipnetwork::IpNetwork) -> String {
    format!("{}/{}", range.network(), range.prefix())
}
