//! Writes the rules of iptables mode for a service port from v1.24 on. In these versions, all
//! traffic from outside passes through `KUBE-EXT-`, and local endpoints have `KUBE-SVL-`.

use std::net::IpAddr;

use super::node::{LOCALHOST_COUNTER, localhost_node_ports};
use super::rule::Rule;
use super::spread::{Comments, endpoint_chain, spread};
use super::{Context, chains, filter, nat, nat_chain};
use crate::kube_proxy::Family;
use crate::kube_proxy::history::{DROPS_IN_FILTER, FIREWALL_CHAIN_REMARK};
use crate::kube_proxy::services::ServicePort;
use crate::kube_proxy::topology::Chosen;
use svclab_ruleset::iptables::script::Script;

/// Writes all rules of `port`.
pub(super) fn service(
    context: &Context<'_>,
    port: &ServicePort,
    chosen: &Chosen<'_>,
    script: &mut Script,
) {
    let all = chains::service(port);
    let local = chains::local(port);
    let of = |stays_local: bool| if stays_local { &local } else { &all };
    let writer = Writer {
        context,
        port,
        chosen,
        internal: Way::new(port.internal_local, of(port.internal_local), chosen),
        external: Way::new(port.external_local, of(port.external_local), chosen),
        from_outside: chains::external(port),
        firewall: chains::firewall(port),
        drops_in_filter: context.version.has(&DROPS_IN_FILTER),
        all: all.clone(),
        local: local.clone(),
    };
    writer.cluster_ip(script);
    writer.external_ips(script);
    writer.load_balancer_ips(script);
    writer.node_port(script);
    writer.health_check(script);
    if chosen.any {
        writer.external_chain(script);
        writer.firewall_chain(script);
        writer.masquerade_cluster_ip(script);
        writer.all_chain(script);
        writer.local_chain(script);
    }
    for endpoint in &chosen.reachable {
        endpoint_chain(context, port, endpoint, script);
    }
}

/// Target of one kind of traffic.
struct Way<'a> {
    /// Chain of the endpoints that the traffic can reach.
    chain: &'a str,
    /// Whether there are such endpoints.
    open: bool,
}

impl<'a> Way<'a> {
    fn new(stays_local: bool, chain: &'a str, chosen: &Chosen<'_>) -> Self {
        Self {
            chain,
            open: chosen.any && !(stays_local && chosen.local.is_empty()),
        }
    }
}

struct Writer<'a> {
    context: &'a Context<'a>,
    port: &'a ServicePort,
    chosen: &'a Chosen<'a>,
    /// Target of traffic to the cluster IP.
    internal: Way<'a>,
    /// Target of traffic from outside, after `from_outside`.
    external: Way<'a>,
    from_outside: String,
    firewall: String,
    all: String,
    local: String,
    /// Whether the filter table drops traffic without endpoints. Otherwise the traffic jumps to
    /// `KUBE-MARK-DROP`.
    drops_in_filter: bool,
}

impl Writer<'_> {
    /// Starts a rule of `chain` that matches packets to the port on `ip`.
    fn to(&self, chain: &str, comment: &str, ip: IpAddr) -> Rule {
        Rule::append(chain)
            .comment(comment)
            .protocol(self.port.protocol)
            .destination(ip)
            .port(self.port.port)
    }

    fn called(&self, what: &str) -> String {
        format!("{} {what}", self.port.name)
    }

    /// Whether nat contains rules that lead to `way`. In v1.24, rules also lead to a chain of local
    /// endpoints without endpoints, which marks packets for dropping.
    fn leads_to(&self, way: &Way<'_>) -> bool {
        way.open || (self.chosen.any && !self.drops_in_filter)
    }

    /// Returns the target and the comment of the filter rule for packets that cannot reach `way`.
    /// `None` if they can reach it or if nat marks them.
    fn verdict_without(&self, way: &Way<'_>) -> Option<(&'static str, String)> {
        if !self.chosen.any {
            Some(("REJECT", self.called("has no endpoints")))
        } else if !way.open && self.drops_in_filter {
            Some(("DROP", self.called("has no local endpoints")))
        } else {
            None
        }
    }

    fn cluster_ip(&self, script: &mut Script) {
        let ip = self.port.cluster_ip;
        if self.leads_to(&self.internal) {
            let rule = self.to(chains::SERVICES, &self.called("cluster IP"), ip);
            nat(script, rule.jump(self.internal.chain));
        }
        if let Some((verdict, comment)) = self.verdict_without(&self.internal) {
            filter(
                script,
                self.to(chains::SERVICES, &comment, ip).jump(verdict),
            );
        }
    }

    fn refuse_from_outside(&self, ip: IpAddr, script: &mut Script) {
        if let Some((verdict, comment)) = self.verdict_without(&self.external) {
            let rule = self.to(chains::EXTERNAL_SERVICES, &comment, ip);
            filter(script, rule.jump(verdict));
        }
    }

    fn external_ips(&self, script: &mut Script) {
        for &ip in &self.port.external_ips {
            if self.chosen.any {
                let rule = self.to(chains::SERVICES, &self.called("external IP"), ip);
                nat(script, rule.jump(&self.from_outside));
            }
            self.refuse_from_outside(ip, script);
        }
    }

    /// Whether source ranges restrict the load balancer addresses.
    fn fenced(&self) -> bool {
        self.chosen.any
            && !self.port.load_balancer_ips.is_empty()
            && !self.port.source_ranges.is_empty()
    }

    fn load_balancer_ips(&self, script: &mut Script) {
        let next = if self.fenced() {
            &self.firewall
        } else {
            &self.from_outside
        };
        for &ip in &self.port.load_balancer_ips {
            if self.chosen.any {
                let rule = self.to(chains::SERVICES, &self.called("loadbalancer IP"), ip);
                nat(script, rule.jump(next));
            }
            if self.fenced() && self.drops_in_filter {
                let comment = format!("traffic not accepted by {}", self.firewall);
                let rule = self.to(chains::PROXY_FIREWALL, &self.called(&comment), ip);
                filter(script, rule.jump("DROP"));
            }
        }
        for &ip in &self.port.load_balancer_ips {
            self.refuse_from_outside(ip, script);
        }
    }

    fn node_port(&self, script: &mut Script) {
        let Some(node_port) = self.port.node_port else {
            return;
        };
        let protocol = self.port.protocol;
        let rule = |chain| Rule::append(chain);
        if self.chosen.any {
            let rule = || {
                rule(chains::NODE_PORTS)
                    .comment(&self.port.name)
                    .protocol(protocol)
            };
            if self.context.accounting()
                && self.context.family == Family::V4
                && localhost_node_ports(self.context)
            {
                nat(
                    script,
                    rule()
                        .with("-d 127.0.0.0/8")
                        .port(node_port)
                        .with(format_args!("-m nfacct --nfacct-name {LOCALHOST_COUNTER}"))
                        .jump(&self.from_outside),
                );
            }
            nat(script, rule().port(node_port).jump(&self.from_outside));
        }
        if let Some((verdict, comment)) = self.verdict_without(&self.external) {
            filter(
                script,
                rule(chains::EXTERNAL_SERVICES)
                    .comment(comment)
                    .with("-m addrtype --dst-type LOCAL")
                    .protocol(protocol)
                    .port(node_port)
                    .jump(verdict),
            );
        }
    }

    fn health_check(&self, script: &mut Script) {
        if let Some(port) = self.port.health_check_node_port {
            let rule = Rule::append(chains::NODE_PORTS)
                .comment(self.called("health check node port"))
                .with(format_args!("-m tcp -p tcp --dport {port}"))
                .jump("ACCEPT");
            filter(script, rule);
        }
    }

    fn masquerade_cluster_ip(&self, script: &mut Script) {
        if !self.leads_to(&self.internal) {
            return;
        }
        let comment = self.called("cluster IP");
        let rule = self.to(self.internal.chain, &comment, self.port.cluster_ip);
        if self.context.proxy.masquerade_all {
            nat(script, rule.jump(chains::MARK_MASQ));
        } else if let Some(local) = &self.context.local {
            let rule = rule.with(local.if_not_local());
            nat(script, rule.jump(chains::MARK_MASQ));
        }
    }

    /// Writes `KUBE-EXT-`: which source addresses are kept, and which traffic reaches all endpoints
    /// in spite of the policy `Local`.
    fn external_chain(&self, script: &mut Script) {
        if !self.port.externally_accessible() {
            return;
        }
        let name = &self.port.name;
        let rule = |comment: String| Rule::append(&self.from_outside).comment(comment);
        nat_chain(script, &self.from_outside);
        if self.port.external_local {
            if let Some(local) = &self.context.local {
                nat(
                    script,
                    rule(format!("pod traffic for {name} external destinations"))
                        .with(local.if_local())
                        .jump(&self.all),
                );
            }
            for (does, target) in [
                ("masquerade", chains::MARK_MASQ),
                ("route", self.all.as_str()),
            ] {
                let comment = format!("{does} LOCAL traffic for {name} external destinations");
                nat(
                    script,
                    rule(comment)
                        .with("-m addrtype --src-type LOCAL")
                        .jump(target),
                );
            }
        } else {
            let comment = format!("masquerade traffic for {name} external destinations");
            nat(script, rule(comment).jump(chains::MARK_MASQ));
        }
        if self.leads_to(&self.external) {
            let rule = Rule::append(&self.from_outside);
            nat(script, rule.jump(self.external.chain));
        }
    }

    /// Writes `KUBE-FW-`: which sources may use the load balancer addresses.
    fn firewall_chain(&self, script: &mut Script) {
        if !self.fenced() {
            return;
        }
        nat_chain(script, &self.firewall);
        let rule = || Rule::append(&self.firewall).comment(self.called("loadbalancer IP"));
        let ranges = |script: &mut Script| {
            for range in &self.port.source_ranges {
                let rule = rule().with(format_args!("-s {range}"));
                nat(script, rule.jump(&self.from_outside));
            }
        };
        // A packet from the node to the load balancer address can loop back with that address as
        // its source.
        let admits_node = self.context.admits_node(&self.port.source_ranges);
        let looped = |ip: IpAddr, script: &mut Script| {
            if admits_node {
                let rule = rule().with(format_args!("-s {ip}"));
                nat(script, rule.jump(&self.from_outside));
            }
        };
        if self.drops_in_filter {
            ranges(script);
            for &ip in &self.port.load_balancer_ips {
                looped(ip, script);
            }
        } else {
            for &ip in &self.port.load_balancer_ips {
                ranges(script);
                looped(ip, script);
                nat(script, rule().jump(chains::MARK_DROP));
            }
        }
        if self.context.version.has(&FIREWALL_CHAIN_REMARK) {
            let comment = format!(
                "other traffic to {} will be dropped by KUBE-PROXY-FIREWALL",
                self.port.name
            );
            nat(script, Rule::append(&self.firewall).comment(comment).only());
        }
    }

    fn all_chain(&self, script: &mut Script) {
        let endpoints = &self.chosen.cluster;
        if self.port.uses_cluster_endpoints() && (!endpoints.is_empty() || !self.drops_in_filter) {
            nat_chain(script, &self.all);
            let usual = Comments::Usual;
            spread(self.context, self.port, &self.all, endpoints, usual, script);
        }
    }

    fn local_chain(&self, script: &mut Script) {
        let endpoints = &self.chosen.local;
        if !self.port.uses_local_endpoints() {
            return;
        }
        if !endpoints.is_empty() {
            nat_chain(script, &self.local);
            let usual = Comments::Usual;
            spread(
                self.context,
                self.port,
                &self.local,
                endpoints,
                usual,
                script,
            );
        } else if !self.drops_in_filter {
            nat_chain(script, &self.local);
            let comment = self.called("has no local endpoints");
            let rule = Rule::append(&self.local).comment(comment);
            nat(script, rule.jump(chains::MARK_DROP));
        }
    }
}
