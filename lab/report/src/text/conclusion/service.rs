//! Renders facts about the way of a request to an endpoint of a service.

use super::{render_address, render_rule};
use crate::text::join_and;
use svclab_judge::{
    Fact, MasqueradeOption, MissingEndpointReason, NamedAddress, NoEndpointReason, NodePortGap,
    ReplyGap, ServicePolicy, UntranslatedReason,
};
use svclab_model::evidence::format_address;

/// Renders a fact about a service; other facts have no text here.
pub(super) fn render_service_fact(fact: &Fact) -> String {
    match fact {
        Fact::NotTranslated {
            namespace,
            destination,
            service,
            reason,
        } => format!(
            "{namespace} did not translate {} of service {service}: {}",
            render_address(destination),
            describe_reason(reason)
        ),
        Fact::TranslatedByEntry {
            namespace,
            destination,
            server,
            original,
            reply,
        } => format!(
            "{namespace} translated {} to {} by the conntrack entry {original}, which existed \
             before the packet, and expects replies {reply}; rules of NAT do not apply",
            render_address(destination),
            render_address(server)
        ),
        Fact::Masqueraded {
            namespace,
            source,
            rule,
            marked_by,
            option,
        } => {
            let marked_by = marked_by.as_ref();
            let marked_by = marked_by.map_or_else(String::new, |rule| {
                format!("; the packet was marked by {}", render_rule(rule))
            });
            let option = option.map_or("", describe_option);
            format!(
                "{namespace} changed the source to {} by {}{marked_by}{option}",
                render_address(source),
                render_rule(rule)
            )
        }
        Fact::NotMasqueraded {
            namespace,
            source,
            destination,
            flannel,
        } => {
            let flannel = if *flannel {
                ", and flannel runs without `ipMasq`"
            } else {
                ""
            };
            format!(
                "{namespace} sent the packet to {} with the source {} of the pod: no rule \
                 masqueraded the packet{flannel}",
                render_address(destination),
                render_address(source)
            )
        }
        Fact::Balanced {
            balancer,
            backend,
            source,
        } => {
            let source = source.as_ref();
            let source = source.map_or_else(String::new, |source| {
                format!(
                    ", with the source {} (`keepSource`)",
                    render_address(source)
                )
            });
            match backend {
                Some(backend) => {
                    format!("the load balancer {balancer} chose the backend {backend}{source}")
                }
                None => format!("the load balancer {balancer} sent the request to no backend"),
            }
        }
        Fact::LimitedEndpoints { service, policy } => {
            let limit = match policy {
                ServicePolicy::InternalLocal => "only endpoints on the node of the source are used",
                ServicePolicy::ExternalLocal => {
                    "only endpoints on the node that receives the packet are used"
                }
                ServicePolicy::ClientIp => "all connections of a source use one endpoint",
            };
            let field = policy_field(*policy);
            format!("service {service} has `{field}`: {limit}")
        }
        _ => render_endpoint_fact(fact),
    }
}

/// Returns the field of a service with its value.
const fn policy_field(policy: ServicePolicy) -> &'static str {
    match policy {
        ServicePolicy::InternalLocal => "internalTrafficPolicy: Local",
        ServicePolicy::ExternalLocal => "externalTrafficPolicy: Local",
        ServicePolicy::ClientIp => "sessionAffinity: ClientIP",
    }
}

/// Renders a reply that a node did not translate back.
pub(super) fn render_untranslated_reply(
    namespace: &str,
    source: &NamedAddress,
    reason: &ReplyGap,
) -> String {
    format!(
        "{namespace} did not translate the reply from {} back{}",
        render_address(source),
        render_reply_gap(reason)
    )
}

/// Renders the reason as the end of a sentence.
fn render_reply_gap(reason: &ReplyGap) -> String {
    match reason {
        ReplyGap::Bridge { bridge, sysctl } => format!(
            ": the bridge {bridge} forwarded it between two ports without netfilter, because \
             sysctl {} = {}",
            sysctl.name, sysctl.value
        ),
        ReplyGap::NotTracked { rule } => {
            format!(
                ": {} excluded it from connection tracking",
                render_rule(rule)
            )
        }
        ReplyGap::NoEntry => {
            ": after the probes, it had no conntrack entry of the connection".to_owned()
        }
        ReplyGap::Unknown => String::new(),
    }
}

/// Renders a fact about the end of a request at an endpoint; other facts have no text here.
fn render_endpoint_fact(fact: &Fact) -> String {
    match fact {
        Fact::OutsideSourceRanges { service, source } => format!(
            "the source {} is not in a source range (`loadBalancerSourceRanges`) of service \
             {service}",
            render_address(source)
        ),
        Fact::NoServicePort {
            service,
            port,
            ports,
        } => format!(
            "service {service} has no port {port}; it has the ports (`port`, `protocol`) {}",
            join_and(ports)
        ),
        Fact::NoNodePort { port, others } => {
            let others = others
                .iter()
                .map(|(service, port)| format!("{port} of {service}"));
            let others: Vec<String> = others.collect();
            let others = if others.is_empty() {
                String::new()
            } else {
                format!("; the services have the nodePort {}", join_and(others))
            };
            format!("no service has the nodePort {port}{others}")
        }
        Fact::NodePortNotServed {
            node,
            address,
            port,
            service,
            because,
        } => {
            let because = match because {
                NodePortGap::Protocol(protocol) => format!("the port is for {protocol}"),
                NodePortGap::Family(family) => {
                    format!("the service has no {family} address (`ipFamilies`)")
                }
                NodePortGap::Loopback => {
                    "kube-proxy serves no node ports on this loopback address \
                     (`localhostNodePorts`, `nodePortAddresses`)"
                        .to_owned()
                }
                NodePortGap::Address => {
                    "kube-proxy serves no node ports on this address (`nodePortAddresses`)"
                        .to_owned()
                }
            };
            format!(
                "{node} does not serve the nodePort {port} of service {service} at {address}: \
                 {because}"
            )
        }
        Fact::NoEndpoint {
            service,
            node,
            reason,
        } => format!("service {service} has {}", describe_gap(reason, node)),
        Fact::NotListening {
            endpoint,
            port,
            listening,
        } => {
            let others = if listening.is_empty() {
                String::new()
            } else {
                format!(", but on {} (`containerPort`)", join_and(listening))
            };
            format!("{endpoint} does not listen on port {port}{others}")
        }
        Fact::UnknownEndpoint { service, address } => format!(
            "no pod has the address of the endpoint {} in the EndpointSlice of service {service}",
            format_address(*address)
        ),
        Fact::MissingEndpoint {
            service,
            endpoint,
            reason,
        } => {
            let reason = match reason {
                MissingEndpointReason::NotReady => "its condition `Ready` is false",
                MissingEndpointReason::NotSelected => {
                    "its labels do not match the selector of the service"
                }
            };
            format!("{endpoint} is no endpoint of service {service}: {reason}")
        }
        Fact::NotInFabric { destination } => format!(
            "the fabric has no route to {} (`fabric.routes`)",
            render_address(destination)
        ),
        _ => String::new(),
    }
}

/// Describes that a service has no endpoint for a request at a node.
fn describe_gap(reason: &NoEndpointReason, node: &str) -> String {
    match reason {
        NoEndpointReason::Empty => "no endpoints".to_owned(),
        NoEndpointReason::NotReady(endpoints) => format!(
            "no ready endpoints: the condition `Ready` of {} is false",
            join_and(endpoints)
        ),
        NoEndpointReason::NoPort(port) => format!(
            "no endpoint for port {port}: no container of the selected pods has a port with the name \
             in its `targetPort`"
        ),
        NoEndpointReason::OnlyOnOtherNodes(policy) => format!(
            "no local endpoints on {node}, and `{}` excludes those on other nodes",
            policy_field(*policy)
        ),
    }
}

fn describe_reason(reason: &UntranslatedReason) -> String {
    match reason {
        UntranslatedReason::NoProxy => {
            "the lab has no kube-proxy on this node (`kubeProxy`)".to_owned()
        }
        UntranslatedReason::Entry { original, reply } => format!(
            "the conntrack entry {original} existed before the packet, and expects replies {reply}"
        ),
        UntranslatedReason::ProxiedAddress => {
            "the load balancer address has `ipMode: Proxy`".to_owned()
        }
        UntranslatedReason::UnboundAddress => {
            "kube-proxy does not bind load balancer addresses to the node (`bindLoadBalancerIPs: \
             false`), and IPVS translates only packets to addresses of the node"
                .to_owned()
        }
        UntranslatedReason::NoAddress => {
            "no interface of the node has the address, which kube-proxy adds to kube-ipvs0, and IPVS \
             translates only packets to addresses of the node"
                .to_owned()
        }
        UntranslatedReason::NoVirtualServer => {
            "IPVS has no virtual server at the address and port".to_owned()
        }
        UntranslatedReason::Ignored { reason } => {
            format!("kube-proxy ignores the service, which {reason}")
        }
        UntranslatedReason::NoRule { chain: Some(chain) } => {
            format!("no rule translated the packet; the last chain of kube-proxy was {chain}")
        }
        UntranslatedReason::NoRule { chain: None } => {
            "the packet reached no chain of kube-proxy in the table nat".to_owned()
        }
    }
}

const fn describe_option(option: MasqueradeOption) -> &'static str {
    match option {
        MasqueradeOption::MasqueradeAll => ", because `masqueradeAll` of kubeProxy is set",
        MasqueradeOption::ClusterCidr => {
            ", because the source is not in `clusterCIDR` of kubeProxy"
        }
    }
}
