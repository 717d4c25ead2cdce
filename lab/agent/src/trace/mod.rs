//! Records kernel events while probes run: matched rules, conntrack entries, IPVS connections and
//! dropped packets. Recording does not change the path of a packet.

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

/// Trace of several namespaces, which ends when it is ended or dropped.
pub struct Trace {
    /// Running reader; `None` while reading is paused.
    reader: Option<Reader>,
    /// Sockets while reading is paused.
    idle: Vec<Socket>,
    /// Sockets' namespaces and decoders, one per socket.
    ears: Vec<Ear>,
    drops: Result<Tracer, String>,
    traced: Vec<Traced>,
    gathered: Gathered,
}

/// Events recorded so far.
#[derive(Default)]
struct Gathered {
    met: Vec<Met>,
    /// Number of trace events beyond the limit.
    left_out: u64,
    /// Number of trace events lost for lack of buffer space, by socket.
    lost: HashMap<usize, u64>,
    forgotten: Vec<Connection>,
    drops: Drops,
}

/// Namespace and decoder of a socket.
struct Ear {
    place: usize,
    hears: Hears,
}

enum Hears {
    Nft(Passes),
    Legacy(Log),
    Forgotten,
}

/// Traced namespace.
struct Traced {
    ns: NetNs,
    name: String,
    /// Names of its interfaces, by index.
    interfaces: HashMap<u32, String>,
    /// Rules at the start of the trace.
    rules: Rules,
    /// Dropping either value undoes its change of the namespace.
    table: Table,
    _logger: Option<Logger>,
}

impl Trace {
    /// Starts to trace namespaces, each with its interfaces by index. Returns `None` without
    /// namespaces.
    ///
    /// # Errors
    ///
    /// When a namespace cannot be entered or the kernel rejects a request. All changes are undone
    /// then.
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

    /// Copies the events recorded so far into `evidence` and continues the trace.
    ///
    /// # Errors
    ///
    /// When a namespace cannot be entered, or the kernel does not answer.
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

    /// Reads all events until now and pauses reading until [`Trace::go_on`].
    ///
    /// # Errors
    ///
    /// When a namespace cannot be entered, or the kernel does not answer.
    pub fn hear_out(&mut self) -> Result<(), Failure> {
        if self.reader.is_some() {
            self.idle = self.hear()?;
        }
        Ok(())
    }

    /// Continues reading.
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

    /// Ends the trace and moves the recorded events into `evidence`.
    ///
    /// # Errors
    ///
    /// When a namespace cannot be entered, or the kernel does not answer.
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

    /// Ends the trace and discards unread events.
    pub fn close(mut self) -> Closing {
        drop(self.reader.take());
        // The sockets are closed in sequence: after the first one is closed, the others close
        // without waiting.
        let mut sockets = std::mem::take(&mut self.idle);
        sockets.extend(
            self.traced
                .iter_mut()
                .filter_map(|each| each.table.take_away()),
        );
        Closing::begin([sockets])
    }

    /// Stops the reader and decodes the events since the previous call. Returns the sockets.
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

    /// Reads the current conntrack entries and IPVS connections.
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
    /// Returns the number of trace events that were not recorded.
    fn left_out(&self) -> u64 {
        self.left_out + self.lost.values().sum::<u64>()
    }
}

/// Starts to trace drops. An agent on the host lacks the privilege; there the front end replaces
/// the result with its own.
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
        // Rules of both backends may exist outside the plan. But a kernel without the log has no
        // legacy rules to trace.
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
            // The table is created last, when all sockets receive events.
            table: Table::make(ns)?,
            _logger: logger,
        })
    }
}

/// Locator of rules by line, for one namespace.
struct Lines<'a> {
    traced: &'a Traced,
    /// Current rules, read on first use.
    now: Option<Rules>,
    /// Number of rules by chain, for each legacy table.
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

    /// Returns the line of a rule, or 0 for a rule that was added and removed during the trace.
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

    /// Returns the number of rules in the chain of an event.
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
