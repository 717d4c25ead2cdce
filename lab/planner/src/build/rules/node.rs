//! Builds the rules, sets and virtual servers of one node from the components that run there.

use std::collections::BTreeSet;
use std::net::IpAddr;

use crate::cluster::{Cluster, Node, Problem, place};
use svclab_diagnostic::suggest::did_you_mean;
use svclab_model::plan::VirtualServer;
use svclab_rules::kube_proxy::history::NFT_INTERFACES_BY_NAME;
use svclab_rules::kube_proxy::{
    self, DetectLocalMode, Family, IpvsRules, KubeProxy, Mode, Objects,
};
use svclab_rules::{calico, docker, flannel, ip_masq_agent, kubelet};
use svclab_ruleset::ipset::IpsetScript;
use svclab_ruleset::ipset::saved::{self, Sets};
use svclab_ruleset::iptables::chains::Chains;
use svclab_ruleset::iptables::script::IptablesScript;
use svclab_ruleset::nft::Ruleset;
use svclab_ruleset::text::Text;
use svclab_ruleset::text::problem::ProblemKind;
use svclab_scenario::lab::FlannelLeftover;

/// Builder of the rules of one node.
pub(super) struct NodeRulesBuilder<'a> {
    pub(super) cluster: &'a Cluster,
    pub(super) node: &'a Node,
    pub(super) objects: Objects<'a>,
    pub(super) problems: &'a mut Vec<Problem>,
    /// Names of the node's interfaces.
    pub(super) links: Vec<String>,
    /// Sets that components create.
    pub(super) sets: IpsetScript,
    /// Virtual servers of kube-proxy in ipvs mode.
    pub(super) servers: Vec<VirtualServer>,
    /// Addresses on kube-proxy's dummy interface.
    pub(super) bound: Vec<IpAddr>,
    /// Accounting objects (`nfacct`) of kube-proxy's rules, for both families.
    pub(super) accounting: BTreeSet<&'static str>,
    /// Tables of kube-proxy in nftables mode.
    pub(super) nft: Ruleset,
}

impl NodeRulesBuilder<'_> {
    /// Builds all IPv4 rules: leftovers, then Docker, the kubelet, kube-proxy, calico, flannel and
    /// ip-masq-agent in the order in which they start.
    pub(super) fn build_v4(&mut self) -> IptablesScript {
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
    pub(super) fn build_kube_proxy(&mut self, family: Family) -> IptablesScript {
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

    pub(super) fn build_sets(&mut self) -> Sets {
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
