//! Finds rules that decide about a packet where the kernel does not trace it.

use super::fault::Fault;
use super::last_hop::LastHop;
use super::rules::RuleReference;
use crate::state::route_lookup::RouteDecision;
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
        let mut routed = None;
        if let RouteDecision::Unicast { interfaces, .. } = self.destination_lookup().decision {
            let mut links = self.own.links.iter();
            routed = links.find(|link| {
                link.kind.as_deref() == Some("bridge") && interfaces.contains(&link.name)
            });
        }
        let port = seen.find_map(|seen| self.own.link(&seen.interface)?.bridge.as_ref());
        port.or_else(|| routed.map(|bridge| &bridge.name))
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
