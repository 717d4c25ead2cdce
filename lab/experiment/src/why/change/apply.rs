//! Applies a change to a case or to a plan.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

use ipnetwork::IpNetwork;

use super::{ChangeError, ProposedChange, edit, objects};
use svclab_model::plan::{Neighbour, Plan};
use svclab_rules::kube_proxy::{Cidrs, KubeProxy, NodePortAddress, Version};
use svclab_scenario::Case;
use svclab_scenario::lab::{
    BalancerTarget, ByHand, FabricRoute, ForeignSources, HealthCheck, LabSpec,
};

impl ProposedChange {
    /// Applies the change to a case, if the change concerns the lab document. Returns whether it
    /// does.
    pub(in crate::why) fn apply_to_case(&self, case: &mut Case) -> Result<bool, ChangeError> {
        match self {
            Self::ClusterPolicy { service, field } => {
                objects::set_policy(case, service, *field, "Cluster")?;
            }
            Self::LocalPolicy { service, field } => {
                objects::set_policy(case, service, *field, "Local")?;
            }
            Self::ServiceField { service, field } => objects::set_field(case, service, field)?,
            Self::MakePodReady { pod } => objects::make_pod_ready(case, pod)?,
            Self::LabelPod { pod, labels } => objects::label_pod(case, pod, labels)?,
            Self::ContainerPort { pod, port, wanted } => {
                objects::set_container_port(case, pod, *port, *wanted)?;
            }
            Self::FlannelMasquerade => {
                let flannel = spec_mut(case).flannel.as_mut();
                set(&mut flannel.ok_or_else(missing_in_lab)?.ip_masq, true)?;
            }
            Self::FlannelNetwork { network } => {
                let flannel = spec_mut(case).flannel.as_mut();
                set(&mut flannel.ok_or_else(missing_in_lab)?.network, *network)?;
            }
            Self::AddFabricRoute { to, via } => {
                let (to, via) = (*to, via.clone());
                spec_mut(case).fabric.routes.push(FabricRoute { to, via });
            }
            Self::RunKubeProxy { networks } => {
                let networks = networks.as_deref().map(parse_networks).transpose()?;
                let proxy = KubeProxy {
                    cluster_cidr: networks,
                    ..KubeProxy::new(Version::NEWEST)
                };
                set(&mut spec_mut(case).kube_proxy, Some(proxy))?;
            }
            Self::ClusterCidr { networks } => {
                let networks = parse_networks(networks)?;
                change_proxies(case, |proxy| {
                    set(&mut proxy.cluster_cidr, Some(networks.clone()))
                })?;
            }
            Self::MasqueradeAll => {
                change_proxies(case, |proxy| set(&mut proxy.masquerade_all, true))?;
            }
            Self::MasqueradeFew => {
                change_proxies(case, |proxy| set(&mut proxy.masquerade_all, false))?;
            }
            Self::BeLiberal => {
                change_proxies(case, |proxy| set(&mut proxy.tcp_be_liberal, true))?;
            }
            Self::AllNodePortAddresses => {
                let all = all_addresses();
                change_proxies(case, |proxy| {
                    set(&mut proxy.node_port_addresses, all.clone())
                })?;
            }
            Self::LocalhostNodePorts => {
                change_proxies(case, |proxy| set(&mut proxy.localhost_node_ports, true))?;
            }
            Self::StrictArp => {
                change_proxies(case, |proxy| set(&mut proxy.strict_arp, true))?;
            }
            Self::AllowForeignSources => {
                set(
                    &mut spec_mut(case).fabric.foreign_sources,
                    ForeignSources::Pass,
                )?;
            }
            Self::UndoManualChanges { node } => {
                let nodes = &mut spec_mut(case).nodes;
                let node = nodes.get_mut(node).ok_or(ChangeError::NoEffect)?;
                set(&mut node.by_hand, ByHand::default())?;
            }
            Self::UseOwnSource { .. }
            | Self::KeepSource { .. }
            | Self::SkipOwnSource { .. }
            | Self::AddHealthCheck { .. }
            | Self::ForwardToNodePorts { .. }
            | Self::ForwardToPods { .. }
            | Self::RemoveSecurityGroup { .. }
            | Self::AddBackend { .. }
            | Self::RemoveBackend { .. } => self.apply_to_balancer(case)?,
            Self::NonMasqueradeNetwork { network } => {
                let agent = spec_mut(case).ip_masq_agent.as_mut();
                let networks = &mut agent.ok_or_else(missing_in_lab)?.non_masquerade_cidrs;
                if networks.contains(network) {
                    return Err(ChangeError::NoEffect);
                }
                networks.push(*network);
            }
            Self::MasqueradeNetwork { network } => {
                let agent = spec_mut(case).ip_masq_agent.as_mut();
                let agent = agent.ok_or_else(missing_in_lab)?;
                let before = agent.non_masquerade_cidrs.len();
                agent.non_masquerade_cidrs.retain(|own| own != network);
                if agent.non_masquerade_cidrs.len() == before {
                    return Err(ChangeError::NoEffect);
                }
            }
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// Applies a change of a load balancer; ignores all others.
    fn apply_to_balancer(&self, case: &mut Case) -> Result<(), ChangeError> {
        let (Self::UseOwnSource { balancer: name }
        | Self::KeepSource { balancer: name }
        | Self::SkipOwnSource { balancer: name }
        | Self::AddHealthCheck { balancer: name }
        | Self::ForwardToNodePorts { balancer: name }
        | Self::ForwardToPods { balancer: name }
        | Self::RemoveSecurityGroup { balancer: name }
        | Self::AddBackend { balancer: name, .. }
        | Self::RemoveBackend { balancer: name, .. }) = self
        else {
            return Ok(());
        };
        let nodes = case.objects.nodes.iter().map(|node| node.name.clone());
        let nodes: Vec<String> = nodes.collect();
        let balancer = spec_mut(case).load_balancers.by_name.get_mut(name);
        let balancer = balancer.ok_or_else(missing_in_lab)?;
        match self {
            Self::UseOwnSource { .. } => set(&mut balancer.keep_source, false),
            Self::KeepSource { .. } => set(&mut balancer.keep_source, true),
            Self::SkipOwnSource { .. } => set(&mut balancer.skip_own_source, true),
            Self::AddHealthCheck { .. } if balancer.health_check.is_none() => {
                set(&mut balancer.health_check, Some(HealthCheck::default()))
            }
            Self::ForwardToNodePorts { .. } => set(&mut balancer.target, BalancerTarget::NodePort),
            Self::ForwardToPods { .. } => set(&mut balancer.target, BalancerTarget::Pods),
            Self::RemoveSecurityGroup { .. } => set(&mut balancer.security_group, None),
            Self::AddBackend { node, .. } => match &mut balancer.backends {
                Some(backends) if !backends.contains(node) => {
                    backends.push(node.clone());
                    Ok(())
                }
                _ => Err(ChangeError::NoEffect),
            },
            Self::RemoveBackend { node, .. } => {
                let mut backends = balancer.backends.clone().unwrap_or(nodes);
                let before = backends.len();
                backends.retain(|backend| backend != node);
                if backends.len() == before || backends.is_empty() {
                    return Err(ChangeError::NoEffect);
                }
                set(&mut balancer.backends, Some(backends))
            }
            _ => Err(ChangeError::NoEffect),
        }
    }

    /// Applies the change to a plan, if the change concerns the content of namespaces.
    pub(in crate::why) fn apply_to_plan(&self, plan: &mut Plan) -> Result<(), ChangeError> {
        let typed = self.node_commands(plan);
        if !typed.is_empty() {
            plan.commands.extend(typed);
            return Ok(());
        }
        match self {
            Self::SetSysctl {
                namespaces,
                keys,
                value,
            } => {
                let mut changed = Err(ChangeError::NoEffect);
                for namespace in namespaces {
                    let target = edit::namespace(plan, namespace)?;
                    for key in keys {
                        changed = changed.or(edit::set_sysctl(target, key, value));
                    }
                }
                changed
            }
            Self::DeleteRule {
                namespace,
                backend,
                v6,
                table,
                chain,
                number,
                ..
            } => {
                let namespace = edit::namespace(plan, namespace)?;
                edit::delete_rule(namespace, *backend, *v6, table, (chain, *number))
            }
            Self::DeleteSetEntry {
                namespace,
                set,
                entry,
            } => edit::delete_set_entry(edit::namespace(plan, namespace)?, set, entry),
            Self::DeleteNftElement {
                namespace,
                table,
                set,
                key,
            } => edit::delete_nft_element(edit::namespace(plan, namespace)?, table, set, key),
            Self::DeleteNftRule {
                namespace,
                table,
                chain,
                number,
                rule,
            } => {
                let namespace = edit::namespace(plan, namespace)?;
                edit::delete_nft_rule(namespace, table, chain, (*number, rule))
            }
            Self::UndoManualCommand { command } => {
                let mut commands = plan.commands.iter();
                let index = commands.position(|own| own == &**command);
                plan.commands.remove(index.ok_or(ChangeError::NoEffect)?);
                Ok(())
            }
            _ => self.apply_to_network(plan),
        }
    }

    /// Applies a change of interfaces, neighbours, routes, policies and virtual servers; ignores
    /// all others.
    fn apply_to_network(&self, plan: &mut Plan) -> Result<(), ChangeError> {
        let missing = |namespace: &String| ChangeError::Missing(namespace.clone());
        match self {
            Self::DeleteRoute { namespace, route } => {
                let target = edit::namespace(plan, namespace)?;
                remove_item(&mut target.routes, route).ok_or_else(|| missing(namespace))
            }
            Self::DeleteRoutingRule { namespace, rule } => {
                let target = edit::namespace(plan, namespace)?;
                remove_item(&mut target.routing_rules, rule).ok_or_else(|| missing(namespace))
            }
            Self::AddRoute { namespace, route } => {
                let target = edit::namespace(plan, namespace)?;
                if target.routes.contains(route) {
                    return Err(ChangeError::NoEffect);
                }
                target.routes.push((**route).clone());
                Ok(())
            }
            Self::AcceptPolicy {
                namespace,
                backend,
                v6,
                table,
                chain,
            } => {
                let target = edit::namespace(plan, namespace)?;
                if table.contains(' ') {
                    edit::accept_nft_policy(target, table, chain)
                } else {
                    edit::accept_policy(target, *backend, *v6, table, chain)
                }
            }
            Self::SetLinkUp { namespace, link } => {
                set(&mut edit::link(plan, namespace, link)?.down, false)
            }
            Self::SetMtu {
                namespace,
                link,
                mtu,
            } => set(&mut edit::link(plan, namespace, link)?.mtu, Some(*mtu)),
            Self::SetPort {
                namespace,
                link,
                setting,
                on,
            } => {
                let port = &mut edit::link(plan, namespace, link)?.port;
                let mut changed = *port;
                changed.set(setting, *on);
                set(port, changed)
            }
            Self::DeleteAddress {
                namespace,
                link,
                address,
            } => {
                let addresses = if link == "lo" {
                    &mut edit::namespace(plan, namespace)?.loopback
                } else {
                    &mut edit::link(plan, namespace, link)?.addresses
                };
                remove_item(addresses, address).ok_or_else(|| missing(namespace))
            }
            Self::SetNeighbour {
                namespace,
                neighbour,
            } => {
                let entries = &mut edit::namespace(plan, namespace)?.neighbours;
                if entries.contains(neighbour) {
                    return Err(ChangeError::NoEffect);
                }
                let is_same = |entry: &Neighbour| {
                    entry.address == neighbour.address && entry.dev == neighbour.dev
                };
                entries.retain(|entry| !is_same(entry));
                entries.push((**neighbour).clone());
                Ok(())
            }
            Self::SetForwarding { namespace, entry } => {
                let entries = &mut edit::namespace(plan, namespace)?.forwarding;
                if entries.contains(entry) {
                    return Err(ChangeError::NoEffect);
                }
                entries.retain(|other| other.mac != entry.mac || other.dev != entry.dev);
                entries.push((**entry).clone());
                Ok(())
            }
            Self::DeleteForwarding { namespace, entry } => {
                let entries = &mut edit::namespace(plan, namespace)?.forwarding;
                remove_item(entries, entry).ok_or_else(|| missing(namespace))
            }
            Self::EnableRealServers { namespace, server } => {
                edit::enable_real_servers(edit::namespace(plan, namespace)?, *server)
            }
            _ => Ok(()),
        }
    }
}

/// Removes an item from a list. Returns `None` if the list does not contain the item.
fn remove_item<T: PartialEq>(items: &mut Vec<T>, item: &T) -> Option<()> {
    let index = items.iter().position(|candidate| candidate == item)?;
    items.remove(index);
    Some(())
}

fn set<T: PartialEq>(old: &mut T, new: T) -> Result<(), ChangeError> {
    if *old == new {
        return Err(ChangeError::NoEffect);
    }
    *old = new;
    Ok(())
}

fn spec_mut(case: &mut Case) -> &mut LabSpec {
    Arc::make_mut(&mut case.spec)
}

/// Changes the kube-proxy of all nodes and the kube-proxies of single nodes.
fn change_proxies(
    case: &mut Case,
    change: impl Fn(&mut KubeProxy) -> Result<(), ChangeError>,
) -> Result<(), ChangeError> {
    let spec = spec_mut(case);
    let nodes = spec.nodes.values_mut();
    let node_proxies = nodes.filter_map(|node| node.kube_proxy.as_mut());
    let proxies = spec.kube_proxy.iter_mut().chain(node_proxies);
    // The change is valid if at least one kube-proxy can be changed.
    proxies
        .map(change)
        .fold(Err(ChangeError::NoEffect), Result::or)
}

/// Returns the value of `--nodeport-addresses` for all addresses of a node.
fn all_addresses() -> Vec<NodePortAddress> {
    let all = [Ipv4Addr::UNSPECIFIED.into(), Ipv6Addr::UNSPECIFIED.into()];
    let networks = all.map(|ip: IpAddr| IpNetwork::new(ip, 0));
    let networks = networks.into_iter().filter_map(Result::ok);
    networks.map(NodePortAddress::Network).collect()
}

fn parse_networks(networks: &str) -> Result<Cidrs, ChangeError> {
    let parsed = networks.parse();
    parsed.map_err(|_| ChangeError::InvalidCidr(networks.to_owned()))
}

fn missing_in_lab() -> ChangeError {
    ChangeError::Missing("the lab".to_owned())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::path::Path;

    use super::super::{PolicyField, ServiceField};
    use super::*;
    use svclab_runner::run::select_labs;

    fn case() -> Case {
        case_named("service-changes/version=v1.30,mode=iptables")
    }

    fn case_named(name: &str) -> Case {
        let topologies = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../topologies");
        let labs = select_labs(&[name.to_owned()], &topologies).unwrap();
        labs[0].scenario.cases()[labs[0].cases[0]].clone()
    }

    #[test]
    fn apply_to_case_invalid_cluster_cidr_returns_error() {
        let apply = |networks: &str| {
            let networks = networks.to_owned();
            ProposedChange::ClusterCidr { networks }.apply_to_case(&mut case())
        };
        let error = ChangeError::InvalidCidr("10.244.0.0/40".to_owned());
        assert_eq!(apply("10.244.0.0/40"), Err(error));
        assert_eq!(apply("10.77.0.0/16"), Ok(true));
    }

    #[test]
    fn apply_to_case_selector_changes_derived_slices() {
        let mut case = case();
        let service = case.objects.services[0].clone();
        let (namespace, name) = (service.namespace, service.name);
        let endpoints = |case: &Case| {
            let slices = case.objects.slices_of(&namespace, &name);
            slices
                .flat_map(|slice| slice.value.endpoints.iter().flatten())
                .count()
        };
        assert!(endpoints(&case) > 0);
        let labels = BTreeMap::from([("app".to_owned(), "nothing".to_owned())]);
        let change = ProposedChange::ServiceField {
            service: format!("{namespace}/{name}"),
            field: ServiceField::Selector { labels },
        };
        assert_eq!(change.apply_to_case(&mut case), Ok(true));
        assert_eq!(endpoints(&case), 0);
        let again = change.apply_to_case(&mut case);
        assert_eq!(again, Err(ChangeError::NoEffect));
    }

    #[test]
    fn apply_to_case_cluster_policy_clears_health_check_port() {
        let mut case = case_named(
            "clb-hairpin/policy=Local,ingress=both,balancer=internal,rpFilter=0,byHand=nothing",
        );
        let health_check_port = |case: &Case| {
            let mut services = case.objects.services.iter();
            let service = services.find(|service| service.name == "nginx-ingress");
            let spec = service?.value.spec.as_ref();
            spec?.health_check_node_port
        };
        assert!(health_check_port(&case).is_some());
        let change = ProposedChange::ClusterPolicy {
            service: "default/nginx-ingress".to_owned(),
            field: PolicyField::ExternalTrafficPolicy,
        };
        assert_eq!(change.apply_to_case(&mut case), Ok(true));
        assert_eq!(health_check_port(&case), None);
    }
}
