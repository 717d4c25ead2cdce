//! Writes the rules of iptables mode for a service port up to v1.23. In these versions, traffic
//! from outside to a service with the policy `Local` passes through `KUBE-XLB-`.

use std::net::IpAddr;

use super::rule::Rule;
use super::spread::{Comments, balance, endpoint_chain, stay};
use super::{Context, chains, filter, nat, nat_chain, node};
use crate::kube_proxy::history::{
    BALANCING_RULE_COMMENTS, EXTERNAL_IPS_OBEY_POLICY, HEALTH_CHECK_NODE_PORTS, INPUT_SPARED,
    LOAD_BALANCER_REFUSED, LOOPBACK_MASQUERADED, MASQUERADE_IN_SERVICE_CHAIN,
    NODE_PORTS_NEED_AN_ADDRESS, NODE_TRAFFIC_BEFORE_PODS, NODE_TRAFFIC_MEETS_ALL,
    ONE_CHAIN_REFUSES, PHYSDEV_FOR_EXTERNAL_IPS, RULES_WITHOUT_ENDPOINTS, UNREADY_ENDPOINTS_COUNT,
};
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
    let writer = Writer {
        context,
        port,
        chosen,
        all: chains::service(port),
        external_local: chains::external_local(port),
    };
    writer.declare(script);
    writer.cluster_ip(script);
    writer.external_ips(script);
    writer.load_balancer_ips(script);
    if port.node_port.is_some()
        && context.version.has(&NODE_PORTS_NEED_AN_ADDRESS)
        && !node::serves_node_ports(context)
    {
        return;
    }
    writer.node_port(script);
    if writer.leads() {
        writer.refuse_cluster_ip(script);
    }
    writer.health_check(script);
    if chosen.any {
        writer.endpoints(script);
        if port.external_local {
            writer.local(script);
        }
    }
}

struct Writer<'a> {
    context: &'a Context<'a>,
    port: &'a ServicePort,
    chosen: &'a Chosen<'a>,
    /// Chain of all endpoints.
    all: String,
    /// Chain of traffic from outside with the policy `Local`.
    external_local: String,
}

impl Writer<'_> {
    /// Whether nat contains rules that lead to the endpoints.
    fn leads(&self) -> bool {
        self.chosen.any || self.context.version.has(&RULES_WITHOUT_ENDPOINTS)
    }

    fn declare(&self, script: &mut Script) {
        if self.leads() {
            nat_chain(script, &self.all);
        }
        if self.port.external_local {
            nat_chain(script, &self.external_local);
        }
    }

    /// Starts a rule of `chain` that matches packets to the port on `ip`.
    fn to(&self, chain: &str, what: &str, ip: IpAddr) -> Rule {
        Rule::append(chain)
            .comment(format_args!("{} {what}", self.port.name))
            .protocol(self.port.protocol)
            .destination(ip)
            .port(self.port.port)
    }

    /// Returns the chain for the masquerading rules: the service's own chain, or `front` in older
    /// versions.
    fn masquerade_chain<'c>(&'c self, front: &'c str) -> &'c str {
        if self.context.version.has(&MASQUERADE_IN_SERVICE_CHAIN) {
            &self.all
        } else {
            front
        }
    }

    /// Returns the chain that rejects traffic to external IPs and node ports without endpoints.
    fn refusing_chain(&self) -> &'static str {
        if self.context.version.has(&ONE_CHAIN_REFUSES) {
            chains::SERVICES
        } else {
            chains::EXTERNAL_SERVICES
        }
    }

    fn refuse(&self, chain: &str, ip: IpAddr, script: &mut Script) {
        filter(
            script,
            self.to(chain, "has no endpoints", ip).jump("REJECT"),
        );
    }

    fn refuse_cluster_ip(&self, script: &mut Script) {
        if !self.chosen.any {
            self.refuse(chains::SERVICES, self.port.cluster_ip, script);
        }
    }

    fn cluster_ip(&self, script: &mut Script) {
        let ip = self.port.cluster_ip;
        if !self.leads() {
            return self.refuse_cluster_ip(script);
        }
        let rule = |chain| self.to(chain, "cluster IP", ip);
        let masquerade = rule(self.masquerade_chain(chains::SERVICES));
        if self.context.proxy.masquerade_all {
            nat(script, masquerade.jump(chains::MARK_MASQ));
        } else if let Some(local) = &self.context.local {
            let masquerade = masquerade.with(local.if_not_local());
            nat(script, masquerade.jump(chains::MARK_MASQ));
        }
        nat(script, rule(chains::SERVICES).jump(&self.all));
    }

    fn external_ips(&self, script: &mut Script) {
        let version = self.context.version;
        let keep_local = self.port.external_local && version.has(&EXTERNAL_IPS_OBEY_POLICY);
        let chain = if keep_local {
            &self.external_local
        } else {
            &self.all
        };
        for &ip in &self.port.external_ips {
            if !self.chosen.any {
                self.refuse(self.refusing_chain(), ip, script);
            }
            if !self.leads() {
                continue;
            }
            let rule = |chain| self.to(chain, "external IP", ip);
            if !keep_local {
                let masquerade = rule(self.masquerade_chain(chains::SERVICES));
                let strangers = self.context.local.as_ref();
                let strangers = strangers
                    .filter(|_| !version.has(&PHYSDEV_FOR_EXTERNAL_IPS))
                    .map(super::local::LocalTraffic::if_not_local);
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

    fn load_balancer_ips(&self, script: &mut Script) {
        let what = "loadbalancer IP";
        let firewall = chains::firewall(self.port);
        if self.leads() && !self.port.load_balancer_ips.is_empty() {
            nat_chain(script, &firewall);
        }
        for &ip in &self.port.load_balancer_ips {
            if !self.chosen.any {
                if self.context.version.has(&INPUT_SPARED) {
                    self.refuse(chains::EXTERNAL_SERVICES, ip, script);
                } else if self.context.version.has(&LOAD_BALANCER_REFUSED) {
                    self.refuse(chains::SERVICES, ip, script);
                }
            }
            if !self.leads() {
                continue;
            }
            nat(script, self.to(chains::SERVICES, what, ip).jump(&firewall));
            let rule =
                || Rule::append(&firewall).comment(format_args!("{} {what}", self.port.name));
            let chain = if self.port.external_local {
                &self.external_local
            } else {
                nat(script, rule().jump(chains::MARK_MASQ));
                &self.all
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

    fn node_port(&self, script: &mut Script) {
        let Some(node_port) = self.port.node_port else {
            return;
        };
        let protocol = self.port.protocol;
        if !self.chosen.any {
            let comment = format!("{} has no endpoints", self.port.name);
            let rule = Rule::append(self.refusing_chain())
                .comment(comment)
                .with("-m addrtype --dst-type LOCAL")
                .protocol(protocol)
                .port(node_port)
                .jump("REJECT");
            filter(script, rule);
        }
        if !self.leads() {
            return;
        }
        let rule = |chain| {
            Rule::append(chain)
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
            nat(script, rule(chains::NODE_PORTS).jump(&self.all));
        }
    }

    fn health_check(&self, script: &mut Script) {
        if let Some(port) = self.port.health_check_node_port
            && self.context.version.has(&HEALTH_CHECK_NODE_PORTS)
        {
            let comment = format!("{} health check node port", self.port.name);
            let rule = Rule::append(chains::NODE_PORTS)
                .comment(comment)
                .with(format_args!("-m tcp -p tcp --dport {port}"))
                .jump("ACCEPT");
            filter(script, rule);
        }
    }

    fn endpoints(&self, script: &mut Script) {
        for endpoint in &self.chosen.reachable {
            endpoint_chain(self.context, self.port, endpoint, script);
        }
        let staying = if self.context.version.has(&UNREADY_ENDPOINTS_COUNT) {
            &self.chosen.reachable
        } else {
            &self.chosen.cluster
        };
        let usual = Comments::Usual;
        stay(self.context, self.port, &self.all, staying, usual, script);
        let ready = &self.chosen.cluster;
        balance(self.context, self.port, &self.all, ready, usual, script);
    }

    /// Writes the rule that sends traffic of local pods to a `Local` service's external address to
    /// all endpoints.
    fn of_pods(&self, script: &mut Script) {
        if let Some(local) = &self.context.local {
            nat(
                script,
                Rule::append(&self.external_local)
                    .comment("Redirect pods trying to reach external loadbalancer VIP to clusterIP")
                    .with(local.if_local())
                    .jump(&self.all),
            );
        }
    }

    /// Writes the rules that send the node's own traffic to a `Local` service's external address to
    /// all endpoints.
    fn of_the_node(&self, script: &mut Script) {
        if !self.context.version.has(&NODE_TRAFFIC_MEETS_ALL) {
            return;
        }
        let name = &self.port.name;
        let rule = |comment: String| {
            Rule::append(&self.external_local)
                .comment(comment)
                .with("-m addrtype --src-type LOCAL")
        };
        let comment = format!("masquerade LOCAL traffic for {name} LB IP");
        nat(script, rule(comment).jump(chains::MARK_MASQ));
        let comment = format!("route LOCAL traffic for {name} LB IP to service chain");
        nat(script, rule(comment).jump(&self.all));
    }

    fn local(&self, script: &mut Script) {
        let chain = &self.external_local;
        let name = &self.port.name;
        if self.context.version.has(&NODE_TRAFFIC_BEFORE_PODS) {
            self.of_the_node(script);
            self.of_pods(script);
        } else {
            self.of_pods(script);
            self.of_the_node(script);
        }
        let local = &self.chosen.local;
        if local.is_empty() {
            let comment = format!("{name} has no local endpoints");
            let rule = Rule::append(chain).comment(comment);
            return nat(script, rule.jump(chains::MARK_DROP));
        }
        let comments = if self.context.version.has(&BALANCING_RULE_COMMENTS) {
            Comments::Numbered
        } else {
            Comments::Usual
        };
        stay(self.context, self.port, chain, local, comments, script);
        balance(self.context, self.port, chain, local, comments, script);
    }
}
