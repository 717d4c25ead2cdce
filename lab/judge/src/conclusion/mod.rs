//! Describes a journey in sentences: where its packets ended, and which rules decided that.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::net::SocketAddr;

use crate::address_book::AddressBook;
use svclab_journey::journey::{
    Hop, Journey, Kind, PacketPath, PathEnd, Rewrite, RuleMatch, SysctlValue, ingress_interface,
};
use svclab_model::evidence::{AddressPair, Verdict, format_address};
use svclab_model::plan::Backend;
use svclab_model::plan::NFTABLES_TABLE as TABLE;

/// Drop reason of the kernel when it gives none.
const UNSPECIFIED: &str = "NOT_SPECIFIED";

/// Returns the most important facts about an attempt, one sentence each.
#[must_use]
pub fn conclusion(journey: &Journey, book: &AddressBook<'_>) -> Vec<String> {
    let Some(request) = find_request(journey) else {
        return vec![describe_unsent(journey)];
    };
    let mut sentences = vec![describe_request(request, journey, book)];
    let reply = find_reply(journey, request);
    let is_reply_received = |packet: &PacketPath| {
        let is_at_source = packet.hops.last().map(|hop| &hop.namespace) == Some(&journey.from);
        is_at_source && packet.end == PathEnd::Delivered
    };
    if let Some(reply) = reply {
        if icmp_error_meaning(request, journey).is_some() && is_reply_received(reply) {
            // The description of the request states the error already.
            return sentences;
        }
        sentences.push(describe_reply(reply, request, journey, book));
    } else if matches!(request.end, PathEnd::Delivered) {
        sentences.push("no reply was sent".to_owned());
    }
    if !matches!(journey.verdict, Verdict::Connected | Verdict::Answered) {
        sentences.extend(
            request
                .hops
                .iter()
                .filter_map(|hop| describe_kept_source(hop, request)),
        );
    }
    sentences
}

/// Returns the first packet of the request; `None` if no packet was sent.
#[must_use]
pub fn find_request(journey: &Journey) -> Option<&PacketPath> {
    journey.packets.iter().find(|flight| {
        flight.direction
            && flight
                .hops
                .first()
                .is_some_and(|hop| hop.namespace == journey.from)
    })
}

/// Returns the first packet of the reply, preferably from the namespace in which the request ended.
#[must_use]
pub fn find_reply<'j>(journey: &'j Journey, request: &PacketPath) -> Option<&'j PacketPath> {
    let end_namespace = &request.hops.last()?.namespace;
    let mut replies = journey.packets.iter().filter(|flight| !flight.direction);
    let is_from_end = |flight: &&PacketPath| {
        flight
            .hops
            .first()
            .is_some_and(|hop| hop.namespace == *end_namespace)
    };
    replies.clone().find(is_from_end).or_else(|| replies.next())
}

/// Describes an attempt without any packet.
fn describe_unsent(journey: &Journey) -> String {
    if journey.addresses.is_some() {
        return "no packet of the connection was captured".to_owned();
    }
    let message = format!(
        "no packet was sent: the kernel of {} rejected the connection",
        journey.from
    );
    let Some(error) = &journey.error else {
        return message;
    };
    // Error for a destination without a route (Linux v6.12, `net/ipv4/fib_semantics.c`,
    // `fib_props`).
    let meaning = if error.ends_with("(os error 101)") {
        "no route: "
    } else {
        ""
    };
    format!("{message}: {meaning}{error}")
}

/// Returns the meaning of the ICMP error that rejected a packet. `None` if no such error rejected
/// the packet, or if its code has no description here.
fn icmp_error_meaning(flight: &PacketPath, journey: &Journey) -> Option<&'static str> {
    let PathEnd::Rejected(replies) = &flight.end else {
        return None;
    };
    let error = journey.packets.get(*replies.first()?)?;
    let v6 = flight.hops.last()?.after.destination.is_ipv6();
    Some(match (v6, error.code?) {
        (false, 0) => "net unreachable: no route",
        (true, 0) => "unreachable: no route",
        (false, 1) => "host unreachable",
        (true, 3) => "address unreachable",
        (false, 9 | 10 | 13) | (true, 1) => "unreachable: prohibited",
        _ => return None,
    })
}

/// Describes the ICMP error that rejected a packet.
fn describe_rejection(
    flight: &PacketPath,
    journey: &Journey,
    book: &AddressBook<'_>,
) -> Option<String> {
    let meaning = icmp_error_meaning(flight, journey)?;
    let hop = flight.hops.last()?;
    let why = flight
        .reason
        .as_ref()
        .filter(|reason| *reason != UNSPECIFIED)
        .map_or_else(String::new, |reason| format!(" ({reason})"));
    Some(format!(
        "{} to {} was rejected in {} with ICMP {meaning}{why}",
        flight.kind.label(),
        format_named_address(hop.after.destination, book),
        hop.namespace
    ))
}

/// Describes the end of the request.
fn describe_request(request: &PacketPath, journey: &Journey, book: &AddressBook<'_>) -> String {
    let kind = request.kind.label();
    let Some(hop) = request.hops.last() else {
        return format!("{kind} was not captured");
    };
    if let Some(rejection) = describe_rejection(request, journey, book) {
        return rejection;
    }
    match &request.end {
        PathEnd::Delivered | PathEnd::Rejected(_) => {
            let is_own_name = book.name_of(hop.after.destination.ip()) == hop.namespace;
            let destination = if is_own_name {
                format_address(hop.after.destination)
            } else {
                format_named_address(hop.after.destination, book)
            };
            let from = if Some(hop.after.source) == journey.addresses.map(|called| called.source) {
                String::new()
            } else {
                format!(", from {}", format_named_address(hop.after.source, book))
            };
            format!("{kind} reached {} at {destination}{from}", hop.namespace)
        }
        end => describe_end(kind, hop, end, book),
    }
}

/// Describes the end of the reply.
fn describe_reply(
    reply: &PacketPath,
    request: &PacketPath,
    journey: &Journey,
    book: &AddressBook<'_>,
) -> String {
    let kind = reply.kind.label();
    let Some(hop) = reply.hops.last() else {
        return format!("{kind} was not captured");
    };
    let is_at_source = hop.namespace == journey.from;
    let expected = journey.addresses.map(AddressPair::reversed);
    if !is_at_source || !matches!(reply.end, PathEnd::Delivered | PathEnd::Rejected(_)) {
        let description = match reply.end {
            PathEnd::Rejected(ref by) => {
                describe_rejection(reply, journey, book).unwrap_or_else(|| {
                    let by = by.first().and_then(|at| journey.packets.get(*at));
                    format!(
                        "{kind} to {} was rejected in {} with {}",
                        format_named_address(hop.after.destination, book),
                        hop.namespace,
                        by.map_or("an error", |flight| flight.kind.label())
                    )
                })
            }
            PathEnd::Delivered => format!(
                "{kind} to {} was delivered to {}, which did not send the request",
                format_named_address(hop.after.destination, book),
                hop.namespace
            ),
            ref end => describe_end(kind, hop, end, book),
        };
        return description + &describe_bypassed(reply, request);
    }
    let sender = &reply.hops[0].namespace;
    // An ICMP error has the address of the kernel that created it; the quoted packet identifies it.
    if reply.kind == Kind::Unreachable || Some(hop.after) == expected {
        return match reply.kind {
            Kind::Rst | Kind::Unreachable => format!("{sender} refused the request with {kind}"),
            _ => format!("{} received {kind} from {sender}", journey.from),
        };
    }
    let mut description = format!(
        "{kind} reached {} from {}, which is not the probe's target",
        hop.namespace,
        format_named_address(hop.after.source, book)
    );
    let reset = journey.packets.iter().any(|flight| {
        flight.kind == Kind::Rst
            && flight.hops.first().is_some_and(|first_hop| {
                first_hop.namespace == hop.namespace && first_hop.before == hop.after.reversed()
            })
    });
    if reset {
        let _ = write!(description, "; {} replied with RST", hop.namespace);
    }
    description + &describe_bypassed(reply, request)
}

/// Names the namespaces that rewrote the request but did not receive the reply.
fn describe_bypassed(reply: &PacketPath, request: &PacketPath) -> String {
    let reply_namespaces: BTreeSet<&str> = reply
        .hops
        .iter()
        .map(|hop| hop.namespace.as_str())
        .collect();
    let missed: Vec<&str> = request
        .hops
        .iter()
        .filter(|hop| hop.rewritten.is_some() && !reply_namespaces.contains(hop.namespace.as_str()))
        .map(|hop| hop.namespace.as_str())
        .collect();
    match missed.as_slice() {
        [] => String::new(),
        [namespace] => {
            format!("; {namespace} rewrote the request but did not receive the reply")
        }
        several => format!(
            "; {} rewrote the request but did not receive the reply",
            several.join(" and ")
        ),
    }
}

/// Returns the rule that set the mark on which the dropping rule matched, or the jump to that rule.
fn marking_rule(hop: &Hop) -> Option<&RuleMatch> {
    let (last, before) = hop.matches.split_last()?;
    if last.mark == 0 || !last.rule.as_ref()?.contains("--mark") {
        return None;
    }
    let mark_index = hop.matches.windows(2).position(|pair| match pair {
        [one, next] => one.mark != last.mark && next.mark == last.mark,
        _ => false,
    })?;
    let mark = before.get(mark_index)?;
    let mut earlier = before[..mark_index].iter().rev();
    let jump = earlier.find(|step| step.target.as_ref() == Some(&mark.chain));
    Some(jump.unwrap_or(mark))
}

/// Describes the end of a packet that was not delivered.
fn describe_end(kind: &str, hop: &Hop, end: &PathEnd, book: &AddressBook<'_>) -> String {
    let namespace = &hop.namespace;
    let through = ingress_interface(hop)
        .map_or_else(String::new, |seen| format!(" through {}", seen.interface));
    let on_ingress = if through.is_empty() {
        String::new()
    } else {
        format!(" on ingress{through}")
    };
    match end {
        PathEnd::DroppedByRule => {
            let rule = hop
                .matches
                .last()
                .map_or_else(String::new, |step| describe_rule(step, hop));
            let marked = marking_rule(hop).map_or_else(String::new, |step| {
                format!("; the packet was marked by {}", describe_rule(step, hop))
            });
            format!("{kind} was dropped in {namespace} by {rule}{marked}")
        }
        PathEnd::Dropped {
            reason,
            function: place,
            settings,
        } => {
            let function_text = place
                .as_ref()
                .map_or_else(String::new, |place| format!(" in {place}"));
            let meaning = describe_no_forwarding(settings).or(describe_reason(reason));
            let why = meaning.map_or_else(String::new, |meaning| format!("{meaning}: "));
            format!(
                "{kind} from {} was dropped in {namespace}{on_ingress}: \
                 {why}{reason}{function_text}{}",
                format_named_address(hop.before.source, book),
                describe_sysctls(settings)
            )
        }
        PathEnd::CountedDrop {
            counter,
            increase: count,
            lost,
            settings,
        } => {
            let from = format_named_address(hop.before.source, book);
            let end_text = match counter.as_str() {
                "IpOutNoRoutes" => {
                    format!("reached {namespace}{through}, which had no route for the reply")
                }
                "IcmpInErrors" => {
                    format!("reached {namespace}{through}, which had no matching connection")
                }
                _ => format!(
                    "was dropped in {namespace}{on_ingress}: {}",
                    describe_no_forwarding(settings).unwrap_or(describe_counter(counter))
                ),
            };
            format!(
                "{kind} from {from} {end_text} (counter {counter} increased by {count}, lost \
                 packets: {lost}){}",
                describe_sysctls(settings)
            )
        }
        PathEnd::NotReceived => {
            let interface = hop
                .crossings
                .last()
                .map_or("?", |seen| seen.interface.as_str());
            format!(
                "{kind} to {} left {namespace} through {interface} and was not received",
                format_named_address(hop.after.destination, book)
            )
        }
        PathEnd::Waiting(neighbour) => format!(
            "{kind} to {} was still queued in {namespace}, waiting for the hardware address of \
             {neighbour}",
            format_named_address(hop.after.destination, book)
        ),
        PathEnd::Unknown => format!(
            "{kind} to {} reached {namespace}{through}, and its end was not recorded",
            format_named_address(hop.after.destination, book)
        ),
        PathEnd::Delivered | PathEnd::Rejected(_) => format!("{kind} reached {namespace}"),
    }
}

/// Describes a drop caused by disabled forwarding.
fn describe_no_forwarding(settings: &[SysctlValue]) -> Option<&'static str> {
    let off = |setting: &SysctlValue| setting.name.ends_with(".forwarding");
    let description = "addressed to another machine, and forwarding is disabled";
    settings.iter().any(off).then_some(description)
}

/// Returns sysctls as the end of a sentence.
fn describe_sysctls(settings: &[SysctlValue]) -> String {
    let texts: Vec<String> = settings
        .iter()
        .map(|setting| format!("{} = {}", setting.name, setting.value))
        .collect();
    if texts.is_empty() {
        String::new()
    } else {
        format!("; sysctl {}", texts.join(" and "))
    }
}

/// Describes why a hop rewrote the destination of the request but not the source: the rules that
/// returned before a rule could mark or masquerade the packet. `None` for other hops.
fn describe_kept_source(hop: &Hop, request: &PacketPath) -> Option<String> {
    hop.rewritten.as_ref()?;
    if hop.before.source != hop.after.source || hop.before.destination == hop.after.destination {
        return None;
    }
    let source = hop.after.source;
    let later = request
        .hops
        .iter()
        .skip_while(|later_hop| *later_hop != hop)
        .any(|own| own.after.source != source);
    if later {
        return None;
    }
    let prefix = format!("{} kept source {}", hop.namespace, source.ip());
    // Only for kube-proxy; load balancers keep the source on purpose.
    let by_kube_proxy = |step: &RuleMatch| {
        let target = step.target.as_deref().unwrap_or_default();
        let native_table = step.table.split_once(' ').map(|(_, table)| table);
        step.chain.starts_with("KUBE-")
            || target.starts_with("KUBE-")
            || native_table == Some(TABLE)
    };
    if !hop.matches.iter().any(by_kube_proxy) {
        return None;
    }
    let returns: Vec<String> = hop
        .matches
        .iter()
        .filter(|step| is_early_return(step))
        .map(|step| describe_rule(step, hop))
        .collect();
    if returns.is_empty() {
        let marked = hop.matches.iter().any(|step| step.mark != 0);
        return Some(if marked {
            format!("{prefix}, although the packet was marked")
        } else {
            format!("{prefix}: no rule marked the packet for masquerading")
        });
    }
    Some(format!(
        "{prefix}: {} returned before masquerading",
        returns.join(" and ")
    ))
}

/// Whether the rule returned before masquerading. Rules that only match on an earlier mark do not
/// count.
fn is_early_return(step: &RuleMatch) -> bool {
    let matches_mark = |rule: &String| rule.contains("--mark") || rule.starts_with("meta mark & ");
    step.target.as_deref() == Some("RETURN") && !step.rule.as_ref().is_some_and(matches_mark)
}

/// Describes a matched rule and its position. Names the iptables backend if rules of both backends
/// matched in the hop.
#[must_use]
pub fn describe_rule(step: &RuleMatch, hop: &Hop) -> String {
    let number = step.number.map_or_else(
        || format!(" ({})", step.target.as_deref().unwrap_or("end of chain")),
        |number| format!(" rule {number}"),
    );
    let rule = step
        .rule
        .as_ref()
        .map_or_else(String::new, |rule| format!(": `{rule}`"));
    let entries = match step.entries.as_slice() {
        [] => String::new(),
        entries => format!(", matching entry {}", entries.join(" and ")),
    };
    let both = hop
        .matches
        .iter()
        .any(|rule_match| rule_match.backend != step.backend);
    let backend = match step.backend {
        Backend::Legacy if both => " of iptables-legacy",
        Backend::Nft if both && !step.table.contains(' ') => " of iptables-nft",
        _ => "",
    };
    let service = step
        .service
        .as_ref()
        .map_or_else(String::new, |service| format!(", for service {service}"));
    format!(
        "{} {}{number}{backend}{rule}{entries}{service}",
        step.table, step.chain
    )
}

/// Describes briefly what rewrote a packet in a hop, as a continuation of "became ADDRESS".
#[must_use]
pub fn describe_rewrite(hop: &Hop) -> Option<String> {
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

/// Returns an address with its name in parentheses.
fn format_named_address(address: SocketAddr, book: &AddressBook<'_>) -> String {
    let name = book.name_of(address.ip());
    let address = format_address(address);
    if address.starts_with(&name) {
        address
    } else {
        format!("{address} ({name})")
    }
}

/// Returns the meaning of a drop reason of the kernel.
fn describe_reason(reason: &str) -> Option<&'static str> {
    Some(match reason {
        "IP_RPFILTER" => "reverse path filtering (rp_filter)",
        "IP_INNOROUTES" => "no route",
        "IP_INADDRERRORS" => "the destination is not a local address",
        "NETFILTER_DROP" => "netfilter",
        "NO_SOCKET" => "no listening socket",
        "NEIGH_FAILED" | "NEIGH_QUEUEFULL" => "no reply from the neighbour",
        "IP_OUTNOROUTES" => "no outgoing route",
        "PKT_TOO_BIG" => "packet too large",
        "OTHERHOST" => "addressed to another host",
        _ => return None,
    })
}

/// Returns the meaning of a drop counter.
fn describe_counter(counter: &str) -> &'static str {
    match counter {
        "TcpExtIPReversePathFilter" => "reverse path filtering (rp_filter)",
        "IpExtInNoRoutes" => "no route",
        "IpInAddrErrors" => "the destination is not a local address",
        _ => "invalid header",
    }
}
