//! Records kernel events while probes run: matched rules, conntrack entries, IPVS connections and
//! dropped packets. Recording does not change the path of a packet.

mod ipvs_connections;
mod legacy;
mod legacy_table;
mod locator;
mod logger;
mod nft;
mod reader;
mod rules;
mod socket;
mod step;
mod table;

use std::collections::HashMap;
use std::io;

use netlink_sys::Socket;

use crate::net::netfilter::{conntrack_entries, nfnetlink};
use crate::net::netns::{self, NetNs};
use crate::runtime::closing::ClosingSockets;
use crate::runtime::failure;
use crate::watch::drops::{DropTracer, Scope, TraceError};
use legacy::LogDecoder;
use locator::RuleLocator;
use logger::LoggerGuard;
use nft::TraceEventDecoder;
use reader::Reader;
use rules::RuleLines;
use svclab_model::evidence::trace::MAX_TRACE_EVENTS;
use svclab_model::evidence::{ConntrackEntry, DropEvidence, StageEvidence, TraceEvent};
use svclab_model::plan::{Backend, Namespace};
use svclab_model::protocol::Failure;
use table::TraceTable;

/// Trace of several namespaces, which ends when it is ended or dropped.
pub(crate) struct Trace {
    /// Running reader; `None` while reading is paused.
    reader: Option<Reader>,
    /// Sockets while reading is paused.
    paused_sockets: Vec<Socket>,
    /// Sockets' namespaces and decoders, one per socket.
    sockets: Vec<TraceSocket>,
    drops: Result<DropTracer, String>,
    namespaces: Vec<TracedNamespace>,
    recorded: RecordedEvents,
}

/// Events recorded so far.
#[derive(Default)]
struct RecordedEvents {
    events: Vec<TraceEvent>,
    /// Number of events beyond the limits.
    missed: u64,
    /// Number of messages lost for lack of buffer space, by socket. The kernel's counts include
    /// earlier losses of the same socket.
    lost: Vec<u64>,
    deleted_entries: Vec<ConntrackEntry>,
    drops: DropEvidence,
}

/// Namespace and decoder of a socket.
struct TraceSocket {
    namespace_index: usize,
    decoder: TraceDecoder,
}

enum TraceDecoder {
    Nft(TraceEventDecoder),
    Legacy(LogDecoder),
    DeletedEntries,
}

/// Traced namespace.
struct TracedNamespace {
    ns: NetNs,
    name: String,
    /// Names of its interfaces, by index.
    interfaces: HashMap<u32, String>,
    /// Rules at the start of the trace.
    rules: RuleLines,
    /// Dropping either value undoes its change of the namespace.
    table: TraceTable,
    _logger: Option<LoggerGuard>,
}

impl Trace {
    /// Starts to trace namespaces, each with its interfaces by index. Returns `None` without
    /// namespaces.
    ///
    /// # Errors
    ///
    /// When a namespace cannot be entered or the kernel rejects a request. All changes are undone
    /// then.
    pub(crate) fn start<'a>(
        namespaces: impl Iterator<Item = (&'a NetNs, &'a Namespace, HashMap<u32, String>)>,
    ) -> Result<Option<Self>, Failure> {
        let (mut traced, mut sockets, mut ears) = (Vec::new(), Vec::new(), Vec::new());
        for (ns, plan, interfaces) in namespaces {
            let place = traced.len();
            let add_socket = |socket, hears| {
                sockets.push(socket);
                ears.push(TraceSocket {
                    namespace_index: place,
                    decoder: hears,
                });
            };
            let traced_namespace = TracedNamespace::start(ns, plan, interfaces, add_socket)
                .map_err(|error| trace_failure("trace packets", &plan.name, &error))?;
            traced.push(traced_namespace);
        }
        let Some(first) = traced.first() else {
            return Ok(None);
        };
        let reader = Reader::start(sockets)
            .map_err(|error| trace_failure("trace packets", &first.name, &error))?;
        let drops = start_drop_trace(&traced)
            .map_err(|error| trace_failure("trace dropped packets", &first.name, &error))?;
        Ok(Some(Self {
            reader: Some(reader),
            paused_sockets: Vec::new(),
            sockets: ears,
            drops,
            namespaces: traced,
            recorded: RecordedEvents::default(),
        }))
    }

    /// Copies the events recorded so far into `evidence` and continues the trace.
    pub(crate) fn snapshot(&mut self, evidence: &mut StageEvidence) -> Result<(), Failure> {
        self.pause()?;
        self.resume()?;
        let gathered = &self.recorded;
        evidence.trace.clone_from(&gathered.events);
        evidence.trace_missed = gathered.count_missed();
        evidence.drops.clone_from(&gathered.drops);
        evidence.conntrack.clone_from(&gathered.deleted_entries);
        self.read_connections(evidence)
    }

    /// Reads all events until now and pauses reading until [`Trace::resume`].
    pub(crate) fn pause(&mut self) -> Result<(), Failure> {
        if self.reader.is_some() {
            self.paused_sockets = self.stop_and_decode()?;
        }
        Ok(())
    }

    /// Continues reading.
    pub(crate) fn resume(&mut self) -> Result<(), Failure> {
        let sockets = std::mem::take(&mut self.paused_sockets);
        let reader = Reader::start(sockets).map_err(|error| self.to_failure(&error))?;
        self.reader = Some(reader);
        Ok(())
    }

    /// Ends the trace and moves the recorded events into `evidence`.
    pub(crate) fn end(mut self, evidence: &mut StageEvidence) -> Result<ClosingSockets, Failure> {
        self.pause()?;
        let gathered = std::mem::take(&mut self.recorded);
        evidence.trace_missed = gathered.count_missed();
        evidence.trace = gathered.events;
        evidence.drops = gathered.drops;
        evidence.conntrack = gathered.deleted_entries;
        self.read_connections(evidence)?;
        Ok(self.close())
    }

    /// Ends the trace and discards unread events.
    pub(crate) fn close(mut self) -> ClosingSockets {
        drop(self.reader.take());
        // The sockets are closed in sequence: after the first one is closed, the others close
        // without waiting.
        let mut sockets = std::mem::take(&mut self.paused_sockets);
        sockets.extend(
            self.namespaces
                .iter_mut()
                .filter_map(|each| each.table.remove()),
        );
        ClosingSockets::start([sockets])
    }

    /// Stops the reader and decodes the events since the previous call. Returns the sockets.
    fn stop_and_decode(&mut self) -> Result<Vec<Socket>, Failure> {
        let result = self.reader.take().map(Reader::end);
        let result =
            result.unwrap_or_else(|| Err(io::Error::other("the trace reader is not running")));
        let received = result.map_err(|error| self.to_failure(&error))?;
        let gathered = &mut self.recorded;
        match &mut self.drops {
            Ok(tracer) => gathered.drops.add(tracer.drops()),
            Err(why) => gathered.drops = DropEvidence::Uncertain(why.clone()),
        }
        let lost = self.sockets.iter().zip(&received.sockets);
        let lost = lost.map(
            |(
                TraceSocket {
                    namespace_index, ..
                },
                socket,
            )| {
                let traced = &self.namespaces[*namespace_index];
                socket::lost_messages(&traced.ns, socket).map_err(|error| {
                    trace_failure("count lost trace messages", &traced.name, &error)
                })
            },
        );
        gathered.count_losses(lost.collect::<Result<_, _>>()?, &received.missed);
        let mut lines: Vec<RuleLocator<'_>> =
            self.namespaces.iter().map(RuleLocator::new).collect();
        for (socket, bytes) in received.buffers() {
            let TraceSocket {
                namespace_index: place,
                decoder,
            } = &mut self.sockets[socket];
            for message in nfnetlink::messages(bytes) {
                let step = match decoder {
                    TraceDecoder::Nft(passes) => passes.decode(&message),
                    TraceDecoder::Legacy(log) => log.decode(&message),
                    TraceDecoder::DeletedEntries => {
                        let forgotten = conntrack_entries::deleted_entry(
                            &message,
                            &self.namespaces[*place].name,
                        );
                        gathered.deleted_entries.extend(forgotten);
                        None
                    }
                };
                match step {
                    Some(step) if gathered.events.len() < MAX_TRACE_EVENTS => {
                        gathered.events.push(lines[*place].locate(step));
                    }
                    Some(_) => gathered.missed += 1,
                    None => {}
                }
            }
        }
        Ok(received.sockets)
    }

    /// Reads the current conntrack entries and IPVS connections.
    fn read_connections(&self, evidence: &mut StageEvidence) -> Result<(), Failure> {
        for TracedNamespace { ns, name, .. } in &self.namespaces {
            let entries = conntrack_entries::read_entries(ns, name, &evidence.packets)
                .map_err(|error| trace_failure("read the conntrack entries", name, &error))?;
            evidence.conntrack.extend(entries);
            let connections = ipvs_connections::read_connections(ns, name)
                .map_err(|error| trace_failure("read the IPVS connections", name, &error))?;
            evidence.ipvs_connections.extend(connections);
        }
        Ok(())
    }

    fn to_failure(&self, error: &io::Error) -> Failure {
        let first = self
            .namespaces
            .first()
            .map_or("", |first| first.name.as_str());
        trace_failure("trace packets", first, error)
    }
}

impl RecordedEvents {
    /// Adds the losses of all sockets, including those for deleted conntrack entries: without an
    /// entry, the rewrite of a packet is unknown.
    fn count_losses(&mut self, lost: Vec<u64>, missed: &[u64]) {
        self.lost = lost;
        self.missed += missed.iter().sum::<u64>();
    }

    /// Returns the number of events that were not recorded.
    fn count_missed(&self) -> u64 {
        self.missed + self.lost.iter().sum::<u64>()
    }
}

/// Starts to trace drops. An agent on the host lacks the privilege; there the front end replaces
/// the result with its own.
fn start_drop_trace(traced: &[TracedNamespace]) -> io::Result<Result<DropTracer, String>> {
    let with_inode =
        |each: &TracedNamespace| Some((u32::try_from(each.ns.inode()).ok()?, each.name.clone()));
    let scope = Scope {
        namespaces: traced.iter().filter_map(with_inode).collect(),
        owner_user_namespace: netns::user_namespace_inode()?,
    };
    Ok(DropTracer::start(scope).map_err(TraceError::describe))
}

impl TracedNamespace {
    fn start(
        ns: &NetNs,
        plan: &Namespace,
        interfaces: HashMap<u32, String>,
        mut add_socket: impl FnMut(Socket, TraceDecoder),
    ) -> io::Result<Self> {
        let passes = TraceEventDecoder::default();
        add_socket(
            socket::open(ns, Some(nft::TRACE_GROUP))?,
            TraceDecoder::Nft(passes),
        );
        add_socket(
            socket::open(ns, Some(conntrack_entries::DELETE_GROUP))?,
            TraceDecoder::DeletedEntries,
        );
        // Rules of both backends may exist outside the plan. But a kernel without the log has no
        // legacy rules to trace.
        let legacy = plan
            .iptables
            .as_ref()
            .is_some_and(|rules| rules.backend == Backend::Legacy);
        let logger = match LoggerGuard::set(ns) {
            Ok(logger) => {
                let socket = socket::open(ns, None)?;
                ns.enter(|| legacy::subscribe(&socket))??;
                add_socket(socket, TraceDecoder::Legacy(LogDecoder::default()));
                Some(logger)
            }
            Err(error) if legacy => return Err(error),
            Err(_) => None,
        };
        Ok(Self {
            ns: ns.clone(),
            name: plan.name.clone(),
            interfaces,
            rules: RuleLines::read(ns)?,
            // The table is created last, when all sockets receive events.
            table: TraceTable::create(ns)?,
            _logger: logger,
        })
    }
}

fn trace_failure(action: &str, name: &str, error: &io::Error) -> Failure {
    failure::host(format!("cannot {action} in {name}: {error}"), error)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn losses_of_every_socket_are_counted() {
        let mut recorded = RecordedEvents::default();
        // Sockets for trace events, deleted conntrack entries and the log.
        recorded.count_losses(vec![1, 20, 300], &[0, 4000, 0]);
        assert_eq!(recorded.count_missed(), 4321);
        // The kernel's counts include the earlier losses.
        recorded.count_losses(vec![1, 21, 300], &[0, 0, 50_000]);
        assert_eq!(recorded.count_missed(), 54_322);
    }
}
