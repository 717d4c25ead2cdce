//! Derives possible causes from packet paths: rules that dropped a packet or returned before
//! masquerading, rules that kept its source, and the policies, flags and sysctls behind them.
//!
//! The candidates are only worth trying. A change counts as a fix once packets have proven it.

use std::collections::BTreeSet;
use std::net::IpAddr;

use ipnetwork::IpNetwork;

use super::change::{PolicyField, ProposedChange, covering_networks};
use super::routes::route_changes;
use svclab_journey::journey::{Hop, Journey, PacketPath, PathEnd, RuleMatch, SysctlValue};
use svclab_model::plan::Plan;
use svclab_planner::build::SOURCE_CHECK;
use svclab_planner::cluster::{Cluster, FABRIC, INTERNET};
use svclab_rules::kube_proxy::{Family, KubeProxy};
use svclab_scenario::Case;

/// Returns the changes that are worth trying for a case with these failing connections, without
/// duplicates. Configuration of an operator comes before rules that components generate.
#[must_use]
pub fn candidates(
    case: &Case,
    cluster: &Cluster,
    plan: &Plan,
    wrong: &[&Journey],
) -> Vec<ProposedChange> {
    let mut candidates = Candidates::default();
    for journey in wrong {
        for flight in &journey.packets {
            candidates.add_packet_path(flight);
        }
    }
    let addresses: BTreeSet<IpAddr> = wrong
        .iter()
        .flat_map(|journey| &journey.packets)
        .flat_map(|flight| &flight.hops)
        .flat_map(|hop| [hop.before, hop.after])
        .flat_map(|flow| [flow.source.ip(), flow.destination.ip()])
        .collect();
    let path_namespaces: BTreeSet<&str> = wrong
        .iter()
        .flat_map(|journey| &journey.packets)
        .flat_map(|flight| &flight.hops)
        .map(|hop| hop.namespace.as_str())
        .collect();
    for journey in wrong {
        for flight in &journey.packets {
            candidates
                .changes
                .extend(route_changes(plan, cluster, flight));
        }
    }
    candidates.add_masqueraded(case, wrong);
    candidates.add_policies(case);
    candidates.add_proxy_flags(case, cluster);
    candidates.add_manual_changes(case, &path_namespaces);
    candidates.add_balancers(case, cluster, &addresses);
    candidates.add_sysctls_of_all_nodes(plan);
    let mut changes: Vec<ProposedChange> = Vec::new();
    for change in candidates.changes {
        if !changes.contains(&change) {
            changes.push(change);
        }
    }
    changes.sort_by_key(ProposedChange::origin);
    changes
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
        let is_nftables = step.table.split_once(' ').is_some();
        for entry in &step.entries {
            if let Some((set, entry)) = entry.split_once(' ') {
                self.changes.push(if is_nftables {
                    ProposedChange::DeleteNftElement {
                        namespace: namespace(),
                        table: step.table.clone(),
                        set: set.to_owned(),
                        key: entry.to_owned(),
                    }
                } else {
                    ProposedChange::DeleteSetEntry {
                        namespace: namespace(),
                        set: set.to_owned(),
                        entry: entry.to_owned(),
                    }
                });
            }
        }
        let (Some(number), Some(rule)) = (step.number, &step.rule) else {
            return;
        };
        if is_nftables {
            self.changes.push(ProposedChange::DeleteNftRule {
                namespace: namespace(),
                table: step.table.clone(),
                chain: step.chain.clone(),
                number,
                rule: rule.clone(),
            });
            return;
        }
        self.changes.push(ProposedChange::DeleteRule {
            namespace: namespace(),
            backend: step.backend,
            v6: step.flow.source.is_ipv6(),
            table: step.table.clone(),
            chain: step.chain.clone(),
            number,
            rule: rule.clone(),
        });
    }

    /// Adds the sysctls that decided about a packet.
    fn add_sysctls(&mut self, hop: &Hop, settings: &[SysctlValue]) {
        let Some(first) = settings.first() else {
            return;
        };
        let value = if first.name.ends_with(".rp_filter") {
            "0"
        } else {
            "1"
        };
        self.changes.push(ProposedChange::SetSysctl {
            namespaces: vec![hop.namespace.clone()],
            keys: settings
                .iter()
                .map(|setting| setting.name.clone())
                .collect(),
            value: value.to_owned(),
        });
    }

    /// Adds services whose traffic policy excludes endpoints.
    fn add_policies(&mut self, case: &Case) {
        for service in &case.objects.services {
            let named = format!("{}/{}", service.namespace, service.name);
            let Some(spec) = &service.value.spec else {
                continue;
            };
            let local = |policy: &Option<String>| policy.as_deref() == Some("Local");
            for (field, policy) in [
                (
                    PolicyField::ExternalTrafficPolicy,
                    &spec.external_traffic_policy,
                ),
                (
                    PolicyField::InternalTrafficPolicy,
                    &spec.internal_traffic_policy,
                ),
            ] {
                if local(policy) {
                    self.changes.push(ProposedChange::ClusterPolicy {
                        service: named.clone(),
                        field,
                    });
                }
            }
        }
    }

    /// Adds the kube-proxy flags that decide what is masqueraded.
    fn add_proxy_flags(&mut self, case: &Case, cluster: &Cluster) {
        let spec = &case.spec;
        let node_proxies = spec.nodes.values();
        let of_nodes = node_proxies.filter_map(|node| node.kube_proxy.as_ref());
        let proxies = spec.kube_proxy.iter().chain(of_nodes);
        if proxies.clone().next().is_none() {
            return;
        }
        // The network that assigns pod addresses defines the pod CIDRs; without one, the nodes do.
        let flannel = spec.flannel.iter().map(|flannel| flannel.network);
        let calico = spec
            .calico
            .iter()
            .flat_map(|calico| calico.pools.iter().copied());
        let assigned: Vec<IpNetwork> = flannel.chain(calico).map(IpNetwork::V4).collect();
        let node_specs = case
            .objects
            .nodes
            .iter()
            .filter_map(|node| node.value.spec.as_ref());
        let node_cidrs = node_specs.flat_map(|spec| {
            let several = spec.pod_cidrs.iter().flatten();
            several
                .chain(&spec.pod_cidr)
                .filter_map(|cidr| cidr.parse::<IpNetwork>().ok())
        });
        let pod_networks: Vec<IpNetwork> = if assigned.is_empty() {
            node_cidrs.collect()
        } else {
            assigned
        };
        if let Some(networks) = covering_networks(pod_networks.iter().copied())
            && !proxies
                .clone()
                .all(|proxy| has_pod_cidrs(proxy, &pod_networks, cluster))
        {
            self.changes.push(ProposedChange::ClusterCidr { networks });
        }
        self.changes.push(ProposedChange::MasqueradeAll);
    }

    /// Adds the destinations of these packets that ip-masq-agent does not masquerade.
    fn add_masqueraded(&mut self, case: &Case, wrong: &[&Journey]) {
        let Some(agent) = &case.spec.ip_masq_agent else {
            return;
        };
        let flights = wrong.iter().flat_map(|journey| &journey.packets);
        let steps = flights
            .flat_map(|flight| &flight.hops)
            .flat_map(|hop| &hop.matches);
        for step in steps.filter(|step| step.chain.starts_with("IP-MASQ") && is_early_return(step))
        {
            let IpAddr::V4(to) = step.flow.destination.ip() else {
                continue;
            };
            let kept = agent.non_masquerade_cidrs.iter();
            let kept = kept.filter(|network| network.contains(to));
            self.changes.extend(
                kept.map(|network| ProposedChange::MasqueradeNetwork { network: *network }),
            );
        }
    }

    fn add_manual_changes(&mut self, case: &Case, on_the_way: &BTreeSet<&str>) {
        for (name, node) in &case.spec.nodes {
            let untouched = node.by_hand.iptables.is_empty() && node.by_hand.commands.is_empty();
            if !untouched && on_the_way.contains(name.as_str()) {
                self.changes
                    .push(ProposedChange::UndoManualChanges { node: name.clone() });
            }
        }
    }

    /// Adds load balancers that packets were sent to.
    fn add_balancers(&mut self, case: &Case, cluster: &Cluster, met: &BTreeSet<IpAddr>) {
        for (name, spec) in &case.spec.load_balancers {
            let has_name = |balancer: &&svclab_planner::cluster::Balancer| balancer.name == *name;
            let found = cluster.balancers.iter().find(has_name);
            if !found.is_some_and(|own| own.addresses.iter().any(|ip| met.contains(ip))) {
                continue;
            }
            let balancer = || name.clone();
            self.changes.extend([
                ProposedChange::UseOwnSource {
                    balancer: balancer(),
                },
                ProposedChange::SkipOwnSource {
                    balancer: balancer(),
                },
                ProposedChange::AddHealthCheck {
                    balancer: balancer(),
                },
            ]);
            if spec.security_group.is_some() {
                self.changes.push(ProposedChange::RemoveSecurityGroup {
                    balancer: balancer(),
                });
            }
            let backends = spec.backends.as_ref();
            for node in case.objects.nodes.iter().map(|node| &node.name) {
                let is_backend = backends.is_none_or(|backends| backends.contains(node));
                let (balancer, node) = (balancer(), node.clone());
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
            let global_keys: Vec<String> = keys
                .iter()
                .filter(|key| key.contains(".conf.all."))
                .cloned()
                .collect();
            let differs = |name: &str| -> bool {
                let namespace = plan.namespace(name);
                namespace.is_some_and(|own| {
                    let mut known = own.sysctls.iter();
                    known.any(|known| global_keys.contains(&known.key) && known.value != *value)
                })
            };
            let affected: Vec<String> = plan
                .namespaces
                .iter()
                .map(|namespace| namespace.name.clone())
                .filter(|name| differs(name))
                .collect();
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
