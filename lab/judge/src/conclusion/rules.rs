//! Finds the rules that decided about a packet: those that marked it, and those that returned
//! before masquerading.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::fact::{Fact, KeptSourceReason};
use svclab_journey::journey::{Hop, PacketPath, RuleMatch};
use svclab_model::plan::{Backend, NFTABLES_TABLE};

/// Rule of a namespace that a packet matched.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RuleReference {
    /// Backend of the table: legacy iptables or `nf_tables`.
    pub backend: Backend,
    /// Whether the packet also matched rules of the other backend in the namespace.
    pub both_backends: bool,
    /// Name of the table. A table that iptables cannot print is prefixed with its family:
    /// `inet fw`.
    pub table: String,
    /// Name of the chain.
    pub chain: String,
    /// Number of the rule in its chain, from 1; absent at the end of the chain.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub number: Option<u32>,
    /// Text of the rule from its first match on; absent if it is unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rule: Option<String>,
    /// Target of the rule, such as `RETURN`. At the end of a chain: `return` or `policy`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target: Option<String>,
    /// Entries of sets and maps that matched, such as `KUBE-CLUSTER-IP 10.96.0.1,tcp:443`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub entries: Vec<String>,
    /// Service port of a rule of kube-proxy in nftables mode, such as `ns1/nginx:http`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub service: Option<String>,
}

impl RuleReference {
    /// Returns the reference of a rule that a packet matched in a hop.
    #[must_use]
    pub fn new(step: &RuleMatch, hop: &Hop) -> Self {
        let mut matches = hop.matches.iter();
        Self {
            backend: step.backend,
            both_backends: matches.any(|other| other.backend != step.backend),
            table: step.table.clone(),
            chain: step.chain.clone(),
            number: step.number,
            rule: step.rule.clone(),
            target: step.target.clone(),
            entries: step.entries.clone(),
            service: step.service.clone(),
        }
    }
}

/// Returns the rule that set the mark on which the dropping rule matched, or the jump to that rule.
pub(super) fn marking_rule(hop: &Hop) -> Option<&RuleMatch> {
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
    let by_kube_proxy = |step: &RuleMatch| {
        let target = step.target.as_deref().unwrap_or_default();
        let native_table = step.table.split_once(' ').map(|(_, table)| table);
        step.chain.starts_with("KUBE-")
            || target.starts_with("KUBE-")
            || native_table == Some(NFTABLES_TABLE)
    };
    if !hop.matches.iter().any(by_kube_proxy) {
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
    let matches_mark = |rule: &String| rule.contains("--mark") || rule.starts_with("meta mark & ");
    step.target.as_deref() == Some("RETURN") && !step.rule.as_ref().is_some_and(matches_mark)
}
