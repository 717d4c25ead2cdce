//! Describes a journey in sentences: where its packets ended, and which rules decided that.

use std::collections::BTreeSet;
use std::net::SocketAddr;

use super::book::Book;
use svclab_journey::journey::{End, Flight, Hop, Journey, Kind, Rewritten, Setting, Step, came_by};
use svclab_model::evidence::{Flow, Verdict, bare};
use svclab_model::plan::Backend;
use svclab_model::plan::NFTABLES_TABLE as TABLE;

/// Drop reason of the kernel when it gives none.
const UNSPECIFIED: &str = "NOT_SPECIFIED";

/// Returns the most important facts about an attempt, one sentence each.
#[must_use]
pub fn conclusion(journey: &Journey, book: &Book<'_>) -> Vec<String> {
    let Some(request) = request(journey) else {
        return vec![unsent(journey)];
    };
    let mut said = vec![fate(request, journey, book)];
    let answer = answer(journey, request);
    let told = |answer: &Flight| {
        let home = answer.hops.last().map(|hop| &hop.namespace) == Some(&journey.from);
        home && answer.end == End::Delivered
    };
    if let Some(answer) = answer {
        if unreachable(request, journey).is_some() && told(answer) {
            // The description of the request states the error already.
            return said;
        }
        said.push(return_of(answer, request, journey, book));
    } else if matches!(request.end, End::Delivered) {
        said.push("nobody answered it".to_owned());
    }
    if !matches!(journey.verdict, Verdict::Connected | Verdict::Answered) {
        said.extend(
            request
                .hops
                .iter()
                .filter_map(|hop| kept_source(hop, request)),
        );
    }
    said
}

/// Returns the first packet of the request; `None` if no packet was sent.
#[must_use]
pub fn request(journey: &Journey) -> Option<&Flight> {
    journey.flights.iter().find(|flight| {
        flight.outward
            && flight
                .hops
                .first()
                .is_some_and(|hop| hop.namespace == journey.from)
    })
}

/// Returns the first packet of the reply, preferably from the namespace in which the request ended.
#[must_use]
pub fn answer<'j>(journey: &'j Journey, request: &Flight) -> Option<&'j Flight> {
    let there = &request.hops.last()?.namespace;
    let mut inward = journey.flights.iter().filter(|flight| !flight.outward);
    let from_there = |flight: &&Flight| {
        flight
            .hops
            .first()
            .is_some_and(|hop| hop.namespace == *there)
    };
    inward.clone().find(from_there).or_else(|| inward.next())
}

/// Describes an attempt without any packet.
fn unsent(journey: &Journey) -> String {
    if journey.called.is_some() {
        return "nothing was seen of it".to_owned();
    }
    let refused = format!(
        "nothing set out: {}'s own kernel refused the call",
        journey.from
    );
    let Some(error) = &journey.error else {
        return refused;
    };
    // Error for a destination without a route (Linux v6.12, `net/ipv4/fib_semantics.c`,
    // `fib_props`).
    let words = if error.ends_with("(os error 101)") {
        "no route: "
    } else {
        ""
    };
    format!("{refused}: {words}{error}")
}

/// Returns the meaning of the ICMP error that rejected a packet. `None` if no such error rejected
/// the packet, or if its code has no description here.
fn unreachable(flight: &Flight, journey: &Journey) -> Option<&'static str> {
    let End::Answered(by) = &flight.end else {
        return None;
    };
    let error = journey.flights.get(*by.first()?)?;
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
fn refusal(flight: &Flight, journey: &Journey, book: &Book<'_>) -> Option<String> {
    let what = unreachable(flight, journey)?;
    let hop = flight.hops.last()?;
    let why = flight
        .reason
        .as_ref()
        .filter(|reason| *reason != UNSPECIFIED)
        .map_or_else(String::new, |reason| format!(" ({reason})"));
    Some(format!(
        "{} to {} was refused in {} with ICMP {what}{why}",
        flight.kind.word(),
        named(hop.after.destination, book),
        hop.namespace
    ))
}

/// Describes the end of the request.
fn fate(request: &Flight, journey: &Journey, book: &Book<'_>) -> String {
    let kind = request.kind.word();
    let Some(hop) = request.hops.last() else {
        return format!("{kind} was not seen");
    };
    if let Some(refusal) = refusal(request, journey, book) {
        return refusal;
    }
    match &request.end {
        End::Delivered | End::Answered(_) => {
            let own = book.name(hop.after.destination.ip()) == hop.namespace;
            let at = if own {
                bare(hop.after.destination)
            } else {
                named(hop.after.destination, book)
            };
            let from = if Some(hop.after.source) == journey.called.map(|called| called.source) {
                String::new()
            } else {
                format!(", from {}", named(hop.after.source, book))
            };
            format!("{kind} reached {} at {at}{from}", hop.namespace)
        }
        end => ended(kind, hop, end, book),
    }
}

/// Describes the end of the reply.
fn return_of(answer: &Flight, request: &Flight, journey: &Journey, book: &Book<'_>) -> String {
    let kind = answer.kind.word();
    let Some(hop) = answer.hops.last() else {
        return format!("{kind} was not seen");
    };
    let home = hop.namespace == journey.from;
    let expected = journey.called.map(Flow::reversed);
    if !home || !matches!(answer.end, End::Delivered | End::Answered(_)) {
        let seen = match answer.end {
            End::Answered(ref by) => refusal(answer, journey, book).unwrap_or_else(|| {
                let by = by.first().and_then(|at| journey.flights.get(*at));
                format!(
                    "{kind} to {} was refused in {} with {}",
                    named(hop.after.destination, book),
                    hop.namespace,
                    by.map_or("an error", |flight| flight.kind.word())
                )
            }),
            End::Delivered => format!(
                "{kind} to {} ended in {}, which is not who called",
                named(hop.after.destination, book),
                hop.namespace
            ),
            ref end => ended(kind, hop, end, book),
        };
        return seen + &bypassed(answer, request);
    }
    let sender = &answer.hops[0].namespace;
    // An ICMP error has the address of the kernel that created it; the quoted packet identifies it.
    if answer.kind == Kind::Unreachable || Some(hop.after) == expected {
        return match answer.kind {
            Kind::Rst | Kind::Unreachable => format!("{sender} refused with {kind}"),
            _ => format!("{kind} came back from {sender}"),
        };
    }
    let mut said = format!(
        "{kind} reached {} from {}, which it never called",
        hop.namespace,
        named(hop.after.source, book)
    );
    let reset = journey.flights.iter().any(|flight| {
        flight.kind == Kind::Rst
            && flight.hops.first().is_some_and(|own| {
                own.namespace == hop.namespace && own.before == hop.after.reversed()
            })
    });
    if reset {
        said.push_str("; it answered RST");
    }
    said + &bypassed(answer, request)
}

/// Names the namespaces that rewrote the request but did not receive the reply.
fn bypassed(answer: &Flight, request: &Flight) -> String {
    let way: BTreeSet<&str> = answer
        .hops
        .iter()
        .map(|hop| hop.namespace.as_str())
        .collect();
    let missed: Vec<&str> = request
        .hops
        .iter()
        .filter(|hop| hop.rewritten.is_some() && !way.contains(hop.namespace.as_str()))
        .map(|hop| hop.namespace.as_str())
        .collect();
    match missed.as_slice() {
        [] => String::new(),
        [one] => format!("; {one}, which had rewritten the call, never saw it"),
        several => format!(
            "; {}, which had rewritten the call, never saw it",
            several.join(" and ")
        ),
    }
}

/// Returns the rule that set the mark on which the dropping rule matched, or the jump to that rule.
fn marked_by(hop: &Hop) -> Option<&Step> {
    let (last, before) = hop.met.split_last()?;
    if last.mark == 0 || !last.rule.as_ref()?.contains("--mark") {
        return None;
    }
    let marks = hop.met.windows(2).position(|pair| match pair {
        [one, next] => one.mark != last.mark && next.mark == last.mark,
        _ => false,
    })?;
    let mark = before.get(marks)?;
    let mut earlier = before[..marks].iter().rev();
    let jump = earlier.find(|step| step.target.as_ref() == Some(&mark.chain));
    Some(jump.unwrap_or(mark))
}

/// Describes the end of a packet that was not delivered.
fn ended(kind: &str, hop: &Hop, end: &End, book: &Book<'_>) -> String {
    let namespace = &hop.namespace;
    let came = came_by(hop).map_or_else(String::new, |seen| format!(" by {}", seen.interface));
    let by = if came.is_empty() {
        String::new()
    } else {
        format!(" as it came in{came}")
    };
    match end {
        End::ByRule => {
            let rule = hop
                .met
                .last()
                .map_or_else(String::new, |step| place(step, hop));
            let marked = marked_by(hop).map_or_else(String::new, |step| {
                format!("; it was marked for that by {}", place(step, hop))
            });
            format!("{kind} was dropped in {namespace} by {rule}{marked}")
        }
        End::Dropped {
            reason,
            place,
            settings,
        } => {
            let at = place
                .as_ref()
                .map_or_else(String::new, |place| format!(" in {place}"));
            let words = forwarding(settings).or(reason_words(reason));
            let why = words.map_or_else(String::new, |words| format!("{words}: "));
            format!(
                "{kind} from {} was dropped in {namespace}{by}: {why}{reason}{at}{}",
                named(hop.before.source, book),
                set(settings)
            )
        }
        End::Counted {
            counter,
            by: count,
            lost,
            settings,
        } => {
            let from = named(hop.before.source, book);
            let fate = match counter.as_str() {
                "IpOutNoRoutes" => {
                    format!("came to {namespace}{came}, which had no route for its answer")
                }
                "IcmpInErrors" => {
                    format!("came to {namespace}{came}, which knows no such connection")
                }
                _ => format!(
                    "was dropped in {namespace}{by}: {}",
                    forwarding(settings).unwrap_or(counter_words(counter))
                ),
            };
            format!(
                "{kind} from {from} {fate} (the kernel counted {count} there, {counter}, where \
                 {lost} were lost){}",
                set(settings)
            )
        }
        End::Gone => {
            let interface = hop.seen.last().map_or("?", |seen| seen.interface.as_str());
            format!(
                "{kind} to {} left {namespace} by {interface}, and nobody got it",
                named(hop.after.destination, book)
            )
        }
        End::Waiting(neighbour) => format!(
            "{kind} to {} still waited in {namespace} for the hardware address of {neighbour}",
            named(hop.after.destination, book)
        ),
        End::Unknown => format!(
            "{kind} to {} came to {namespace}{came}, and what became of it is not known",
            named(hop.after.destination, book)
        ),
        End::Delivered | End::Answered(_) => format!("{kind} reached {namespace}"),
    }
}

/// Describes a drop caused by disabled forwarding.
fn forwarding(settings: &[Setting]) -> Option<&'static str> {
    let off = |setting: &Setting| setting.name.ends_with(".forwarding");
    let words = "it is for another machine, and this one does not forward";
    settings.iter().any(off).then_some(words)
}

/// Returns sysctls as the end of a sentence.
fn set(settings: &[Setting]) -> String {
    let all: Vec<String> = settings
        .iter()
        .map(|setting| format!("{} = {}", setting.name, setting.value))
        .collect();
    if all.is_empty() {
        String::new()
    } else {
        format!("; there {}", all.join(" and "))
    }
}

/// Describes why a hop rewrote the destination of the request but not the source: the rules that
/// returned before a rule could mark or masquerade the packet. `None` for other hops.
fn kept_source(hop: &Hop, request: &Flight) -> Option<String> {
    hop.rewritten.as_ref()?;
    if hop.before.source != hop.after.source || hop.before.destination == hop.after.destination {
        return None;
    }
    let source = hop.after.source;
    let later = request
        .hops
        .iter()
        .skip_while(|own| *own != hop)
        .any(|own| own.after.source != source);
    if later {
        return None;
    }
    let said = format!("{} kept its source {}", hop.namespace, source.ip());
    // Only for kube-proxy; load balancers keep the source on purpose.
    let by_kube_proxy = |step: &Step| {
        let target = step.target.as_deref().unwrap_or_default();
        let own = step.table.split_once(' ').map(|(_, table)| table);
        step.chain.starts_with("KUBE-") || target.starts_with("KUBE-") || own == Some(TABLE)
    };
    if !hop.met.iter().any(by_kube_proxy) {
        return None;
    }
    let returns: Vec<String> = hop
        .met
        .iter()
        .filter(|step| decides(step))
        .map(|step| place(step, hop))
        .collect();
    if returns.is_empty() {
        let marked = hop.met.iter().any(|step| step.mark != 0);
        return Some(if marked {
            format!("{said}, though it was marked")
        } else {
            format!("{said}: no rule marked it for masquerading")
        });
    }
    Some(format!(
        "{said}: it was let off by {}",
        returns.join(" and ")
    ))
}

/// Whether the rule returned before masquerading. Rules that only match on an earlier mark do not
/// count.
fn decides(step: &Step) -> bool {
    let asks_for_mark = |rule: &String| rule.contains("--mark") || rule.starts_with("meta mark & ");
    step.target.as_deref() == Some("RETURN") && !step.rule.as_ref().is_some_and(asks_for_mark)
}

/// Describes a matched rule and its position. Names the iptables backend if rules of both backends
/// matched in the hop.
#[must_use]
pub fn place(step: &Step, hop: &Hop) -> String {
    let number = step.number.map_or_else(
        || format!(" ({})", step.target.as_deref().unwrap_or("its end")),
        |number| format!(" rule {number}"),
    );
    let rule = step
        .rule
        .as_ref()
        .map_or_else(String::new, |rule| format!(": `{rule}`"));
    let entries = match step.entries.as_slice() {
        [] => String::new(),
        entries => format!(", by the entry {}", entries.join(" and ")),
    };
    let both = hop.met.iter().any(|other| other.by != step.by);
    let of = match step.by {
        Backend::Legacy if both => " of iptables-legacy",
        Backend::Nft if both && !step.table.contains(' ') => " of iptables-nft",
        _ => "",
    };
    let service = step.service.as_ref().map_or_else(String::new, |service| {
        format!(", for the service {service}")
    });
    format!(
        "{} {}{number}{of}{rule}{entries}{service}",
        step.table, step.chain
    )
}

/// Describes briefly what rewrote a packet in a hop, as a continuation of "became ADDRESS".
#[must_use]
pub fn rewriting(hop: &Hop) -> Option<String> {
    let rules = |at: &[usize]| -> Vec<String> {
        let steps = at.iter().filter_map(|at| hop.met.get(*at));
        steps
            .map(|step| {
                let target = step.target.as_deref().unwrap_or("a rule");
                format!("{target} in {} {}", step.table, step.chain)
            })
            .collect()
    };
    Some(match hop.rewritten.as_ref()? {
        Rewritten::ByRules(at) => format!("by {}", rules(at).join(", ")),
        Rewritten::ByIpvs {
            server,
            real,
            rules: at,
        } => {
            let mut by = vec![format!("by IPVS, which chose {real} for {server}")];
            by.extend(rules(at));
            by.join(", and by ")
        }
        Rewritten::AsRemembered => "as the connection is remembered".to_owned(),
        Rewritten::Unknown => "by what is not known".to_owned(),
    })
}

/// Returns an address with its name in parentheses.
fn named(address: SocketAddr, book: &Book<'_>) -> String {
    let name = book.name(address.ip());
    let address = bare(address);
    if address.starts_with(&name) {
        address
    } else {
        format!("{address} ({name})")
    }
}

/// Returns the meaning of a drop reason of the kernel.
fn reason_words(reason: &str) -> Option<&'static str> {
    Some(match reason {
        "IP_RPFILTER" => "reverse path filtering (rp_filter)",
        "IP_INNOROUTES" => "no route",
        "IP_INADDRERRORS" => "an address that is not for this machine to receive",
        "NETFILTER_DROP" => "netfilter",
        "NO_SOCKET" => "nobody listens",
        "NEIGH_FAILED" | "NEIGH_QUEUEFULL" => "the neighbour does not answer",
        "IP_OUTNOROUTES" => "no route out",
        "PKT_TOO_BIG" => "too large",
        "OTHERHOST" => "for another host",
        _ => return None,
    })
}

/// Returns the meaning of a drop counter.
fn counter_words(counter: &str) -> &'static str {
    match counter {
        "TcpExtIPReversePathFilter" => "reverse path filtering (rp_filter)",
        "IpExtInNoRoutes" => "no route",
        "IpInAddrErrors" => "an address that is not for this machine to receive",
        _ => "a header it refuses",
    }
}
