//! Finds what happened to a request on its way to an endpoint of a service: a missing translation,
//! a masqueraded or unmasqueraded source, the backend that a load balancer chose, and properties of
//! the service that exclude endpoints.

use std::net::{IpAddr, SocketAddr};

use super::drop_kind::DropKind;
use super::drop_table::drop_kind;
use super::icmp_meaning::{IcmpMeaning, icmp_meaning};
use super::rules::{RuleReference, marking_jump};
use super::service_reasons::{MasqueradeOption, ServicePolicy, UntranslatedReason};
use super::{Conclusion, Fact, KeptSourceReason};
use crate::judge::probe::is_name_suffix;
use svclab_journey::journey::{Hop, Kind, PacketPath, PathEnd, Rewrite, RuleMatch};
use svclab_model::evidence::ConntrackEntry;
use svclab_model::plan::NFTABLES_TABLE;
use svclab_planner::cluster::{FABRIC, INTERNET, Node};
use svclab_rules::kube_proxy::services::ignore_reason;
use svclab_rules::kube_proxy::{DetectLocalMode, KubeProxy, Mode};
use svclab_rules::objects::{IngressIp, PortSpec, Service};
use svclab_ruleset::Protocol;
use svclab_ruleset::ipvs::VirtualServerKey;

impl Conclusion<'_> {
    /// Returns facts about the way of a failing request to an endpoint.
    pub(super) fn service_facts(
        &self,
        request: &PacketPath,
        reply: Option<&PacketPath>,
    ) -> Vec<Fact> {
        let mut facts: Vec<Fact> = self.balanced(request).into_iter().collect();
        facts.extend(self.untranslated(request));
        facts.extend(self.translated_by_entry(request));
        facts.extend(self.endpoint_facts(request));
        if let Some(reply) = reply {
            facts.extend(self.unmasqueraded(request, reply));
        }
        facts
    }

    /// Returns the rules that masqueraded a request.
    pub(super) fn masqueraded(&self, request: &PacketPath) -> Option<Fact> {
        request.hops.iter().find_map(|hop| {
            if hop.before.source == hop.after.source {
                return None;
            }
            let mut matches = hop.matches.iter();
            let rule = matches
                .find(|step| matches!(step.target.as_deref(), Some("MASQUERADE" | "SNAT")))?;
            let jump = marking_jump(hop);
            Some(Fact::Masqueraded {
                namespace: hop.namespace.clone(),
                source: self.named(hop.after.source),
                rule: RuleReference::new(rule, hop),
                option: jump.and_then(|jump| masquerade_option(&jump.chain, jump.rule.as_deref()?)),
                marked_by: jump.map(|step| RuleReference::new(step, hop)),
            })
        })
    }

    /// Returns the properties of the requested service that limit its endpoints.
    pub(super) fn service_policies(&self) -> Vec<Fact> {
        let Some(called) = self.journey.addresses else {
            return Vec::new();
        };
        let Some((service, is_internal)) = self.service(called.destination, Kind::Other) else {
            return Vec::new();
        };
        let policies = [
            (
                ServicePolicy::InternalLocal,
                service.internal_local && is_internal,
            ),
            (
                ServicePolicy::ExternalLocal,
                service.external_local && !is_internal,
            ),
            (ServicePolicy::ClientIp, service.affinity_seconds.is_some()),
        ];
        let set = policies.into_iter().filter(|(_, is_set)| *is_set);
        set.map(|(policy, _)| Fact::LimitedEndpoints {
            service: service.full_name(),
            policy,
        })
        .collect()
    }

    /// Returns the properties of the requested service that exclude one of the endpoints with these
    /// names: a policy if the endpoint is on another node than the request, and session affinity if
    /// another endpoint of the service was reached.
    pub(super) fn excluding_policies(&self, endpoints: &[String]) -> Vec<Fact> {
        let cluster = self.book.cluster();
        let Some(called) = self.journey.addresses else {
            return Vec::new();
        };
        let Some((service, _)) = self.service(called.destination, Kind::Other) else {
            return Vec::new();
        };
        let pods = cluster.pods.iter();
        let mut excluded = pods.filter(|pod| {
            let reference = pod.reference();
            let mut names = endpoints.iter();
            names.any(|name| is_name_suffix(&reference, name))
        });
        let slices = cluster.slices.iter();
        let slices = slices.filter(|slice| slice.belongs_to(service));
        let all = slices.flat_map(|slice| &slice.endpoints).count();
        let from = &self.journey.from;
        let calling_node = || {
            let mut pods = cluster.pods.iter();
            let pod = pods.find(|pod| pod.reference() == *from);
            let mut nodes = cluster.nodes.iter();
            pod.map(|pod| pod.node)
                .or_else(|| nodes.position(|node| node.name == *from))
        };
        let called_node = || {
            let mut nodes = cluster.nodes.iter();
            nodes.position(|node| {
                let mut own = node.addresses.iter();
                own.any(|own| own.ip() == called.destination.ip())
            })
        };
        let mut is_elsewhere =
            |node: Option<usize>| node.is_some_and(|node| excluded.any(|pod| pod.node != node));
        let mut policies = self.service_policies();
        policies.retain(|fact| match fact {
            Fact::LimitedEndpoints { policy, .. } => match policy {
                ServicePolicy::InternalLocal => is_elsewhere(calling_node()),
                ServicePolicy::ExternalLocal => is_elsewhere(called_node()),
                ServicePolicy::ClientIp => (1..all).contains(&endpoints.len()),
            },
            _ => false,
        });
        policies
    }

    /// Returns the service with an address and port, and whether the address is a cluster IP.
    /// [`Kind::Other`] stands for any protocol.
    pub(super) fn service(&self, address: SocketAddr, kind: Kind) -> Option<(&Service, bool)> {
        let (service, _) = self.service_port(address, kind)?;
        Some((service, service.cluster_ips.contains(&address.ip())))
    }

    /// Returns the service with an address and port, and this port: see [`Self::service`].
    pub(super) fn service_port(
        &self,
        address: SocketAddr,
        kind: Kind,
    ) -> Option<(&Service, &PortSpec)> {
        let cluster = self.book.cluster();
        let is_protocol = |protocol: Protocol| match kind {
            Kind::Other => true,
            Kind::Datagram => protocol == Protocol::Udp,
            _ => protocol == Protocol::Tcp,
        };
        let is_node = || {
            let nodes = cluster.nodes.iter().flat_map(|node| &node.addresses);
            nodes.into_iter().any(|own| own.ip() == address.ip())
        };
        cluster.services.iter().find_map(|service| {
            let is_own = service.has_address(address.ip());
            let port = service.ports.iter().find(|port| {
                is_protocol(port.protocol)
                    && (is_own && port.port == address.port()
                        || port.node_port == Some(address.port()) && is_node())
            });
            Some((service, port?))
        })
    }

    pub(super) fn node(&self, hop: &Hop) -> Option<&Node> {
        let mut nodes = self.book.cluster().nodes.iter();
        nodes.find(|node| node.name == hop.namespace)
    }

    /// Returns the first node that translated a request by an entry from before its first packet.
    fn translated_by_entry(&self, request: &PacketPath) -> Option<Fact> {
        request.hops.iter().find_map(|hop| {
            let is_rewritten = hop.rewritten == Some(Rewrite::Conntrack)
                && hop.before.destination != hop.after.destination;
            self.node(hop).filter(|_| is_rewritten)?;
            let entry = self.older_entry(hop)?;
            Some(Fact::TranslatedByEntry {
                namespace: hop.namespace.clone(),
                destination: self.named(hop.before.destination),
                server: self.named(hop.after.destination),
                original: entry.original,
                reply: entry.reply,
            })
        })
    }

    /// Returns the first node that did not translate a request to a service: the request left it
    /// with the address of the service, it has no route for this address, or a rule dropped the
    /// request, which rules for packets with such addresses do.
    fn untranslated(&self, request: &PacketPath) -> Option<Fact> {
        let (node, hop) = request
            .hops
            .iter()
            .find_map(|hop| Some((self.node(hop)?, hop)))?;
        let to = hop.before.destination;
        let has_left = hop.crossings.last().is_some_and(|seen| seen.out);
        let older_entry = self.older_entry(hop);
        let is_dropped = request.end == PathEnd::DroppedByRule && older_entry.is_some();
        let is_last = request.hops.last().is_some_and(|last| last == hop);
        let is_unrouted = is_last && self.is_unrouted(request);
        if hop.after.destination != to || !(has_left || is_dropped || is_unrouted) {
            return None;
        }
        let (service, _) = self.service(to, request.kind)?;
        // A node translates only its own node ports.
        let is_own = || node.addresses.iter().any(|own| own.ip() == to.ip());
        if !service.has_address(to.ip()) && !is_own() {
            return None;
        }
        let ignored = |proxy: &KubeProxy| ignore_reason(service, proxy.version);
        let is_proxied = |own: &IngressIp| own.ip == to.ip() && own.is_proxied;
        let reason = if node.kube_proxy.is_none() {
            UntranslatedReason::NoProxy
        } else if let Some(reason) = node.kube_proxy.as_ref().and_then(ignored) {
            UntranslatedReason::Ignored {
                reason: reason.to_owned(),
            }
        } else if service.ingress.iter().any(is_proxied) {
            UntranslatedReason::ProxiedAddress
        } else if let Some(reason) = self.untranslated_by_ipvs(node, service, to) {
            reason
        } else if let Some(entry) = older_entry {
            UntranslatedReason::Entry {
                original: entry.original,
                reply: entry.reply,
            }
        } else {
            let is_nat =
                |table: &str| table == "nat" || table.split(' ').nth(1) == Some(NFTABLES_TABLE);
            // After the routing decision, rules translate sources only.
            let matches = hop.matches.iter();
            let before_routing = matches.take_while(|step| !self.is_postrouting(hop, step));
            let last = before_routing
                .filter(|step| is_nat(&step.table))
                .filter(|step| step.chain.starts_with("KUBE-") || step.table != "nat")
                .last();
            UntranslatedReason::NoRule {
                chain: last.map(|step| format!("{} {}", step.table, step.chain)),
            }
        };
        Some(Fact::NotTranslated {
            namespace: hop.namespace.clone(),
            destination: self.named(to),
            service: service.full_name(),
            reason,
        })
    }

    /// Whether the kernel ended a packet because it has no route for its destination. It looks the
    /// route up after the rules for translations.
    fn is_unrouted(&self, packet: &PacketPath) -> bool {
        let last = packet.hops.last().and_then(|hop| hop.matches.last());
        let is_rejected_by_rule = last.is_some_and(|step| step.target.as_deref() == Some("REJECT"));
        match &packet.end {
            PathEnd::Dropped {
                reason, function, ..
            } => matches!(
                drop_kind(reason, function.as_deref()),
                DropKind::NoRoute | DropKind::RouteRefused | DropKind::NotForwarding
            ),
            PathEnd::Rejected(_) => {
                let meaning = icmp_meaning(packet, self.journey);
                matches!(
                    meaning,
                    Some(IcmpMeaning::NetUnreachable | IcmpMeaning::NoRoute)
                ) && !is_rejected_by_rule
            }
            _ => false,
        }
    }

    /// Returns why IPVS did not translate the address of a service. `None` in another mode, or if the
    /// node and a virtual server have the address.
    fn untranslated_by_ipvs(
        &self,
        node: &Node,
        service: &Service,
        to: SocketAddr,
    ) -> Option<UntranslatedReason> {
        let proxy = node.kube_proxy.as_ref()?;
        if proxy.mode != Mode::Ipvs {
            return None;
        }
        let is_balanced = service.ingress.iter().any(|own| own.ip == to.ip());
        if is_balanced && !proxy.bind_load_balancer_ips {
            return Some(UntranslatedReason::UnboundAddress);
        }
        let state = self.lab.observed(&node.name)?;
        let mut addresses = state.links.iter().flat_map(|link| &link.addresses);
        if !addresses.any(|own| own.ip() == to.ip()) {
            return Some(UntranslatedReason::NoAddress);
        }
        let mut servers = state.ipvs.iter();
        let is_served = servers.any(|server| match server.key {
            VirtualServerKey::Address { address, port, .. } => {
                (address, port) == (to.ip(), to.port())
            }
            VirtualServerKey::FwMark { .. } => true,
        });
        (!is_served).then_some(UntranslatedReason::NoVirtualServer)
    }

    /// Adds to a fact about a source that no rule marked that an option of kube-proxy is missing:
    /// without `clusterCIDR` and `masqueradeAll`, no rule marks packets to cluster IPs (kubernetes
    /// v1.9, `pkg/proxy/ipvs/proxier.go` and `pkg/proxy/iptables/proxier.go`, `syncProxyRules`).
    pub(super) fn with_missing_option(&self, fact: Fact, request: &PacketPath) -> Fact {
        let Fact::KeptSource {
            namespace,
            source,
            is_destination,
            reason: KeptSourceReason::NotMarked,
        } = fact
        else {
            return fact;
        };
        let mut hops = request.hops.iter();
        let hop = hops.find(|hop| hop.namespace == namespace);
        let is_cluster_ip = hop
            .and_then(|hop| self.service(hop.before.destination, request.kind))
            .is_some_and(|(_, is_internal)| is_internal);
        let proxy = hop.and_then(|hop| self.node(hop)?.kube_proxy.as_ref());
        let is_missing = proxy.is_some_and(|proxy| {
            proxy.cluster_cidr.is_none()
                && !proxy.masquerade_all
                && proxy.detect_local_mode == DetectLocalMode::ClusterCIDR
        });
        let mut pods = self.book.cluster().pods.iter();
        let is_pod = pods.any(|pod| !pod.host_network && pod.ips.contains(&source));
        let reason = if is_cluster_ip && is_missing && !is_pod {
            KeptSourceReason::NoClusterCidr
        } else {
            KeptSourceReason::NotMarked
        };
        Fact::KeptSource {
            namespace,
            source,
            is_destination,
            reason,
        }
    }

    /// Whether the chain of a match belongs to the hook after the routing decision.
    fn is_postrouting(&self, hop: &Hop, step: &RuleMatch) -> bool {
        let own = self.lab.observed(&hop.namespace);
        own.is_some_and(|own| own.is_postrouting(step))
    }

    /// Returns a conntrack entry for the request that existed before it: the reply comes from
    /// another address than the destination of the request, although no rule translated the
    /// request, or the request met a rule of DNAT, which did not apply.
    fn older_entry(&self, hop: &Hop) -> Option<&ConntrackEntry> {
        let is_dnat = |step: &RuleMatch| step.target.as_deref() == Some("DNAT");
        let has_no_effect = hop.before.destination == hop.after.destination;
        let is_ignored = has_no_effect && hop.matches.iter().any(is_dnat);
        self.evidence.conntrack.iter().find(|entry| {
            entry.namespace == hop.namespace
                && entry.original == hop.before
                && (is_ignored || entry.reply.source != entry.original.destination)
        })
    }

    /// Returns the node that sent a request of a pod to a machine outside of the cluster with the
    /// source of the pod, if the reply to the pod was lost outside.
    fn unmasqueraded(&self, request: &PacketPath, reply: &PacketPath) -> Option<Fact> {
        let source = self.journey.addresses?.source;
        let is_delivered = matches!(reply.end, PathEnd::Delivered);
        let end = reply.hops.last()?;
        if is_delivered || end.after.destination != source || self.node(end).is_some() {
            return None;
        }
        let cluster = self.book.cluster();
        let is_pod = |address: IpAddr| cluster.pods.iter().any(|pod| pod.ips.contains(&address));
        let hop = request.hops.iter().rfind(|hop| self.node(hop).is_some())?;
        let to = hop.after.destination;
        if !is_pod(source.ip()) || is_pod(to.ip()) || hop.after.source != source {
            return None;
        }
        Some(Fact::NotMasqueraded {
            namespace: hop.namespace.clone(),
            source: self.named(source),
            destination: self.named(to),
            flannel: cluster
                .flannel
                .as_ref()
                .is_some_and(|flannel| !flannel.ip_masq),
        })
    }

    /// Returns the backend that a load balancer chose for a request, as [`Fact::Balanced`].
    pub(super) fn balanced(&self, request: &PacketPath) -> Option<Fact> {
        let mut hops = request.hops.iter().enumerate();
        hops.find_map(|(index, hop)| {
            if ![FABRIC, INTERNET].contains(&&*hop.namespace) {
                return None;
            }
            let to = hop.before.destination;
            // Packets of a layer 7 load balancer's own connections show its backends.
            let mut servers = self.book.plan().servers.iter();
            if servers.any(|server| server.is_layer7_at(to)) {
                return None;
            }
            let mut balancers = self.book.cluster().balancers.iter();
            let balancer = balancers.find(|balancer| {
                let mut ports = balancer.ports.iter();
                balancer.addresses.contains(&to.ip()) && ports.any(|port| port.port == to.port())
            })?;
            let next = request.hops.get(index + 1);
            Some(Fact::Balanced {
                balancer: balancer.name.clone(),
                backend: next.map(|next| next.namespace.clone()),
                source: (hop.before.source != hop.after.source)
                    .then(|| self.named(hop.after.source)),
            })
        })
    }
}

/// Returns the option of kube-proxy for which a rule of a service marks packets (kubernetes v1.30,
/// `pkg/proxy/iptables/proxier.go`, `syncProxyRules`, and `pkg/proxy/nftables/proxier.go`).
fn masquerade_option(chain: &str, rule: &str) -> Option<MasqueradeOption> {
    let is_cluster_ip =
        chain.starts_with("KUBE-SVC-") || chain == "KUBE-SERVICES" || chain.starts_with("service-");
    if !is_cluster_ip {
        return None;
    }
    if rule.contains("! -s ") || rule.contains("saddr != ") {
        return Some(MasqueradeOption::ClusterCidr);
    }
    let has_source = rule.contains("-s ") || rule.contains("saddr ") || rule.contains("src");
    (!has_source).then_some(MasqueradeOption::MasqueradeAll)
}
