//! Finds rules that decide about a packet where the kernel does not trace it.

use super::LastHop;
use crate::conclusion::fault::Fault;
use crate::conclusion::rules::RuleReference;
use svclab_journey::journey::RuleMatch;
use svclab_model::plan::Backend;
use svclab_ruleset::nft::Chain;

impl<'a> LastHop<'a> {
    /// Returns the first rule that drops packets in a chain of the family `netdev` on the interface
    /// that received the packet, or in a chain of the family `bridge`, if a bridge forwarded the
    /// packet. The kernel does not trace these chains for packets that no earlier rule selected.
    pub(super) fn device_rule(self) -> Option<Fault> {
        let received = self.hop.crossings.iter().rfind(|seen| !seen.out)?;
        let is_device = |chain: &&Chain| {
            let hook = chain.hook.as_ref().filter(|hook| hook.hook == "ingress");
            let mut devices = hook.into_iter().flat_map(|hook| {
                let separator = |c: char| !(c.is_alphanumeric() || matches!(c, '.' | '-' | '_'));
                hook.device.split(separator)
            });
            devices.any(|device| device == received.interface)
        };
        let bridge = self.crossed_bridge();
        let tables = self.own.nft.tables.iter();
        let chains = tables.flat_map(|table| table.chains.iter().map(move |chain| (table, chain)));
        let mut found = chains.filter_map(|(table, chain)| {
            let device = match table.family.as_str() {
                "netdev" if is_device(&chain) => &received.interface,
                "bridge" if chain.hook.is_some() => bridge?,
                _ => return None,
            };
            let index = chain
                .rules
                .iter()
                .position(|rule| self.may_drop(&rule.text))?;
            Some(Fault::IngressRule {
                rule: RuleReference {
                    backend: Backend::Nft,
                    both_backends: false,
                    table: table.full_name(),
                    chain: chain.name.clone(),
                    number: u32::try_from(index + 1).ok(),
                    rule: Some(chain.rules[index].text.clone()),
                    target: Some("DROP".to_owned()),
                    entries: Vec::new(),
                    service: None,
                },
                device: device.clone(),
            })
        });
        found.next()
    }

    /// Returns the bridge through which the packet entered or left the namespace.
    fn crossed_bridge(self) -> Option<&'a String> {
        let mut seen = self.hop.crossings.iter().rev();
        let port = seen.find_map(|seen| self.own.link(&seen.interface)?.bridge.as_ref());
        port.or_else(|| self.egress_bridge())
    }

    /// Whether a rule drops packets with the ports of the packet.
    fn may_drop(self, rule: &str) -> bool {
        let words: Vec<&str> = rule.split(' ').collect();
        let (source, destination) = (self.hop.before.source, self.hop.after.destination);
        let differs = |pair: &[&str]| {
            let port = match pair[0] {
                "sport" => source.port(),
                "dport" => destination.port(),
                _ => return false,
            };
            pair[1].parse::<u16>().is_ok_and(|own| own != port)
        };
        words.contains(&"drop") && !words.windows(2).any(differs)
    }

    /// Returns the translation of the packet, if its namespace could not add connections. Conntrack
    /// adds a connection after all rules, and drops the packet if another connection has the same
    /// addresses (Linux v6.12, `net/netfilter/nf_conntrack_core.c`, `__nf_conntrack_confirm` and
    /// `nf_ct_resolve_clash`). NAT keeps such addresses if it finds no free port
    /// (`net/netfilter/nf_nat_core.c`, `nf_nat_l4proto_unique_tuple`).
    pub(super) fn used_addresses(self) -> Option<Fault> {
        let mut matches = self.hop.matches.iter();
        if self.own.failed_inserts == 0 || !matches.any(|step| self.own.is_postrouting(step)) {
            return None;
        }
        let is_source_nat =
            |step: &&RuleMatch| matches!(step.target.as_deref(), Some("SNAT" | "MASQUERADE"));
        let translating = self.hop.matches.iter().rfind(is_source_nat);
        Some(Fault::UsedAddresses {
            destination: self.hop.after.destination,
            failed_inserts: self.own.failed_inserts,
            rule: translating.map(|step| RuleReference::new(step, self.hop)),
        })
    }

    /// Returns the last rule that the packet matched, if it sends packets to a queue.
    pub(super) fn queue_rule(self) -> Option<Fault> {
        let step = self.hop.matches.last()?;
        let is_queue = |rule: &String| rule.split(' ').any(|word| word == "queue");
        let is_queue =
            step.target.as_deref() == Some("NFQUEUE") || step.rule.as_ref().is_some_and(is_queue);
        is_queue.then(|| Fault::QueueRule {
            rule: RuleReference::new(step, self.hop),
        })
    }
}
