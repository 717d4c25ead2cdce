//! Writes the iptables rules of ipvs mode from v1.11 on: the target of each set. The rules depend
//! on services only in that rules for empty sets are omitted.
//!
//! Follows `writeIptablesRules` and `createAndLinkKubeChain` of kubernetes/kubernetes
//! `pkg/proxy/ipvs/proxier.go`.

use super::masquerade::{mark_for_masquerade, masquerade};
use super::services::Made;
use super::sets::Name;
use super::{Context, chains, filter};
use crate::kube_proxy::history::{
    DROPS_IN_FILTER, HEALTH_CHECK_NODE_PORTS, IPVS_ENSURES_MARK_DROP, IPVS_FILTER,
    IPVS_NODE_PORTS_BY_SET, IPVS_OUT_FILTER, IPVS_SCTP_HASHES, IPVS_SCTP_LOCAL_FIRST, MARK_CLEARED,
};
use crate::kube_proxy::iptables::rule::Rule;
use crate::kube_proxy::services::Protocol;
use svclab_ruleset::iptables::script::{Script, Table};

/// Match directions for destination address and port.
const TO: &str = "dst,dst";
/// Match direction for destination port.
const TO_PORT: &str = "dst";
/// Match directions for destination address and port, and source.
const TO_FROM: &str = "dst,dst,src";

/// Returns the rules for the services in `made`.
pub(super) fn rules(context: &Context<'_>, made: &Made) -> Script {
    let mut writer = Writer {
        context,
        made,
        script: Script::new(),
    };
    writer.declare();
    writer.link();
    if !context.version.has(&MARK_CLEARED) {
        masquerade(context, &mut writer.script);
        mark_for_masquerade(context, &mut writer.script);
    }
    writer.spare_loopback();
    writer.by_set();
    writer.cluster_ips();
    writer.external_ips();
    writer.node_ports();
    writer.ends();
    writer.accept();
    filter::rules(context, made, &mut writer.script);
    if context.version.has(&MARK_CLEARED) {
        masquerade(context, &mut writer.script);
        mark_for_masquerade(context, &mut writer.script);
    }
    writer.script
}

struct Writer<'a> {
    context: &'a Context<'a>,
    made: &'a Made,
    script: Script,
}

impl Writer<'_> {
    fn nat(&mut self, command: String) {
        self.script.table(Table::Nat).command(command);
    }

    fn filter(&mut self, command: String) {
        self.script.table(Table::Filter).command(command);
    }

    /// Starts a rule at the end of `chain` that matches elements of a set, with the set's comment.
    fn commented(&self, chain: &str, name: Name, by: &str) -> Rule {
        Rule::append(chain)
            .comment(name.comment(self.context.version))
            .with(self.made.sets.matching(name, by))
    }

    fn declare(&mut self) {
        let version = self.context.version;
        let old_firewall = !version.has(&DROPS_IN_FILTER);
        let table = self.script.table(Table::Nat);
        let nat = [
            (true, chains::SERVICES),
            (true, chains::POSTROUTING),
            (old_firewall, chains::FIREWALL),
            (true, chains::NODE_PORT),
            (true, chains::LOAD_BALANCER),
            (true, chains::MARK_MASQ),
            (version.has(&IPVS_ENSURES_MARK_DROP), chains::MARK_DROP),
        ];
        for (made, chain) in nat {
            if made {
                table.chain(chain);
            }
        }
        let table = self.script.table(Table::Filter);
        let filter = [
            (true, chains::FORWARD),
            (version.has(&HEALTH_CHECK_NODE_PORTS), chains::NODE_PORT),
            (!old_firewall, chains::PROXY_FIREWALL),
            (!old_firewall, chains::SOURCE_RANGES),
            (version.has(&IPVS_FILTER), chains::IPVS_FILTER),
            (version.has(&IPVS_OUT_FILTER), chains::IPVS_OUT_FILTER),
        ];
        for (made, chain) in filter {
            if made {
                table.chain(chain);
            }
        }
    }

    /// Writes the jumps from built-in chains, in the order of their creation. Each jump is inserted
    /// at the top of its chain, so the kernel evaluates the last one first.
    fn link(&mut self) {
        let version = self.context.version;
        let fence = version.has(&DROPS_IN_FILTER);
        let portals = "kubernetes service portals";
        let firewall = "kube-proxy firewall rules";
        let access = "kubernetes ipvs access filter";
        let (nat, filter) = (Table::Nat, Table::Filter);
        let jumps = [
            (true, nat, "OUTPUT", chains::SERVICES, portals),
            (true, nat, "PREROUTING", chains::SERVICES, portals),
            (
                true,
                nat,
                "POSTROUTING",
                chains::POSTROUTING,
                "kubernetes postrouting rules",
            ),
            (
                true,
                filter,
                "FORWARD",
                chains::FORWARD,
                "kubernetes forwarding rules",
            ),
            (
                version.has(&HEALTH_CHECK_NODE_PORTS),
                filter,
                "INPUT",
                chains::NODE_PORT,
                "kubernetes health check rules",
            ),
            (fence, filter, "INPUT", chains::PROXY_FIREWALL, firewall),
            (fence, filter, "FORWARD", chains::PROXY_FIREWALL, firewall),
            (
                version.has(&IPVS_FILTER),
                filter,
                "INPUT",
                chains::IPVS_FILTER,
                access,
            ),
            (
                version.has(&IPVS_OUT_FILTER),
                filter,
                "OUTPUT",
                chains::IPVS_OUT_FILTER,
                access,
            ),
        ];
        for (made, table, from, to, comment) in jumps {
            if made {
                let rule = Rule::insert(from).comment(comment).jump(to);
                self.script.table(table).command(rule);
            }
        }
    }

    fn spare_loopback(&mut self) {
        if self.context.version.has(&IPVS_FILTER) {
            let loopback = self.context.family.loopback();
            let rule = Rule::append(chains::SERVICES)
                .with(format_args!("-s {loopback}"))
                .jump("RETURN");
            self.nat(rule);
        }
    }

    /// Writes one rule for each nonempty set that has a target. (`ipsetWithIptablesChain`.)
    fn by_set(&mut self) {
        self.lead(chains::POSTROUTING, Name::LoopBack, TO_FROM, "MASQUERADE");
        self.lead(
            chains::SERVICES,
            Name::LoadBalancer,
            TO,
            chains::LOAD_BALANCER,
        );
        if !self.context.version.has(&DROPS_IN_FILTER) {
            self.source_ranges(Table::Nat, chains::LOAD_BALANCER, chains::FIREWALL);
        }
        self.lead(chains::LOAD_BALANCER, Name::LoadBalancerLocal, TO, "RETURN");
        if self.context.version.has(&IPVS_NODE_PORTS_BY_SET) {
            self.lead(
                chains::SERVICES,
                Name::NodePortTcp,
                TO_PORT,
                chains::NODE_PORT,
            );
            self.lead(chains::NODE_PORT, Name::NodePortLocalTcp, TO_PORT, "RETURN");
        } else {
            self.node_port_sets();
        }
        if self.context.version.has(&DROPS_IN_FILTER) {
            self.source_ranges(Table::Filter, chains::PROXY_FIREWALL, chains::SOURCE_RANGES);
        }
    }

    /// Writes a nat rule from one chain to another for elements of a set.
    fn lead(&mut self, from: &str, name: Name, by: &str, to: &str) {
        if !self.made.sets.is_empty(name) {
            let rule = self.commented(from, name, by).jump(to);
            self.nat(rule);
        }
    }

    /// Writes a nat rule from one chain to another for elements of a set, limited to packets of
    /// `protocol`.
    fn lead_protocol(&mut self, from: &str, protocol: Protocol, name: Name, to: &str) {
        if !self.made.sets.is_empty(name) {
            let by = if self.made.sets.is_ports(name) {
                TO_PORT
            } else {
                TO
            };
            let rule = Rule::append(from)
                .with(format_args!("-p {protocol}"))
                .comment(name.comment(self.context.version))
                .with(self.made.sets.matching(name, by))
                .jump(to);
            self.nat(rule);
        }
    }

    /// Writes the jump from one chain to another for load balancer addresses with source ranges. In
    /// the second chain, admitted sources return.
    fn source_ranges(&mut self, table: Table, from: &str, to: &str) {
        let rules = [
            (from, Name::LoadBalancerFw, TO, to),
            (to, Name::SourceCidr, TO_FROM, "RETURN"),
            (to, Name::SourceIp, TO_FROM, "RETURN"),
        ];
        for (chain, name, by, target) in rules {
            if !self.made.sets.is_empty(name) {
                let rule = self.commented(chain, name, by).jump(target);
                self.script.table(table).command(rule);
            }
        }
    }

    fn node_port_sets(&mut self) {
        let version = self.context.version;
        let (chain, masquerade) = (chains::NODE_PORT, chains::MARK_MASQ);
        for (protocol, local, all) in [
            (Protocol::Tcp, Name::NodePortLocalTcp, Name::NodePortTcp),
            (Protocol::Udp, Name::NodePortLocalUdp, Name::NodePortUdp),
        ] {
            self.lead_protocol(chain, protocol, local, "RETURN");
            self.lead_protocol(chain, protocol, all, masquerade);
        }
        let (sctp, local, all) = (Protocol::Sctp, Name::NodePortLocalSctp, Name::NodePortSctp);
        if !version.has(&IPVS_SCTP_HASHES) {
            // The chain is the target of all traffic to the node anyway.
            self.lead_protocol(chains::SERVICES, sctp, all, chain);
            self.lead_protocol(chain, sctp, local, "RETURN");
        } else if version.has(&IPVS_SCTP_LOCAL_FIRST) {
            self.lead_protocol(chain, sctp, local, "RETURN");
            self.lead_protocol(chain, sctp, all, masquerade);
        } else {
            self.lead_protocol(chain, sctp, all, masquerade);
            self.lead_protocol(chain, sctp, local, "RETURN");
        }
    }

    fn cluster_ips(&mut self) {
        if self.made.sets.is_empty(Name::ClusterIp) {
            return;
        }
        let rule = |by| self.commented(chains::SERVICES, Name::ClusterIp, by);
        let rule = if self.context.proxy.masquerade_all {
            rule(TO)
        } else if let Some(local) = &self.context.local {
            // Traffic from other hosts that route the service network to a node.
            rule(TO).with(local.if_not_local())
        } else {
            // Traffic of the node itself, which uses the service's address as its source.
            rule("src,dst")
        };
        self.nat(rule.jump(chains::MARK_MASQ));
    }

    fn external_ips(&mut self) {
        for (name, masquerade) in [(Name::ExternalIp, true), (Name::ExternalIpLocal, false)] {
            if self.made.sets.is_empty(name) {
                continue;
            }
            let rule = self.commented(chains::SERVICES, name, TO);
            if masquerade {
                self.nat(rule.clone().jump(chains::MARK_MASQ));
            }
            // Traffic from outside the node, and traffic to the node itself.
            let outside = "-m physdev ! --physdev-is-in -m addrtype ! --src-type LOCAL";
            self.nat(rule.clone().with(outside).jump("ACCEPT"));
            self.nat(rule.with("-m addrtype --dst-type LOCAL").jump("ACCEPT"));
        }
    }

    fn node_ports(&mut self) {
        if !self.context.version.has(&IPVS_NODE_PORTS_BY_SET) {
            let rule = Rule::append(chains::SERVICES)
                .with("-m addrtype --dst-type LOCAL")
                .jump(chains::NODE_PORT);
            self.nat(rule);
            return;
        }
        if !self.made.sets.is_empty(Name::NodePortUdp) {
            let version = self.context.version;
            let rule = Rule::append(chains::SERVICES)
                .with("-m udp -p udp")
                .comment(Name::NodePortUdp.comment(version))
                .with(self.made.sets.matching(Name::NodePortUdp, TO_PORT))
                .jump(chains::NODE_PORT);
            self.nat(rule);
            self.lead(chains::NODE_PORT, Name::NodePortLocalUdp, TO_PORT, "ACCEPT");
            let rule = Rule::append(chains::NODE_PORT)
                .comment("mark MASQ for externaltrafficpolicy=cluster")
                .jump(chains::MARK_MASQ);
            self.nat(rule);
        }
        self.nat(Rule::append(chains::NODE_PORT).jump(chains::MARK_MASQ));
    }

    /// Writes the last rule of each chain, for packets without an earlier match.
    fn ends(&mut self) {
        self.nat(Rule::append(chains::LOAD_BALANCER).jump(chains::MARK_MASQ));
        if self.context.version.has(&DROPS_IN_FILTER) {
            self.filter(Rule::append(chains::SOURCE_RANGES).jump("DROP"));
        } else {
            self.nat(Rule::append(chains::FIREWALL).jump(chains::MARK_DROP));
        }
    }

    /// Accepts traffic for IPVS, so that no later nat rule changes the packets.
    /// (`acceptIPVSTraffic`.)
    fn accept(&mut self) {
        for name in [Name::ClusterIp, Name::LoadBalancer] {
            if !self.made.sets.is_empty(name) {
                let rule = Rule::append(chains::SERVICES)
                    .with(self.made.sets.matching(name, TO))
                    .jump("ACCEPT");
                self.nat(rule);
            }
        }
    }
}
