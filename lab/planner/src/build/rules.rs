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
use svclab_ruleset::iptables::script::{Script, Table};
use svclab_ruleset::nft::Ruleset;
use svclab_scenario::lab::{FabricKind, FlannelLeftover, ForeignSources};

use super::balancer::Made;
use super::topology::dev_name;

/// Prefix of the chains in the underlay that check the source addresses of a node's packets.
pub const SOURCE_CHECK: &str = "SOURCE-";

/// Builds the rules of all nodes and of the fabric.
pub fn write(
    namespaces: &mut [Namespace],
    cluster: &Cluster,
    balancing: &Made,
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
                source_check(cluster)
            } else {
                Default::default()
            };
            if let Some(here) = balancing.namespaces.get(namespace.name.as_str()) {
                v4.append(here.script.clone());
            }
            namespace.iptables = loaded(cluster, &v4, &v6);
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
                        .speaks_v6()
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
            let mut work = Work {
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
            let v4 = work.v4();
            let v6 = if cluster.speaks_v6() {
                work.proxy(Family::V6)
            } else {
                Script::new()
            };
            namespace.ipset = work.sets();
            namespace.accounting = work.accounting.into_iter().map(str::to_owned).collect();
            namespace.ipvs.append(&mut work.servers);
            namespace.nft = work.nft.to_string();
            if let Some(proxy) = node
                .generated_proxy()
                .filter(|proxy| proxy.mode == Mode::Ipvs)
            {
                namespace.links.push(holder(&node.name, &work.bound));
                namespace.ipvs_timeouts = kube_proxy::ipvs::timeouts(proxy);
            }
            namespace.iptables = loaded(cluster, &v4, &v6);
            if node.kube_proxy.as_ref().is_some_and(writes_iptables) {
                let rules = namespace.iptables.get_or_insert_with(|| Iptables {
                    backend: cluster.backend,
                    ..Iptables::default()
                });
                with_tables(&mut rules.v4);
                if cluster.speaks_v6() {
                    with_tables(&mut rules.v6);
                }
            }
        }
    }
}

/// Returns the dummy interface of kube-proxy. The interface stays down; its addresses still count
/// as the node's own.
pub(super) fn holder(node: &str, bound: &[IpAddr]) -> Link {
    Link {
        name: kube_proxy::ipvs::DUMMY.to_owned(),
        kind: LinkKind::Dummy,
        mac: Mac::of(node, kube_proxy::ipvs::DUMMY),
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
fn writes_iptables(proxy: &KubeProxy) -> bool {
    proxy.binary.is_some() && proxy.mode != Mode::Nftables
}

/// Declares the tables that a kube-proxy writes, so that the plan contains them.
fn with_tables(text: &mut String) {
    for table in ["nat", "filter"] {
        let begin = format!("*{table}\n");
        if !text.contains(&begin) {
            text.push_str(&begin);
            text.push_str("COMMIT\n");
        }
    }
}

fn loaded(cluster: &Cluster, v4: &Script, v6: &Script) -> Option<Iptables> {
    let text = |script: &Script| {
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
struct Work<'a> {
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

impl Work<'_> {
    /// Builds all IPv4 rules: leftovers, then Docker, the kubelet, kube-proxy, calico, flannel and
    /// ip-masq-agent in the order in which they start.
    fn v4(&mut self) -> Script {
        let mut script = Script::new();
        let standing = self.left_by_flannel(&mut script);
        self.left_by_others(&mut script);
        if let Some(docker) = &self.cluster.docker {
            script.append(docker::script(docker));
        }
        script.append(self.proxy(Family::V4));
        if let Some(calico) = &self.cluster.calico {
            match calico::script(calico) {
                Ok(made) => script.append(made),
                Err(error) => self.problem("calico", &error.to_string()),
            }
        }
        self.flannel(&mut script, standing);
        if let Some(agent) = &self.cluster.ip_masq_agent {
            match ip_masq_agent::script(agent) {
                Ok(made) => script.append(made),
                Err(error) => self.problem("ipMasqAgent", &error.to_string()),
            }
        }
        if self.node.writes_itself() {
            // These rules are loaded after those of the real kube-proxy; here they are only
            // checked.
            self.written(&mut Script::new(), "byHand", &self.node.by_hand.iptables);
        } else {
            self.written(&mut script, "byHand", &self.node.by_hand.iptables);
        }
        script
    }

    fn problem(&mut self, component: &str, message: &str) {
        self.problems.push(Problem::in_lab(
            place!["spec", component],
            format!("on node `{}`: {message}", self.node.name),
        ));
    }

    fn left_by_flannel(&mut self, script: &mut Script) -> flannel::Standing {
        let FlannelLeftover::Of(earlier) = &self.node.leftovers.flannel else {
            return flannel::Standing::default();
        };
        match earlier.left_behind() {
            Ok((made, standing)) => {
                script.append(made);
                standing
            }
            Err(error) => {
                self.problems.push(Problem::in_lab(
                    place!["spec", "nodes", &self.node.name, "leftovers", "flannel"],
                    error.to_string(),
                ));
                flannel::Standing::default()
            }
        }
    }

    fn left_by_others(&mut self, script: &mut Script) {
        self.written(script, "leftovers", &self.node.leftovers.iptables);
    }

    /// Adds rules from a field of the lab.
    fn written(&mut self, script: &mut Script, field: &str, lines: &[String]) {
        let mut table = None;
        for (at, line) in lines.iter().enumerate() {
            if let Err(message) = line_of_save(script, &mut table, line) {
                self.problems.push(
                    Problem::in_lab(place!["spec", "nodes", &self.node.name, field, "iptables", at], message)
                        .help("write lines as `iptables-save` prints them, `*nat` before those of the nat table".to_owned()),
                );
            }
        }
    }

    /// Builds the rules of the kubelet and of kube-proxy for one family.
    fn proxy(&mut self, family: Family) -> Script {
        let Some(proxy) = &self.node.kube_proxy else {
            return Script::new();
        };
        let mut script = kubelet::rules(proxy.version, family, kubelet::DROP_BIT);
        if proxy.binary.is_some() || !kube_proxy::families(proxy, &self.objects).contains(&family) {
            return script;
        }
        if proxy.mode == Mode::Nftables {
            if let Some(bridge) = self.lacking_bridge(proxy) {
                let version = proxy.version;
                let message = format!(
                    "node `{}` has no interface `{bridge}`, and nft refuses the rule `iif {bridge} \
                     …` that kube-proxy {version} writes",
                    self.node.name
                );
                let known = self.links.iter().map(String::as_str);
                let help = did_you_mean(bridge, known)
                    .unwrap_or_else(|| format!("it has {}", self.links.join(", ")));
                // Reported once for both families.
                if family == Family::V4 {
                    let place = place!["spec", "kubeProxy", "bridgeInterface"];
                    self.problems
                        .push(Problem::in_lab(place, message).help(help));
                }
                return script;
            }
            match kube_proxy::nftables_rules(proxy, &self.objects, family) {
                Ok(table) => self.nft.tables.push(table),
                Err(error) => self.problem("kubeProxy", &error.to_string()),
            }
            return script;
        }
        if proxy.mode == Mode::Ipvs {
            match kube_proxy::ipvs_rules(proxy, &self.objects, family) {
                Ok(rules) => self.ipvs(&mut script, rules),
                Err(error) => self.problem("kubeProxy", &error.to_string()),
            }
            return script;
        }
        match kube_proxy::rules(proxy, &self.objects, family) {
            Ok(rules) => {
                script.append(rules.script);
                self.accounting.extend(rules.accounting);
            }
            Err(error) => self.problem("kubeProxy", &error.to_string()),
        }
        script
    }

    /// Returns the pod bridge if kube-proxy's rules refer to it by interface index and the node has
    /// no interface with this name.
    fn lacking_bridge<'p>(&self, proxy: &'p KubeProxy) -> Option<&'p str> {
        let by_number = proxy.detect_local_mode == DetectLocalMode::BridgeInterface
            && !proxy.version.has(&NFT_INTERFACES_BY_NAME);
        let bridge = proxy.bridge_interface.as_deref().filter(|_| by_number)?;
        (!self.links.iter().any(|link| link == bridge)).then_some(bridge)
    }

    /// Adds the rules, sets, servers and addresses of ipvs mode.
    fn ipvs(&mut self, script: &mut Script, rules: IpvsRules) {
        script.append(rules.script);
        if let Err(error) = self.sets.append(rules.sets) {
            self.problem("kubeProxy", &error.to_string());
        }
        self.servers.extend(rules.servers);
        self.bound.extend(rules.bound);
    }

    fn flannel(&mut self, script: &mut Script, mut standing: flannel::Standing) {
        let Some(config) = &self.cluster.flannel else {
            return;
        };
        let lease = self.node.pod_cidrs.iter().find_map(|cidr| match cidr {
            IpNetwork::V4(cidr) => Some(*cidr),
            IpNetwork::V6(_) => None,
        });
        let Some(lease) = lease else {
            self.problem(
                "flannel",
                "the node has no IPv4 podCIDR, which would be its lease",
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
        standing.chains = chains;
        match flannel::start(config, lease, &standing) {
            Ok(started) => {
                script.append(started.script);
                // Felix checks its jumps periodically and moves them to the top again, whichever
                // program started later.
                if self.cluster.calico.is_some() {
                    script.append(calico::refresh(&started.standing.chains));
                }
            }
            Err(error) => self.problem("flannel", &error.to_string()),
        }
    }

    fn sets(&mut self) -> String {
        if let Some(calico) = &self.cluster.calico {
            let added = calico::ipsets(calico).map_err(|error| error.to_string());
            let added =
                added.and_then(|made| self.sets.append(made).map_err(|error| error.to_string()));
            if let Err(message) = added {
                self.problem("calico", &message);
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
fn line_of_save(script: &mut Script, table: &mut Option<Table>, line: &str) -> Result<(), String> {
    let line = line.trim();
    if let Some(name) = line.strip_prefix('*') {
        *table = Some(match name {
            "raw" => Table::Raw,
            "mangle" => Table::Mangle,
            "nat" => Table::Nat,
            "filter" => Table::Filter,
            _ => {
                return Err(format!(
                    "`{name}` is no table; there are raw, mangle, nat and filter"
                ));
            }
        });
        return Ok(());
    }
    if line.is_empty() || line.starts_with('#') || line == "COMMIT" {
        return Ok(());
    }
    let table = table.ok_or_else(|| format!("`{line}` stands before any table"))?;
    if let Some(declared) = line.strip_prefix(':') {
        return declaration(script, table, declared);
    }
    let block = script.table(table);
    if !["-A ", "-I ", "-D ", "-F "]
        .iter()
        .any(|verb| line.starts_with(verb))
    {
        return Err(format!(
            "`{line}` is no rule: one begins with -A, -I, -D or -F"
        ));
    }
    block.command(line);
    Ok(())
}

/// Adds a line `:CHAIN POLICY [PACKETS:BYTES]`, without its colon. `iptables-restore --noflush`
/// sets the policy of a built-in chain and keeps its rules. The command creates any other chain, or
/// flushes the existing chain (iptables v1.8.9 `iptables/iptables-restore.c`,
/// `ip46tables_restore_main`).
fn declaration(script: &mut Script, table: Table, declared: &str) -> Result<(), String> {
    let mut words = declared.split_whitespace();
    let name = words.next().unwrap_or_default();
    if name.starts_with('-') || name.is_empty() {
        return Err(format!("`:{declared}` declares no chain"));
    }
    let is_built_in = table.built_in_chains().contains(&name);
    let is_known = script.table(table).chains.iter().any(|known| known == name);
    let block = script.table(table);
    match (is_built_in, words.next()) {
        (true, Some("ACCEPT")) => block.policy(name, "ACCEPT"),
        (true, Some("DROP")) => block.policy(name, "DROP"),
        (true, Some("-")) => {}
        (false, Some("-")) if is_known => block.command(format!("-F {name}")),
        (false, Some("-")) => block.chain(name),
        (true, _) => {
            return Err(format!(
                "`:{declared}` sets no policy; that of `{name}` is ACCEPT or DROP"
            ));
        }
        (false, _) => {
            return Err(format!(
                "`:{declared}`: `{name}` is no built-in chain of the table {table} and has no policy; \
                 write `:{name} -`"
            ));
        }
    }
    Ok(())
}

/// Builds the rules by which the underlay drops packets with a foreign source address, at the port
/// of each node. Allowed sources are the node's own addresses, and its pods' networks if packets of
/// pods are not encapsulated.
fn source_check(cluster: &Cluster) -> (Script, Script) {
    let (mut v4, mut v6) = (Script::new(), Script::new());
    if cluster.fabric.foreign_sources == ForeignSources::Pass {
        return (v4, v6);
    }
    for node in &cluster.nodes {
        let port = dev_name(&node.name);
        let chain = format!("{SOURCE_CHECK}{port}");
        let bare = if cluster.flannel.is_some() {
            &[][..]
        } else {
            &node.pod_cidrs[..]
        };
        let own: Vec<IpNetwork> = node
            .addresses
            .iter()
            .map(|address| IpNetwork::from(address.ip()))
            .chain(bare.iter().copied())
            .collect();
        let entry = match cluster.fabric.kind {
            FabricKind::Routed => format!("-A FORWARD -i {port} -j {chain}"),
            FabricKind::Switched => format!("-A FORWARD -m physdev --physdev-in {port} -j {chain}"),
        };
        for (script, is_v4) in [(&mut v4, true), (&mut v6, false)] {
            let own: Vec<&IpNetwork> = own
                .iter()
                .filter(|source| source.is_ipv4() == is_v4)
                .collect();
            if own.is_empty() {
                continue;
            }
            let filter = script.table(Table::Filter);
            filter.chain(&chain);
            for source in own {
                filter.command(format!("-A {chain} -s {source} -j RETURN"));
            }
            filter.command(format!(
                "-A {chain} -m comment --comment \"source check of {port}\" -j DROP"
            ));
            filter.command(&entry);
        }
    }
    (v4, v6)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn saved(lines: &[&str]) -> Result<String, String> {
        let (mut script, mut table) = (Script::new(), None);
        for line in lines {
            line_of_save(&mut script, &mut table, line)?;
        }
        Ok(script.to_string())
    }

    #[test]
    fn policy_of_a_built_in_chain_is_set() {
        assert_eq!(
            saved(&["*filter", ":FORWARD DROP [12:720]", ":INPUT - [0:0]"]).unwrap(),
            "*filter\n:FORWARD DROP [0:0]\nCOMMIT\n"
        );
    }

    #[test]
    fn declaration_of_a_known_chain_empties_it() {
        assert_eq!(
            saved(&["*nat", ":X - [0:0]", "-A X -j RETURN", ":X - [0:0]"]).unwrap(),
            "*nat\n:X - [0:0]\n-A X -j RETURN\n-F X\nCOMMIT\n"
        );
    }

    #[test]
    fn policy_that_cannot_be_set_is_refused() {
        let wrong = [
            ":FORWARD REJECT",
            ":FORWARD",
            ":MINE DROP",
            ":MINE",
            ":PREROUTING DROP",
            ":",
        ];
        let wrong = wrong.map(|line| saved(&["*filter", line]).unwrap_err());
        insta::assert_snapshot!(wrong.join("\n"));
    }

    #[test]
    fn leftovers_are_lines_of_iptables_save() {
        let mut script = Script::new();
        let mut table = None;
        for line in [
            "*nat",
            ":PREROUTING ACCEPT [0:0]",
            ":STALE - [0:0]",
            "-A STALE -j RETURN",
            "COMMIT",
        ] {
            line_of_save(&mut script, &mut table, line).unwrap();
        }
        assert_eq!(
            script.to_string(),
            "*nat\n:STALE - [0:0]\n:PREROUTING ACCEPT [0:0]\n-A STALE -j RETURN\nCOMMIT\n"
        );
        for (line, first) in [
            ("-A STALE -j RETURN", true),
            ("*nut", true),
            ("iptables -F", false),
        ] {
            let mut table = if first { None } else { Some(Table::Nat) };
            assert!(
                line_of_save(&mut script, &mut table, line).is_err(),
                "{line}"
            );
        }
    }
}
