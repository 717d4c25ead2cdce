//! What kernels tell of packets while probes run: rules met, connections, where IPVS
//! sends them, and which are dropped. Nothing of it changes what becomes of a packet.

mod attributes;
mod balanced;
mod connections;
mod drops;
mod legacy;
mod legacy_table;
mod logger;
mod nft;
mod reader;
mod rules;
mod socket;
mod step;
mod table;

use std::collections::HashMap;
use std::io;
use std::sync::Arc;

use netlink_sys::Socket;

use super::netns::NetNs;
use super::{failure, nfnetlink};
use crate::evidence::met::At;
use crate::evidence::{Drops, Evidence, Met};
use crate::plan::{Backend, Namespace};
use crate::protocol::Failure;
use drops::Tracer;
use legacy::Log;
use logger::Logger;
use nft::Passes;
use reader::Reader;
use rules::Rules;
use step::{End, Place, Step};
use table::Table;

/// The most steps that are kept of one lab's run.
const MOST: usize = 200_000;

/// Traced namespaces, until it is ended or dropped.
pub struct Trace {
    reader: Reader,
    /// One a socket.
    ears: Vec<Ear>,
    drops: Result<Tracer, String>,
    traced: Vec<Traced>,
}

/// What is heard on a socket of one of them.
struct Ear {
    place: usize,
    hears: Hears,
}

enum Hears {
    Nft(Passes),
    Legacy(Log),
    Forgotten,
}

/// One of them.
struct Traced {
    ns: NetNs,
    name: String,
    /// Its interfaces by index.
    interfaces: HashMap<u32, String>,
    /// Its rules as they were at first.
    rules: Rules,
    /// Both are taken back when they are dropped.
    _table: Table,
    _logger: Option<Logger>,
}

impl Trace {
    /// Begins to trace namespaces, each with its interfaces by index; none when there
    /// are none.
    ///
    /// # Errors
    ///
    /// When a namespace cannot be entered or its kernel refuses something; nothing is
    /// left of it then.
    pub fn begin<'a>(
        namespaces: impl Iterator<Item = (&'a NetNs, &'a Namespace, HashMap<u32, String>)>,
    ) -> Result<Option<Self>, Failure> {
        let (mut traced, mut sockets, mut ears) = (Vec::new(), Vec::new(), Vec::new());
        for (ns, plan, interfaces) in namespaces {
            let place = traced.len();
            let hear = |socket, hears| {
                sockets.push(socket);
                ears.push(Ear { place, hears });
            };
            let begun = Traced::begin(ns, plan, interfaces, hear)
                .map_err(|error| failed("trace the packets", &plan.name, &error))?;
            traced.push(begun);
        }
        let Some(first) = traced.first() else {
            return Ok(None);
        };
        let reader = Reader::begin(sockets)
            .map_err(|error| failed("trace the packets", &first.name, &error))?;
        Ok(Some(Self {
            reader,
            ears,
            drops: Tracer::begin(),
            traced,
        }))
    }

    /// Ends it and says what was heard.
    ///
    /// # Errors
    ///
    /// When a namespace cannot be entered, or its kernel does not answer.
    pub fn end(self, evidence: &mut Evidence) -> Result<(), Failure> {
        let Self {
            reader,
            mut ears,
            drops,
            traced,
        } = self;
        let Some(first) = traced.first() else {
            return Ok(());
        };
        let heard = reader
            .end()
            .map_err(|error| failed("trace the packets", &first.name, &error))?;
        evidence.drops = match drops {
            Ok(tracer) => tracer.drops(&traced),
            Err(why) => Drops::Uncertain(why),
        };
        for ((ear, socket), left_out) in ears.iter().zip(&heard.sockets).zip(&heard.left_out) {
            let traced = &traced[ear.place];
            if !matches!(ear.hears, Hears::Forgotten) {
                let lost = socket::lost(&traced.ns, socket).map_err(|error| {
                    failed("count what was not heard of packets", &traced.name, &error)
                })?;
                evidence.met_left_out += lost + left_out;
            }
        }
        let mut lines: Vec<Lines<'_>> = traced.iter().map(Lines::new).collect();
        for (socket, bytes) in heard.all() {
            let Ear { place, hears } = &mut ears[socket];
            for message in nfnetlink::messages(bytes) {
                let step = match hears {
                    Hears::Nft(passes) => passes.step(&message),
                    Hears::Legacy(log) => log.step(&message),
                    Hears::Forgotten => {
                        let forgotten = connections::forgotten(&message, &traced[*place].name);
                        evidence.connections.extend(forgotten);
                        None
                    }
                };
                match step {
                    Some(step) if evidence.met.len() < MOST => {
                        evidence.met.push(lines[*place].met(step));
                    }
                    Some(_) => evidence.met_left_out += 1,
                    None => {}
                }
            }
        }
        drop(heard);
        for Traced { ns, name, .. } in &traced {
            let held = connections::all(ns, name)
                .map_err(|error| failed("read the connections", name, &error))?;
            evidence.connections.extend(held);
            let held = balanced::all(ns, name)
                .map_err(|error| failed("read what IPVS remembers", name, &error))?;
            evidence.balanced.extend(held);
        }
        Ok(())
    }
}

impl Traced {
    fn begin(
        ns: &NetNs,
        plan: &Namespace,
        interfaces: HashMap<u32, String>,
        mut hear: impl FnMut(Socket, Hears),
    ) -> io::Result<Self> {
        let passes = Passes::default();
        hear(socket::open(ns, Some(nft::GROUP))?, Hears::Nft(passes));
        hear(
            socket::open(ns, Some(connections::GROUP))?,
            Hears::Forgotten,
        );
        // Rules of either kind may be there without the plan's doing. But a kernel
        // that has no such log has no such rules to tell of.
        let legacy = plan
            .iptables
            .as_ref()
            .is_some_and(|rules| rules.backend == Backend::Legacy);
        let logger = match Logger::set(ns) {
            Ok(logger) => {
                let socket = socket::open(ns, None)?;
                ns.enter(|| legacy::hear(&socket))??;
                hear(socket, Hears::Legacy(Log::default()));
                Some(logger)
            }
            Err(error) if legacy => return Err(error),
            Err(_) => None,
        };
        Ok(Self {
            ns: ns.clone(),
            name: plan.name.clone(),
            interfaces,
            rules: Rules::read(ns)?,
            // Last, when everything hears.
            _table: Table::make(ns)?,
            _logger: logger,
        })
    }
}

/// What finds the line of a rule, for one namespace.
struct Lines<'a> {
    traced: &'a Traced,
    /// Its rules as they are now, once they have been asked for.
    now: Option<Rules>,
    /// How many rules the chains of each legacy table have.
    legacy: HashMap<(u8, Arc<str>), HashMap<String, u32>>,
}

impl<'a> Lines<'a> {
    fn new(traced: &'a Traced) -> Self {
        Self {
            traced,
            now: None,
            legacy: HashMap::new(),
        }
    }

    fn met(&mut self, step: Step) -> Met {
        let at = match step.place {
            Place::Handle(family, handle) => At::Rule(self.line(family, &step.table, handle)),
            Place::Last(line, end) if line > self.rules(&step) => end.into(),
            Place::Rule(line) | Place::Last(line, _) => At::Rule(line),
            Place::End(end) => end.into(),
        };
        let named = |index: Option<u32>| self.traced.interfaces.get(&index?).cloned();
        Met {
            namespace: self.traced.name.clone(),
            by: step.by,
            pass: step.pass,
            packet: step.packet,
            ip: step.ip,
            input: named(step.input),
            output: named(step.output),
            mark: step.mark,
            table: step.table.as_ref().to_owned(),
            inet: step.inet,
            chain: step.chain.as_ref().to_owned(),
            at,
            verdict: step.verdict,
        }
    }

    /// The line of a rule; 0 of one that came and went while packets were traced.
    fn line(&mut self, family: u8, table: &str, handle: u64) -> u32 {
        let traced = self.traced;
        traced
            .rules
            .line(family, table, handle)
            .or_else(|| {
                self.now
                    .get_or_insert_with(|| Rules::read(&traced.ns).unwrap_or_default())
                    .line(family, table, handle)
            })
            .unwrap_or(0)
    }

    /// How many rules the chain has that a step was taken in.
    fn rules(&mut self, step: &Step) -> u32 {
        let ns = &self.traced.ns;
        self.legacy
            .entry((step.ip, Arc::clone(&step.table)))
            .or_insert_with(|| legacy_table::rules(ns, step.ip, &step.table).unwrap_or_default())
            .get(step.chain.as_ref())
            .copied()
            .unwrap_or(0)
    }
}

impl From<End> for At {
    fn from(end: End) -> Self {
        match end {
            End::Return => Self::Return,
            End::Policy => Self::Policy,
        }
    }
}

fn failed(what: &str, name: &str, error: &io::Error) -> Failure {
    failure::machine(format!("cannot {what} of {name}: {error}"), error)
}
