//! Writes the iptables rules of ipvs mode from v1.11 on: the target of each set. The rules depend
//! on services only in that rules for empty sets are omitted.
//!
//! Follows `writeIptablesRules` and `createAndLinkKubeChain` of kubernetes/kubernetes
//! `pkg/proxy/ipvs/proxier.go`.

use super::masquerade::{write_mark_rule, write_masquerade_rules};
use super::services::IpvsObjects;
use super::sets::SetName;
use super::{IpvsContext, chains, filter};
use crate::kube_proxy::history::{
    DROPS_IN_FILTER, HEALTH_CHECK_NODE_PORTS, IPVS_CREATES_MARK_DROP, IPVS_FILTER,
    IPVS_NODE_PORTS_BY_SET, IPVS_OUT_FILTER, IPVS_SCTP_HASHES, IPVS_SCTP_LOCAL_FIRST, MARK_CLEARED,
};
use crate::kube_proxy::iptables::rule::RuleBuilder;
use svclab_ruleset::Protocol;
use svclab_ruleset::iptables::command::Command;
use svclab_ruleset::iptables::script::{IptablesScript, Table};

/// Match directions for destination address and port.
const DST_ADDRESS_PORT: &str = "dst,dst";
/// Match direction for destination port.
const DST_PORT: &str = "dst";
/// Match directions for destination address and port, and source.
const DST_ADDRESS_PORT_SRC: &str = "dst,dst,src";

/// Returns the rules for the services in `made`.
pub(super) fn rules(context: &IpvsContext<'_>, objects: &IpvsObjects) -> IptablesScript {
    let mut writer = ScriptWriter {
        context,
        objects,
        script: IptablesScript::new(),
    };
    writer.declare_chains();
    writer.write_jumps();
    if !context.version.has(&MARK_CLEARED) {
        write_masquerade_rules(context, &mut writer.script);
        write_mark_rule(context, &mut writer.script);
    }
    writer.write_loopback_return();
    writer.write_set_rules();
    writer.write_cluster_ip_rules();
    writer.write_external_ip_rules();
    writer.write_node_port_rules();
    writer.write_chain_ends();
    writer.write_accept_rules();
    filter::rules(context, objects, &mut writer.script);
    if context.version.has(&MARK_CLEARED) {
        write_masquerade_rules(context, &mut writer.script);
        write_mark_rule(context, &mut writer.script);
    }
    writer.script
}

struct ScriptWriter<'a> {
    context: &'a IpvsContext<'a>,
    objects: &'a IpvsObjects,
    script: IptablesScript,
}

impl ScriptWriter<'_> {
    fn nat(&mut self, command: Command) {
        self.script.table_mut(Table::Nat).push(command);
    }

    fn filter(&mut self, command: Command) {
        self.script.table_mut(Table::Filter).push(command);
    }

    /// Starts a rule at the end of `chain` that matches elements of a set, with the set's comment.
    fn commented_rule(&self, chain: &str, name: SetName, directions: &str) -> RuleBuilder {
        RuleBuilder::append(chain)
            .comment(name.comment(self.context.version))
            .with(self.objects.sets.matching(name, directions))
    }

    fn declare_chains(&mut self) {
        let version = self.context.version;
        let old_firewall = !version.has(&DROPS_IN_FILTER);
        let table = self.script.table_mut(Table::Nat);
        let nat = [
            (true, chains::SERVICES),
            (true, chains::POSTROUTING),
            (old_firewall, chains::FIREWALL),
            (true, chains::NODE_PORT),
            (true, chains::LOAD_BALANCER),
            (true, chains::MARK_MASQ),
            (version.has(&IPVS_CREATES_MARK_DROP), chains::MARK_DROP),
        ];
        for (is_enabled, chain) in nat {
            if is_enabled {
                table.declare_chain(chain);
            }
        }
        let table = self.script.table_mut(Table::Filter);
        let filter = [
            (true, chains::FORWARD),
            (version.has(&HEALTH_CHECK_NODE_PORTS), chains::NODE_PORT),
            (!old_firewall, chains::PROXY_FIREWALL),
            (!old_firewall, chains::SOURCE_RANGES),
            (version.has(&IPVS_FILTER), chains::IPVS_FILTER),
            (version.has(&IPVS_OUT_FILTER), chains::IPVS_OUT_FILTER),
        ];
        for (is_enabled, chain) in filter {
            if is_enabled {
                table.declare_chain(chain);
            }
        }
    }

    /// Writes the jumps from built-in chains, in the order of their creation. Each jump is inserted
    /// at the top of its chain, so the kernel evaluates the last one first.
    fn write_jumps(&mut self) {
        let version = self.context.version;
        let has_proxy_firewall = version.has(&DROPS_IN_FILTER);
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
            (
                has_proxy_firewall,
                filter,
                "INPUT",
                chains::PROXY_FIREWALL,
                firewall,
            ),
            (
                has_proxy_firewall,
                filter,
                "FORWARD",
                chains::PROXY_FIREWALL,
                firewall,
            ),
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
        for (is_enabled, table, from, to, comment) in jumps {
            if is_enabled {
                let rule = RuleBuilder::insert(from).comment(comment).jump(to);
                self.script.table_mut(table).push(rule);
            }
        }
    }

    fn write_loopback_return(&mut self) {
        if self.context.version.has(&IPVS_FILTER) {
            let loopback = self.context.family.loopback();
            let rule = RuleBuilder::append(chains::SERVICES)
                .with(format_args!("-s {loopback}"))
                .jump("RETURN");
            self.nat(rule);
        }
    }

    /// Writes one rule for each nonempty set that has a target. (`ipsetWithIptablesChain`.)
    fn write_set_rules(&mut self) {
        self.write_set_rule(
            chains::POSTROUTING,
            SetName::LoopBack,
            DST_ADDRESS_PORT_SRC,
            "MASQUERADE",
        );
        self.write_set_rule(
            chains::SERVICES,
            SetName::LoadBalancer,
            DST_ADDRESS_PORT,
            chains::LOAD_BALANCER,
        );
        if !self.context.version.has(&DROPS_IN_FILTER) {
            self.write_source_range_rules(Table::Nat, chains::LOAD_BALANCER, chains::FIREWALL);
        }
        self.write_set_rule(
            chains::LOAD_BALANCER,
            SetName::LoadBalancerLocal,
            DST_ADDRESS_PORT,
            "RETURN",
        );
        if self.context.version.has(&IPVS_NODE_PORTS_BY_SET) {
            self.write_set_rule(
                chains::SERVICES,
                SetName::NodePortTcp,
                DST_PORT,
                chains::NODE_PORT,
            );
            self.write_set_rule(
                chains::NODE_PORT,
                SetName::NodePortLocalTcp,
                DST_PORT,
                "RETURN",
            );
        } else {
            self.write_node_port_set_rules();
        }
        if self.context.version.has(&DROPS_IN_FILTER) {
            self.write_source_range_rules(
                Table::Filter,
                chains::PROXY_FIREWALL,
                chains::SOURCE_RANGES,
            );
        }
    }

    /// Writes a nat rule from one chain to another for elements of a set.
    fn write_set_rule(&mut self, from: &str, name: SetName, directions: &str, to: &str) {
        if !self.objects.sets.is_empty(name) {
            let rule = self.commented_rule(from, name, directions).jump(to);
            self.nat(rule);
        }
    }

    /// Writes a nat rule from one chain to another for elements of a set, limited to packets of
    /// `protocol`.
    fn write_protocol_set_rule(&mut self, from: &str, protocol: Protocol, name: SetName, to: &str) {
        if !self.objects.sets.is_empty(name) {
            let directions = if self.objects.sets.has_ports(name) {
                DST_PORT
            } else {
                DST_ADDRESS_PORT
            };
            let rule = RuleBuilder::append(from)
                .with(format_args!("-p {protocol}"))
                .comment(name.comment(self.context.version))
                .with(self.objects.sets.matching(name, directions))
                .jump(to);
            self.nat(rule);
        }
    }

    /// Writes the jump from one chain to another for load balancer addresses with source ranges. In
    /// the second chain, admitted sources return.
    fn write_source_range_rules(&mut self, table: Table, from: &str, to: &str) {
        let rules = [
            (from, SetName::LoadBalancerFw, DST_ADDRESS_PORT, to),
            (to, SetName::SourceCidr, DST_ADDRESS_PORT_SRC, "RETURN"),
            (to, SetName::SourceIp, DST_ADDRESS_PORT_SRC, "RETURN"),
        ];
        for (chain, name, directions, target) in rules {
            if !self.objects.sets.is_empty(name) {
                let rule = self.commented_rule(chain, name, directions).jump(target);
                self.script.table_mut(table).push(rule);
            }
        }
    }

    fn write_node_port_set_rules(&mut self) {
        let version = self.context.version;
        let (chain, masquerade) = (chains::NODE_PORT, chains::MARK_MASQ);
        for (protocol, local_set, all_set) in [
            (
                Protocol::Tcp,
                SetName::NodePortLocalTcp,
                SetName::NodePortTcp,
            ),
            (
                Protocol::Udp,
                SetName::NodePortLocalUdp,
                SetName::NodePortUdp,
            ),
        ] {
            self.write_protocol_set_rule(chain, protocol, local_set, "RETURN");
            self.write_protocol_set_rule(chain, protocol, all_set, masquerade);
        }
        let (sctp, local_set, all_set) = (
            Protocol::Sctp,
            SetName::NodePortLocalSctp,
            SetName::NodePortSctp,
        );
        if !version.has(&IPVS_SCTP_HASHES) {
            // The chain is the target of all traffic to the node anyway.
            self.write_protocol_set_rule(chains::SERVICES, sctp, all_set, chain);
            self.write_protocol_set_rule(chain, sctp, local_set, "RETURN");
        } else if version.has(&IPVS_SCTP_LOCAL_FIRST) {
            self.write_protocol_set_rule(chain, sctp, local_set, "RETURN");
            self.write_protocol_set_rule(chain, sctp, all_set, masquerade);
        } else {
            self.write_protocol_set_rule(chain, sctp, all_set, masquerade);
            self.write_protocol_set_rule(chain, sctp, local_set, "RETURN");
        }
    }

    fn write_cluster_ip_rules(&mut self) {
        if self.objects.sets.is_empty(SetName::ClusterIp) {
            return;
        }
        let rule =
            |directions| self.commented_rule(chains::SERVICES, SetName::ClusterIp, directions);
        let rule = if self.context.proxy.masquerade_all {
            rule(DST_ADDRESS_PORT)
        } else if let Some(local) = &self.context.local {
            // Traffic from other hosts that route the service network to a node.
            rule(DST_ADDRESS_PORT).with(local.nonlocal_match())
        } else {
            // Traffic of the node itself, which uses the service's address as its source.
            rule("src,dst")
        };
        self.nat(rule.jump(chains::MARK_MASQ));
    }

    fn write_external_ip_rules(&mut self) {
        for (name, masquerade) in [
            (SetName::ExternalIp, true),
            (SetName::ExternalIpLocal, false),
        ] {
            if self.objects.sets.is_empty(name) {
                continue;
            }
            let rule = self.commented_rule(chains::SERVICES, name, DST_ADDRESS_PORT);
            if masquerade {
                self.nat(rule.clone().jump(chains::MARK_MASQ));
            }
            // Traffic from outside the node, and traffic to the node itself.
            let outside = "-m physdev ! --physdev-is-in -m addrtype ! --src-type LOCAL";
            self.nat(rule.clone().with(outside).jump("ACCEPT"));
            self.nat(rule.with("-m addrtype --dst-type LOCAL").jump("ACCEPT"));
        }
    }

    fn write_node_port_rules(&mut self) {
        if !self.context.version.has(&IPVS_NODE_PORTS_BY_SET) {
            let rule = RuleBuilder::append(chains::SERVICES)
                .with("-m addrtype --dst-type LOCAL")
                .jump(chains::NODE_PORT);
            self.nat(rule);
            return;
        }
        if !self.objects.sets.is_empty(SetName::NodePortUdp) {
            let version = self.context.version;
            let rule = RuleBuilder::append(chains::SERVICES)
                .with("-m udp -p udp")
                .comment(SetName::NodePortUdp.comment(version))
                .with(self.objects.sets.matching(SetName::NodePortUdp, DST_PORT))
                .jump(chains::NODE_PORT);
            self.nat(rule);
            self.write_set_rule(
                chains::NODE_PORT,
                SetName::NodePortLocalUdp,
                DST_PORT,
                "ACCEPT",
            );
            let rule = RuleBuilder::append(chains::NODE_PORT)
                .comment("mark MASQ for externaltrafficpolicy=cluster")
                .jump(chains::MARK_MASQ);
            self.nat(rule);
        }
        self.nat(RuleBuilder::append(chains::NODE_PORT).jump(chains::MARK_MASQ));
    }

    /// Writes the last rule of each chain, for packets without an earlier match.
    fn write_chain_ends(&mut self) {
        self.nat(RuleBuilder::append(chains::LOAD_BALANCER).jump(chains::MARK_MASQ));
        if self.context.version.has(&DROPS_IN_FILTER) {
            self.filter(RuleBuilder::append(chains::SOURCE_RANGES).jump("DROP"));
        } else {
            self.nat(RuleBuilder::append(chains::FIREWALL).jump(chains::MARK_DROP));
        }
    }

    /// Accepts traffic for IPVS, so that no later nat rule changes the packets.
    /// (`acceptIPVSTraffic`.)
    fn write_accept_rules(&mut self) {
        for name in [SetName::ClusterIp, SetName::LoadBalancer] {
            if !self.objects.sets.is_empty(name) {
                let rule = RuleBuilder::append(chains::SERVICES)
                    .with(self.objects.sets.matching(name, DST_ADDRESS_PORT))
                    .jump("ACCEPT");
                self.nat(rule);
            }
        }
    }
}
