//! Decides whether a packet matches a rule of iptables, as far as its addresses, ports, protocol,
//! interfaces and mark show.

use std::net::IpAddr;

use ipnetwork::IpNetwork;

use svclab_journey::journey::{Hop, Kind};
use svclab_model::evidence::AddressPair;
use svclab_ruleset::iptables::Rule;
use svclab_ruleset::iptables::parts::{MatchModule, RuleOption};

/// Packet at a rule.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PacketAtRule<'a> {
    pub(crate) hop: &'a Hop,
    pub(crate) kind: Kind,
    pub(crate) flow: AddressPair,
    /// Mark of the packet; `None` if it is not known there.
    pub(crate) mark: Option<u32>,
}

impl PacketAtRule<'_> {
    /// Whether the packet matches a rule. `None` if the rule has matches that are not examined here.
    pub(crate) fn matches(self, rule: &Rule) -> Option<bool> {
        let parts = rule.parts();
        let header = parts
            .header
            .iter()
            .map(|option| self.matches_header(option));
        let modules = parts
            .matches
            .iter()
            .map(|module| self.matches_module(module));
        let mut result = Some(true);
        for own in header.chain(modules) {
            match own {
                Some(false) => return Some(false),
                Some(true) => {}
                None => result = None,
            }
        }
        result
    }

    fn matches_header(self, option: &RuleOption<'_>) -> Option<bool> {
        let value = option.values.first()?;
        let contains = |ip: IpAddr| Some(value.parse::<IpNetwork>().ok()?.contains(ip));
        let holds = match &*option.name {
            "-s" => contains(self.flow.source.ip())?,
            "-d" => contains(self.flow.destination.ip())?,
            "-p" => self.has_protocol(value)?,
            "-i" => self.crosses(value, false),
            // A packet that was lost did not cross the interface through which it would have left.
            "-o" if !self.hop.crossings.iter().any(|seen| seen.out) => return None,
            "-o" => self.crosses(value, true),
            _ => return None,
        };
        Some(holds != option.is_negated)
    }

    fn crosses(self, name: &str, out: bool) -> bool {
        let mut seen = self.hop.crossings.iter().filter(|seen| seen.out == out);
        match name.strip_suffix('+') {
            Some(prefix) => seen.any(|seen| seen.interface.starts_with(prefix)),
            None => seen.any(|seen| seen.interface == name),
        }
    }

    fn has_protocol(self, name: &str) -> Option<bool> {
        let own = match self.kind {
            Kind::Datagram => "udp",
            Kind::Ping | Kind::Pong | Kind::Unreachable => "icmp",
            Kind::Other => return None,
            Kind::Syn | Kind::SynAck | Kind::Rst | Kind::Fin | Kind::Segment => "tcp",
        };
        Some(own == name)
    }

    fn matches_module(self, module: &MatchModule<'_>) -> Option<bool> {
        match &*module.name {
            "comment" => Some(true),
            "tcp" | "udp" => {
                let ports = module
                    .options
                    .iter()
                    .map(|option| self.matches_port(option));
                let ports: Vec<Option<bool>> = ports.collect();
                if ports.contains(&Some(false)) {
                    return Some(false);
                }
                (!ports.contains(&None)).then_some(true)
            }
            "mark" => {
                let option = module
                    .options
                    .iter()
                    .find(|option| option.name == "--mark")?;
                let (value, mask) = parse_mark(option.values.first()?)?;
                Some((self.mark? & mask == value) != option.is_negated)
            }
            _ => None,
        }
    }

    fn matches_port(self, option: &RuleOption<'_>) -> Option<bool> {
        let port: u16 = option.values.first()?.parse().ok()?;
        let own = match &*option.name {
            "--dport" => self.flow.destination.port(),
            "--sport" => self.flow.source.port(),
            _ => return None,
        };
        Some((own == port) != option.is_negated)
    }
}

/// Parses a mark with its mask: `0x4000/0x4000`.
fn parse_mark(text: &str) -> Option<(u32, u32)> {
    let (value, mask) = text.split_once('/').unwrap_or((text, "0xffffffff"));
    let number = |text: &str| match text.strip_prefix("0x") {
        Some(digits) => u32::from_str_radix(digits, 16).ok(),
        None => text.parse().ok(),
    };
    Some((number(value)?, number(mask)?))
}
