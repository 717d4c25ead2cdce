//! Decides whether a timeout is proven before the maximum wait has passed.
//!
//! The kernel may answer a connection only after the SYN is retransmitted, because every decision
//! made before conntrack confirmed the packet is made again. A timeout of TCP is therefore proven
//! under two conditions:
//!
//! - The end of every packet was recorded.
//! - Every retransmission matches the same rules with the same result, because the kernel keeps the
//!   earlier choice or because there is no choice.
//!
//! A datagram and an echo request are sent once, so the end of their packets is sufficient proof.
//! Anything that this module cannot interpret proves nothing.

mod ends;
mod iptables;
mod nftables;
mod sets;

use std::collections::{HashMap, HashSet};
use std::net::SocketAddr;

use crate::journey::{Hop, Journey, Kind, PacketPath, Rewrite, RuleMatch};
use nftables::NftTables;
use sets::FixedSets;
use svclab_model::evidence::{ConntrackEntry, DropEvidence, IpvsConnection, StageEvidence};
use svclab_model::plan::{Backend, Namespace, Plan};
use svclab_ruleset::iptables::script::Table;
use svclab_ruleset::iptables::{Chain, IptablesRules};
use svclab_ruleset::ipvs::VirtualServerKey;

/// Conntrack states in which a retransmitted SYN belongs to the entry (Linux v6.12,
/// `net/netfilter/nf_conntrack_proto_tcp.c`, `tcp_conntracks`). For a closed connection, the SYN
/// creates a new entry, and every choice is made again.
const KEPT_TCP_STATES: [&str; 3] = ["SYN_SENT", "SYN_RECV", "ESTABLISHED"];

/// IPVS states in which a retransmitted SYN is sent to the same real server
/// (`net/netfilter/ipvs/ip_vs_core.c`, `is_new_conn_expected`).
const KEPT_IPVS_STATES: [&str; 2] = ["SYN_RECV", "ESTABLISHED"];

/// Minimum remaining lifetime of a kernel entry in seconds. It exceeds the retransmission intervals
/// of a SYN within the maximum wait.
const MIN_REMAINING_SECONDS: u32 = 30;

/// Conntrack status bit `IPS_SEEN_REPLY`.
const IPS_SEEN_REPLY: u32 = 1 << 1;

/// Reason why a timeout is not proven.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum UnprovenError {
    /// Some packets, trace events or drops were not recorded.
    #[error("the evidence is incomplete")]
    Incomplete,
    /// No packet of the attempt was captured.
    #[error("no packet of the attempt was captured")]
    NoPackets,
    /// The end of a packet was not recorded, or may differ for a retransmission.
    #[error("the end of a {} may not be final: {}", .0.label(), .1)]
    NotFinal(Kind, String),
    /// A rule may decide differently for a retransmission.
    #[error("a retransmitted {} may be handled differently in {namespace}: {why}", .kind.label())]
    MayDiffer {
        /// Kind of the packet.
        kind: Kind,
        /// Namespace with the rule.
        namespace: String,
        /// Cause of the possible difference.
        why: String,
    },
}

/// Checks unfinished attempts against the evidence recorded so far.
pub struct TimeoutProof<'e> {
    plan: &'e Plan,
    evidence: &'e StageEvidence,
    /// Rules of each iptables backend for IPv4 and IPv6, by namespace.
    rules: HashMap<&'e str, HashMap<(Backend, u8), IptablesRules>>,
    /// Native nftables tables by namespace.
    tables: HashMap<&'e str, NftTables>,
    /// IP sets with permanent entries, by namespace.
    sets: HashMap<&'e str, FixedSets>,
}

/// State of a connection in the kernel when its SYN is retransmitted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ConntrackState {
    /// The kernel has no entry: the retransmission is treated like the first SYN.
    NoEntry,
    /// The kernel has an entry without a reply.
    Unreplied,
    /// The kernel has an entry with a reply, so matches on the connection state give another
    /// result.
    Replied,
}

/// A chain of iptables or nftables.
#[derive(Clone, Copy)]
enum ChainRules<'s> {
    Iptables(&'s Chain, Option<&'s FixedSets>),
    Native(nftables::NftChainRef<'s>),
}

impl<'e> TimeoutProof<'e> {
    /// Creates a proof. The evidence must come from a plan with captures and traces in every
    /// namespace, with the sets of every namespace whose rules match on sets. No program may change
    /// rules, sets and sysctls meanwhile.
    #[must_use]
    pub fn new(plan: &'e Plan, evidence: &'e StageEvidence) -> Self {
        let mut rules: HashMap<&str, HashMap<(Backend, u8), IptablesRules>> = HashMap::new();
        for saved in &evidence.rules {
            if let Ok(dump) = IptablesRules::parse(&saved.text) {
                let dumps = rules.entry(&saved.namespace).or_default();
                dumps.insert((saved.backend, saved.ip_version), dump);
            }
        }
        let tables = evidence.nft.iter();
        let tables = tables.map(|(name, text)| (name.as_str(), NftTables::parse(text)));
        let sets = evidence.kernel_state.iter().map(|(name, state)| {
            let rules = rules.get(name.as_str()).into_iter();
            let sets = FixedSets::new(&state.sets, rules.flat_map(HashMap::values));
            (name.as_str(), sets)
        });
        Self {
            plan,
            evidence,
            sets: sets.collect(),
            rules,
            tables: tables.collect(),
        }
    }

    /// Checks that no reply can arrive any more for an attempt that has received none.
    ///
    /// # Errors
    ///
    /// Fails with the reason if the timeout is not proven.
    pub fn check_timeout(&self, journey: &Journey) -> Result<(), UnprovenError> {
        let are_drops_complete = match &self.evidence.drops {
            DropEvidence::Watched { missed: lost, .. } => *lost == 0,
            DropEvidence::Uncertain(_) => true,
            DropEvidence::Unwatched => false,
        };
        if !are_drops_complete || self.evidence.packets_missed > 0 || self.evidence.trace_missed > 0
        {
            return Err(UnprovenError::Incomplete);
        }
        let first = journey.packets.first().ok_or(UnprovenError::NoPackets)?;
        let is_retransmitted = match first.kind {
            Kind::Syn => true,
            Kind::Datagram | Kind::Ping => false,
            kind => {
                return Err(UnprovenError::NotFinal(
                    kind,
                    "it does not start a connection".to_owned(),
                ));
            }
        };
        for flight in &journey.packets {
            if !ends::is_final(flight, &journey.packets, is_retransmitted) {
                return Err(UnprovenError::NotFinal(
                    flight.kind,
                    format!("{:?}", flight.end),
                ));
            }
            // A reset of the target cannot end the wait of the source.
            let repeated = is_retransmitted && (flight.kind != Kind::Rst || !flight.direction);
            for hop in flight.hops.iter().filter(|_| repeated) {
                self.check_retransmission(flight, hop)
                    .map_err(|why| UnprovenError::MayDiffer {
                        kind: flight.kind,
                        namespace: hop.namespace.clone(),
                        why,
                    })?;
            }
        }
        Ok(())
    }

    /// Checks that a retransmission gets the same result in a namespace as the packet before.
    fn check_retransmission(&self, flight: &PacketPath, hop: &Hop) -> Result<(), String> {
        let namespace = self
            .plan
            .namespace(&hop.namespace)
            .ok_or("the namespace is not in the plan")?;
        if flight.kind == Kind::Syn {
            self.check_ipvs_keeps_choice(namespace, hop)?;
        }
        let before = (hop.before.source, hop.before.destination);
        let conntrack_entry = self.evidence.conntrack.iter().find(|connection| {
            connection.namespace == hop.namespace
                && connection.protocol == 6
                && keeps_retransmission(connection)
                && [connection.original, connection.reply]
                    .iter()
                    .any(|tuple| (tuple.source, tuple.destination) == before)
        });
        let state = match conntrack_entry {
            None => ConntrackState::NoEntry,
            Some(connection) if connection.status & IPS_SEEN_REPLY != 0 => ConntrackState::Replied,
            Some(_) => ConntrackState::Unreplied,
        };
        let mut chain_visits = ChainVisits::default();
        let mut is_nat = false;
        for step in &hop.matches {
            is_nat = self.is_nat_match(step, hop, is_nat);
            if state != ConntrackState::NoEntry && is_nat {
                continue;
            }
            self.check_rule_match(step, hop, state, &mut chain_visits)?;
        }
        for chain_key in chain_visits.into_unbounded() {
            self.find_chain(hop, chain_key)?.check_rules(None, state)?;
        }
        Ok(())
    }

    /// Whether the rule match is in a chain that only the first packet of a connection traverses.
    /// For native nftables, the last hook chain before the match decides.
    fn is_nat_match(&self, step: &RuleMatch, hop: &Hop, previous: bool) -> bool {
        let chain_key = (step.backend, step.table.as_str(), step.chain.as_str());
        match self.find_chain(hop, chain_key) {
            Ok(ChainRules::Native(place)) => place.is_nat_chain().unwrap_or(previous),
            _ => step.table == "nat",
        }
    }

    /// Checks that IPVS keeps its choice, if IPVS selected a real server.
    fn check_ipvs_keeps_choice(&self, namespace: &Namespace, hop: &Hop) -> Result<(), String> {
        if let Some(Rewrite::ByIpvs { server, real, .. }) = &hop.rewritten {
            let is_entry = |entry: &&IpvsConnection| {
                entry.namespace == hop.namespace
                    && entry.client == hop.before.source
                    && entry.virtual_server == *server
                    && entry.real_server == *real
            };
            return match self.evidence.ipvs_connections.iter().find(is_entry) {
                Some(entry)
                    if KEPT_IPVS_STATES.contains(&entry.state.as_str())
                        && entry.expires >= MIN_REMAINING_SECONDS =>
                {
                    Ok(())
                }
                _ => Err("the IPVS connection may expire soon".to_owned()),
            };
        }
        let destinations: Vec<SocketAddr> = [hop.before, hop.after]
            .into_iter()
            .chain(hop.matches.iter().map(|step| step.flow))
            .map(|flow| flow.destination)
            .collect();
        let is_balanced = namespace.ipvs.iter().any(|server| match server.key {
            VirtualServerKey::Address { address, port, .. } => destinations
                .iter()
                .any(|to| to.ip() == address && (to.port() == port || port == 0)),
            VirtualServerKey::FwMark { .. } => true,
        });
        if is_balanced {
            return Err("IPVS selects a real server for the destination".to_owned());
        }
        Ok(())
    }

    /// Checks that the matched rule and the rules before it in its chain are deterministic.
    fn check_rule_match<'s>(
        &self,
        step: &'s RuleMatch,
        hop: &Hop,
        state: ConntrackState,
        visits: &mut ChainVisits<'s>,
    ) -> Result<(), String> {
        let chain_key = (step.backend, step.table.as_str(), step.chain.as_str());
        let chain = self.find_chain(hop, chain_key)?;
        let number = match step.number {
            Some(number) => Some(usize::try_from(number).map_err(|error| error.to_string())?),
            None => None,
        };
        let returns = matches!(step.target.as_deref(), Some("RETURN" | "return"));
        visits.count_match(chain_key, returns);
        let has_one_destination = chain.check_rules(number, state)?;
        let (Some(_), Some(target)) = (step.number, step.target.as_deref()) else {
            return Ok(());
        };
        let target_chain = (step.backend, step.table.as_str(), target);
        if self.find_chain(hop, target_chain).is_ok() {
            visits.count_jump(target_chain);
            return Ok(());
        }
        if !iptables::DETERMINISTIC_TARGETS.contains(&target) || !has_one_destination {
            return Err(format!("{target} may have another result"));
        }
        Ok(())
    }

    fn find_chain<'s>(
        &'s self,
        hop: &Hop,
        chain_key: ChainKey<'_>,
    ) -> Result<ChainRules<'s>, String> {
        let (by, table, chain) = chain_key;
        let unknown = || format!("chain {table} {chain} is not in the plan");
        if table.contains(' ') {
            let tables = self.tables.get(hop.namespace.as_str());
            let place = tables.and_then(|tables| tables.chain(table, chain));
            return place.map(ChainRules::Native).ok_or_else(unknown);
        }
        let ip = if hop.before.source.is_ipv4() { 4 } else { 6 };
        let dumps = self.rules.get(hop.namespace.as_str());
        let sets = self.sets.get(hop.namespace.as_str());
        Table::from_name(table)
            .and_then(|table| dumps?.get(&(by, ip))?.chain(table, chain))
            .map(|chain| ChainRules::Iptables(chain, sets))
            .ok_or_else(unknown)
    }
}

impl ChainRules<'_> {
    /// Checks that the rules up to this number, or all rules, are deterministic. Returns whether
    /// the last rule has a fixed destination. A rule without a known position has the number 0.
    fn check_rules(self, number: Option<usize>, state: ConntrackState) -> Result<bool, String> {
        let missing_rule = "a rule is not in the plan";
        match self {
            Self::Iptables(chain, sets) => {
                let rules = chain.rules.get(..number.unwrap_or(chain.rules.len()));
                let rules = rules.ok_or(missing_rule)?;
                for rule in rules {
                    iptables::check_rule(rule, state, sets)?;
                }
                Ok(rules.last().is_some_and(iptables::has_one_destination))
            }
            Self::Native(place) => {
                let rules = &place.chain.rules;
                let checked_rules = rules
                    .get(..number.unwrap_or(rules.len()))
                    .ok_or(missing_rule)?;
                for rule in checked_rules {
                    place.check_rule(rule, state)?;
                }
                Ok(checked_rules
                    .last()
                    .is_some_and(nftables::has_one_destination))
            }
        }
    }
}

/// Whether a retransmission belongs to this conntrack entry.
fn keeps_retransmission(connection: &ConntrackEntry) -> bool {
    let is_kept_state = |state: &str| KEPT_TCP_STATES.contains(&state);
    connection
        .expires
        .is_some_and(|expires| expires >= MIN_REMAINING_SECONDS)
        && connection.state.as_deref().is_some_and(is_kept_state)
}

/// Key of a chain: backend, table name and chain name.
type ChainKey<'s> = (Backend, &'s str, &'s str);

/// Chains that a packet passed in one namespace.
#[derive(Default)]
struct ChainVisits<'s> {
    /// Number of jumps to each chain and number of rule matches in it.
    chains: HashMap<ChainKey<'s>, (usize, usize)>,
    /// Chain of the last match, after the chains from which it was entered, each with whether its
    /// last matching rule returned.
    stack: Vec<(ChainKey<'s>, bool)>,
    /// Chain to which the last match jumped.
    entered: Option<ChainKey<'s>>,
    /// Chains whose end the packet reached: another chain continued after their last match.
    passed: HashSet<ChainKey<'s>>,
}

impl<'s> ChainVisits<'s> {
    fn count_match(&mut self, chain_key: ChainKey<'s>, returns: bool) {
        self.chains.entry(chain_key).or_default().1 += 1;
        let mut callers = self.stack.iter();
        if self.entered.take() == Some(chain_key) {
            self.stack.push((chain_key, false));
        } else if let Some(depth) = callers.rposition(|(known, _)| *known == chain_key) {
            let left = self.stack.drain(depth + 1..);
            let passed = left.filter(|(_, returned)| !returned);
            self.passed.extend(passed.map(|(chain, _)| chain));
        } else {
            // Another hook or table.
            self.stack.clear();
            self.stack.push((chain_key, false));
        }
        if let Some((_, returned)) = self.stack.last_mut() {
            *returned = returns;
        }
    }

    fn count_jump(&mut self, chain_key: ChainKey<'s>) {
        self.chains.entry(chain_key).or_default().0 += 1;
        self.entered = Some(chain_key);
    }

    /// Returns the chains in which the last rule that the packet passed is unknown: chains without
    /// a match, entered several times, or passed to their end.
    fn into_unbounded(self) -> impl Iterator<Item = ChainKey<'s>> {
        let passed = self.passed;
        let is_unbounded = move |chain: &ChainKey<'s>, (sent, steps): (usize, usize)| {
            sent > 1 || steps == 0 || passed.contains(chain)
        };
        self.chains
            .into_iter()
            .filter(move |(chain, counts)| is_unbounded(chain, *counts))
            .map(|(place, _)| place)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the chains whose last passed rule is unknown. Each match has its chain, the chain to
    /// which it jumps, and whether it returns.
    fn unbounded<'s>(matches: &[(&'s str, Option<&'s str>, bool)]) -> Vec<&'s str> {
        let mut visits = ChainVisits::default();
        for (chain, jump, returns) in matches {
            visits.count_match((Backend::Nft, "filter", chain), *returns);
            if let Some(jump) = jump {
                visits.count_jump((Backend::Nft, "filter", jump));
            }
        }
        let mut chains: Vec<&str> = visits.into_unbounded().map(|(_, _, chain)| chain).collect();
        chains.sort_unstable();
        chains
    }

    #[test]
    fn chain_is_unbounded_if_its_caller_continues() {
        let (call, mark, next) = (
            ("F", Some("X"), false),
            ("X", None, false),
            ("F", None, false),
        );
        assert_eq!(unbounded(&[call, mark, next]), ["X"]);
        assert_eq!(
            unbounded(&[call, ("X", None, true), next]),
            Vec::<&str>::new()
        );
        // The last match ended the traversal; the next one is in another hook.
        let inner = ("X", Some("Y"), false);
        let end = ("Y", None, false);
        let other_hook = ("P", None, false);
        assert_eq!(
            unbounded(&[call, inner, end, other_hook]),
            Vec::<&str>::new()
        );
        assert_eq!(unbounded(&[call, inner, end, next]), ["X", "Y"]);
        assert_eq!(unbounded(&[call, next]), ["X"]);
        assert_eq!(unbounded(&[call, mark, call, ("X", None, true)]), ["X"]);
    }
}
