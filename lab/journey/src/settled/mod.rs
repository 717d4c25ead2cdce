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

mod native;

use std::collections::HashMap;
use std::net::SocketAddr;

use crate::journey::{End, Flight, Hop, Journey, Kind, Rewritten, Step};
use native::Tables;
use svclab_model::evidence::{Balanced, Connection, Drops, Evidence};
use svclab_model::plan::{Backend, Namespace, Plan};
use svclab_ruleset::iptables::script::Table;
use svclab_ruleset::iptables::{Chain, Dump, Rule};
use svclab_ruleset::ipvs::Virtual;

/// Reasons for which a kernel drops a packet by its sysctls alone (Linux v6.12,
/// `include/net/dropreason-core.h`). An identical packet has the same end.
const LASTING: [&str; 1] = ["IP_RPFILTER"];

/// Conntrack states in which a retransmitted SYN belongs to the entry (Linux v6.12,
/// `net/netfilter/nf_conntrack_proto_tcp.c`, `tcp_conntracks`). For a closed connection, the SYN
/// creates a new entry, and every choice is made again.
const KEPT: [&str; 3] = ["SYN_SENT", "SYN_RECV", "ESTABLISHED"];

/// IPVS states in which a retransmitted SYN is sent to the same real server
/// (`net/netfilter/ipvs/ip_vs_core.c`, `is_new_conn_expected`).
const BALANCED: [&str; 2] = ["SYN_RECV", "ESTABLISHED"];

/// Minimum remaining lifetime of a kernel entry in seconds. It exceeds the retransmission intervals
/// of a SYN within the maximum wait.
const LONG: u32 = 30;

/// Conntrack status bit `IPS_SEEN_REPLY`.
const ANSWERED: u32 = 1 << 1;

/// Matches that give the same result for identical packets, as long as sysctls, sets and addresses
/// do not change.
const STEADY: [&str; 25] = [
    "addrtype",
    "ah",
    "bpf",
    "comment",
    "conntrack",
    "dscp",
    "ecn",
    "esp",
    "icmp",
    "icmp6",
    "iprange",
    "length",
    "mac",
    "mark",
    "multiport",
    // `nfacct` only counts, unless its object has a quota, and no lab sets a quota (Linux v6.12,
    // `net/netfilter/xt_nfacct.c`, `nfacct_mt`).
    "nfacct",
    "owner",
    "physdev",
    "pkttype",
    "rpfilter",
    "sctp",
    "set",
    "state",
    "tcp",
    "udp",
];

/// Targets that always do the same to identical packets.
const STEADILY: [&str; 8] = [
    "ACCEPT", "CT", "DNAT", "DROP", "MARK", "NOTRACK", "RETURN", "TCPMSS",
];

/// Reason why a timeout is not proven.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Unproven {
    /// Some packets, trace events or drops were not recorded.
    #[error("something was not kept of what was seen")]
    LeftOut,
    /// No packet of the attempt was captured.
    #[error("none of its packets was seen")]
    Unseen,
    /// The end of a packet was not recorded, or may differ for a retransmission.
    #[error("a {} may not have ended for good: {}", .0.word(), .1)]
    Open(Kind, String),
    /// A rule may decide differently for a retransmission.
    #[error("a {} that is sent again may meet something else in {namespace}: {why}", .kind.word())]
    Chosen {
        /// Kind of the packet.
        kind: Kind,
        /// Namespace with the rule.
        namespace: String,
        /// Cause of the possible difference.
        why: String,
    },
}

/// Checks unfinished attempts against the evidence recorded so far.
pub struct Proof<'e> {
    plan: &'e Plan,
    evidence: &'e Evidence,
    /// Rules of each iptables backend for IPv4 and IPv6, by namespace.
    rules: HashMap<&'e str, HashMap<(Backend, u8), Dump>>,
    /// Native nftables tables by namespace.
    tables: HashMap<&'e str, Tables>,
}

/// State of a connection in the kernel when its SYN is retransmitted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Known {
    /// The kernel has no entry: the retransmission is treated like the first SYN.
    No,
    /// The kernel has an entry without a reply.
    Begun,
    /// The kernel has an entry with a reply, so matches on the connection state give another
    /// result.
    Answered,
}

/// A chain of iptables or nftables.
#[derive(Clone, Copy)]
enum Rules<'s> {
    Iptables(&'s Chain),
    Native(native::Place<'s>),
}

impl<'e> Proof<'e> {
    /// Creates a proof. The evidence must come from a plan with captures and traces in every
    /// namespace. Rules, sets and sysctls must not change meanwhile.
    #[must_use]
    pub fn new(plan: &'e Plan, evidence: &'e Evidence) -> Self {
        let mut rules: HashMap<&str, HashMap<(Backend, u8), Dump>> = HashMap::new();
        for saved in &evidence.rules {
            if let Ok(dump) = Dump::parse(&saved.text) {
                let of = rules.entry(&saved.namespace).or_default();
                of.insert((saved.backend, saved.ip), dump);
            }
        }
        let tables = evidence.nft.iter();
        let tables = tables.map(|(name, text)| (name.as_str(), Tables::read(text)));
        Self {
            plan,
            evidence,
            rules,
            tables: tables.collect(),
        }
    }

    /// Checks that no reply can arrive any more for an attempt that has received none.
    ///
    /// # Errors
    ///
    /// Fails with the reason if the timeout is not proven.
    pub fn timeout(&self, journey: &Journey) -> Result<(), Unproven> {
        let kept = match &self.evidence.drops {
            Drops::Watched { lost, .. } => *lost == 0,
            Drops::Uncertain(_) => true,
            Drops::Unwatched => false,
        };
        if !kept || self.evidence.packets_left_out > 0 || self.evidence.met_left_out > 0 {
            return Err(Unproven::LeftOut);
        }
        let first = journey.flights.first().ok_or(Unproven::Unseen)?;
        let again = match first.kind {
            Kind::Syn => true,
            Kind::Datagram | Kind::Ping => false,
            other => return Err(Unproven::Open(other, "it begins nothing".to_owned())),
        };
        for flight in &journey.flights {
            if !has_ended(flight, &journey.flights, again) {
                return Err(Unproven::Open(flight.kind, format!("{:?}", flight.end)));
            }
            // A reset of the target cannot end the wait of the source.
            let repeated = again && (flight.kind != Kind::Rst || !flight.outward);
            for hop in flight.hops.iter().filter(|_| repeated) {
                self.is_the_same(flight, hop)
                    .map_err(|why| Unproven::Chosen {
                        kind: flight.kind,
                        namespace: hop.namespace.clone(),
                        why,
                    })?;
            }
        }
        Ok(())
    }

    /// Checks that a retransmission gets the same result in a namespace as the packet before.
    fn is_the_same(&self, flight: &Flight, hop: &Hop) -> Result<(), String> {
        let namespace = self
            .plan
            .namespace(&hop.namespace)
            .ok_or("it is not in the plan")?;
        if flight.kind == Kind::Syn {
            self.is_balanced_again(namespace, hop)?;
        }
        let before = (hop.before.source, hop.before.destination);
        let remembered = self.evidence.connections.iter().find(|connection| {
            connection.namespace == hop.namespace
                && connection.protocol == 6
                && is_lasting(connection)
                && [connection.original, connection.reply]
                    .iter()
                    .any(|tuple| (tuple.source, tuple.destination) == before)
        });
        let known = match remembered {
            None => Known::No,
            Some(connection) if connection.status & ANSWERED != 0 => Known::Answered,
            Some(_) => Known::Begun,
        };
        let mut visits = Visits::default();
        let mut of_nat = false;
        for step in &hop.met {
            of_nat = self.is_of_nat(step, hop, of_nat);
            if known != Known::No && of_nat {
                continue;
            }
            self.is_steady(step, hop, known, &mut visits)?;
        }
        for place in visits.unseen() {
            self.chain(hop, place)?.steady(None, known)?;
        }
        Ok(())
    }

    /// Whether the rule match is in a chain that only the first packet of a connection traverses.
    /// For native nftables, the last hook chain before the match decides.
    fn is_of_nat(&self, step: &Step, hop: &Hop, before: bool) -> bool {
        let place = (step.by, step.table.as_str(), step.chain.as_str());
        match self.chain(hop, place) {
            Ok(Rules::Native(place)) => place.is_of_nat().unwrap_or(before),
            _ => step.table == "nat",
        }
    }

    /// Checks that IPVS keeps its choice, if IPVS selected a real server.
    fn is_balanced_again(&self, namespace: &Namespace, hop: &Hop) -> Result<(), String> {
        if let Some(Rewritten::ByIpvs { server, real, .. }) = &hop.rewritten {
            let remembers = |entry: &&Balanced| {
                entry.namespace == hop.namespace
                    && entry.client == hop.before.source
                    && entry.server == *server
                    && entry.real == *real
            };
            return match self.evidence.balanced.iter().find(remembers) {
                Some(entry)
                    if BALANCED.contains(&entry.state.as_str()) && entry.expires >= LONG =>
                {
                    Ok(())
                }
                _ => Err("IPVS does not remember it for long".to_owned()),
            };
        }
        let to: Vec<SocketAddr> = [hop.before, hop.after]
            .into_iter()
            .chain(hop.met.iter().map(|step| step.flow))
            .map(|flow| flow.destination)
            .collect();
        let chooses = namespace.ipvs.iter().any(|server| match server.takes {
            Virtual::Address { address, port, .. } => to
                .iter()
                .any(|to| to.ip() == address && (to.port() == port || port == 0)),
            Virtual::FwMark { .. } => true,
        });
        if chooses {
            return Err("IPVS balances what is sent there".to_owned());
        }
        Ok(())
    }

    /// Checks that the matched rule and the rules before it in its chain are deterministic.
    fn is_steady<'s>(
        &self,
        step: &'s Step,
        hop: &Hop,
        known: Known,
        visits: &mut Visits<'s>,
    ) -> Result<(), String> {
        let place = (step.by, step.table.as_str(), step.chain.as_str());
        let chain = self.chain(hop, place)?;
        let number = match step.number {
            Some(number) => Some(usize::try_from(number).map_err(|error| error.to_string())?),
            None => None,
        };
        visits.seen(place);
        let fixed = chain.steady(number, known)?;
        let (Some(_), Some(target)) = (step.number, step.target.as_deref()) else {
            return Ok(());
        };
        let entered = (step.by, step.table.as_str(), target);
        if self.chain(hop, entered).is_ok() {
            visits.entered(entered);
            return Ok(());
        }
        if !STEADILY.contains(&target) || !fixed {
            return Err(format!("{target} may do something else with it"));
        }
        Ok(())
    }

    fn chain<'s>(&'s self, hop: &Hop, place: Place<'_>) -> Result<Rules<'s>, String> {
        let (by, table, chain) = place;
        let unknown = || format!("{table} {chain} is not in the plan");
        if table.contains(' ') {
            let tables = self.tables.get(hop.namespace.as_str());
            let place = tables.and_then(|tables| tables.chain(table, chain));
            return place.map(Rules::Native).ok_or_else(unknown);
        }
        let ip = if hop.before.source.is_ipv4() { 4 } else { 6 };
        let of = self.rules.get(hop.namespace.as_str());
        Table::from_name(table)
            .and_then(|table| of?.get(&(by, ip))?.chain(table, chain))
            .map(Rules::Iptables)
            .ok_or_else(unknown)
    }
}

impl Rules<'_> {
    /// Checks that the rules up to this number, or all rules, are deterministic. Returns whether
    /// the last rule has a fixed destination. A rule without a known position has the number 0.
    fn steady(self, number: Option<usize>, known: Known) -> Result<bool, String> {
        let gone = "a rule is not in the plan";
        match self {
            Self::Iptables(chain) => {
                let asked = chain.rules.get(..number.unwrap_or(chain.rules.len()));
                let asked = asked.ok_or(gone)?;
                for rule in asked {
                    steady(rule, known == Known::Answered)?;
                }
                Ok(asked.last().is_some_and(has_one_destination))
            }
            Self::Native(place) => {
                let rules = &place.chain.rules;
                let asked = rules.get(..number.unwrap_or(rules.len())).ok_or(gone)?;
                for rule in asked {
                    place.steady(rule, known)?;
                }
                Ok(asked.last().is_some_and(native::has_one_destination))
            }
        }
    }
}

/// Whether a retransmission belongs to this conntrack entry.
fn is_lasting(connection: &Connection) -> bool {
    let kept = |state: &str| KEPT.contains(&state);
    connection.expires.is_some_and(|expires| expires >= LONG)
        && connection.state.as_deref().is_some_and(kept)
}

/// Key of a chain: backend, table name and chain name.
type Place<'s> = (Backend, &'s str, &'s str);

/// Chains that a packet passed in one namespace.
#[derive(Default)]
struct Visits<'s> {
    /// Number of jumps to each chain and number of rule matches in it.
    chains: HashMap<Place<'s>, (usize, usize)>,
}

impl<'s> Visits<'s> {
    fn seen(&mut self, place: Place<'s>) {
        self.chains.entry(place).or_default().1 += 1;
    }

    fn entered(&mut self, place: Place<'s>) {
        self.chains.entry(place).or_default().0 += 1;
    }

    /// Returns the chains in which the last rule that the packet passed is unknown: chains without
    /// a match, or entered several times.
    fn unseen(self) -> impl Iterator<Item = Place<'s>> {
        self.chains
            .into_iter()
            .filter(|(_, (sent, steps))| *sent > 1 || *steps == 0)
            .map(|(place, _)| place)
    }
}

/// Checks that a rule is deterministic. The flag states whether the connection has received a reply
/// since the first packet.
fn steady(rule: &Rule, answered: bool) -> Result<(), String> {
    let parts = rule.parts();
    let unsteady = parts
        .matches
        .iter()
        .find(|module| !STEADY.contains(&module.name.as_ref()));
    if let Some(module) = unsteady {
        return Err(format!("`-m {}` may say something else", module.name));
    }
    let asks = parts
        .matches
        .iter()
        .any(|module| matches!(module.name.as_ref(), "conntrack" | "state"));
    let target = rule.target();
    if answered && asks && !matches!(target.as_deref(), Some("ACCEPT" | "DROP")) {
        return Err("a rule asks whether it was answered".to_owned());
    }
    Ok(())
}

/// Whether the destination of a rule leaves no choice.
fn has_one_destination(rule: &Rule) -> bool {
    let parts = rule.parts();
    let choices = parts.target.iter().flat_map(|target| &target.choices);
    choices
        .filter(|choice| choice.name == "--to-destination")
        .flat_map(|choice| &choice.values)
        .all(|to| !to.contains('-'))
        && !rule.written().contains("--random")
}

/// Whether a packet has ended, and a retransmission would end in the same way. The flag states
/// whether the packet belongs to TCP, which retransmits.
fn has_ended(flight: &Flight, all: &[Flight], again: bool) -> bool {
    // The ICMP error of a kernel may come late, or only for the next packet: a lab can limit the
    // rate of ICMP errors.
    let in_silence = || {
        let last = flight.hops.last().and_then(|hop| hop.met.last());
        last.is_some_and(|step| step.target.as_deref() != Some("REJECT"))
    };
    match (&flight.end, flight.kind) {
        (End::ByRule, _) => in_silence(),
        (End::Dropped { reason, .. }, kind) => {
            !again || kind == Kind::Rst || LASTING.contains(&reason.as_str())
        }
        (End::Answered(by), _) => !again || by.iter().all(|at| all[*at].kind == Kind::Rst),
        // A delivered packet causes a reply or nothing, and a reply is a packet of its own.
        (End::Delivered, Kind::Syn | Kind::Datagram | Kind::Ping) => flight.outward,
        (End::Delivered, Kind::Rst) => again && flight.outward,
        _ => false,
    }
}
