//! Describes changes as actions of an operator.

use std::fmt::{self, Write as _};

use super::{PolicyField, ProposedChange, ServiceField};
use crate::bisect::{Difference, Kind};
use svclab_dump::Owner;
use svclab_model::plan::{PortSettings, Route};

/// Renders a route in the format of `ip route`.
fn render_route(route: &Route) -> String {
    let mut text = if route.kind.is_unicast() {
        String::new()
    } else {
        format!("{} ", route.kind.name())
    };
    let _ = write!(text, "{}/{}", route.to.network(), route.to.prefix());
    let dev = Some(&route.dev).filter(|dev| !dev.is_empty());
    let parts = [
        ("via", route.via.map(|via| via.to_string())),
        ("dev", dev.cloned()),
        ("table", route.table.map(|table| table.to_string())),
        ("metric", route.metric.map(|metric| metric.to_string())),
    ];
    for (word, value) in parts {
        if let Some(value) = value {
            let _ = write!(text, " {word} {value}");
        }
    }
    text
}

impl fmt::Display for PolicyField {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::ExternalTrafficPolicy => "externalTrafficPolicy",
            Self::InternalTrafficPolicy => "internalTrafficPolicy",
        })
    }
}

/// Describes the change as the beginning of a sentence that ends with the service.
impl fmt::Display for ServiceField {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoSourceRanges => f.write_str("remove loadBalancerSourceRanges from"),
            Self::NoAffinity => f.write_str("set sessionAffinity: None in"),
            Self::NoProxyName => {
                f.write_str("remove the label service.kubernetes.io/service-proxy-name from")
            }
            Self::NoProxiedAddress => {
                f.write_str("remove ipMode: Proxy from status.loadBalancer of")
            }
            Self::ProxiedAddress => f.write_str("set ipMode: Proxy in status.loadBalancer of"),
            Self::SelectedEndpoints => {
                f.write_str("let the selected pods be the endpoints (EndpointSlices) of")
            }
            Self::EndpointAddress { address, wanted } => write!(
                f,
                "set the address {wanted} instead of {address} in the EndpointSlice of"
            ),
            Self::NoExternalAddress { address } => write!(
                f,
                "remove {address} from externalIPs and status.loadBalancer of"
            ),
            Self::Port { port, wanted } => write!(f, "set port: {wanted} instead of {port} in"),
            Self::NodePort { port, wanted } => {
                write!(f, "set nodePort: {wanted} for port {port} in")
            }
            Self::TargetPort { port, wanted } => {
                write!(f, "set targetPort: {wanted} for port {port} in")
            }
            Self::Protocol { port, wanted } => {
                let wanted = wanted.to_string().to_uppercase();
                write!(f, "set protocol: {wanted} for port {port} in")
            }
            Self::Selector { labels } => {
                let labels = labels.iter();
                let labels: Vec<String> = labels
                    .map(|(key, value)| format!("{key}: {value}"))
                    .collect();
                write!(f, "set selector: {{{}}} in", labels.join(", "))
            }
        }
    }
}

/// Describes a change of kube-proxy; writes nothing for others.
fn describe_proxy_change(change: &ProposedChange, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    let (verb, flag) = match change {
        ProposedChange::RunKubeProxy { networks } => {
            f.write_str("run kube-proxy on the nodes")?;
            return match networks {
                Some(networks) => write!(f, ", with --cluster-cidr={networks}"),
                None => Ok(()),
            };
        }
        ProposedChange::ClusterCidr { networks } => {
            return write!(f, "start kube-proxy with --cluster-cidr={networks}");
        }
        ProposedChange::MasqueradeAll => ("with", "--masquerade-all"),
        ProposedChange::MasqueradeFew => ("without", "--masquerade-all"),
        ProposedChange::BeLiberal => ("with", "--conntrack-tcp-be-liberal"),
        ProposedChange::StrictArp => ("with", "--ipvs-strict-arp"),
        ProposedChange::AllNodePortAddresses => ("with", "--nodeport-addresses=0.0.0.0/0,::/0"),
        ProposedChange::LocalhostNodePorts => ("with", "--iptables-localhost-nodeports"),
        _ => return Ok(()),
    };
    write!(f, "start kube-proxy {verb} {flag}")
}

/// Describes a change of flannel, of ip-masq-agent or of the underlay; writes nothing for others.
fn describe_component_change(change: &ProposedChange, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    match change {
        ProposedChange::FlannelMasquerade => f.write_str("start flanneld with --ip-masq"),
        ProposedChange::FlannelNetwork { network } => {
            write!(f, "set the network of flannel to {network}")
        }
        ProposedChange::AddFabricRoute { to, via } => {
            write!(f, "add a route to {to} through {via} to the underlay")
        }
        ProposedChange::AllowForeignSources => f.write_str(
            "let the underlay forward packets whose source is not an address of the sending node",
        ),
        ProposedChange::MasqueradeNetwork { network } => write!(
            f,
            "remove {network} from nonMasqueradeCIDRs of ip-masq-agent"
        ),
        ProposedChange::NonMasqueradeNetwork { network } => {
            write!(f, "add {network} to nonMasqueradeCIDRs of ip-masq-agent")
        }
        _ => Ok(()),
    }
}

/// Describes a change of a pod; writes nothing for others.
fn describe_pod_change(change: &ProposedChange, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    match change {
        ProposedChange::MakePodReady { pod } => write!(f, "make the pod {pod} ready"),
        ProposedChange::LabelPod { pod, labels } => {
            let labels = labels.iter().map(|(key, value)| format!("{key}={value}"));
            let labels: Vec<String> = labels.collect();
            write!(f, "label the pod {pod} with {}", labels.join(", "))
        }
        ProposedChange::ContainerPort { pod, port, wanted } => write!(
            f,
            "set containerPort: {wanted} instead of {port} in the pod {pod}, and let its program \
             listen there"
        ),
        _ => Ok(()),
    }
}

impl fmt::Display for ProposedChange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::ClusterPolicy { service, field } => {
                write!(f, "set {field}: Cluster in service {service}")
            }
            Self::LocalPolicy { service, field } => {
                write!(f, "set {field}: Local in service {service}")
            }
            Self::ServiceField { service, field } => write!(f, "{field} service {service}"),
            Self::MakePodReady { .. } | Self::LabelPod { .. } | Self::ContainerPort { .. } => {
                describe_pod_change(self, f)
            }
            Self::FlannelMasquerade
            | Self::FlannelNetwork { .. }
            | Self::AddFabricRoute { .. }
            | Self::AllowForeignSources
            | Self::MasqueradeNetwork { .. }
            | Self::NonMasqueradeNetwork { .. } => describe_component_change(self, f),
            Self::RunKubeProxy { .. }
            | Self::ClusterCidr { .. }
            | Self::MasqueradeAll
            | Self::MasqueradeFew
            | Self::BeLiberal
            | Self::AllNodePortAddresses
            | Self::LocalhostNodePorts
            | Self::StrictArp => describe_proxy_change(self, f),
            Self::UndoManualCommand { command } => {
                write!(
                    f,
                    "undo the manual command `{command}` on {}",
                    command.namespace
                )
            }
            Self::UndoManualChanges { node } => {
                write!(f, "undo the manual changes on {node}")
            }
            Self::RestartProxy { node } => write!(
                f,
                "restart kube-proxy on {node}, which regenerates its rules"
            ),
            Self::UseOwnSource { .. }
            | Self::KeepSource { .. }
            | Self::SkipOwnSource { .. }
            | Self::AddHealthCheck { .. }
            | Self::ForwardToNodePorts { .. }
            | Self::ForwardToPods { .. }
            | Self::RemoveSecurityGroup { .. }
            | Self::AddBackend { .. }
            | Self::RemoveBackend { .. } => describe_balancer_change(self, f),
            Self::SetSysctl {
                namespaces,
                keys,
                value,
            } => {
                let keys: Vec<String> = keys.iter().map(|key| format!("{key} = {value}")).collect();
                write!(f, "set {} on {}", keys.join(" and "), namespaces.join(", "))
            }
            Self::DeleteRule {
                namespace,
                table,
                chain,
                number,
                rule,
                ..
            }
            | Self::DeleteNftRule {
                namespace,
                table,
                chain,
                number,
                rule,
            } => write!(
                f,
                "delete rule {number} of {table} {chain} on {namespace}: `{rule}`"
            ),
            Self::DeleteSetEntry {
                namespace,
                set,
                entry,
            } => write!(f, "delete entry {entry} of set {set} on {namespace}"),
            Self::DeleteRoute { namespace, route } => {
                write!(f, "delete the route {} on {namespace}", render_route(route))
            }
            Self::AddRoute { namespace, route } => {
                write!(f, "add the route {} on {namespace}", render_route(route))
            }
            Self::DeleteRoutingRule { namespace, rule } => {
                write!(f, "delete the routing rule {rule} on {namespace}")
            }
            Self::DeleteNftElement {
                namespace,
                table,
                set,
                key,
            } => write!(f, "delete {key} from {set} of {table} on {namespace}"),
            Self::Restore { differences } => {
                let texts: Vec<String> = differences.iter().map(describe_restoration).collect();
                f.write_str(&texts.join(", and "))
            }
            _ => describe_network_change(self, f),
        }
    }
}

/// Describes the restoration of an object that differs from what components write.
fn describe_restoration(difference: &Difference) -> String {
    let Difference {
        namespace,
        kind,
        location,
        good,
        bad,
        owner,
    } = difference;
    let place = difference.place();
    let text = match (good, bad) {
        (Some(good), Some(bad)) if good == bad => {
            format!("move `{good}` to its position in {place}")
        }
        (Some(good), Some(bad)) if *kind == Kind::Link => {
            let name = good.split(' ').next().unwrap_or_default();
            let (good, bad) = (properties(good), properties(bad));
            let only = |these: &[String], others: &[String]| {
                let own = these.iter().filter(|word| !others.contains(word));
                own.cloned().collect::<Vec<_>>().join(" ")
            };
            let (wanted, current) = (only(&good, &bad), only(&bad, &good));
            if wanted.is_empty() {
                format!("undo `{current}` of the interface {name} on {namespace}")
            } else {
                format!("change the interface {name} on {namespace} from `{current}` to `{wanted}`")
            }
        }
        (Some(good), Some(_)) if *kind == Kind::Sysctl => format!("set {good} on {namespace}"),
        (Some(good), Some(bad)) => format!("replace `{bad}` by `{good}` in {place}"),
        (Some(good), None) => format!("restore `{good}`, which is missing in {place}"),
        (None, Some(bad)) => match bad.strip_prefix("no ") {
            Some(missing) if matches!(kind, Kind::Route | Kind::RoutingRule) => {
                format!("restore the {missing}, which is missing in {place}")
            }
            _ => format!("remove `{bad}` from {place}"),
        },
        (None, None) => format!("restore {place}"),
    };
    let is_of_kube_proxy = match owner {
        Some(Owner::Service(_)) => true,
        Some(Owner::Component(name)) => name == "kube-proxy",
        None => false,
    };
    // Whether kube-proxy writes rules of this iptables variant is unknown.
    let is_removed_legacy = good.is_none() && location.contains("legacy");
    if is_of_kube_proxy && !is_removed_legacy {
        text + "; a restart of kube-proxy does the same"
    } else {
        text
    }
}

/// Returns the properties of an interface in the format of `ip link`, each with its name.
fn properties(link: &str) -> Vec<String> {
    const NAMES: [&str; 9] = [
        "id", "dev", "local", "dstport", "address", "mtu", "master", "hairpin", "to",
    ];
    let mut properties: Vec<String> = Vec::new();
    for word in link.split(' ') {
        match properties.last_mut() {
            Some(last) if NAMES.contains(&last.as_str()) => {
                last.push(' ');
                last.push_str(word);
            }
            _ => properties.push(word.to_owned()),
        }
    }
    properties
}

fn describe_network_change(change: &ProposedChange, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    match change {
        ProposedChange::AcceptPolicy {
            namespace,
            table,
            chain,
            ..
        } => write!(
            f,
            "set the policy of {table} {chain} on {namespace} to accept"
        ),
        ProposedChange::DeleteQueue {
            namespace,
            link,
            parent,
        } => {
            let what = match parent.as_str() {
                "root" => "queueing discipline".to_owned(),
                kind => format!("queueing discipline {kind} and its filters"),
            };
            write!(f, "delete the {what} of {link} on {namespace}")
        }
        ProposedChange::DisableVlanFiltering { namespace, bridge } => {
            write!(f, "turn `vlan_filtering` of {bridge} off on {namespace}")
        }
        ProposedChange::DeleteConnections {
            namespace,
            protocol,
            destination,
        } => write!(
            f,
            "delete the conntrack entries of {protocol} to {destination} on {namespace}"
        ),
        ProposedChange::SetLinkUp { namespace, link } => {
            write!(f, "set the interface {link} up on {namespace}")
        }
        ProposedChange::SetMtu {
            namespace,
            link,
            mtu,
        } => write!(f, "set the MTU of {link} to {mtu} on {namespace}"),
        ProposedChange::SetPort {
            namespace,
            link,
            setting,
            on,
        } => {
            let value = PortSettings::value(setting, *on);
            let verb = if setting == "state" { "set" } else { "turn" };
            write!(
                f,
                "{verb} {setting} {value} for the bridge port {link} on {namespace}"
            )
        }
        ProposedChange::SetNeighbour {
            namespace,
            neighbour,
        } => write!(
            f,
            "set the neighbour {} to the hardware address {} on {} on {namespace}",
            neighbour.address, neighbour.mac, neighbour.dev
        ),
        ProposedChange::SetForwarding { namespace, entry } => {
            write!(f, "set the forwarding entry {entry} on {namespace}")
        }
        ProposedChange::DeleteForwarding { namespace, entry } => {
            write!(f, "delete the forwarding entry {entry} on {namespace}")
        }
        ProposedChange::DeleteAddress {
            namespace,
            link,
            address,
        } => write!(f, "delete the address {address} from {link} on {namespace}"),
        ProposedChange::EnableRealServers { namespace, server } => write!(
            f,
            "set the weight of the real servers of {server} to 1 on {namespace}"
        ),
        _ => Ok(()),
    }
}

fn describe_balancer_change(change: &ProposedChange, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    match change {
        ProposedChange::UseOwnSource { balancer } => {
            write!(
                f,
                "let load balancer {balancer} forward from its own address"
            )
        }
        ProposedChange::KeepSource { balancer } => {
            write!(
                f,
                "let load balancer {balancer} keep the source of the client"
            )
        }
        ProposedChange::SkipOwnSource { balancer } => write!(
            f,
            "stop load balancer {balancer} from forwarding a packet to the backend that sent it"
        ),
        ProposedChange::AddHealthCheck { balancer } => {
            write!(
                f,
                "let load balancer {balancer} check the health of its backends"
            )
        }
        ProposedChange::ForwardToNodePorts { balancer } => {
            write!(
                f,
                "let load balancer {balancer} forward to node ports (`target: nodePort`)"
            )
        }
        ProposedChange::ForwardToPods { balancer } => {
            write!(
                f,
                "let load balancer {balancer} forward to pods (`target: pods`)"
            )
        }
        ProposedChange::RemoveSecurityGroup { balancer } => {
            write!(f, "remove the security group of load balancer {balancer}")
        }
        ProposedChange::AddBackend { balancer, node } => {
            write!(f, "add {node} to the backends of load balancer {balancer}")
        }
        ProposedChange::RemoveBackend { balancer, node } => {
            write!(
                f,
                "remove {node} from the backends of load balancer {balancer}"
            )
        }
        _ => Ok(()),
    }
}
