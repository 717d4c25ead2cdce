//! Derives possible causes from packet paths: rules that dropped a packet or returned before
//! masquerading, rules that kept its source, and the policies, flags and sysctls behind them.
//!
//! The candidates are only worth trying. A change counts as a fix once packets have proven it.

use std::collections::BTreeSet;
use std::net::IpAddr;

use ipnetwork::IpNetwork;

use super::change::{PolicyField, ProposedChange, covering_networks};
use super::routes::route_changes;
use crate::kube_proxies;
use svclab_journey::journey::{Hop, Journey, PacketPath, PathEnd, RuleMatch, SysctlValue};
use svclab_model::plan::{Namespace, Plan};
use svclab_planner::build::SOURCE_CHECK;
use svclab_planner::cluster::{Cluster, FABRIC, INTERNET};
use svclab_rules::kube_proxy::{Family, KubeProxy};
use svclab_scenario::Case;

/// Returns the changes that are worth trying for a case with these failing connections.
pub(super) fn candidates(
    case: &Case,
    cluster: &Cluster,
    plan: &Plan,
    wrong: &[&Journey],
) -> Vec<ProposedChange> {
    let mut candidates = Candidates::default();
    let packets: Vec<&PacketPath> = wrong.iter().flat_map(|journey| &journey.packets).collect();
    for packet in &packets {
        candidates.add_packet_path(packet);
    }
    for packet in &packets {
        candidates
            .changes
            .extend(route_changes(plan, cluster, packet));
    }
    let hops: Vec<&Hop> = packets.iter().flat_map(|packet| &packet.hops).collect();
    let flows = hops.iter().flat_map(|hop| [hop.before, hop.after]);
    let addresses: BTreeSet<IpAddr> = flows
        .flat_map(|flow| [flow.source.ip(), flow.destination.ip()])
        .collect();
    candidates.add_masqueraded(case, &hops);
    candidates.add_policies(case);
    candidates.add_proxy_flags(case, cluster);
    candidates.add_manual_changes(case, &hops);
    candidates.add_balancers(case, cluster, &addresses);
    candidates.add_sysctls_of_all_nodes(plan);
    candidates.changes
}

#[derive(Default)]
struct Candidates {
    changes: Vec<ProposedChange>,
}

impl Candidates {
    fn add_packet_path(&mut self, flight: &PacketPath) {
        for hop in &flight.hops {
            let early_returns = hop.matches.iter().filter(|step| is_early_return(step));
            for step in early_returns {
                self.add_rule(hop, step);
            }
        }
        let Some(last) = flight.hops.last() else {
            return;
        };
        match &flight.end {
            PathEnd::DroppedByRule => {
                if let Some(step) = last.matches.last() {
                    self.add_rule(last, step);
                }
                // An earlier rule marked the packet for the drop.
                let marking = last
                    .matches
                    .windows(2)
                    .filter(|pair| pair[0].mark != pair[1].mark);
                for pair in marking {
                    self.add_rule(last, &pair[0]);
                    let chain = &pair[0].chain;
                    let jump = |step: &&RuleMatch| step.target.as_ref() == Some(chain);
                    if let Some(step) = last.matches.iter().rev().find(jump) {
                        self.add_rule(last, step);
                    }
                }
            }
            PathEnd::Dropped { settings, .. } | PathEnd::CountedDrop { settings, .. } => {
                self.add_sysctls(last, settings);
            }
            _ => {}
        }
    }

    /// Adds a rule and the set entries by which the rule matched.
    fn add_rule(&mut self, hop: &Hop, step: &RuleMatch) {
        // An operator cannot edit the rules of the network between nodes.
        if hop.namespace == FABRIC || hop.namespace == INTERNET {
            if step.chain.starts_with(SOURCE_CHECK) {
                self.changes.push(ProposedChange::AllowForeignSources);
            }
            return;
        }
        let namespace = || hop.namespace.clone();
        let (table, chain) = (step.table.clone(), step.chain.clone());
        let is_nftables = table.contains(' ');
        for (set, entry) in step
            .entries
            .iter()
            .filter_map(|entry| entry.split_once(' '))
        {
            let (namespace, set) = (namespace(), set.to_owned());
            self.changes.push(if is_nftables {
                ProposedChange::DeleteNftElement {
                    namespace,
                    table: table.clone(),
                    set,
                    key: entry.to_owned(),
                }
            } else {
                ProposedChange::DeleteSetEntry {
                    namespace,
                    set,
                    entry: entry.to_owned(),
                }
            });
        }
        let (Some(number), Some(rule)) = (step.number, step.rule.clone()) else {
            return;
        };
        self.changes.push(if is_nftables {
            ProposedChange::DeleteNftRule {
                namespace: namespace(),
                table,
                chain,
                number,
                rule,
            }
        } else {
            ProposedChange::DeleteRule {
                namespace: namespace(),
                backend: step.backend,
                v6: step.flow.source.is_ipv6(),
                table,
                chain,
                number,
                rule,
            }
        });
    }

    /// Adds the sysctls that decided about a packet.
    fn add_sysctls(&mut self, hop: &Hop, settings: &[SysctlValue]) {
        let Some(first) = settings.first() else {
            return;
        };
        let is_filter = first.name.ends_with(".rp_filter");
        let keys = settings.iter().map(|setting| setting.name.clone());
        self.changes.push(ProposedChange::SetSysctl {
            namespaces: vec![hop.namespace.clone()],
            keys: keys.collect(),
            value: if is_filter { "0" } else { "1" }.to_owned(),
        });
    }

    /// Adds services whose traffic policy excludes endpoints.
    fn add_policies(&mut self, case: &Case) {
        use PolicyField::{ExternalTrafficPolicy, InternalTrafficPolicy};
        for service in &case.objects.services {
            let Some(spec) = &service.value.spec else {
                continue;
            };
            for (field, policy) in [
                (ExternalTrafficPolicy, &spec.external_traffic_policy),
                (InternalTrafficPolicy, &spec.internal_traffic_policy),
            ] {
                if policy.as_deref() == Some("Local") {
                    let service = format!("{}/{}", service.namespace, service.name);
                    let change = ProposedChange::ClusterPolicy { service, field };
                    self.changes.push(change);
                }
            }
        }
    }

    /// Adds the kube-proxy flags that decide what is masqueraded.
    fn add_proxy_flags(&mut self, case: &Case, cluster: &Cluster) {
        let spec = &case.spec;
        if kube_proxies(spec).next().is_none() {
            return;
        }
        // The network that assigns pod addresses defines the pod CIDRs; without one, the nodes do.
        let flannel = spec.flannel.iter().map(|flannel| flannel.network);
        let calico = spec
            .calico
            .iter()
            .flat_map(|calico| calico.pools.iter().copied());
        let mut pod_networks: Vec<IpNetwork> = flannel.chain(calico).map(IpNetwork::V4).collect();
        if pod_networks.is_empty() {
            let nodes = case.objects.nodes.iter();
            let specs = nodes.filter_map(|node| node.value.spec.as_ref());
            let cidrs =
                specs.flat_map(|spec| spec.pod_cidrs.iter().flatten().chain(&spec.pod_cidr));
            pod_networks.extend(cidrs.filter_map(|cidr| cidr.parse::<IpNetwork>().ok()));
        }
        if let Some(networks) = covering_networks(pod_networks.iter().copied())
            && !kube_proxies(spec).all(|proxy| has_pod_cidrs(proxy, &pod_networks, cluster))
        {
            self.changes.push(ProposedChange::ClusterCidr { networks });
        }
        self.changes.push(ProposedChange::MasqueradeAll);
    }

    /// Adds the destinations of these packets that ip-masq-agent does not masquerade.
    fn add_masqueraded(&mut self, case: &Case, hops: &[&Hop]) {
        let Some(agent) = &case.spec.ip_masq_agent else {
            return;
        };
        let steps = hops.iter().flat_map(|hop| &hop.matches);
        for step in steps.filter(|step| step.chain.starts_with("IP-MASQ") && is_early_return(step))
        {
            let IpAddr::V4(to) = step.flow.destination.ip() else {
                continue;
            };
            let kept = agent.non_masquerade_cidrs.iter().copied();
            let kept = kept.filter(|network| network.contains(to));
            self.changes
                .extend(kept.map(|network| ProposedChange::MasqueradeNetwork { network }));
        }
    }

    fn add_manual_changes(&mut self, case: &Case, hops: &[&Hop]) {
        for (name, node) in &case.spec.nodes {
            let untouched = node.by_hand.iptables.is_empty() && node.by_hand.commands.is_empty();
            if !untouched && hops.iter().any(|hop| hop.namespace == *name) {
                self.changes
                    .push(ProposedChange::UndoManualChanges { node: name.clone() });
            }
        }
    }

    /// Adds load balancers that packets were sent to.
    fn add_balancers(&mut self, case: &Case, cluster: &Cluster, met: &BTreeSet<IpAddr>) {
        for (name, spec) in &case.spec.load_balancers {
            let mut balancers = cluster.balancers.iter();
            let found = balancers.find(|balancer| balancer.name == *name);
            if !found.is_some_and(|own| own.addresses.iter().any(|ip| met.contains(ip))) {
                continue;
            }
            let [first, second, third, fourth] = [(); 4].map(|()| name.clone());
            self.changes.extend([
                ProposedChange::UseOwnSource { balancer: first },
                ProposedChange::SkipOwnSource { balancer: second },
                ProposedChange::AddHealthCheck { balancer: third },
            ]);
            if spec.security_group.is_some() {
                let balancer = fourth;
                self.changes
                    .push(ProposedChange::RemoveSecurityGroup { balancer });
            }
            let backends = spec.backends.as_ref();
            for node in case.objects.nodes.iter().map(|node| &node.name) {
                let is_backend = backends.is_none_or(|backends| backends.contains(node));
                let (balancer, node) = (name.clone(), node.clone());
                self.changes.push(if is_backend {
                    ProposedChange::RemoveBackend { balancer, node }
                } else {
                    ProposedChange::AddBackend { balancer, node }
                });
            }
        }
    }

    /// Adds a sysctl of one node for all nodes where it differs: request and reply may pass
    /// different nodes.
    fn add_sysctls_of_all_nodes(&mut self, plan: &Plan) {
        let mut wider_changes = Vec::new();
        for change in &self.changes {
            let ProposedChange::SetSysctl {
                namespaces,
                keys,
                value,
            } = change
            else {
                continue;
            };
            let global_keys = keys.iter().filter(|key| key.contains(".conf.all."));
            let global_keys: Vec<String> = global_keys.cloned().collect();
            let differs = |namespace: &&Namespace| {
                let mut sysctls = namespace.sysctls.iter();
                sysctls.any(|sysctl| global_keys.contains(&sysctl.key) && sysctl.value != *value)
            };
            let affected = plan.namespaces.iter().filter(differs);
            let affected: Vec<String> = affected.map(|namespace| namespace.name.clone()).collect();
            if !global_keys.is_empty() && affected != *namespaces && affected.len() > 1 {
                wider_changes.push(ProposedChange::SetSysctl {
                    namespaces: affected,
                    keys: global_keys,
                    value: value.clone(),
                });
            }
        }
        self.changes.extend(wider_changes);
    }
}

/// Whether the cluster CIDRs of a kube-proxy include the pod networks and no node address.
fn has_pod_cidrs(proxy: &KubeProxy, pods: &[IpNetwork], cluster: &Cluster) -> bool {
    let Some(cidrs) = &proxy.cluster_cidr else {
        return false;
    };
    let containing_cidr = |ip: IpAddr| {
        let known = cidrs.for_family(Family::from_ip(ip));
        known.filter(|known| known.contains(ip))
    };
    let mut nodes = cluster.nodes.iter().flat_map(|node| &node.addresses);
    let includes = |pods: &IpNetwork| {
        containing_cidr(pods.ip()).is_some_and(|known| known.prefix() <= pods.prefix())
    };
    pods.iter().all(includes) && !nodes.any(|node| containing_cidr(node.ip()).is_some())
}

/// Whether a rule ended the evaluation of a chain before other rules, as in a return before
/// masquerading. Excludes rules that only check for a mark.
fn is_early_return(step: &RuleMatch) -> bool {
    let Some(rule) = &step.rule else {
        return false;
    };
    let asks_for_mark = rule.contains("--mark") || rule.starts_with("meta mark & ");
    matches!(step.target.as_deref(), Some("RETURN" | "ACCEPT")) && !asks_for_mark
}
