//! Renders facts about packets as sentences.

mod causes;
mod deviations;
mod service;
#[cfg(test)]
mod tests;

pub use causes::describe_kind;
use causes::{render_cause, render_fault};
use deviations::render_deviation;
use service::{render_service_fact, render_untranslated_reply};
use svclab_journey::journey::{Hop, Kind, Rewrite, SysctlValue};
use svclab_judge::{
    Cause, DropKind, Fact, Fault, IcmpMeaning, KeptSourceReason, NamedAddress, Rejection,
    RuleReference, TunnelEnds,
};
use svclab_model::evidence::format_address;
use svclab_model::plan::Backend;

/// Renders each fact as a sentence.
pub(crate) fn render_facts(facts: &[Fact]) -> Vec<String> {
    facts.iter().map(render_fact).collect()
}

fn render_fact(fact: &Fact) -> String {
    match fact {
        Fact::NothingCaptured => "no packet of the connection was captured".to_owned(),
        Fact::NeighbourAwaited {
            namespace,
            neighbour,
        } => format!(
            "no packet of the connection was captured: {namespace} waited for the hardware address \
             of {neighbour}"
        ),
        Fact::NothingSent {
            namespace,
            error,
            no_route,
            fault,
        } => render_unsent(namespace, error.as_deref(), *no_route, fault.as_ref()),
        Fact::Reached { .. } => render_reached(fact),
        Fact::Rejected {
            packet,
            namespace,
            destination,
            rejection,
            bypassed,
        } => format!(
            "{} to {} was rejected in {namespace} with {}{}",
            packet.label(),
            render_address(destination),
            render_rejection(rejection),
            render_bypassed(bypassed)
        ),
        Fact::Lost { bypassed, .. } => render_loss(fact) + &render_bypassed(bypassed),
        Fact::Misdelivered {
            packet,
            namespace,
            destination,
            bypassed,
        } => format!(
            "{} to {} was delivered to {namespace}, which did not send the request{}",
            packet.label(),
            render_address(destination),
            render_bypassed(bypassed)
        ),
        Fact::ReplyReceived {
            packet,
            sender,
            receiver,
        } => format!("{receiver} received {} from {sender}", packet.label()),
        Fact::Refused { packet, sender } => {
            format!("{sender} refused the request with {}", packet.label())
        }
        Fact::UnexpectedAddresses { .. } => render_unexpected_arrival(fact),
        Fact::NoReply => "no reply was sent".to_owned(),
        Fact::KeptSource {
            namespace,
            source,
            is_destination,
            reason,
        } => {
            let chosen = if *is_destination {
                format!(" (the destination, which is an address of {namespace} itself)")
            } else {
                String::new()
            };
            let reason = render_kept_source_reason(reason);
            format!("{namespace} kept source {source}{chosen}{reason}")
        }
        Fact::ReplyNotTranslated {
            namespace,
            source,
            reason,
        } => render_untranslated_reply(namespace, source, reason),
        Fact::NotTranslated { .. }
        | Fact::TranslatedByEntry { .. }
        | Fact::Masqueraded { .. }
        | Fact::NotMasqueraded { .. }
        | Fact::Balanced { .. }
        | Fact::LimitedEndpoints { .. }
        | Fact::OutsideSourceRanges { .. }
        | Fact::NoServicePort { .. }
        | Fact::NoNodePort { .. }
        | Fact::NodePortNotServed { .. }
        | Fact::NoEndpoint { .. }
        | Fact::NotListening { .. }
        | Fact::UnknownEndpoint { .. }
        | Fact::MissingEndpoint { .. }
        | Fact::NotInFabric { .. } => render_service_fact(fact),
        Fact::Deviates {
            namespace,
            deviation,
        } => render_deviation(namespace, deviation),
        Fact::UnreadCommand { namespace, command } => format!(
            "the manual command `{command}` on {namespace}, whose changes svclab does not read"
        ),
    }
}

/// Describes a packet that arrived with unexpected addresses.
fn render_unexpected_arrival(fact: &Fact) -> String {
    let Fact::UnexpectedAddresses {
        packet,
        namespace,
        source,
        destination,
        reset,
        bypassed,
    } = fact
    else {
        return String::new();
    };
    let addresses = render_unexpected(source, destination.as_ref());
    let reset = reset.then(|| format!("; {namespace} replied with RST"));
    format!(
        "{} reached {namespace} {addresses}{}{}",
        packet.label(),
        reset.unwrap_or_default(),
        render_bypassed(bypassed)
    )
}

/// Describes a request that reached its destination.
fn render_reached(fact: &Fact) -> String {
    let Fact::Reached {
        packet,
        namespace,
        destination,
        source,
    } = fact
    else {
        return String::new();
    };
    let destination = match &destination.name {
        Some(name) if name == namespace => format_address(destination.address),
        _ => render_address(destination),
    };
    let source = source.as_ref().map(render_address);
    let source = source.map(|source| format!(", from {source}"));
    format!(
        "{} reached {namespace} at {destination}{}",
        packet.label(),
        source.unwrap_or_default()
    )
}

/// Describes an attempt whose connection the kernel of the source rejected.
fn render_unsent(
    namespace: &str,
    error: Option<&str>,
    no_route: bool,
    fault: Option<&Fault>,
) -> String {
    let meaning = match fault {
        Some(fault) => format!(": {}", render_fault(fault)),
        None if no_route => ": no route".to_owned(),
        None => String::new(),
    };
    let error = error.map_or_else(String::new, |error| format!(": {error}"));
    format!("no packet was sent: the kernel of {namespace} rejected the connection{meaning}{error}")
}

/// Renders the reason as the end of a sentence.
fn render_kept_source_reason(reason: &KeptSourceReason) -> String {
    match reason {
        KeptSourceReason::Returned { rules } => {
            let rules: Vec<String> = rules.iter().map(render_rule).collect();
            format!(": {} returned before masquerading", rules.join(" and "))
        }
        KeptSourceReason::NotMarked => ": no rule marked the packet for masquerading".to_owned(),
        KeptSourceReason::NoClusterCidr => ": no rule marked the packet for masquerading, because \
            kube-proxy has neither `clusterCIDR` nor `masqueradeAll`"
            .to_owned(),
        KeptSourceReason::MarkedOnly => ", although the packet was marked".to_owned(),
    }
}

fn render_rejection(rejection: &Rejection) -> String {
    match rejection {
        Rejection::Icmp {
            meaning,
            reason,
            fault,
        } => {
            let (name, cause) = match meaning {
                IcmpMeaning::NetUnreachable => ("net unreachable", "no route"),
                IcmpMeaning::NoRoute => ("unreachable", "no route"),
                IcmpMeaning::HostUnreachable => ("host unreachable", ""),
                IcmpMeaning::AddressUnreachable => ("address unreachable", ""),
                IcmpMeaning::Prohibited => ("unreachable", "prohibited"),
                IcmpMeaning::TooBig => {
                    ("fragmentation needed", "the packet is larger than the MTU")
                }
            };
            let kind = match meaning {
                IcmpMeaning::NetUnreachable | IcmpMeaning::NoRoute => DropKind::NoRoute,
                IcmpMeaning::TooBig => DropKind::TooBig,
                IcmpMeaning::HostUnreachable
                | IcmpMeaning::AddressUnreachable
                | IcmpMeaning::Prohibited => DropKind::RouteRefused,
            };
            let cause = fault.as_ref().map_or_else(
                || cause.to_owned(),
                |fault| render_cause(kind, Some(fault), None),
            );
            let colon = if cause.is_empty() { "" } else { ": " };
            let reason = reason.as_ref();
            let reason = reason.map_or_else(String::new, |reason| format!(" ({reason})"));
            format!("ICMP {name}{colon}{cause}{reason}")
        }
        Rejection::Packet { packet, fault } => {
            let answer = packet.map_or("an error", Kind::label);
            format!("{answer}{}", after_colon(fault.as_ref()))
        }
    }
}

/// Describes which address of a reply differs from the expected one.
fn render_unexpected(source: &NamedAddress, destination: Option<&NamedAddress>) -> String {
    let from = render_address(source);
    match destination {
        Some(destination) => {
            let to = render_address(destination);
            format!("from {from} at {to}, which is not the source of the request")
        }
        None => format!("from {from}, which is not the probe's target"),
    }
}

/// Renders a fact of the kind [`Fact::Lost`]; other facts have no loss.
fn render_loss(fact: &Fact) -> String {
    let Fact::Lost {
        packet,
        namespace,
        ingress,
        source,
        destination,
        tunnel,
        cause,
        ..
    } = fact
    else {
        return String::new();
    };
    let tunnel = render_tunnel(tunnel.as_deref());
    let packet = packet.label();
    let (source, destination) = (render_address(source), render_address(destination));
    let through = ingress.as_ref().map(|name| format!(" through {name}"));
    let on_ingress = through
        .iter()
        .map(|through| format!(" on ingress{through}"));
    let (on_ingress, through) = (on_ingress.collect::<String>(), through.unwrap_or_default());
    match cause {
        Cause::Rule { .. } => {
            let rule = render_dropping_rule(cause);
            format!("{packet}{tunnel} was dropped in {namespace} by {rule}")
        }
        Cause::Kernel {
            kind,
            fault,
            reason,
            function,
            sysctls,
        } => {
            let function = function.as_ref();
            let function = function.map_or_else(String::new, |name| format!(" in {name}"));
            let why = render_kernel_cause(*kind, fault.as_ref(), ingress.as_deref(), sysctls);
            format!(
                "{packet} from {source}{tunnel} was dropped in {namespace}{on_ingress}: {why} \
                 ({reason}{function})"
            )
        }
        Cause::Counter {
            kind,
            fault,
            counter,
            increase,
            lost,
            sysctls,
        } => {
            let end = match counter.as_str() {
                "IpOutNoRoutes" => {
                    let route = fault.as_ref();
                    let route = route
                        .map_or_else(String::new, |fault| format!(": {}", render_fault(fault)));
                    format!("reached {namespace}{through}, which had no route for the reply{route}")
                }
                "IcmpInErrors" => {
                    format!("reached {namespace}{through}, which had no matching connection")
                }
                _ => {
                    let ingress = ingress.as_deref();
                    let why = render_kernel_cause(*kind, fault.as_ref(), ingress, sysctls);
                    format!("was dropped in {namespace}{on_ingress}: {why}")
                }
            };
            format!(
                "{packet} from {source}{tunnel} {end} (counter {counter} increased by {increase}, lost \
                 packets: {lost})"
            )
        }
        Cause::NotReceived { interface, fault } => {
            let interface = interface.as_deref().unwrap_or("?");
            format!(
                "{packet} to {destination}{tunnel} left {namespace} through {interface} and was not \
                 received{}",
                after_colon(fault.as_ref())
            )
        }
        Cause::Waiting {
            neighbour,
            fault: None,
        } => format!(
            "{packet} to {destination}{tunnel} was still queued in {namespace}, waiting for the hardware \
             address of {neighbour}"
        ),
        Cause::Waiting { fault, .. } => format!(
            "{packet} to {destination}{tunnel} was still queued in {namespace}{}",
            after_colon(fault.as_ref())
        ),
        Cause::Unknown { fault } => format!(
            "{packet} to {destination}{tunnel} reached {namespace}{through}, and its end was not \
             recorded{}",
            after_colon(fault.as_ref())
        ),
    }
}

fn render_tunnel(ends: Option<&TunnelEnds>) -> String {
    ends.map_or_else(String::new, |ends| {
        format!(
            ", in the tunnel from {} to {},",
            render_address(&ends.source),
            render_address(&ends.destination)
        )
    })
}

/// Renders an object at fault after a colon.
fn after_colon(fault: Option<&Fault>) -> String {
    fault.map_or_else(String::new, |fault| format!(": {}", render_fault(fault)))
}

/// Renders the cause of a drop, and the sysctls that control it.
fn render_kernel_cause(
    kind: DropKind,
    fault: Option<&Fault>,
    ingress: Option<&str>,
    sysctls: &[SysctlValue],
) -> String {
    let is_forwarding = |sysctl: &SysctlValue| sysctl.name.ends_with(".forwarding");
    let why = if sysctls.iter().any(is_forwarding) {
        "addressed to another machine, and forwarding is disabled".to_owned()
    } else {
        render_cause(kind, fault, ingress)
    };
    why + &render_sysctls(sysctls)
}

/// Renders sysctls as the end of a sentence.
fn render_sysctls(sysctls: &[SysctlValue]) -> String {
    let texts: Vec<String> = sysctls
        .iter()
        .map(|sysctl| format!("{} = {}", sysctl.name, sysctl.value))
        .collect();
    if texts.is_empty() {
        String::new()
    } else {
        format!("; sysctl {}", texts.join(" and "))
    }
}

/// Names the namespaces that rewrote the request but did not receive the reply.
fn render_bypassed(namespaces: &[String]) -> String {
    if namespaces.is_empty() {
        return String::new();
    }
    format!(
        "; {} rewrote the request but did not receive the reply",
        namespaces.join(" and ")
    )
}

/// Renders an address with its name in parentheses.
fn render_address(named: &NamedAddress) -> String {
    let address = format_address(named.address);
    match &named.name {
        Some(name) => format!("{address} ({name})"),
        None => address,
    }
}

/// Renders the rule of a cause of the kind [`Cause::Rule`], and the rules before it.
fn render_dropping_rule(cause: &Cause) -> String {
    let Cause::Rule {
        rule,
        marked_by,
        sent_by,
        unmatched,
    } = cause
    else {
        return String::new();
    };
    render_rule(rule)
        + &render_unmatched(unmatched)
        + &render_earlier_rules(marked_by.as_deref(), sent_by.as_deref())
}

/// Renders the rules that would have accepted or returned the packet.
fn render_unmatched(rules: &[RuleReference]) -> String {
    let texts: Vec<String> = rules
        .iter()
        .filter_map(|rule| Some(format!("rule {}: `{}`", rule.number?, rule.rule.as_ref()?)))
        .collect();
    if texts.is_empty() {
        String::new()
    } else {
        format!("; the packet did not match {}", texts.join(" or "))
    }
}

/// Renders the rules because of which a packet met the rule that dropped it.
fn render_earlier_rules(
    marked_by: Option<&RuleReference>,
    sent_by: Option<&RuleReference>,
) -> String {
    let earlier = [("marked", marked_by), ("sent there", sent_by)];
    let texts = earlier.into_iter().filter_map(|(what, rule)| {
        let rule = render_rule(rule?);
        Some(format!("; the packet was {what} by {rule}"))
    });
    texts.collect()
}

/// Renders a rule with its position. Names the iptables backend if the packet matched rules of
/// both.
pub(crate) fn render_rule(rule: &RuleReference) -> String {
    let number = rule.number.map_or_else(
        || format!(" ({})", rule.target.as_deref().unwrap_or("end of chain")),
        |number| format!(" rule {number}"),
    );
    let text = rule.rule.as_ref();
    let text = text.map_or_else(String::new, |text| format!(": `{text}`"));
    let entries = match rule.entries.as_slice() {
        [] => String::new(),
        entries => format!(", matching entry {}", entries.join(" and ")),
    };
    let backend = match rule.backend {
        Backend::Legacy if rule.both_backends => " of iptables-legacy",
        Backend::Nft if rule.both_backends && !rule.table.contains(' ') => " of iptables-nft",
        _ => "",
    };
    let service = rule.service.as_ref();
    let service = service.map_or_else(String::new, |name| format!(", for service {name}"));
    format!(
        "{} {}{number}{backend}{text}{entries}{service}",
        rule.table, rule.chain
    )
}

/// Renders briefly what rewrote a packet in a hop, as a continuation of "became ADDRESS".
pub(crate) fn render_rewrite(hop: &Hop) -> Option<String> {
    let rules = |indices: &[usize]| -> Vec<String> {
        let steps = indices.iter().filter_map(|at| hop.matches.get(*at));
        steps
            .map(|step| {
                let target = step.target.as_deref().unwrap_or("a rule");
                format!("{target} in {} {}", step.table, step.chain)
            })
            .collect()
    };
    Some(match hop.rewritten.as_ref()? {
        Rewrite::ByRules(indices) => format!("by {}", rules(indices).join(", ")),
        Rewrite::ByIpvs {
            server,
            real,
            rules: at,
        } => {
            let mut causes = vec![format!("by IPVS, which chose {real} for {server}")];
            causes.extend(rules(at));
            causes.join(", and by ")
        }
        Rewrite::Conntrack => "by its conntrack entry".to_owned(),
        Rewrite::Unknown => "by an unknown cause".to_owned(),
    })
}
