//! What kernels tell of packets while probes run: rules met, connections, where IPVS
//! sends them, and which are dropped. Nothing of it changes what becomes of a packet.

pub mod attributes;
mod balanced;
pub mod connections;
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

use super::closing::Closing;
use super::drops::{Scope, Tracer, Untraced};
use super::netns::NetNs;
use super::{failure, netns, nfnetlink};
use legacy::Log;
use logger::Logger;
use nft::Passes;
use reader::Reader;
use rules::Rules;
use step::{End, Place, Step};
use svclab_model::evidence::met::{At, MAX_MET};
use svclab_model::evidence::{Connection, Drops, Evidence, Met};
use svclab_model::plan::{Backend, Namespace};
use svclab_model::protocol::Failure;
use table::Table;

/// Traced namespaces, until it is ended or dropped.
pub struct Trace {
    /// None when all that is wanted was heard.
    reader: Option<Reader>,
    /// What it heard with, then.
    idle: Vec<Socket>,
    /// One a socket.
    ears: Vec<Ear>,
    drops: Result<Tracer, String>,
    traced: Vec<Traced>,
    gathered: Gathered,
}

/// What was heard so far.
#[derive(Default)]
struct Gathered {
    met: Vec<Met>,
    /// Steps that were more than are kept.
    left_out: u64,
    /// Steps that found no room, by socket.
    lost: HashMap<usize, u64>,
    forgotten: Vec<Connection>,
    drops: Drops,
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
    table: Table,
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
        let drops =
            begin_drops(&traced).map_err(|error| failed("trace the drops", &first.name, &error))?;
        Ok(Some(Self {
            reader: Some(reader),
            idle: Vec::new(),
            ears,
            drops,
            traced,
            gathered: Gathered::default(),
        }))
    }

    /// Says what was heard so far, and goes on.
    ///
    /// # Errors
    ///
    /// As [`Trace::end`].
    pub fn so_far(&mut self, evidence: &mut Evidence) -> Result<(), Failure> {
        self.hear_out()?;
        self.go_on()?;
        let gathered = &self.gathered;
        evidence.met.clone_from(&gathered.met);
        evidence.met_left_out = gathered.left_out();
        evidence.drops.clone_from(&gathered.drops);
        evidence.connections.clone_from(&gathered.forgotten);
        self.remembered(evidence)
    }

    /// Hears what was told until now, and nothing after that unless it is to
    /// [go on](Trace::go_on).
    ///
    /// # Errors
    ///
    /// As [`Trace::end`].
    pub fn hear_out(&mut self) -> Result<(), Failure> {
        if self.reader.is_some() {
            self.idle = self.hear()?;
        }
        Ok(())
    }

    /// Goes on to hear.
    ///
    /// # Errors
    ///
    /// When no descriptor or no thread is left.
    pub fn go_on(&mut self) -> Result<(), Failure> {
        let sockets = std::mem::take(&mut self.idle);
        let reader = Reader::begin(sockets).map_err(|error| self.failed(&error))?;
        self.reader = Some(reader);
        Ok(())
    }

    /// Ends it and says what was heard.
    ///
    /// # Errors
    ///
    /// When a namespace cannot be entered, or its kernel does not answer.
    pub fn end(mut self, evidence: &mut Evidence) -> Result<Closing, Failure> {
        self.hear_out()?;
        let gathered = std::mem::take(&mut self.gathered);
        evidence.met_left_out = gathered.left_out();
        evidence.met = gathered.met;
        evidence.drops = gathered.drops;
        evidence.connections = gathered.forgotten;
        self.remembered(evidence)?;
        Ok(self.close())
    }

    /// Ends it, whatever was heard.
    pub fn close(mut self) -> Closing {
        drop(self.reader.take());
        // One after another: when the first is closed, the others have nothing to wait for.
        let mut sockets = std::mem::take(&mut self.idle);
        sockets.extend(
            self.traced
                .iter_mut()
                .filter_map(|each| each.table.take_away()),
        );
        Closing::begin([sockets])
    }

    /// Understands what was heard since it did so last. Returns the sockets.
    fn hear(&mut self) -> Result<Vec<Socket>, Failure> {
        let heard = self.reader.take().map(Reader::end);
        let heard = heard.unwrap_or_else(|| Err(io::Error::other("nobody hears it")));
        let heard = heard.map_err(|error| self.failed(&error))?;
        let gathered = &mut self.gathered;
        match &self.drops {
            Ok(tracer) => gathered.drops.add(tracer.drops()),
            Err(why) => gathered.drops = Drops::Uncertain(why.clone()),
        }
        for (at, (ear, socket)) in self.ears.iter().zip(&heard.sockets).enumerate() {
            let traced = &self.traced[ear.place];
            if !matches!(ear.hears, Hears::Forgotten) {
                let lost = socket::lost(&traced.ns, socket).map_err(|error| {
                    failed("count what was not heard of packets", &traced.name, &error)
                })?;
                gathered.lost.insert(at, lost);
                gathered.left_out += heard.left_out[at];
            }
        }
        let mut lines: Vec<Lines<'_>> = self.traced.iter().map(Lines::new).collect();
        for (socket, bytes) in heard.all() {
            let Ear { place, hears } = &mut self.ears[socket];
            for message in nfnetlink::messages(bytes) {
                let step = match hears {
                    Hears::Nft(passes) => passes.step(&message),
                    Hears::Legacy(log) => log.step(&message),
                    Hears::Forgotten => {
                        let forgotten = connections::forgotten(&message, &self.traced[*place].name);
                        gathered.forgotten.extend(forgotten);
                        None
                    }
                };
                match step {
                    Some(step) if gathered.met.len() < MAX_MET => {
                        gathered.met.push(lines[*place].met(step));
                    }
                    Some(_) => gathered.left_out += 1,
                    None => {}
                }
            }
        }
        Ok(heard.sockets)
    }

    /// What kernels remember at this moment.
    fn remembered(&self, evidence: &mut Evidence) -> Result<(), Failure> {
        for Traced { ns, name, .. } in &self.traced {
            let held = connections::all(ns, name)
                .map_err(|error| failed("read the connections", name, &error))?;
            evidence.connections.extend(held);
            let held = balanced::all(ns, name)
                .map_err(|error| failed("read what IPVS remembers", name, &error))?;
            evidence.balanced.extend(held);
        }
        Ok(())
    }

    fn failed(&self, error: &io::Error) -> Failure {
        let first = self.traced.first().map_or("", |first| first.name.as_str());
        failed("trace the packets", first, error)
    }
}

impl Gathered {
    /// Steps that were not kept.
    fn left_out(&self) -> u64 {
        self.left_out + self.lost.values().sum::<u64>()
    }
}

/// Begins to trace drops, which on this host is not an agent's to do: there the front
/// end puts its own words for these.
fn begin_drops(traced: &[Traced]) -> io::Result<Result<Tracer, String>> {
    let numbered = |each: &Traced| Some((u32::try_from(each.ns.number()).ok()?, each.name.clone()));
    let scope = Scope {
        namespaces: traced.iter().filter_map(numbered).collect(),
        owner: netns::owner()?,
    };
    Ok(Tracer::begin(scope).map_err(Untraced::told))
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
            table: Table::make(ns)?,
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
