//! Whether a timeout is proven before anybody's patience is over.
//!
//! A connection that is not answered at once may be answered when its SYN is sent
//! again: whatever was dropped before conntrack had confirmed it is decided anew. So it
//! is proven only where the end of every packet was seen, and where every packet that
//! is sent again meets what the one before it met: either a kernel remembers what was
//! chosen for it, or there was nothing to choose. A datagram and an echo request are
//! sent once; that their packets have ended is enough.
//!
//! What is not understood proves nothing.

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

/// Reasons for which a kernel drops a packet by its settings alone (Linux v6.12,
/// `include/net/dropreason-core.h`): the same packet comes to the same end.
const LASTING: [&str; 1] = ["IP_RPFILTER"];

/// States of conntrack's in which a SYN that is sent again belongs to the entry (Linux
/// v6.12, `net/netfilter/nf_conntrack_proto_tcp.c`, `tcp_conntracks`): of a closed one
/// it makes a new one, for which everything is chosen anew.
const KEPT: [&str; 3] = ["SYN_SENT", "SYN_RECV", "ESTABLISHED"];

/// States of IPVS's in which it is sent to where the one before it was
/// (`net/netfilter/ipvs/ip_vs_core.c`, `is_new_conn_expected`).
const BALANCED: [&str; 2] = ["SYN_RECV", "ESTABLISHED"];

/// For how many seconds more a kernel must remember: longer than the pauses after which
/// a SYN is sent again while anybody still waits.
const LONG: u32 = 30;

/// `IPS_SEEN_REPLY`.
const ANSWERED: u32 = 1 << 1;

/// Matches that say the same of the same packet every time, unless somebody changes a
/// setting, a set or an address.
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
    // It only counts, unless who made its object gave it a quota, and no lab does
    // (Linux v6.12, `net/netfilter/xt_nfacct.c`, `nfacct_mt`).
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

/// Targets that do the same with the same packet every time.
const STEADILY: [&str; 8] = [
    "ACCEPT", "CT", "DNAT", "DROP", "MARK", "NOTRACK", "RETURN", "TCPMSS",
];

/// Why a timeout is not proven.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Unproven {
    /// Some of what happened was not kept.
    #[error("something was not kept of what was seen")]
    LeftOut,
    /// Nothing was seen of it.
    #[error("none of its packets was seen")]
    Unseen,
    /// A packet's end was not seen, or is one that may be another the next time.
    #[error("a {} may not have ended for good: {}", .0.word(), .1)]
    Open(Kind, String),
    /// A packet that is sent again may be treated otherwise.
    #[error("a {} that is sent again may meet something else in {namespace}: {why}", .kind.word())]
    Chosen {
        /// What packet.
        kind: Kind,
        /// Where.
        namespace: String,
        /// By what.
        why: String,
    },
}

/// Holds attempts that have not ended against what was seen so far.
pub struct Proof<'e> {
    plan: &'e Plan,
    evidence: &'e Evidence,
    /// By namespace, those of each iptables for IPv4 and for IPv6.
    rules: HashMap<&'e str, HashMap<(Backend, u8), Dump>>,
    /// By namespace, tables that no iptables knows.
    tables: HashMap<&'e str, Tables>,
}

/// What a kernel knows of a connection when its SYN is sent again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Known {
    /// Nothing: it is as the first.
    No,
    /// That there is one.
    Begun,
    /// That it was answered: it is another one to rules that ask for that.
    Answered,
}

/// A chain of either kind.
#[derive(Clone, Copy)]
enum Rules<'s> {
    Iptables(&'s Chain),
    Native(native::Place<'s>),
}

impl<'e> Proof<'e> {
    /// The evidence is of a plan whose every namespace is watched and traced, and whose
    /// rules, sets and settings nobody changes.
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

    /// Whether no answer can come to a connection any more, of which none has come.
    ///
    /// # Errors
    ///
    /// Why that is not proven.
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
            // What resets the other side is of no use to the caller.
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

    /// Whether a packet that is sent again meets in a namespace what it met before.
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

    /// Whether a step is one that the kernel takes only with the first packet of a
    /// connection. In a table that no iptables knows, the hook's own chain says so,
    /// behind which `before` all others come.
    fn is_of_nat(&self, step: &Step, hop: &Hop, before: bool) -> bool {
        let place = (step.by, step.table.as_str(), step.chain.as_str());
        match self.chain(hop, place) {
            Ok(Rules::Native(place)) => place.is_of_nat().unwrap_or(before),
            _ => step.table == "nat",
        }
    }

    /// Where IPVS chooses, it must remember what it chose.
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

    /// Whether a rule that was met, and those before it, say the same again.
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
    /// Whether its rules up to this number, or all of them, say the same of the same
    /// packet every time; then, whether the last of them leaves nothing to choose of
    /// where it sends a packet. A rule that came and went has the number nought.
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

/// Whether what is sent again belongs to a connection.
fn is_lasting(connection: &Connection) -> bool {
    let kept = |state: &str| KEPT.contains(&state);
    connection.expires.is_some_and(|expires| expires >= LONG)
        && connection.state.as_deref().is_some_and(kept)
}

/// A chain: whose it is, its table's name and its own.
type Place<'s> = (Backend, &'s str, &'s str);

/// The chains that a packet came to in one namespace.
#[derive(Default)]
struct Visits<'s> {
    /// How often it was sent there, and how many steps it took there.
    chains: HashMap<Place<'s>, (usize, usize)>,
}

impl<'s> Visits<'s> {
    fn seen(&mut self, place: Place<'s>) {
        self.chains.entry(place).or_default().1 += 1;
    }

    fn entered(&mut self, place: Place<'s>) {
        self.chains.entry(place).or_default().0 += 1;
    }

    /// Those of which it is not known up to which rule it came there: it took no step,
    /// or came several times.
    fn unseen(self) -> impl Iterator<Item = Place<'s>> {
        self.chains
            .into_iter()
            .filter(|(_, (sent, steps))| *sent > 1 || *steps == 0)
            .map(|(place, _)| place)
    }
}

/// Whether a rule says the same of the same packet every time. `answered`: but for
/// whether its connection was answered by then.
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

/// Whether a rule leaves nothing to choose of where it sends a packet.
fn has_one_destination(rule: &Rule) -> bool {
    let parts = rule.parts();
    let choices = parts.target.iter().flat_map(|target| &target.choices);
    choices
        .filter(|choice| choice.name == "--to-destination")
        .flat_map(|choice| &choice.values)
        .all(|to| !to.contains('-'))
        && !rule.written().contains("--random")
}

/// Whether a packet has ended, and one like it would end so again. `again`: whether it
/// is a TCP connection's.
fn has_ended(flight: &Flight, all: &[Flight], again: bool) -> bool {
    // An error that a kernel sends for it may come late, or for the next one only: where a
    // lab limits them, it sends so many a second.
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
        // Delivered: whoever called with it or got it answers, and that is a packet too.
        (End::Delivered, Kind::Syn | Kind::Datagram | Kind::Ping) => flight.outward,
        (End::Delivered, Kind::Rst) => again && flight.outward,
        _ => false,
    }
}
