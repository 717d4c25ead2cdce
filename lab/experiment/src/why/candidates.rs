//! Derives possible causes from packet paths: rules that dropped a packet or returned before
//! masquerading, rules that kept its source, and the policies, flags and sysctls behind them.
//!
//! The candidates are only worth trying. A change counts as a fix once packets have proven it.

use std::collections::BTreeSet;
use std::net::IpAddr;

use ipnetwork::IpNetwork;

use super::change::{Change, PolicyField, networks};
use super::ways::ways;
use svclab_journey::journey::{End, Flight, Hop, Journey, Setting, Step};
use svclab_model::plan::Plan;
use svclab_planner::build::SOURCE_CHECK;
use svclab_planner::cluster::{Cluster, FABRIC, INTERNET};
use svclab_rules::kube_proxy::{Family, KubeProxy};
use svclab_scenario::Case;

/// Returns the changes that are worth trying for a case with these failing connections, without
/// duplicates. Configuration of an operator comes before rules that components generate.
#[must_use]
pub fn candidates(case: &Case, cluster: &Cluster, plan: &Plan, wrong: &[&Journey]) -> Vec<Change> {
    let mut found = Found::default();
    for journey in wrong {
        for flight in &journey.flights {
            found.flight(flight);
        }
    }
    let met: BTreeSet<IpAddr> = wrong
        .iter()
        .flat_map(|journey| &journey.flights)
        .flat_map(|flight| &flight.hops)
        .flat_map(|hop| [hop.before, hop.after])
        .flat_map(|flow| [flow.source.ip(), flow.destination.ip()])
        .collect();
    let on_the_way: BTreeSet<&str> = wrong
        .iter()
        .flat_map(|journey| &journey.flights)
        .flat_map(|flight| &flight.hops)
        .map(|hop| hop.namespace.as_str())
        .collect();
    for journey in wrong {
        for flight in &journey.flights {
            found.all.extend(ways(plan, cluster, flight));
        }
    }
    found.masqueraded(case, wrong);
    found.policies(case);
    found.proxies(case, cluster);
    found.by_hand(case, &on_the_way);
    found.balancers(case, cluster, &met);
    found.everywhere(plan);
    let mut all: Vec<Change> = Vec::new();
    for change in found.all {
        if !all.contains(&change) {
            all.push(change);
        }
    }
    all.sort_by_key(Change::level);
    all
}

#[derive(Default)]
struct Found {
    all: Vec<Change>,
}

impl Found {
    fn flight(&mut self, flight: &Flight) {
        for hop in &flight.hops {
            let decided = hop.met.iter().filter(|step| is_let_off(step));
            for step in decided {
                self.rule(hop, step);
            }
        }
        let Some(last) = flight.hops.last() else {
            return;
        };
        match &flight.end {
            End::ByRule => {
                if let Some(step) = last.met.last() {
                    self.rule(last, step);
                }
                // An earlier rule marked the packet for the drop.
                let marking = last
                    .met
                    .windows(2)
                    .filter(|pair| pair[0].mark != pair[1].mark);
                for pair in marking {
                    self.rule(last, &pair[0]);
                    let chain = &pair[0].chain;
                    let jump = |step: &&Step| step.target.as_ref() == Some(chain);
                    if let Some(step) = last.met.iter().rev().find(jump) {
                        self.rule(last, step);
                    }
                }
            }
            End::Dropped { settings, .. } | End::Counted { settings, .. } => {
                self.settings(last, settings);
            }
            _ => {}
        }
    }

    /// Adds a rule and the set entries by which the rule matched.
    fn rule(&mut self, hop: &Hop, step: &Step) {
        // An operator cannot edit the rules of the network between nodes.
        if hop.namespace == FABRIC || hop.namespace == INTERNET {
            if step.chain.starts_with(SOURCE_CHECK) {
                self.all.push(Change::ForeignSources);
            }
            return;
        }
        let namespace = || hop.namespace.clone();
        let native = step.table.split_once(' ').is_some();
        for entry in &step.entries {
            if let Some((set, entry)) = entry.split_once(' ') {
                self.all.push(if native {
                    Change::Element {
                        namespace: namespace(),
                        table: step.table.clone(),
                        set: set.to_owned(),
                        key: entry.to_owned(),
                    }
                } else {
                    Change::Entry {
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
        if native {
            self.all.push(Change::NativeRule {
                namespace: namespace(),
                table: step.table.clone(),
                chain: step.chain.clone(),
                number,
                rule: rule.clone(),
            });
            return;
        }
        self.all.push(Change::Rule {
            namespace: namespace(),
            backend: step.by,
            v6: step.flow.source.is_ipv6(),
            table: step.table.clone(),
            chain: step.chain.clone(),
            number,
            rule: rule.clone(),
        });
    }

    /// Adds the sysctls that decided about a packet.
    fn settings(&mut self, hop: &Hop, settings: &[Setting]) {
        let Some(first) = settings.first() else {
            return;
        };
        let value = if first.name.ends_with(".rp_filter") {
            "0"
        } else {
            "1"
        };
        self.all.push(Change::Sysctl {
            namespaces: vec![hop.namespace.clone()],
            keys: settings
                .iter()
                .map(|setting| setting.name.clone())
                .collect(),
            value: value.to_owned(),
        });
    }

    /// Adds services whose traffic policy excludes endpoints.
    fn policies(&mut self, case: &Case) {
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
                    self.all.push(Change::Policy {
                        service: named.clone(),
                        field,
                    });
                }
            }
        }
    }

    /// Adds the kube-proxy flags that decide what is masqueraded.
    fn proxies(&mut self, case: &Case, cluster: &Cluster) {
        let spec = &case.spec;
        let of_nodes = spec.nodes.values();
        let of_nodes = of_nodes.filter_map(|node| node.kube_proxy.as_ref());
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
        let handed: Vec<IpNetwork> = flannel.chain(calico).map(IpNetwork::V4).collect();
        let told = case
            .objects
            .nodes
            .iter()
            .filter_map(|node| node.value.spec.as_ref());
        let said = told.flat_map(|spec| {
            let several = spec.pod_cidrs.iter().flatten();
            several
                .chain(&spec.pod_cidr)
                .filter_map(|cidr| cidr.parse::<IpNetwork>().ok())
        });
        let all: Vec<IpNetwork> = if handed.is_empty() {
            said.collect()
        } else {
            handed
        };
        if let Some(networks) = networks(all.iter().copied())
            && !proxies.clone().all(|proxy| knows(proxy, &all, cluster))
        {
            self.all.push(Change::ClusterCidr { networks });
        }
        self.all.push(Change::MasqueradeAll);
    }

    /// Adds the destinations of these packets that ip-masq-agent does not masquerade.
    fn masqueraded(&mut self, case: &Case, wrong: &[&Journey]) {
        let Some(agent) = &case.spec.ip_masq_agent else {
            return;
        };
        let flights = wrong.iter().flat_map(|journey| &journey.flights);
        let steps = flights
            .flat_map(|flight| &flight.hops)
            .flat_map(|hop| &hop.met);
        for step in steps.filter(|step| step.chain.starts_with("IP-MASQ") && is_let_off(step)) {
            let IpAddr::V4(to) = step.flow.destination.ip() else {
                continue;
            };
            let kept = agent.non_masquerade_cidrs.iter();
            let kept = kept.filter(|network| network.contains(to));
            self.all
                .extend(kept.map(|network| Change::Masqueraded { network: *network }));
        }
    }

    fn by_hand(&mut self, case: &Case, on_the_way: &BTreeSet<&str>) {
        for (name, node) in &case.spec.nodes {
            let untouched = node.by_hand.iptables.is_empty() && node.by_hand.commands.is_empty();
            if !untouched && on_the_way.contains(name.as_str()) {
                self.all.push(Change::ByHand { node: name.clone() });
            }
        }
    }

    /// Adds load balancers that packets were sent to.
    fn balancers(&mut self, case: &Case, cluster: &Cluster, met: &BTreeSet<IpAddr>) {
        for (name, spec) in &case.spec.load_balancers {
            let of = |balancer: &&svclab_planner::cluster::Balancer| balancer.name == *name;
            let own = cluster.balancers.iter().find(of);
            if !own.is_some_and(|own| own.addresses.iter().any(|ip| met.contains(ip))) {
                continue;
            }
            let balancer = || name.clone();
            self.all.extend([
                Change::OwnSource {
                    balancer: balancer(),
                },
                Change::SkipOwnSource {
                    balancer: balancer(),
                },
                Change::HealthCheck {
                    balancer: balancer(),
                },
            ]);
            if spec.security_group.is_some() {
                self.all.push(Change::SecurityGroup {
                    balancer: balancer(),
                });
            }
            let backends = spec.backends.as_ref();
            for node in case.objects.nodes.iter().map(|node| &node.name) {
                let is_one = backends.is_none_or(|backends| backends.contains(node));
                let (balancer, node) = (balancer(), node.clone());
                self.all.push(if is_one {
                    Change::Backend { balancer, node }
                } else {
                    Change::AnotherBackend { balancer, node }
                });
            }
        }
    }

    /// Adds a sysctl of one node for all nodes where it differs: request and reply may pass
    /// different nodes.
    fn everywhere(&mut self, plan: &Plan) {
        let mut wider = Vec::new();
        for change in &self.all {
            let Change::Sysctl {
                namespaces,
                keys,
                value,
            } = change
            else {
                continue;
            };
            let all: Vec<String> = keys
                .iter()
                .filter(|key| key.contains(".conf.all."))
                .cloned()
                .collect();
            let holds = |name: &str| -> bool {
                let own = plan.namespace(name);
                own.is_some_and(|own| {
                    let mut known = own.sysctls.iter();
                    known.any(|known| all.contains(&known.key) && known.value != *value)
                })
            };
            let those: Vec<String> = plan
                .namespaces
                .iter()
                .map(|namespace| namespace.name.clone())
                .filter(|name| holds(name))
                .collect();
            if !all.is_empty() && those != *namespaces && those.len() > 1 {
                wider.push(Change::Sysctl {
                    namespaces: those,
                    keys: all,
                    value: value.clone(),
                });
            }
        }
        self.all.extend(wider);
    }
}

/// Whether the cluster CIDRs of a kube-proxy include the pod networks and no node address.
fn knows(proxy: &KubeProxy, pods: &[IpNetwork], cluster: &Cluster) -> bool {
    let Some(cidrs) = &proxy.cluster_cidr else {
        return false;
    };
    let is_known = |ip: IpAddr| {
        let known = cidrs.of(Family::of(ip));
        known.filter(|known| known.contains(ip))
    };
    let mut nodes = cluster.nodes.iter().flat_map(|node| &node.addresses);
    let knows =
        |pods: &IpNetwork| is_known(pods.ip()).is_some_and(|known| known.prefix() <= pods.prefix());
    pods.iter().all(knows) && !nodes.any(|node| is_known(node.ip()).is_some())
}

/// Whether a rule ended the evaluation of a chain before other rules, as in a return before
/// masquerading. Excludes rules that only check for a mark.
fn is_let_off(step: &Step) -> bool {
    let Some(rule) = &step.rule else {
        return false;
    };
    let asks_for_mark = rule.contains("--mark") || rule.starts_with("meta mark & ");
    matches!(step.target.as_deref(), Some("RETURN" | "ACCEPT")) && !asks_for_mark
}
