//! Writes the rules of iptables mode for a service port up to v1.23. In these versions, traffic
//! from outside to a service with the policy `Local` passes through `KUBE-XLB-`.

use std::net::IpAddr;

use super::rule::RuleBuilder;
use super::spread::{Comments, write_affinity_rules, write_balance_rules, write_endpoint_chain};
use super::{Context, chains, filter, nat, nat_chain, node};
use crate::kube_proxy::history::{
    BALANCING_RULE_COMMENTS, EXTERNAL_IPS_OBEY_POLICY, HEALTH_CHECK_NODE_PORTS,
    LOAD_BALANCER_REJECTED, LOOPBACK_MASQUERADED, MASQUERADE_IN_SERVICE_CHAIN,
    NO_SERVICES_JUMP_FROM_INPUT, NODE_PORTS_NEED_AN_ADDRESS, NODE_TRAFFIC_BEFORE_PODS,
    NODE_TRAFFIC_TO_ALL_ENDPOINTS, PHYSDEV_FOR_EXTERNAL_IPS, RULES_WITHOUT_ENDPOINTS,
    SINGLE_REJECT_CHAIN, UNREADY_ENDPOINTS_COUNTED,
};
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
    let writer = XlbWriter {
        context,
        port,
        chosen,
        service_chain: chains::service(port),
        external_local: chains::external_local(port),
    };
    writer.declare_chains(script);
    writer.cluster_ip(script);
    writer.external_ips(script);
    writer.load_balancer_ips(script);
    if port.node_port.is_some()
        && context.version.has(&NODE_PORTS_NEED_AN_ADDRESS)
        && !node::has_node_port_addresses(context)
    {
        return;
    }
    writer.node_port(script);
    if writer.has_nat_rules() {
        writer.write_cluster_ip_reject(script);
    }
    writer.health_check(script);
    if chosen.has_any {
        writer.endpoints(script);
        if port.external_local {
            writer.write_local_chain(script);
        }
    }
}

struct XlbWriter<'a> {
    context: &'a Context<'a>,
    port: &'a ServicePort,
    chosen: &'a EndpointSelection<'a>,
    /// Chain of all endpoints.
    service_chain: String,
    /// Chain of traffic from outside with the policy `Local`.
    external_local: String,
}

impl XlbWriter<'_> {
    /// Whether nat contains rules that lead to the endpoints.
    fn has_nat_rules(&self) -> bool {
        self.chosen.has_any || self.context.version.has(&RULES_WITHOUT_ENDPOINTS)
    }

    fn declare_chains(&self, script: &mut IptablesScript) {
        if self.has_nat_rules() {
            nat_chain(script, &self.service_chain);
        }
        if self.port.external_local {
            nat_chain(script, &self.external_local);
        }
    }

    /// Starts a rule of `chain` that matches packets to the port on `ip`.
    fn rule_to(&self, chain: &str, description: &str, ip: IpAddr) -> RuleBuilder {
        RuleBuilder::append(chain)
            .comment(format_args!("{} {description}", self.port.name))
            .protocol(self.port.protocol)
            .destination(ip)
            .port(self.port.port)
    }

    /// Returns the chain for the masquerading rules: the service's own chain, or `front` in older
    /// versions.
    fn masquerade_chain<'c>(&'c self, front: &'c str) -> &'c str {
        if self.context.version.has(&MASQUERADE_IN_SERVICE_CHAIN) {
            &self.service_chain
        } else {
            front
        }
    }

    /// Returns the chain that rejects traffic to external IPs and node ports without endpoints.
    fn reject_chain(&self) -> &'static str {
        if self.context.version.has(&SINGLE_REJECT_CHAIN) {
            chains::SERVICES
        } else {
            chains::EXTERNAL_SERVICES
        }
    }

    fn write_reject(&self, chain: &str, ip: IpAddr, script: &mut IptablesScript) {
        filter(
            script,
            self.rule_to(chain, "has no endpoints", ip).jump("REJECT"),
        );
    }

    fn write_cluster_ip_reject(&self, script: &mut IptablesScript) {
        if !self.chosen.has_any {
            self.write_reject(chains::SERVICES, self.port.cluster_ip, script);
        }
    }

    fn cluster_ip(&self, script: &mut IptablesScript) {
        let ip = self.port.cluster_ip;
        if !self.has_nat_rules() {
            return self.write_cluster_ip_reject(script);
        }
        let rule = |chain| self.rule_to(chain, "cluster IP", ip);
        let masquerade = rule(self.masquerade_chain(chains::SERVICES));
        if self.context.proxy.masquerade_all {
            nat(script, masquerade.jump(chains::MARK_MASQ));
        } else if let Some(local) = &self.context.local {
            let masquerade = masquerade.with(local.nonlocal_match());
            nat(script, masquerade.jump(chains::MARK_MASQ));
        }
        nat(script, rule(chains::SERVICES).jump(&self.service_chain));
    }

    fn external_ips(&self, script: &mut IptablesScript) {
        let version = self.context.version;
        let is_kept_local = self.port.external_local && version.has(&EXTERNAL_IPS_OBEY_POLICY);
        let chain = if is_kept_local {
            &self.external_local
        } else {
            &self.service_chain
        };
        for &ip in &self.port.external_ips {
            if !self.chosen.has_any {
                self.write_reject(self.reject_chain(), ip, script);
            }
            if !self.has_nat_rules() {
                continue;
            }
            let rule = |chain| self.rule_to(chain, "external IP", ip);
            if !is_kept_local {
                let masquerade = rule(self.masquerade_chain(chains::SERVICES));
                let nonlocal_match = self.context.local.as_ref();
                let strangers = nonlocal_match
                    .filter(|_| !version.has(&PHYSDEV_FOR_EXTERNAL_IPS))
                    .map(super::local::LocalTraffic::nonlocal_match);
                nat(
                    script,
                    masquerade.with_some(strangers).jump(chains::MARK_MASQ),
                );
            }
            if version.has(&PHYSDEV_FOR_EXTERNAL_IPS) {
                nat(
                    script,
                    rule(chains::SERVICES)
                        .with("-m physdev ! --physdev-is-in -m addrtype ! --src-type LOCAL")
                        .jump(chain),
                );
                nat(
                    script,
                    rule(chains::SERVICES)
                        .with("-m addrtype --dst-type LOCAL")
                        .jump(chain),
                );
            } else {
                nat(script, rule(chains::SERVICES).jump(chain));
            }
        }
    }

    fn load_balancer_ips(&self, script: &mut IptablesScript) {
        let description = "loadbalancer IP";
        let firewall = chains::firewall(self.port);
        if self.has_nat_rules() && !self.port.load_balancer_ips.is_empty() {
            nat_chain(script, &firewall);
        }
        for &ip in &self.port.load_balancer_ips {
            if !self.chosen.has_any {
                if self.context.version.has(&NO_SERVICES_JUMP_FROM_INPUT) {
                    self.write_reject(chains::EXTERNAL_SERVICES, ip, script);
                } else if self.context.version.has(&LOAD_BALANCER_REJECTED) {
                    self.write_reject(chains::SERVICES, ip, script);
                }
            }
            if !self.has_nat_rules() {
                continue;
            }
            nat(
                script,
                self.rule_to(chains::SERVICES, description, ip)
                    .jump(&firewall),
            );
            let rule = || {
                RuleBuilder::append(&firewall)
                    .comment(format_args!("{} {description}", self.port.name))
            };
            let chain = if self.port.external_local {
                &self.external_local
            } else {
                nat(script, rule().jump(chains::MARK_MASQ));
                &self.service_chain
            };
            if self.port.source_ranges.is_empty() {
                nat(script, rule().jump(chain));
            } else {
                for range in &self.port.source_ranges {
                    nat(script, rule().with(format_args!("-s {range}")).jump(chain));
                }
                // A packet from the node to the load balancer address can loop back with that
                // address as its source.
                if self.context.admits_node(&self.port.source_ranges) {
                    nat(script, rule().with(format_args!("-s {ip}")).jump(chain));
                }
            }
            nat(script, rule().jump(chains::MARK_DROP));
        }
    }

    fn node_port(&self, script: &mut IptablesScript) {
        let Some(node_port) = self.port.node_port else {
            return;
        };
        let protocol = self.port.protocol;
        if !self.chosen.has_any {
            let comment = format!("{} has no endpoints", self.port.name);
            let rule = RuleBuilder::append(self.reject_chain())
                .comment(comment)
                .with("-m addrtype --dst-type LOCAL")
                .protocol(protocol)
                .port(node_port)
                .jump("REJECT");
            filter(script, rule);
        }
        if !self.has_nat_rules() {
            return;
        }
        let rule = |chain| {
            RuleBuilder::append(chain)
                .comment(&self.port.name)
                .protocol(protocol)
                .port(node_port)
        };
        if self.port.external_local {
            if self.context.version.has(&LOOPBACK_MASQUERADED) {
                let loopback = self.context.family.loopback();
                nat(
                    script,
                    rule(chains::NODE_PORTS)
                        .with(format_args!("-s {loopback}"))
                        .jump(chains::MARK_MASQ),
                );
            }
            nat(script, rule(chains::NODE_PORTS).jump(&self.external_local));
        } else {
            let chain = self.masquerade_chain(chains::NODE_PORTS);
            nat(script, rule(chain).jump(chains::MARK_MASQ));
            nat(script, rule(chains::NODE_PORTS).jump(&self.service_chain));
        }
    }

    fn health_check(&self, script: &mut IptablesScript) {
        if let Some(port) = self.port.health_check_node_port
            && self.context.version.has(&HEALTH_CHECK_NODE_PORTS)
        {
            let comment = format!("{} health check node port", self.port.name);
            let rule = RuleBuilder::append(chains::NODE_PORTS)
                .comment(comment)
                .with(format_args!("-m tcp -p tcp --dport {port}"))
                .jump("ACCEPT");
            filter(script, rule);
        }
    }

    fn endpoints(&self, script: &mut IptablesScript) {
        for endpoint in &self.chosen.reachable {
            write_endpoint_chain(self.context, self.port, endpoint, script);
        }
        let affinity_endpoints = if self.context.version.has(&UNREADY_ENDPOINTS_COUNTED) {
            &self.chosen.reachable
        } else {
            &self.chosen.cluster
        };
        let comments = Comments::Standard;
        write_affinity_rules(
            self.context,
            self.port,
            &self.service_chain,
            affinity_endpoints,
            comments,
            script,
        );
        let ready = &self.chosen.cluster;
        write_balance_rules(
            self.context,
            self.port,
            &self.service_chain,
            ready,
            comments,
            script,
        );
    }

    /// Writes the rule that sends traffic of local pods to a `Local` service's external address to
    /// all endpoints.
    fn write_pod_redirect(&self, script: &mut IptablesScript) {
        if let Some(local) = &self.context.local {
            nat(
                script,
                RuleBuilder::append(&self.external_local)
                    .comment("Redirect pods trying to reach external loadbalancer VIP to clusterIP")
                    .with(local.local_match())
                    .jump(&self.service_chain),
            );
        }
    }

    /// Writes the rules that send the node's own traffic to a `Local` service's external address to
    /// all endpoints.
    fn write_node_redirect(&self, script: &mut IptablesScript) {
        if !self.context.version.has(&NODE_TRAFFIC_TO_ALL_ENDPOINTS) {
            return;
        }
        let name = &self.port.name;
        let rule = |comment: String| {
            RuleBuilder::append(&self.external_local)
                .comment(comment)
                .with("-m addrtype --src-type LOCAL")
        };
        let comment = format!("masquerade LOCAL traffic for {name} LB IP");
        nat(script, rule(comment).jump(chains::MARK_MASQ));
        let comment = format!("route LOCAL traffic for {name} LB IP to service chain");
        nat(script, rule(comment).jump(&self.service_chain));
    }

    fn write_local_chain(&self, script: &mut IptablesScript) {
        let chain = &self.external_local;
        let name = &self.port.name;
        if self.context.version.has(&NODE_TRAFFIC_BEFORE_PODS) {
            self.write_node_redirect(script);
            self.write_pod_redirect(script);
        } else {
            self.write_pod_redirect(script);
            self.write_node_redirect(script);
        }
        let local = &self.chosen.local;
        if local.is_empty() {
            let comment = format!("{name} has no local endpoints");
            let rule = RuleBuilder::append(chain).comment(comment);
            return nat(script, rule.jump(chains::MARK_DROP));
        }
        let comments = if self.context.version.has(&BALANCING_RULE_COMMENTS) {
            Comments::Numbered
        } else {
            Comments::Standard
        };
        write_affinity_rules(self.context, self.port, chain, local, comments, script);
        write_balance_rules(self.context, self.port, chain, local, comments, script);
    }
}
