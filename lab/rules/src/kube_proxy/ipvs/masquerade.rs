//! Writes the rules that mark packets for masquerading and that masquerade marked packets.

use super::{IpvsContext, chains};
use crate::kube_proxy::history::{MARK_CLEARED, RANDOM_FULLY};
use crate::kube_proxy::iptables::rule::RuleBuilder;
use svclab_ruleset::iptables::script::{IptablesScript, Table};

/// Returns the packet mark that requests masquerading, in the notation of iptables.
pub(super) fn mark(context: &IpvsContext<'_>) -> String {
    // The configuration accepts bits 0 to 31; a larger bit sets no mark.
    let mark = 1_u32
        .checked_shl(u32::from(context.proxy.masquerade_bit))
        .unwrap_or(0);
    format!("{mark:#x}")
}

/// Writes the rules that masquerade marked packets.
pub(super) fn write_masquerade_rules(context: &IpvsContext<'_>, script: &mut IptablesScript) {
    let mark = mark(context);
    let table = script.table_mut(Table::Nat);
    let rule = || RuleBuilder::append(chains::POSTROUTING);
    let snat = rule().comment("kubernetes service traffic requiring SNAT");
    let snat = if context.version.has(&MARK_CLEARED) {
        table.push(
            rule()
                .with(format_args!("-m mark ! --mark {mark}/{mark}"))
                .jump("RETURN"),
        );
        table.push(rule().jump(&format!("MARK --xor-mark {mark}")));
        snat
    } else {
        snat.with(format_args!("-m mark --mark {mark}/{mark}"))
    };
    let fully = context.version.has(&RANDOM_FULLY) && context.proxy.random_fully;
    table.push(snat.jump(if fully {
        "MASQUERADE --random-fully"
    } else {
        "MASQUERADE"
    }));
}

/// Writes the rule that marks each packet that reaches its chain.
pub(super) fn write_mark_rule(context: &IpvsContext<'_>, script: &mut IptablesScript) {
    let mark = mark(context);
    let rule = RuleBuilder::append(chains::MARK_MASQ).jump(&format!("MARK --or-mark {mark}"));
    script.table_mut(Table::Nat).push(rule);
}
