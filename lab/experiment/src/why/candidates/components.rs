//! Finds settings of components, and sysctls that may be the cause.

use std::net::IpAddr;

use ipnetwork::{IpNetwork, Ipv4Network};

use super::Failures;
use super::rules::is_early_return;
use crate::kube_proxies;
use crate::why::change::{ProposedChange, covering_networks};
use svclab_journey::journey::{Rewrite, RuleMatch};
use svclab_judge::{Fact, NodePortGap, UntranslatedReason};
use svclab_model::evidence::KERNEL_DEFAULTS;
use svclab_model::plan::{Namespace, Plan};
use svclab_planner::cluster::{Cluster, FABRIC};
use svclab_planner::visibility::{Visibility, lacks_evidence};
use svclab_rules::kube_proxy::{Family, KubeProxy, Mode};

/// Sysctls that a node of a cluster needs, with the value: forwarding, and rules for bridged
/// packets.
const NODE_SYSCTLS: [(&str, &str); 4] = [
    ("net.ipv4.ip_forward", "1"),
    ("net.ipv6.conf.all.forwarding", "1"),
    ("net.bridge.bridge-nf-call-iptables", "1"),
    ("net.bridge.bridge-nf-call-ip6tables", "1"),
];

/// Returns the flags of kube-proxy that decide what is masqueraded, accepted or answered, if a
/// packet met rules or virtual servers of kube-proxy.
pub(super) fn proxy_flags(failures: &Failures<'_>) -> Vec<ProposedChange> {
    let spec = &failures.case.spec;
    let meets_proxy = failures.hops().any(|hop| {
        matches!(hop.rewritten, Some(Rewrite::ByIpvs { .. }))
            || hop.matches.iter().any(RuleMatch::is_of_kube_proxy)
    });
    if !meets_proxy || kube_proxies(spec).next().is_none() {
        return Vec::new();
    }
    let mut changes = Vec::new();
    if let Some(networks) = missing_cluster_cidr(failures) {
        changes.push(ProposedChange::ClusterCidr { networks });
    }
    changes.push(if kube_proxies(spec).any(|proxy| proxy.masquerade_all) {
        ProposedChange::MasqueradeFew
    } else {
        ProposedChange::MasqueradeAll
    });
    let mut steps = failures.hops().flat_map(|hop| &hop.matches);
    let matches_invalid = |step: &RuleMatch| {
        let rule = step.rule.as_deref().unwrap_or_default().to_lowercase();
        rule.contains("ctstate invalid") || rule.contains("ct state invalid")
    };
    if steps.any(matches_invalid) {
        changes.push(ProposedChange::BeLiberal);
    }
    if kube_proxies(spec).any(|proxy| proxy.mode == Mode::Ipvs && !proxy.strict_arp) {
        changes.push(ProposedChange::StrictArp);
    }
    changes
}

/// Returns the flags of kube-proxy by which it does not serve a node port on an address.
pub(super) fn node_port_flags(failures: &Failures<'_>, fact: &Fact) -> Vec<ProposedChange> {
    let Fact::NodePortNotServed { because, .. } = fact else {
        return Vec::new();
    };
    if !matches!(because, NodePortGap::Loopback | NodePortGap::Address) {
        return Vec::new();
    }
    let spec = &failures.case.spec;
    let mut changes = Vec::new();
    if kube_proxies(spec).next().is_some() {
        changes.push(ProposedChange::AllNodePortAddresses);
    }
    if kube_proxies(spec).any(|proxy| !proxy.localhost_node_ports) {
        changes.push(ProposedChange::LocalhostNodePorts);
    }
    changes
}

/// Returns the start of kube-proxy, if a request left a node without translation because the lab has
/// no kube-proxy.
pub(super) fn missing_proxy(failures: &Failures<'_>, facts: &[Fact]) -> Option<ProposedChange> {
    let is_cause = facts.iter().any(|fact| {
        matches!(
            fact,
            Fact::NotTranslated {
                reason: UntranslatedReason::NoProxy,
                ..
            }
        )
    });
    let is_absent = kube_proxies(&failures.case.spec).next().is_none();
    let networks = covering_networks(pod_networks(failures).into_iter());
    (is_cause && is_absent).then_some(ProposedChange::RunKubeProxy { networks })
}

/// Returns the networks of pods. The network that assigns pod addresses defines them; without one,
/// the nodes do.
fn pod_networks(failures: &Failures<'_>) -> Vec<IpNetwork> {
    let spec = &failures.case.spec;
    let flannel = spec.flannel.iter().map(|flannel| flannel.network);
    let calico = spec
        .calico
        .iter()
        .flat_map(|calico| calico.pools.iter().copied());
    let mut pod_networks: Vec<IpNetwork> = flannel.chain(calico).map(IpNetwork::V4).collect();
    if pod_networks.is_empty() {
        let nodes = failures.case.objects.nodes.iter();
        let specs = nodes.filter_map(|node| node.value.spec.as_ref());
        let cidrs = specs.flat_map(|spec| spec.pod_cidrs.iter().flatten().chain(&spec.pod_cidr));
        pod_networks.extend(cidrs.filter_map(|cidr| cidr.parse::<IpNetwork>().ok()));
    }
    pod_networks
}

/// Returns the pod networks if a kube-proxy has another cluster CIDR.
fn missing_cluster_cidr(failures: &Failures<'_>) -> Option<String> {
    let spec = &failures.case.spec;
    let pod_networks = pod_networks(failures);
    let networks = covering_networks(pod_networks.iter().copied())?;
    let cluster = failures.cluster;
    let is_right = |proxy: &KubeProxy| has_pod_cidrs(proxy, &pod_networks, cluster);
    (!kube_proxies(spec).all(is_right)).then_some(networks)
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

/// Returns the settings of flannel that decide what is masqueraded and routed.
pub(super) fn flannel_settings(failures: &Failures<'_>) -> Vec<ProposedChange> {
    let Some(flannel) = &failures.case.spec.flannel else {
        return Vec::new();
    };
    let mut changes = Vec::new();
    if !flannel.ip_masq {
        changes.push(ProposedChange::FlannelMasquerade);
    }
    let is_outside = |network: &IpNetwork| match network.ip() {
        IpAddr::V4(ip) => !flannel.network.contains(ip),
        IpAddr::V6(_) => false,
    };
    if ipv4_pod_cidrs(failures).any(|network| is_outside(&network)) {
        let network = cluster_networks(failures);
        changes.extend(network.map(|network| ProposedChange::FlannelNetwork { network }));
    }
    changes
}

/// Returns routes of the underlay to addresses of services that it does not know.
pub(super) fn fabric_routes(failures: &Failures<'_>) -> Vec<ProposedChange> {
    let mut changes = Vec::new();
    let last_hops = failures.packets().filter_map(|packet| packet.hops.last());
    for hop in last_hops.filter(|hop| hop.namespace == FABRIC) {
        let to = hop.after.destination.ip();
        let mut services = failures.cluster.services.iter();
        if services.any(|service| service.has_address(to) && !service.cluster_ips.contains(&to)) {
            let nodes = failures.cluster.nodes.iter();
            changes.extend(nodes.map(|node| ProposedChange::AddFabricRoute {
                to: to.into(),
                via: node.name.clone(),
            }));
        }
    }
    changes
}

/// Returns the smallest IPv4 network that contains all pod networks.
fn cluster_networks(failures: &Failures<'_>) -> Option<Ipv4Network> {
    covering_networks(ipv4_pod_cidrs(failures))?.parse().ok()
}

fn ipv4_pod_cidrs(failures: &Failures<'_>) -> impl Iterator<Item = IpNetwork> {
    let nodes = failures.cluster.nodes.iter();
    let networks = nodes.flat_map(|node| node.pod_cidrs.iter().copied());
    networks.filter(IpNetwork::is_ipv4)
}

/// Returns the networks that decide whether ip-masq-agent masquerades packets: those that it leaves
/// out, or the pod networks, if it does not.
pub(super) fn masqueraded_networks(failures: &Failures<'_>) -> Vec<ProposedChange> {
    let Some(agent) = &failures.case.spec.ip_masq_agent else {
        return Vec::new();
    };
    let steps = failures.hops().flat_map(|hop| &hop.matches);
    let steps = steps.filter(|step| step.chain.starts_with("IP-MASQ"));
    let mut changes = Vec::new();
    for step in steps {
        let IpAddr::V4(to) = step.flow.destination.ip() else {
            continue;
        };
        if !is_early_return(step) {
            let pods = cluster_networks(failures);
            let network = pods.filter(|network| network.contains(to));
            changes.extend(network.map(|network| ProposedChange::NonMasqueradeNetwork { network }));
            continue;
        }
        let kept = agent.non_masquerade_cidrs.iter().copied();
        let kept = kept.filter(|network| network.contains(to));
        changes.extend(kept.map(|network| ProposedChange::MasqueradeNetwork { network }));
    }
    changes
}

/// Returns the undoing of each manual command that is left in the plan, on the nodes that packets
/// passed. The others are part of the state of their node. Queueing disciplines and conntrack
/// entries, which the evidence contains, have changes of their own.
pub(super) fn manual_commands(failures: &Failures<'_>) -> Vec<ProposedChange> {
    let commands = failures.plan.commands.iter();
    let unread = commands.filter(|command| {
        Visibility::new(command) != Visibility::Hidden || lacks_evidence(command)
    });
    let met = unread.filter(|command| is_met(failures, &command.namespace));
    met.map(|command| ProposedChange::UndoManualCommand {
        command: Box::new(command.clone()),
    })
    .collect()
}

/// Returns the undoing of manual changes on the nodes that packets passed.
pub(super) fn manual_changes(failures: &Failures<'_>) -> Vec<ProposedChange> {
    let nodes = failures.case.spec.nodes.iter();
    let changed_nodes = nodes.filter(|(name, node)| {
        let is_untouched = node.by_hand.iptables.is_empty() && node.by_hand.commands.is_empty();
        !is_untouched && is_met(failures, name)
    });
    changed_nodes
        .map(|(name, _)| ProposedChange::UndoManualChanges { node: name.clone() })
        .collect()
}

/// Whether a packet passed the node, or was lost on the way to an address of the node or one of its
/// pods. A connection without packets failed on its own node.
fn is_met(failures: &Failures<'_>, node: &str) -> bool {
    let is_sender = |name: &str| failures.journeys.iter().any(|journey| journey.from == name);
    let passes = failures.hops().any(|hop| hop.namespace == node);
    let addresses = failures.plan.namespace(node).into_iter();
    let addresses: Vec<IpNetwork> = addresses
        .flat_map(|namespace| &namespace.links)
        .flat_map(|link| link.addresses.iter().copied())
        .collect();
    let mut ends = failures.packets().filter_map(|packet| packet.hops.last());
    passes
        || is_sender(node)
        || ends.any(|hop| {
            let to = hop.after.destination.ip();
            addresses.iter().any(|own| own.contains(to))
        })
}

/// Returns the namespaces of the nodes that packets passed.
fn met_nodes<'f>(failures: &'f Failures<'f>) -> impl Iterator<Item = &'f Namespace> {
    let nodes = failures.cluster.nodes.iter();
    let met = nodes.filter(|node| is_met(failures, &node.name));
    met.filter_map(|node| failures.plan.namespace(&node.name))
}

/// Returns the sysctls that do not have the default value of the kernel on a node that packets
/// passed.
pub(super) fn default_sysctls(failures: &Failures<'_>) -> Vec<ProposedChange> {
    differing_sysctls(failures, &KERNEL_DEFAULTS)
}

/// Returns the hop limits that are lower than the default of the kernel (Linux v6.12,
/// `include/net/ipv6.h`, `IPV6_DEFAULT_HOPLIMIT`) on a node that packets passed.
pub(super) fn hop_limits(failures: &Failures<'_>) -> Vec<ProposedChange> {
    const DEFAULT: u32 = 64;
    let is_low = |value: &str| value.parse().is_ok_and(|limit: u32| limit < DEFAULT);
    let changes = met_nodes(failures).filter_map(|namespace| {
        let sysctls = namespace.sysctls.iter();
        let low = sysctls.filter(|own| own.key.ends_with(".hop_limit") && is_low(&own.value));
        let keys: Vec<String> = low.map(|own| own.key.clone()).collect();
        (!keys.is_empty()).then(|| ProposedChange::SetSysctl {
            namespaces: vec![namespace.name.clone()],
            keys,
            value: DEFAULT.to_string(),
        })
    });
    changes.filter(|_| failures.uses_ipv6()).collect()
}

/// Returns the sysctls that a node needs and that have another value on a node that packets passed.
pub(super) fn node_sysctls(failures: &Failures<'_>) -> Vec<ProposedChange> {
    let is_of_v6 = |key: &str| key.starts_with("net.ipv6.") || key.ends_with("ip6tables");
    let wanted = NODE_SYSCTLS.into_iter();
    let wanted = wanted.filter(|(key, _)| is_of_v6(key) == failures.uses_ipv6());
    differing_sysctls(failures, &wanted.collect::<Vec<_>>())
}

/// Returns the sysctls that have another value than wanted on a node that packets passed.
fn differing_sysctls(failures: &Failures<'_>, wanted: &[(&str, &str)]) -> Vec<ProposedChange> {
    let changes = met_nodes(failures).flat_map(|namespace| {
        wanted.iter().filter_map(|(key, value)| {
            let current = namespace.sysctls.iter().rfind(|own| own.key == *key)?;
            (current.value != *value).then(|| ProposedChange::SetSysctl {
                namespaces: vec![namespace.name.clone()],
                keys: vec![(*key).to_owned()],
                value: (*value).to_owned(),
            })
        })
    });
    changes.collect()
}

/// Returns changes of sysctls of one node for all nodes where they differ: request and reply may
/// pass different nodes.
pub(super) fn sysctls_of_all_nodes(plan: &Plan, changes: &[ProposedChange]) -> Vec<ProposedChange> {
    let mut wider_changes = Vec::new();
    for change in changes {
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
    wider_changes
}
