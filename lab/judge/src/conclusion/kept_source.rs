//! Finds why a namespace kept the source address of a request: rules that returned before
//! masquerading, or a missing mark.

use super::cause::{Cause, REPLY_COUNTERS};
use super::drop_kind::DropKind;
use super::fact::{Fact, KeptSourceReason, Rejection};
use super::rules::RuleReference;
use crate::deviation::ObservedRules;
use crate::rule_match::PacketAtRule;
use svclab_journey::journey::{Hop, PacketPath, RuleMatch};
use svclab_ruleset::iptables::{Rule, TableRules};

/// Maximum number of nested jumps to follow.
const MAX_JUMPS: usize = 4;

/// Returns why namespaces kept the source address of a request, if the address can have caused what
/// the facts state: the kernel refused the source, had no route back to it, or sent the reply another
/// way. Only hops up to the one whose masquerading would have prevented that count.
pub(super) fn kept_sources(
    about_request: &Fact,
    about_reply: Option<&Fact>,
    request: &PacketPath,
    rules: &ObservedRules<'_>,
) -> Vec<Fact> {
    let bypassed = about_reply.map_or(&[][..], bypassed);
    let last_bypassed = request
        .hops
        .iter()
        .rposition(|hop| bypassed.contains(&hop.namespace));
    let is_by_source = is_by_source(about_request) || about_reply.is_some_and(is_by_destination);
    let count = match last_bypassed {
        // A reply that returned to a later namespace would still not pass this one.
        Some(index) => index + 1,
        None if is_by_source => request.hops.len(),
        None => 0,
    };
    let hops = request.hops.iter().take(count);
    // A packet that does not leave a namespace ends before masquerading.
    let hops = hops.filter(|hop| hop.crossings.iter().any(|crossing| crossing.out));
    hops.filter_map(|hop| kept_source(hop, request, rules))
        .collect()
}

fn bypassed(reply: &Fact) -> &[String] {
    match reply {
        Fact::Rejected { bypassed, .. }
        | Fact::Lost { bypassed, .. }
        | Fact::Misdelivered { bypassed, .. }
        | Fact::UnexpectedAddresses { bypassed, .. } => bypassed,
        _ => &[],
    }
}

/// Whether the kernel refused the source of a request, or had no route for the reply.
fn is_by_source(request: &Fact) -> bool {
    let Fact::Lost { cause, .. } = request else {
        return false;
    };
    match cause {
        Cause::Counter { counter, .. } if REPLY_COUNTERS.contains(&counter.as_str()) => true,
        Cause::Kernel { kind, .. } | Cause::Counter { kind, .. } => matches!(
            kind,
            DropKind::ReversePath
                | DropKind::LocalSource
                | DropKind::InvalidSource
                | DropKind::RouteInput
        ),
        _ => false,
    }
}

/// Whether the destination of a reply, the source of the request, is the reason for its end.
fn is_by_destination(reply: &Fact) -> bool {
    match reply {
        Fact::UnexpectedAddresses { .. } | Fact::Misdelivered { .. } => true,
        Fact::Rejected { rejection, .. } => matches!(rejection, Rejection::Icmp { .. }),
        Fact::Lost {
            cause: Cause::Kernel { kind, .. } | Cause::Counter { kind, .. },
            ..
        } => matches!(kind, DropKind::NoRoute | DropKind::RouteRefused),
        _ => false,
    }
}

/// Returns why a hop did not rewrite the source. `None` for a hop that rewrote neither address, unless
/// a rule returned there.
fn kept_source(hop: &Hop, request: &PacketPath, rules: &ObservedRules<'_>) -> Option<Fact> {
    if hop.before.source != hop.after.source {
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
    // Only for kube-proxy; load balancers keep the source on purpose.
    if !hop.matches.iter().any(RuleMatch::is_of_kube_proxy) {
        return None;
    }
    let returns = hop.matches.iter().filter(|step| is_early_return(step));
    let returns = returns.filter(|step| is_decisive(step, hop, request, rules));
    let returns: Vec<RuleReference> = returns.map(|step| RuleReference::new(step, hop)).collect();
    let is_translated = hop.rewritten.is_some() && hop.before.destination != hop.after.destination;
    let reason = if !returns.is_empty() {
        KeptSourceReason::Returned { rules: returns }
    } else if !is_translated {
        return None;
    } else if hop.matches.iter().any(|step| step.mark != 0) {
        KeptSourceReason::MarkedOnly
    } else {
        KeptSourceReason::NotMarked
    };
    Some(Fact::KeptSource {
        namespace: hop.namespace.clone(),
        source: source.ip(),
        is_destination: hop.before.destination.ip() == source.ip(),
        reason,
    })
}

/// Whether the rule returned before masquerading. Rules that only match on an earlier mark do not
/// count.
fn is_early_return(step: &RuleMatch) -> bool {
    step.target.as_deref() == Some("RETURN") && !step.matches_mark()
}

/// Whether the packet would have been masqueraded or marked without the rule: a later rule of its
/// chain does that. The rule decides also if its chain was not read back.
fn is_decisive(
    step: &RuleMatch,
    hop: &Hop,
    request: &PacketPath,
    rules: &ObservedRules<'_>,
) -> bool {
    let Some(table) = rules.table(hop, step) else {
        return true;
    };
    let packet = PacketAtRule {
        hop,
        kind: request.kind,
        flow: step.flow,
        mark: Some(step.mark),
    };
    let number = step.number.and_then(|number| usize::try_from(number).ok());
    masquerades(table, &step.chain, number.unwrap_or(0), packet, 0) == Outcome::Rewrites
}

/// Effect of the rules of a chain on the source address.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Outcome {
    /// A rule masquerades the packet, or marks it.
    Rewrites,
    /// A rule ends the table.
    Ends,
    /// The packet returns from the chain.
    Returns,
}

/// Evaluates the rules of a chain after the first `skipped`.
fn masquerades(
    table: &TableRules,
    chain: &str,
    skipped: usize,
    packet: PacketAtRule<'_>,
    jumps: usize,
) -> Outcome {
    let mut chains = table.chains.iter();
    let Some(chain) = chains.find(|own| own.name == chain) else {
        return Outcome::Returns;
    };
    for rule in chain.rules.iter().skip(skipped) {
        if packet.matches(rule) == Some(false) {
            continue;
        }
        let target = rule.target();
        match target.as_deref() {
            Some("MASQUERADE" | "SNAT") => return Outcome::Rewrites,
            Some("MARK") if sets_mark(rule) => return Outcome::Rewrites,
            Some("ACCEPT" | "DROP" | "REJECT" | "DNAT" | "REDIRECT") => return Outcome::Ends,
            Some("RETURN") => return Outcome::Returns,
            Some(other) if jumps < MAX_JUMPS => {
                match masquerades(table, other, 0, packet, jumps + 1) {
                    Outcome::Returns => {}
                    outcome => return outcome,
                }
            }
            _ => {}
        }
    }
    Outcome::Returns
}

/// Whether a rule sets bits of the mark. Other rules clear bits.
fn sets_mark(rule: &Rule) -> bool {
    let parts = rule.parts();
    let options = parts.target.iter().flat_map(|target| &target.options);
    let values = options.filter_map(|option| option.values.first());
    values
        .into_iter()
        .any(|value| !value.starts_with("0x0/") && *value != "0x0")
}
