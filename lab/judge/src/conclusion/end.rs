//! Describes where a packet ended that was not delivered.

use crate::address_book::AddressBook;
use crate::conclusion::format_named_address;
use crate::conclusion::rules::{describe_rule, marking_rule};
use svclab_journey::journey::{Hop, Journey, PacketPath, PathEnd, SysctlValue, ingress_interface};

/// Drop reason of the kernel when it gives none.
const UNSPECIFIED: &str = "NOT_SPECIFIED";

/// Returns the meaning of the ICMP error that rejected a packet. `None` if no such error rejected
/// the packet, or if its code has no description here.
pub(super) fn icmp_error_meaning(flight: &PacketPath, journey: &Journey) -> Option<&'static str> {
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
pub(super) fn describe_rejection(
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

/// Describes the end of a packet that was not delivered.
pub(super) fn describe_end(kind: &str, hop: &Hop, end: &PathEnd, book: &AddressBook<'_>) -> String {
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
    let is_forwarding = |setting: &SysctlValue| setting.name.ends_with(".forwarding");
    let description = "addressed to another machine, and forwarding is disabled";
    settings.iter().any(is_forwarding).then_some(description)
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
