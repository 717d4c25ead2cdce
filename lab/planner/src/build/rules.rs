//! Builds the rules of every namespace from the components that run there, in the order in which
//! the components start.

use std::collections::BTreeSet;
use std::net::IpAddr;

use ipnetwork::IpNetwork;

use crate::cluster::{Cluster, FABRIC, INTERNET, Node, Problem, place};
use svclab_diagnostic::suggest::did_you_mean;
use svclab_model::plan::{Iptables, Link, LinkKind, Mac, Namespace, VirtualServer};
use svclab_rules::chains::Chains;
use svclab_rules::kube_proxy::history::NFT_INTERFACES_BY_NAME;
use svclab_rules::kube_proxy::{
    self, DetectLocalMode, Family, IpvsRules, KubeProxy, Mode, Objects,
};
use svclab_rules::{calico, docker, flannel, ip_masq_agent, kubelet};
use svclab_ruleset::ipset::IpsetScript;
use svclab_ruleset::iptables::script::{IptablesScript, Table};
use svclab_ruleset::nft::Ruleset;
use svclab_scenario::lab::{FabricKind, FlannelLeftover, ForeignSources};

use super::balancer::BalancerObjects;
use super::topology::interface_name;

/// Prefix of the chains in the underlay that check the source addresses of a node's packets.
pub const SOURCE_CHECK: &str = "SOURCE-";

/// Builds the rules of all nodes and of the fabric.
pub fn build(
    namespaces: &mut [Namespace],
    cluster: &Cluster,
    balancer_objects: &BalancerObjects,
    problems: &mut Vec<Problem>,
) {
    let core_nodes: Vec<_> = cluster
        .nodes
        .iter()
        .map(|node| node.object.clone())
        .collect();
    for namespace in namespaces {
        if [FABRIC, INTERNET].contains(&namespace.name.as_str()) {
            let (mut v4, v6) = if namespace.name == FABRIC {
                source_check_rules(cluster)
            } else {
                Default::default()
            };
            if let Some(namespace_balancers) =
                balancer_objects.namespaces.get(namespace.name.as_str())
            {
                v4.append(namespace_balancers.script.clone());
            }
            namespace.iptables = to_iptables(cluster, &v4, &v6);
        } else if let Some(node) = cluster
            .nodes
            .iter()
            .find(|node| node.name == namespace.name)
        {
            let interfaces: Vec<IpAddr> = namespace
                .links
                .iter()
                .flat_map(|link| link.addresses.iter().map(IpNetwork::ip))
                .chain([IpAddr::V4(std::net::Ipv4Addr::LOCALHOST)])
                .chain(
                    cluster
                        .has_ipv6()
                        .then_some(IpAddr::V6(std::net::Ipv6Addr::LOCALHOST)),
                )
                .collect();
            let objects = Objects {
                node: &node.name,
                nodes: &core_nodes,
                services: &cluster.services,
                endpoint_slices: &cluster.slices,
                service_cidrs: &cluster.service_cidrs,
                interface_addresses: &interfaces,
            };
            let mut builder = NodeRulesBuilder {
                cluster,
                node,
                objects,
                problems: &mut *problems,
                links: namespace
                    .links
                    .iter()
                    .map(|link| link.name.clone())
                    .collect(),
                sets: IpsetScript::new(),
                servers: Vec::new(),
                bound: Vec::new(),
                accounting: BTreeSet::new(),
                nft: Ruleset::default(),
            };
            let v4 = builder.build_v4();
            let v6 = if cluster.has_ipv6() {
                builder.build_kube_proxy(Family::V6)
            } else {
                IptablesScript::new()
            };
            namespace.ipset = builder.build_sets();
            namespace.accounting = builder.accounting.into_iter().map(str::to_owned).collect();
            namespace.ipvs.append(&mut builder.servers);
            namespace.nft = builder.nft.to_string();
            if let Some(proxy) = node
                .generated_proxy()
                .filter(|proxy| proxy.mode == Mode::Ipvs)
            {
                namespace
                    .links
                    .push(kube_proxy_interface(&node.name, &builder.bound));
                namespace.ipvs_timeouts = kube_proxy::ipvs::timeouts(proxy);
            }
            namespace.iptables = to_iptables(cluster, &v4, &v6);
            if node.kube_proxy.as_ref().is_some_and(has_iptables_writer) {
                let rules = namespace.iptables.get_or_insert_with(|| Iptables {
                    backend: cluster.backend,
                    ..Iptables::default()
                });
                declare_tables(&mut rules.v4);
                if cluster.has_ipv6() {
                    declare_tables(&mut rules.v6);
                }
            }
        }
    }
}

/// Returns the dummy interface of kube-proxy. The interface stays down; its addresses still count
/// as the node's own.
pub(super) fn kube_proxy_interface(node: &str, bound: &[IpAddr]) -> Link {
    Link {
        name: kube_proxy::ipvs::DUMMY.to_owned(),
        kind: LinkKind::Dummy,
        mac: Mac::from_names(node, kube_proxy::ipvs::DUMMY),
        addresses: bound
            .iter()
            .map(|address| IpNetwork::from(*address))
            .collect(),
        bridge: None,
        hairpin: false,
        down: true,
        mtu: None,
    }
}

/// Whether a real kube-proxy will write iptables rules.
fn has_iptables_writer(proxy: &KubeProxy) -> bool {
    proxy.binary.is_some() && proxy.mode != Mode::Nftables
}

/// Declares the tables that a kube-proxy writes, so that the plan contains them.
fn declare_tables(text: &mut String) {
    for table in ["nat", "filter"] {
        let begin = format!("*{table}\n");
        if !text.contains(&begin) {
            text.push_str(&begin);
            text.push_str("COMMIT\n");
        }
    }
}

fn to_iptables(cluster: &Cluster, v4: &IptablesScript, v6: &IptablesScript) -> Option<Iptables> {
    let text = |script: &IptablesScript| {
        if script.is_empty() {
            String::new()
        } else {
            script.to_string()
        }
    };
    (!v4.is_empty() || !v6.is_empty()).then(|| Iptables {
        backend: cluster.backend,
        v4: text(v4),
        v6: text(v6),
    })
}

/// Builder of the rules of one node.
struct NodeRulesBuilder<'a> {
    cluster: &'a Cluster,
    node: &'a Node,
    objects: Objects<'a>,
    problems: &'a mut Vec<Problem>,
    /// Names of the node's interfaces.
    links: Vec<String>,
    /// Sets that components create.
    sets: IpsetScript,
    /// Virtual servers of kube-proxy in ipvs mode.
    servers: Vec<VirtualServer>,
    /// Addresses on kube-proxy's dummy interface.
    bound: Vec<IpAddr>,
    /// Accounting objects (`nfacct`) of kube-proxy's rules, for both families.
    accounting: BTreeSet<&'static str>,
    /// Tables of kube-proxy in nftables mode.
    nft: Ruleset,
}

impl NodeRulesBuilder<'_> {
    /// Builds all IPv4 rules: leftovers, then Docker, the kubelet, kube-proxy, calico, flannel and
    /// ip-masq-agent in the order in which they start.
    fn build_v4(&mut self) -> IptablesScript {
        let mut script = IptablesScript::new();
        let flannel_state = self.add_flannel_leftovers(&mut script);
        self.add_leftovers(&mut script);
        if let Some(docker) = &self.cluster.docker {
            script.append(docker::script(docker));
        }
        script.append(self.build_kube_proxy(Family::V4));
        if let Some(calico) = &self.cluster.calico {
            match calico::script(calico) {
                Ok(rules) => script.append(rules),
                Err(error) => self.add_problem("calico", &error.to_string()),
            }
        }
        self.add_flannel(&mut script, flannel_state);
        if let Some(agent) = &self.cluster.ip_masq_agent {
            match ip_masq_agent::script(agent) {
                Ok(rules) => script.append(rules),
                Err(error) => self.add_problem("ipMasqAgent", &error.to_string()),
            }
        }
        if self.node.has_real_kube_proxy() {
            // These rules are loaded after those of the real kube-proxy; here they are only
            // checked.
            self.add_lab_rules(
                &mut IptablesScript::new(),
                "byHand",
                &self.node.by_hand.iptables,
            );
        } else {
            self.add_lab_rules(&mut script, "byHand", &self.node.by_hand.iptables);
        }
        script
    }

    fn add_problem(&mut self, component: &str, message: &str) {
        self.problems.push(Problem::in_lab(
            place!["spec", component],
            format!("on node `{}`: {message}", self.node.name),
        ));
    }

    fn add_flannel_leftovers(&mut self, script: &mut IptablesScript) -> flannel::NodeState {
        let FlannelLeftover::Earlier(leftover) = &self.node.leftovers.flannel else {
            return flannel::NodeState::default();
        };
        match leftover.leftover_state() {
            Ok((rules, state)) => {
                script.append(rules);
                state
            }
            Err(error) => {
                self.problems.push(Problem::in_lab(
                    place!["spec", "nodes", &self.node.name, "leftovers", "flannel"],
                    error.to_string(),
                ));
                flannel::NodeState::default()
            }
        }
    }

    fn add_leftovers(&mut self, script: &mut IptablesScript) {
        self.add_lab_rules(script, "leftovers", &self.node.leftovers.iptables);
    }

    /// Adds rules from a field of the lab.
    fn add_lab_rules(&mut self, script: &mut IptablesScript, field: &str, lines: &[String]) {
        let mut table = None;
        for (index, line) in lines.iter().enumerate() {
            if let Err(message) = add_save_line(script, &mut table, line) {
                self.problems.push(
                    Problem::in_lab(
                        place!["spec", "nodes", &self.node.name, field, "iptables", index],
                        message,
                    )
                    .with_help(
                        "write lines as `iptables-save` prints them, \
                        with `*nat` before rules of table nat"
                            .to_owned(),
                    ),
                );
            }
        }
    }

    /// Builds the rules of the kubelet and of kube-proxy for one family.
    fn build_kube_proxy(&mut self, family: Family) -> IptablesScript {
        let Some(proxy) = &self.node.kube_proxy else {
            return IptablesScript::new();
        };
        let mut script = kubelet::rules(proxy.version, family, kubelet::DROP_BIT);
        if proxy.binary.is_some() || !kube_proxy::families(proxy, &self.objects).contains(&family) {
            return script;
        }
        if proxy.mode == Mode::Nftables {
            if let Some(bridge) = self.missing_bridge(proxy) {
                let version = proxy.version;
                let message = format!(
                    "node `{}` has no interface `{bridge}`, and nft rejects the rule `iif {bridge} \
                     …` that kube-proxy {version} writes",
                    self.node.name
                );
                let links = self.links.iter().map(String::as_str);
                let help = did_you_mean(bridge, links)
                    .unwrap_or_else(|| format!("its interfaces are {}", self.links.join(", ")));
                // Reported once for both families.
                if family == Family::V4 {
                    let place = place!["spec", "kubeProxy", "bridgeInterface"];
                    self.problems
                        .push(Problem::in_lab(place, message).with_help(help));
                }
                return script;
            }
            match kube_proxy::nftables_rules(proxy, &self.objects, family) {
                Ok(table) => self.nft.tables.push(table),
                Err(error) => self.add_problem("kubeProxy", &error.to_string()),
            }
            return script;
        }
        if proxy.mode == Mode::Ipvs {
            match kube_proxy::ipvs_rules(proxy, &self.objects, family) {
                Ok(rules) => self.add_ipvs(&mut script, rules),
                Err(error) => self.add_problem("kubeProxy", &error.to_string()),
            }
            return script;
        }
        match kube_proxy::rules(proxy, &self.objects, family) {
            Ok(rules) => {
                script.append(rules.script);
                self.accounting.extend(rules.accounting);
            }
            Err(error) => self.add_problem("kubeProxy", &error.to_string()),
        }
        script
    }

    /// Returns the pod bridge if kube-proxy's rules refer to it by interface index and the node has
    /// no interface with this name.
    fn missing_bridge<'p>(&self, proxy: &'p KubeProxy) -> Option<&'p str> {
        let by_index = proxy.detect_local_mode == DetectLocalMode::BridgeInterface
            && !proxy.version.has(&NFT_INTERFACES_BY_NAME);
        let bridge = proxy.bridge_interface.as_deref().filter(|_| by_index)?;
        (!self.links.iter().any(|link| link == bridge)).then_some(bridge)
    }

    /// Adds the rules, sets, servers and addresses of ipvs mode.
    fn add_ipvs(&mut self, script: &mut IptablesScript, rules: IpvsRules) {
        script.append(rules.script);
        if let Err(error) = self.sets.append(rules.sets) {
            self.add_problem("kubeProxy", &error.to_string());
        }
        self.servers.extend(rules.servers);
        self.bound.extend(rules.bound);
    }

    fn add_flannel(&mut self, script: &mut IptablesScript, mut state: flannel::NodeState) {
        let Some(config) = &self.cluster.flannel else {
            return;
        };
        let lease = self.node.pod_cidrs.iter().find_map(|cidr| match cidr {
            IpNetwork::V4(cidr) => Some(*cidr),
            IpNetwork::V6(_) => None,
        });
        let Some(lease) = lease else {
            self.add_problem(
                "flannel",
                "the node has no IPv4 podCIDR, which flannel needs as its lease",
            );
            return;
        };
        let mut chains = Chains::new();
        if let Err(error) = chains.load(script) {
            self.problems.push(Problem::in_lab(
                place!["spec", "nodes", &self.node.name, "leftovers"],
                error.to_string(),
            ));
            return;
        }
        state.chains = chains;
        match flannel::start_flanneld(config, lease, &state) {
            Ok(started) => {
                script.append(started.script);
                // Felix checks its jumps periodically and moves them to the top again, whichever
                // program started later.
                if self.cluster.calico.is_some() {
                    script.append(calico::refresh(&started.state.chains));
                }
            }
            Err(error) => self.add_problem("flannel", &error.to_string()),
        }
    }

    fn build_sets(&mut self) -> String {
        if let Some(calico) = &self.cluster.calico {
            let result = calico::ipsets(calico).map_err(|error| error.to_string());
            let added =
                result.and_then(|sets| self.sets.append(sets).map_err(|error| error.to_string()));
            if let Err(message) = added {
                self.add_problem("calico", &message);
            }
        }
        let mut text = self.sets.to_string();
        for line in &self.node.leftovers.ipset {
            text.push_str(line);
            text.push('\n');
        }
        text
    }
}

/// Adds one line in the format of `iptables-save` to a script.
fn add_save_line(
    script: &mut IptablesScript,
    table: &mut Option<Table>,
    line: &str,
) -> Result<(), String> {
    let line = line.trim();
    if let Some(name) = line.strip_prefix('*') {
        *table = Some(match name {
            "raw" => Table::Raw,
            "mangle" => Table::Mangle,
            "nat" => Table::Nat,
            "filter" => Table::Filter,
            _ => {
                return Err(format!(
                    "`{name}` is not a table; the tables are raw, mangle, nat and filter"
                ));
            }
        });
        return Ok(());
    }
    if line.is_empty() || line.starts_with('#') || line == "COMMIT" {
        return Ok(());
    }
    let table = table.ok_or_else(|| format!("`{line}` is before the first table"))?;
    if let Some(declared) = line.strip_prefix(':') {
        return add_chain_declaration(script, table, declared);
    }
    let block = script.table_mut(table);
    if !["-A ", "-I ", "-D ", "-F "]
        .iter()
        .any(|verb| line.starts_with(verb))
    {
        return Err(format!(
            "`{line}` is not a rule: rules start with -A, -I, -D or -F"
        ));
    }
    block.push_command(line);
    Ok(())
}

/// Adds a line `:CHAIN POLICY [PACKETS:BYTES]`, without its colon. `iptables-restore --noflush`
/// sets the policy of a built-in chain and keeps its rules. The command creates any other chain, or
/// flushes the existing chain (iptables v1.8.9 `iptables/iptables-restore.c`,
/// `ip46tables_restore_main`).
fn add_chain_declaration(
    script: &mut IptablesScript,
    table: Table,
    declared: &str,
) -> Result<(), String> {
    let mut words = declared.split_whitespace();
    let name = words.next().unwrap_or_default();
    if name.starts_with('-') || name.is_empty() {
        return Err(format!("`:{declared}` declares no chain"));
    }
    let is_built_in = table.built_in_chains().contains(&name);
    let is_known = script
        .table_mut(table)
        .chains
        .iter()
        .any(|known| known == name);
    let block = script.table_mut(table);
    match (is_built_in, words.next()) {
        (true, Some("ACCEPT")) => block.set_policy(name, "ACCEPT"),
        (true, Some("DROP")) => block.set_policy(name, "DROP"),
        (true, Some("-")) => {}
        (false, Some("-")) if is_known => block.push_command(format!("-F {name}")),
        (false, Some("-")) => block.declare_chain(name),
        (true, _) => {
            return Err(format!(
                "`:{declared}` sets no policy; the policy of `{name}` is ACCEPT or DROP"
            ));
        }
        (false, _) => {
            return Err(format!(
                "`:{declared}`: `{name}` is not a built-in chain of table {table} \
                 and has no policy; write `:{name} -`"
            ));
        }
    }
    Ok(())
}

/// Builds the rules by which the underlay drops packets with a foreign source address, at the port
/// of each node. Allowed sources are the node's own addresses, and its pods' networks if packets of
/// pods are not encapsulated.
fn source_check_rules(cluster: &Cluster) -> (IptablesScript, IptablesScript) {
    let (mut v4, mut v6) = (IptablesScript::new(), IptablesScript::new());
    if cluster.fabric.foreign_sources == ForeignSources::Pass {
        return (v4, v6);
    }
    for node in &cluster.nodes {
        let port = interface_name(&node.name);
        let chain = format!("{SOURCE_CHECK}{port}");
        let pod_networks = if cluster.flannel.is_some() {
            &[][..]
        } else {
            &node.pod_cidrs[..]
        };
        let allowed: Vec<IpNetwork> = node
            .addresses
            .iter()
            .map(|address| IpNetwork::from(address.ip()))
            .chain(pod_networks.iter().copied())
            .collect();
        let entry = match cluster.fabric.kind {
            FabricKind::Routed => format!("-A FORWARD -i {port} -j {chain}"),
            FabricKind::Switched => format!("-A FORWARD -m physdev --physdev-in {port} -j {chain}"),
        };
        for (script, is_v4) in [(&mut v4, true), (&mut v6, false)] {
            let family_sources: Vec<&IpNetwork> = allowed
                .iter()
                .filter(|source| source.is_ipv4() == is_v4)
                .collect();
            if family_sources.is_empty() {
                continue;
            }
            let filter = script.table_mut(Table::Filter);
            filter.declare_chain(&chain);
            for source in family_sources {
                filter.push_command(format!("-A {chain} -s {source} -j RETURN"));
            }
            filter.push_command(format!(
                "-A {chain} -m comment --comment \"source check of {port}\" -j DROP"
            ));
            filter.push_command(&entry);
        }
    }
    (v4, v6)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn script_of(lines: &[&str]) -> Result<String, String> {
        let (mut script, mut table) = (IptablesScript::new(), None);
        for line in lines {
            add_save_line(&mut script, &mut table, line)?;
        }
        Ok(script.to_string())
    }

    #[test]
    fn add_save_line_policy_of_built_in_chain_is_set() {
        assert_eq!(
            script_of(&["*filter", ":FORWARD DROP [12:720]", ":INPUT - [0:0]"]).unwrap(),
            "*filter\n:FORWARD DROP [0:0]\nCOMMIT\n"
        );
    }

    #[test]
    fn add_save_line_known_chain_is_flushed() {
        assert_eq!(
            script_of(&["*nat", ":X - [0:0]", "-A X -j RETURN", ":X - [0:0]"]).unwrap(),
            "*nat\n:X - [0:0]\n-A X -j RETURN\n-F X\nCOMMIT\n"
        );
    }

    #[test]
    fn add_save_line_invalid_policy_returns_error() {
        let lines = [
            ":FORWARD REJECT",
            ":FORWARD",
            ":MINE DROP",
            ":MINE",
            ":PREROUTING DROP",
            ":",
        ];
        let messages = lines.map(|line| script_of(&["*filter", line]).unwrap_err());
        insta::assert_snapshot!(messages.join("\n"));
    }

    #[test]
    fn add_save_line_other_format_returns_error() {
        let mut script = IptablesScript::new();
        let mut table = None;
        for line in [
            "*nat",
            ":PREROUTING ACCEPT [0:0]",
            ":STALE - [0:0]",
            "-A STALE -j RETURN",
            "COMMIT",
        ] {
            add_save_line(&mut script, &mut table, line).unwrap();
        }
        assert_eq!(
            script.to_string(),
            "*nat\n:STALE - [0:0]\n:PREROUTING ACCEPT [0:0]\n-A STALE -j RETURN\nCOMMIT\n"
        );
        for (line, is_first) in [
            ("-A STALE -j RETURN", true),
            ("*nut", true),
            ("iptables -F", false),
        ] {
            let mut table = if is_first { None } else { Some(Table::Nat) };
            assert!(
                add_save_line(&mut script, &mut table, line).is_err(),
                "{line}"
            );
        }
    }
}
