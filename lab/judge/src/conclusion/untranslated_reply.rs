//! Finds why a namespace that translated a request did not translate the reply back.

use super::drop_kind::DropKind;
use super::drop_table::drop_kind;
use super::rules::RuleReference;
use super::service_reasons::ReplyGap;
use super::{Conclusion, Fact};
use svclab_journey::journey::{Hop, PacketPath, PathEnd, Rewrite, SysctlValue};

impl Conclusion<'_> {
    /// Returns the first namespace on the way of the reply that translated the request, and left the
    /// reply as it was.
    pub(super) fn untranslated_reply(
        &self,
        request: &PacketPath,
        reply: &PacketPath,
    ) -> Option<Fact> {
        reply.hops.iter().find_map(|back| {
            let translated = request.hops.iter().rfind(|hop| {
                hop.namespace == back.namespace
                    && hop.before != hop.after
                    && hop.after.reversed() == back.before
            })?;
            // A rule or the kernel may drop a packet before the translation.
            let is_passed = back.crossings.last().is_some_and(|seen| seen.out)
                || match &reply.end {
                    PathEnd::Delivered | PathEnd::Rejected(_) => true,
                    PathEnd::Dropped {
                        reason, function, ..
                    } => drop_kind(reason, function.as_deref()) == DropKind::NoSocket,
                    _ => false,
                };
            (is_passed && back.before == back.after).then(|| Fact::ReplyNotTranslated {
                namespace: back.namespace.clone(),
                source: self.named(back.before.source),
                reason: self.reply_gap(translated, back),
            })
        })
    }

    fn reply_gap(&self, translated: &Hop, back: &Hop) -> ReplyGap {
        if let Some((bridge, sysctl)) = self.unfiltered_bridge(back) {
            return ReplyGap::Bridge { bridge, sysctl };
        }
        if let Some(step) = back.matches.iter().find(|step| step.is_untracking()) {
            return ReplyGap::NotTracked {
                rule: RuleReference::new(step, back),
            };
        }
        let has_entry =
            self.evidence.conntrack.iter().any(|entry| {
                entry.namespace == back.namespace && entry.original == translated.before
            });
        // IPVS has its own connections.
        if has_entry || matches!(translated.rewritten, Some(Rewrite::ByIpvs { .. })) {
            ReplyGap::Unknown
        } else {
            ReplyGap::NoEntry
        }
    }

    /// Returns the bridge that forwarded a frame between two of its ports without netfilter, and the
    /// sysctl for that (Linux v6.12, `net/bridge/br_netfilter_hooks.c`, `br_nf_pre_routing`).
    fn unfiltered_bridge(&self, hop: &Hop) -> Option<(String, SysctlValue)> {
        let observed = self.lab.observed(&hop.namespace)?;
        let mut bridges = hop
            .crossings
            .iter()
            .map(|seen| observed.link(&seen.interface)?.bridge.as_deref());
        let bridge = bridges.next()??;
        if !bridges.all(|other| other == Some(bridge)) {
            return None;
        }
        let name = if hop.before.source.is_ipv4() {
            "net.bridge.bridge-nf-call-iptables"
        } else {
            "net.bridge.bridge-nf-call-ip6tables"
        };
        let value = observed.sysctls.get(name).filter(|value| *value == "0")?;
        let sysctl = SysctlValue {
            name: name.to_owned(),
            value: value.clone(),
        };
        Some((bridge.to_owned(), sysctl))
    }
}
