//! Describes the rules that rewrote, marked or passed a packet.

use svclab_journey::journey::{Hop, PacketPath, Rewrite, RuleMatch};
use svclab_model::plan::{Backend, NFTABLES_TABLE};

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

/// Describes why a hop rewrote the destination of the request but not the source: the rules that
/// returned before a rule could mark or masquerade the packet. `None` for other hops.
pub(super) fn describe_kept_source(hop: &Hop, request: &PacketPath) -> Option<String> {
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
            || native_table == Some(NFTABLES_TABLE)
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
