//! Writes the rules of iptables mode for a service port from v1.24 on. In these versions, all
//! traffic from outside passes through `KUBE-EXT-`, and local endpoints have `KUBE-SVL-`.

use std::net::IpAddr;

use super::node::{LOCALHOST_COUNTER, has_localhost_node_ports};
use super::rule::RuleBuilder;
use super::spread::{Comments, write_endpoint_chain, write_endpoint_rules};
use super::{Context, chains, filter, nat, nat_chain};
use crate::kube_proxy::Family;
use crate::kube_proxy::history::{DROPS_IN_FILTER, FIREWALL_CHAIN_REMARK};
use crate::kube_proxy::services::ServicePort;
use crate::kube_proxy::topology::EndpointSelection;
use svclab_ruleset::iptables::script::IptablesScript;

/// Writes all rules of `port`.
pub(super) fn write_service(
    context: &Context<'_>,
    port: &ServicePort,
    chosen: &EndpointSelection<'_>,
    script: &mut IptablesScript,
) {
    let service_chain_name = chains::service(port);
    let local_chain_name = chains::local(port);
    let chain_for = |stays_local: bool| {
        if stays_local {
            &local_chain_name
        } else {
            &service_chain_name
        }
    };
    let writer = ExtWriter {
        context,
        port,
        chosen,
        internal: TrafficTarget::new(port.internal_local, chain_for(port.internal_local), chosen),
        external: TrafficTarget::new(port.external_local, chain_for(port.external_local), chosen),
        external_chain_name: chains::external(port),
        firewall_chain_name: chains::firewall(port),
        drops_in_filter: context.version.has(&DROPS_IN_FILTER),
        service_chain_name: service_chain_name.clone(),
        local_chain_name: local_chain_name.clone(),
    };
    writer.cluster_ip(script);
    writer.external_ips(script);
    writer.load_balancer_ips(script);
    writer.node_port(script);
    writer.health_check(script);
    if chosen.has_any {
        writer.external_chain(script);
        writer.firewall_chain(script);
        writer.masquerade_cluster_ip(script);
        writer.service_chain(script);
        writer.local_chain(script);
    }
    for endpoint in &chosen.reachable {
        write_endpoint_chain(context, port, endpoint, script);
    }
}

/// Target of one kind of traffic.
struct TrafficTarget<'a> {
    /// Chain of the endpoints that the traffic can reach.
    chain: &'a str,
    /// Whether there are such endpoints.
    has_endpoints: bool,
}

impl<'a> TrafficTarget<'a> {
    fn new(stays_local: bool, chain: &'a str, chosen: &EndpointSelection<'_>) -> Self {
        Self {
            chain,
            has_endpoints: chosen.has_any && !(stays_local && chosen.local.is_empty()),
        }
    }
}

struct ExtWriter<'a> {
    context: &'a Context<'a>,
    port: &'a ServicePort,
    chosen: &'a EndpointSelection<'a>,
    /// Target of traffic to the cluster IP.
    internal: TrafficTarget<'a>,
    /// Target of traffic from outside, after the chain `external_chain_name`.
    external: TrafficTarget<'a>,
    external_chain_name: String,
    firewall_chain_name: String,
    service_chain_name: String,
    local_chain_name: String,
    /// Whether the filter table drops traffic without endpoints. Otherwise the traffic jumps to
    /// `KUBE-MARK-DROP`.
    drops_in_filter: bool,
}

impl ExtWriter<'_> {
    /// Starts a rule of `chain` that matches packets to the port on `ip`.
    fn rule_to(&self, chain: &str, comment: &str, ip: IpAddr) -> RuleBuilder {
        RuleBuilder::append(chain)
            .comment(comment)
            .protocol(self.port.protocol)
            .destination(ip)
            .port(self.port.port)
    }

    fn comment(&self, description: &str) -> String {
        format!("{} {description}", self.port.name)
    }

    /// Whether nat contains rules that lead to `way`. In v1.24, rules also lead to a chain of local
    /// endpoints without endpoints, which marks packets for dropping.
    fn has_rules_to(&self, target: &TrafficTarget<'_>) -> bool {
        target.has_endpoints || (self.chosen.has_any && !self.drops_in_filter)
    }

    /// Returns the target and the comment of the filter rule for packets that cannot reach `way`.
    /// `None` if they can reach it or if nat marks them.
    fn reject_verdict(&self, target: &TrafficTarget<'_>) -> Option<(&'static str, String)> {
        if !self.chosen.has_any {
            Some(("REJECT", self.comment("has no endpoints")))
        } else if !target.has_endpoints && self.drops_in_filter {
            Some(("DROP", self.comment("has no local endpoints")))
        } else {
            None
        }
    }

    fn cluster_ip(&self, script: &mut IptablesScript) {
        let ip = self.port.cluster_ip;
        if self.has_rules_to(&self.internal) {
            let rule = self.rule_to(chains::SERVICES, &self.comment("cluster IP"), ip);
            nat(script, rule.jump(self.internal.chain));
        }
        if let Some((verdict, comment)) = self.reject_verdict(&self.internal) {
            filter(
                script,
                self.rule_to(chains::SERVICES, &comment, ip).jump(verdict),
            );
        }
    }

    fn write_external_reject(&self, ip: IpAddr, script: &mut IptablesScript) {
        if let Some((verdict, comment)) = self.reject_verdict(&self.external) {
            let rule = self.rule_to(chains::EXTERNAL_SERVICES, &comment, ip);
            filter(script, rule.jump(verdict));
        }
    }

    fn external_ips(&self, script: &mut IptablesScript) {
        for &ip in &self.port.external_ips {
            if self.chosen.has_any {
                let rule = self.rule_to(chains::SERVICES, &self.comment("external IP"), ip);
                nat(script, rule.jump(&self.external_chain_name));
            }
            self.write_external_reject(ip, script);
        }
    }

    /// Whether source ranges restrict the load balancer addresses.
    fn has_source_ranges(&self) -> bool {
        self.chosen.has_any
            && !self.port.load_balancer_ips.is_empty()
            && !self.port.source_ranges.is_empty()
    }

    fn load_balancer_ips(&self, script: &mut IptablesScript) {
        let next = if self.has_source_ranges() {
            &self.firewall_chain_name
        } else {
            &self.external_chain_name
        };
        for &ip in &self.port.load_balancer_ips {
            if self.chosen.has_any {
                let rule = self.rule_to(chains::SERVICES, &self.comment("loadbalancer IP"), ip);
                nat(script, rule.jump(next));
            }
            if self.has_source_ranges() && self.drops_in_filter {
                let comment = format!("traffic not accepted by {}", self.firewall_chain_name);
                let rule = self.rule_to(chains::PROXY_FIREWALL, &self.comment(&comment), ip);
                filter(script, rule.jump("DROP"));
            }
        }
        for &ip in &self.port.load_balancer_ips {
            self.write_external_reject(ip, script);
        }
    }

    fn node_port(&self, script: &mut IptablesScript) {
        let Some(node_port) = self.port.node_port else {
            return;
        };
        let protocol = self.port.protocol;
        let rule = |chain| RuleBuilder::append(chain);
        if self.chosen.has_any {
            let rule = || {
                rule(chains::NODE_PORTS)
                    .comment(&self.port.name)
                    .protocol(protocol)
            };
            if self.context.has_accounting()
                && self.context.family == Family::V4
                && has_localhost_node_ports(self.context)
            {
                nat(
                    script,
                    rule()
                        .with("-d 127.0.0.0/8")
                        .port(node_port)
                        .with(format_args!("-m nfacct --nfacct-name {LOCALHOST_COUNTER}"))
                        .jump(&self.external_chain_name),
                );
            }
            nat(
                script,
                rule().port(node_port).jump(&self.external_chain_name),
            );
        }
        if let Some((verdict, comment)) = self.reject_verdict(&self.external) {
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

    fn health_check(&self, script: &mut IptablesScript) {
        if let Some(port) = self.port.health_check_node_port {
            let rule = RuleBuilder::append(chains::NODE_PORTS)
                .comment(self.comment("health check node port"))
                .with(format_args!("-m tcp -p tcp --dport {port}"))
                .jump("ACCEPT");
            filter(script, rule);
        }
    }

    fn masquerade_cluster_ip(&self, script: &mut IptablesScript) {
        if !self.has_rules_to(&self.internal) {
            return;
        }
        let comment = self.comment("cluster IP");
        let rule = self.rule_to(self.internal.chain, &comment, self.port.cluster_ip);
        if self.context.proxy.masquerade_all {
            nat(script, rule.jump(chains::MARK_MASQ));
        } else if let Some(local) = &self.context.local {
            let rule = rule.with(local.nonlocal_match());
            nat(script, rule.jump(chains::MARK_MASQ));
        }
    }

    /// Writes `KUBE-EXT-`: which source addresses are kept, and which traffic reaches all endpoints
    /// in spite of the policy `Local`.
    fn external_chain(&self, script: &mut IptablesScript) {
        if !self.port.is_externally_accessible() {
            return;
        }
        let name = &self.port.name;
        let rule =
            |comment: String| RuleBuilder::append(&self.external_chain_name).comment(comment);
        nat_chain(script, &self.external_chain_name);
        if self.port.external_local {
            if let Some(local) = &self.context.local {
                nat(
                    script,
                    rule(format!("pod traffic for {name} external destinations"))
                        .with(local.local_match())
                        .jump(&self.service_chain_name),
                );
            }
            for (action, target) in [
                ("masquerade", chains::MARK_MASQ),
                ("route", self.service_chain_name.as_str()),
            ] {
                let comment = format!("{action} LOCAL traffic for {name} external destinations");
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
        if self.has_rules_to(&self.external) {
            let rule = RuleBuilder::append(&self.external_chain_name);
            nat(script, rule.jump(self.external.chain));
        }
    }

    /// Writes `KUBE-FW-`: which sources may use the load balancer addresses.
    fn firewall_chain(&self, script: &mut IptablesScript) {
        if !self.has_source_ranges() {
            return;
        }
        nat_chain(script, &self.firewall_chain_name);
        let rule = || {
            RuleBuilder::append(&self.firewall_chain_name).comment(self.comment("loadbalancer IP"))
        };
        let ranges = |script: &mut IptablesScript| {
            for range in &self.port.source_ranges {
                let rule = rule().with(format_args!("-s {range}"));
                nat(script, rule.jump(&self.external_chain_name));
            }
        };
        // A packet from the node to the load balancer address can loop back with that address as
        // its source.
        let admits_node = self.context.admits_node(&self.port.source_ranges);
        let allow_loopback = |ip: IpAddr, script: &mut IptablesScript| {
            if admits_node {
                let rule = rule().with(format_args!("-s {ip}"));
                nat(script, rule.jump(&self.external_chain_name));
            }
        };
        if self.drops_in_filter {
            ranges(script);
            for &ip in &self.port.load_balancer_ips {
                allow_loopback(ip, script);
            }
        } else {
            for &ip in &self.port.load_balancer_ips {
                ranges(script);
                allow_loopback(ip, script);
                nat(script, rule().jump(chains::MARK_DROP));
            }
        }
        if self.context.version.has(&FIREWALL_CHAIN_REMARK) {
            let comment = format!(
                "other traffic to {} will be dropped by KUBE-PROXY-FIREWALL",
                self.port.name
            );
            nat(
                script,
                RuleBuilder::append(&self.firewall_chain_name)
                    .comment(comment)
                    .without_target(),
            );
        }
    }

    fn service_chain(&self, script: &mut IptablesScript) {
        let endpoints = &self.chosen.cluster;
        if self.port.has_cluster_traffic() && (!endpoints.is_empty() || !self.drops_in_filter) {
            nat_chain(script, &self.service_chain_name);
            let comments = Comments::Standard;
            write_endpoint_rules(
                self.context,
                self.port,
                &self.service_chain_name,
                endpoints,
                comments,
                script,
            );
        }
    }

    fn local_chain(&self, script: &mut IptablesScript) {
        let endpoints = &self.chosen.local;
        if !self.port.has_local_traffic() {
            return;
        }
        if !endpoints.is_empty() {
            nat_chain(script, &self.local_chain_name);
            let comments = Comments::Standard;
            write_endpoint_rules(
                self.context,
                self.port,
                &self.local_chain_name,
                endpoints,
                comments,
                script,
            );
        } else if !self.drops_in_filter {
            nat_chain(script, &self.local_chain_name);
            let comment = self.comment("has no local endpoints");
            let rule = RuleBuilder::append(&self.local_chain_name).comment(comment);
            nat(script, rule.jump(chains::MARK_DROP));
        }
    }
}
