//! Finds why a namespace kept the source address of a request: rules that returned before
//! masquerading, or a missing mark.

use super::fact::{Fact, KeptSourceReason};
use super::rules::RuleReference;
use svclab_journey::journey::{Hop, PacketPath, RuleMatch};

/// Returns why a hop rewrote the destination of the request but not the source. `None` for other
/// hops.
pub(super) fn kept_source(hop: &Hop, request: &PacketPath) -> Option<Fact> {
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
    // Only for kube-proxy; load balancers keep the source on purpose.
    if !hop.matches.iter().any(RuleMatch::is_of_kube_proxy) {
        return None;
    }
    let returns = hop.matches.iter().filter(|step| is_early_return(step));
    let returns: Vec<RuleReference> = returns.map(|step| RuleReference::new(step, hop)).collect();
    let reason = if !returns.is_empty() {
        KeptSourceReason::Returned { rules: returns }
    } else if hop.matches.iter().any(|step| step.mark != 0) {
        KeptSourceReason::MarkedOnly
    } else {
        KeptSourceReason::NotMarked
    };
    Some(Fact::KeptSource {
        namespace: hop.namespace.clone(),
        source: source.ip(),
        reason,
    })
}

/// Whether the rule returned before masquerading. Rules that only match on an earlier mark do not
/// count.
fn is_early_return(step: &RuleMatch) -> bool {
    step.target.as_deref() == Some("RETURN") && !step.matches_mark()
}
