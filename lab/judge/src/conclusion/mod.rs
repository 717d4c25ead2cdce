//! Describes a journey in sentences: where its packets ended, and which rules decided that.

mod end;
mod rules;

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::net::SocketAddr;

use crate::address_book::AddressBook;
use end::{describe_end, describe_rejection, icmp_error_meaning};
use rules::describe_kept_source;
use svclab_journey::journey::{Journey, Kind, PacketPath, PathEnd};
use svclab_model::evidence::{AddressPair, Verdict, format_address};

pub use rules::{describe_rewrite, describe_rule};

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
    let name = |address| format_named_address(address, book);
    let mut description = format!(
        "{kind} reached {} {}",
        hop.namespace,
        describe_wrong_addresses(hop.after, expected, name)
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

/// Describes which address of a reply differs from the expected one.
fn describe_wrong_addresses(
    seen: AddressPair,
    expected: Option<AddressPair>,
    name: impl Fn(SocketAddr) -> String,
) -> String {
    let from = name(seen.source);
    if expected.is_some_and(|expected| expected.source == seen.source) {
        let to = name(seen.destination);
        format!("from {from} at {to}, which is not the source of the request")
    } else {
        format!("from {from}, which is not the probe's target")
    }
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
    if missed.is_empty() {
        return String::new();
    }
    format!(
        "; {} rewrote the request but did not receive the reply",
        missed.join(" and ")
    )
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wrong_addresses_differing_one_is_named() {
        let addresses = |source: &str, destination: &str| AddressPair {
            source: source.parse().unwrap(),
            destination: destination.parse().unwrap(),
        };
        let expected = Some(addresses("10.96.0.1:80", "10.0.0.1:4000"));
        let describe = |source, destination| {
            describe_wrong_addresses(addresses(source, destination), expected, format_address)
        };
        assert_eq!(
            describe("10.244.0.2:80", "10.0.0.1:4000"),
            "from 10.244.0.2:80, which is not the probe's target"
        );
        assert_eq!(
            describe("10.96.0.1:80", "10.0.0.1:4001"),
            "from 10.96.0.1:80 at 10.0.0.1:4001, which is not the source of the request"
        );
    }
}
