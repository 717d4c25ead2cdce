//! Builds the rules of every namespace from the components that run there, in the order in which
//! the components start.

pub(crate) mod kube_proxy_only;
pub(crate) mod regenerate;
pub(crate) mod restart_flannel;

use std::collections::BTreeSet;
use std::iter;
use std::net::IpAddr;
use std::num::NonZero;
use std::panic::resume_unwind;
use std::sync::{Mutex, PoisonError};
use std::thread::{self, ScopedJoinHandle};

use ipnetwork::IpNetwork;

use crate::cluster::{Cluster, FABRIC, INTERNET, Node, Problem, place};
use svclab_diagnostic::suggest::did_you_mean;
use svclab_model::plan::{Iptables, Link, LinkKind, Mac, Namespace, PortSettings, VirtualServer};
use svclab_rules::kube_proxy::history::NFT_INTERFACES_BY_NAME;
use svclab_rules::kube_proxy::{
    self, DetectLocalMode, Family, IpvsRules, KubeProxy, Mode, Objects,
};
use svclab_rules::{calico, docker, flannel, ip_masq_agent, kubelet, objects};
use svclab_ruleset::input::Input;
use svclab_ruleset::ipset::IpsetScript;
use svclab_ruleset::ipset::saved::{self, Sets};
use svclab_ruleset::iptables::chains::Chains;
use svclab_ruleset::iptables::script::{IptablesScript, Table};
use svclab_ruleset::nft::Ruleset;
use svclab_ruleset::text::Text;
use svclab_ruleset::text::problem::ProblemKind;
use svclab_scenario::lab::{FabricKind, FlannelLeftover, ForeignSources};

use crate::build::balancer::BalancerObjects;
use crate::build::topology::interface_name;

/// Prefix of the chains in the underlay that check the source addresses of a node's packets.
pub const SOURCE_CHECK: &str = "SOURCE-";

/// Number of nodes, multiplied by services, for which a thread is worth its start.
const MIN_WORK: usize = 2000;

/// Builds the rules of all nodes and of the fabric, those of several namespaces in parallel.
pub fn build(
    namespaces: &mut [Namespace],
    cluster: &Cluster,
    balancer_objects: &BalancerObjects,
    problems: &mut Vec<Problem>,
) {
    let nodes = cluster.nodes.iter();
    let builder = RulesBuilder {
        cluster,
        balancer_objects,
        core_nodes: nodes.map(|node| node.object.clone()).collect(),
    };
    let workers = thread::available_parallelism().map_or(1, NonZero::get);
    let workers = workers.min(cluster.nodes.len() * cluster.services.len() / MIN_WORK);
    let queue = Mutex::new(namespaces.iter_mut().enumerate());
    let next = || queue.lock().unwrap_or_else(PoisonError::into_inner).next();
    let work = || {
        let built = iter::from_fn(next);
        let built = built.map(|(index, namespace)| (index, builder.build_namespace(namespace)));
        built.collect::<Vec<_>>()
    };
    let mut found = if workers < 2 {
        work()
    } else {
        thread::scope(|scope| {
            let workers: Vec<_> = (0..workers).map(|_| scope.spawn(work)).collect();
            let built = workers.into_iter().map(ScopedJoinHandle::join);
            let built = built.map(|built| built.unwrap_or_else(|panic| resume_unwind(panic)));
            built.flatten().collect()
        })
    };
    found.sort_by_key(|(index, _)| *index);
    problems.extend(found.into_iter().flat_map(|(_, problems)| problems));
}

/// Builder of the rules of the namespaces of a cluster.
struct RulesBuilder<'a> {
    cluster: &'a Cluster,
    balancer_objects: &'a BalancerObjects,
    core_nodes: Vec<objects::Node>,
}

impl RulesBuilder<'_> {
    /// Builds the rules of a namespace. Returns the problems.
    fn build_namespace(&self, namespace: &mut Namespace) -> Vec<Problem> {
        let Self {
            cluster,
            balancer_objects,
            core_nodes,
        } = self;
        let mut problems = Vec::new();
        if [FABRIC, INTERNET].contains(&namespace.name.as_str()) {
            let (mut v4, mut v6) = if namespace.name == FABRIC {
                source_check_rules(cluster)
            } else {
                Default::default()
            };
            if let Some(namespace_balancers) =
                balancer_objects.namespaces.get(namespace.name.as_str())
            {
                v4.append(namespace_balancers.v4.clone());
                v6.append(namespace_balancers.v6.clone());
            }
            namespace.iptables = to_iptables(cluster, v4, v6);
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
                nodes: core_nodes,
                services: &cluster.services,
                endpoint_slices: &cluster.slices,
                service_cidrs: &cluster.service_cidrs,
                interface_addresses: &interfaces,
            };
            let mut builder = NodeRulesBuilder {
                cluster,
                node,
                objects,
                problems: &mut problems,
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
            let mut v4 = builder.build_v4();
            let mut v6 = if cluster.has_ipv6() {
                builder.build_kube_proxy(Family::V6)
            } else {
                IptablesScript::new()
            };
            namespace.ipset = builder.build_sets().into();
            namespace.accounting = builder.accounting.into_iter().map(str::to_owned).collect();
            namespace.ipvs.append(&mut builder.servers);
            namespace.nft = builder.nft.into();
            if let Some(proxy) = node
                .generated_proxy()
                .filter(|proxy| proxy.mode == Mode::Ipvs)
            {
                namespace
                    .links
                    .push(kube_proxy_interface(&node.name, &builder.bound));
                namespace.ipvs_timeouts = kube_proxy::ipvs::timeouts(proxy);
            }
            namespace.iptables = if node.kube_proxy.as_ref().is_some_and(has_iptables_writer) {
                // The plan has the tables that the kube-proxy will write.
                for table in [Table::Nat, Table::Filter] {
                    v4.table_mut(table);
                    if cluster.has_ipv6() {
                        v6.table_mut(table);
                    }
                }
                Some(Iptables {
                    backend: cluster.backend,
                    v4: v4.into(),
                    v6: v6.into(),
                })
            } else {
                to_iptables(cluster, v4, v6)
            };
        }
        problems
    }
}

/// Returns the dummy interface of kube-proxy. The interface stays down; its addresses still count
/// as the node's own.
pub(crate) fn kube_proxy_interface(node: &str, bound: &[IpAddr]) -> Link {
    Link {
        name: kube_proxy::ipvs::DUMMY.to_owned(),
        kind: LinkKind::Dummy,
        mac: Mac::from_names(node, kube_proxy::ipvs::DUMMY),
        addresses: bound
            .iter()
            .map(|address| IpNetwork::from(*address))
            .collect(),
        bridge: None,
        port: PortSettings::default(),
        down: true,
        mtu: None,
    }
}

/// Whether a real kube-proxy will write iptables rules.
fn has_iptables_writer(proxy: &KubeProxy) -> bool {
    proxy.binary.is_some() && proxy.mode != Mode::Nftables
}

fn to_iptables(cluster: &Cluster, v4: IptablesScript, v6: IptablesScript) -> Option<Iptables> {
    let input = |script: IptablesScript| {
        if script.is_empty() {
            Input::default()
        } else {
            script.into()
        }
    };
    (!v4.is_empty() || !v6.is_empty()).then(|| Iptables {
        backend: cluster.backend,
        v4: input(v4),
        v6: input(v6),
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

    /// Adds an error without the name of the node: every node has the same, so it is reported once.
    fn add_kube_proxy_problem(&mut self, error: &impl ToString) {
        let place = place!["spec", "kubeProxy"];
        self.problems
            .push(Problem::in_lab(place, error.to_string()));
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
            if let Err(error) = script.add_line(&mut table, line) {
                self.problems.push(
                    Problem::in_lab(
                        place!["spec", "nodes", &self.node.name, field, "iptables", index],
                        error.to_string(),
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
                Err(error) => self.add_kube_proxy_problem(&error),
            }
            return script;
        }
        if proxy.mode == Mode::Ipvs {
            match kube_proxy::ipvs_rules(proxy, &self.objects, family) {
                Ok(rules) => self.add_ipvs(&mut script, rules),
                Err(error) => self.add_kube_proxy_problem(&error),
            }
            return script;
        }
        match kube_proxy::rules(proxy, &self.objects, family) {
            Ok(rules) => {
                script.append(rules.script);
                self.accounting.extend(rules.accounting);
            }
            Err(error) => self.add_kube_proxy_problem(&error),
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
            self.add_kube_proxy_problem(&error);
        }
        self.servers.extend(rules.servers);
        self.bound.extend(rules.bound);
    }

    fn add_flannel(&mut self, script: &mut IptablesScript, mut state: flannel::NodeState) {
        let Some(config) = &self.cluster.flannel else {
            return;
        };
        let Some(lease) = self.node.ipv4_pod_cidr() else {
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

    fn build_sets(&mut self) -> Sets {
        if let Some(calico) = &self.cluster.calico {
            let result = calico::ipsets(calico).map_err(|error| error.to_string());
            let added =
                result.and_then(|sets| self.sets.append(sets).map_err(|error| error.to_string()));
            if let Err(message) = added {
                self.add_problem("calico", &message);
            }
        }
        let mut sets = self.sets.saved();
        for (index, line) in self.node.leftovers.ipset.iter().enumerate() {
            let mut problems = Vec::new();
            saved::parse_into(&mut sets, &Text::new(line.as_str()), &mut problems);
            for problem in problems {
                let reason = match problem.kind {
                    ProblemKind::Duplicate { item, .. } => format!("{item} already exists"),
                    kind => kind.to_string(),
                };
                self.problems.push(
                    Problem::in_lab(
                        place![
                            "spec",
                            "nodes",
                            &self.node.name,
                            "leftovers",
                            "ipset",
                            index
                        ],
                        format!("`{}`: {reason}", line.trim()),
                    )
                    .with_help("write lines as `ipset save` prints them".to_owned()),
                );
            }
        }
        sets
    }
}

/// Builds the rules by which the underlay drops packets with a foreign source address, at the port
/// of each node. Allowed sources are the node's own addresses, and its pods' networks if packets of
/// pods are not encapsulated.
fn source_check_rules(cluster: &Cluster) -> (IptablesScript, IptablesScript) {
    let (mut v4, mut v6) = (IptablesScript::new(), IptablesScript::new());
    if cluster.fabric.foreign_sources == ForeignSources::Pass {
        return (v4, v6);
    }
    for (index, node) in cluster.nodes.iter().enumerate() {
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
            .chain(cluster.pod_addresses_outside(index).map(IpNetwork::from))
            .collect();
        let entry = match cluster.fabric.kind {
            FabricKind::Routed => format!("-i {port} -j {chain}"),
            FabricKind::Switched => format!("-m physdev --physdev-in {port} -j {chain}"),
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
                filter.append(&chain, format!("-s {source} -j RETURN"));
            }
            filter.append(
                &chain,
                format!("-m comment --comment \"not a source of {port} (foreignSources)\" -j DROP"),
            );
            filter.append("FORWARD", &entry);
        }
    }
    (v4, v6)
}
