//! Serves the protocol: receives requests, sends events, and runs each lab in its own task on one
//! thread.

mod streams;

use std::cell::RefCell;
use std::collections::HashMap;
use std::io;
use std::os::fd::OwnedFd;
use std::rc::Rc;

use bytes::Bytes;
use futures_util::{SinkExt, StreamExt};
use tokio::sync::{Notify, mpsc};
use tokio_util::codec::{FramedRead, FramedWrite};

use crate::lab::RunningLab;
use crate::lab::deferred_cleanup::DeferredCleanup;
use crate::net::netns::NetNs;
use crate::program;
use crate::runtime::client_stream::{SendToClient, failed_message};
use crate::runtime::stream::Stream;
use crate::runtime::{failure, heap, profile};
use crate::sandbox::clock;
use crate::sandbox::tenant::Tenant;
use crate::serve::streams::Streams;
use crate::watch::environment;
use crate::watch::reported_drops::ReportedDrops;
use svclab_model::protocol::profile::Phase;
use svclab_model::protocol::stream::StreamId;
use svclab_model::protocol::{
    BackendHealthChange, Event, Failure, FailureKind, LabId, Request, VERSION, event_framing,
    request_framing,
};

/// Serves requests until the input ends.
pub(crate) async fn serve(input: OwnedFd, output: OwnedFd) -> io::Result<()> {
    let mut requests = FramedRead::new(Stream::new(input)?, request_framing());
    let (events_sender, mut events_receiver) = mpsc::unbounded_channel::<Event>();
    let mut events = FramedWrite::new(Stream::new(output)?, event_framing());
    let writing = tokio::task::spawn_local(async move {
        while let Some(event) = events_receiver.recv().await {
            let serializing = profile::span(Phase::Serialize);
            let text = serde_json::to_vec(&event)?;
            drop(serializing);
            let text = match event.lab() {
                Some(lab) if text.len() > event.max_size() => {
                    serde_json::to_vec(&too_large(lab, text.len(), event.max_size()))?
                }
                _ => text,
            };
            events.send(Bytes::from(text)).await?;
        }
        Ok::<_, io::Error>(())
    });
    let home = match Tenant::new().and_then(|tenant| NetNs::current(&tenant, &Rc::default())) {
        Ok(home) => home,
        Err(error) => {
            let failure = failure::cannot_prepare_programs(&error);
            let _ = events_sender.send(Event::StartFailed { failure });
            drop(events_sender);
            return writing.await.map_err(io::Error::other)?;
        }
    };
    let surroundings = environment::detect(&home).await;
    // A closed channel means that the front end has disconnected. Reading ends then too.
    let ready = Event::Ready {
        protocol: VERSION,
        environment: surroundings,
    };
    let _ = events_sender.send(ready.clone());

    let labs: Labs = Rc::default();
    let graveyard = Rc::default();
    while let Some(request) = requests.next().await {
        let request = request?;
        let parsing = profile::Start::now();
        let request: Request = serde_json::from_slice(&request)?;
        if let Request::Build { is_profiled, .. } = request {
            profile::enable(is_profiled);
            parsing.record(Phase::Parse);
        }
        match (&request, request.lab()) {
            (Request::SetClock { now, seed }, _) => {
                clock::set_clock(*now)?;
                clock::seed(*seed)?;
                let _ = events_sender.send(ready.clone());
            }
            (
                Request::OpenStream { stream, .. }
                | Request::StreamMessage { stream, .. }
                | Request::CloseStream { stream, .. },
                Some(lab),
            ) => {
                let stream = *stream;
                forward_stream_request(lab, stream, request, &labs, &events_sender);
            }
            (Request::ReportDrops { drops, .. }, Some(lab)) => {
                if let Some(kept) = labs.borrow().get(&lab) {
                    kept.shared.drops.add(drops.clone());
                }
            }
            (_, Some(lab)) => forward_request(lab, request, &labs, &graveyard, &events_sender),
            (_, None) => drop(events_sender.send(Event::Alive)),
        }
    }
    drop(events_sender);
    writing.abort();
    Ok(())
}

/// Returns the event that replaces an event above the front end's size limit.
fn too_large(lab: LabId, size: usize, max_size: usize) -> Event {
    Event::Failed {
        lab,
        failure: Failure {
            kind: FailureKind::Input,
            message: format!(
                "the event of the lab has {} MiB, more than the limit of {} MiB",
                size >> 20,
                max_size >> 20
            ),
            remedy: Some("use fewer connections, or record fewer namespaces".to_owned()),
            rejected: None,
        },
    }
}

type Labs = Rc<RefCell<HashMap<LabId, LabHandle>>>;

/// Channels to the task and the streams of a lab.
struct LabHandle {
    /// Requests, which the lab's task handles in sequence.
    requests: mpsc::UnboundedSender<Request>,
    shared: SharedLab,
}

/// Parts of a lab that change while its task handles a request.
#[derive(Clone, Default)]
struct SharedLab {
    /// Notified when the lab is to be removed, even if a request is not finished.
    removal: Rc<Notify>,
    /// Attached streams, which run in parallel.
    streams: Rc<Streams>,
    /// Drops that the front end reported since the latest request to run the probes.
    drops: ReportedDrops,
}

/// Forwards a stream request to the lab's streams, which run independently of other requests.
fn forward_stream_request(
    lab: LabId,
    stream: StreamId,
    request: Request,
    labs: &Labs,
    event_sender: &mpsc::UnboundedSender<Event>,
) {
    let send: SendToClient = {
        let say = event_sender.clone();
        Rc::new(move |message| {
            drop(say.send(Event::StreamMessage {
                lab,
                stream,
                message,
            }));
        })
    };
    let labs = labs.borrow();
    match (request, labs.get(&lab)) {
        (
            Request::OpenStream {
                request: opening, ..
            },
            Some(kept),
        ) => {
            kept.shared.streams.open(stream, *opening, send);
        }
        (Request::StreamMessage { message: word, .. }, Some(kept)) => {
            kept.shared.streams.send(stream, word);
        }
        (Request::CloseStream { .. }, Some(kept)) => kept.shared.streams.close(stream),
        (Request::OpenStream { .. }, None) => {
            send(failed_message(failure::bug(format!(
                "lab {lab} does not exist"
            ))));
        }
        // The client was already notified that the stream has ended.
        _ => {}
    }
}

/// Forwards a request to the lab's task. Labs do not wait for each other, and the requests of a lab
/// are answered in sequence.
fn forward_request(
    lab: LabId,
    request: Request,
    labs: &Labs,
    graveyard: &Rc<DeferredCleanup>,
    event_sender: &mpsc::UnboundedSender<Event>,
) {
    let mut handles = labs.borrow_mut();
    if matches!(request, Request::Build { .. }) && !handles.contains_key(&lab) {
        let (requests_sender, requests_receiver) = mpsc::unbounded_channel();
        let shared = SharedLab::default();
        let handle = LabHandle {
            requests: requests_sender,
            shared: shared.clone(),
        };
        handles.insert(lab, handle);
        let (labs, graveyard) = (Rc::clone(labs), Rc::clone(graveyard));
        tokio::task::spawn_local(run_lab(
            lab,
            requests_receiver,
            shared,
            labs,
            graveyard,
            event_sender.clone(),
        ));
    } else if matches!(request, Request::Build { .. }) {
        let failure = failure::bug(format!("lab {lab} already exists"));
        let _ = event_sender.send(Event::Failed { lab, failure });
        return;
    }
    let is_sent = handles.get(&lab).is_some_and(|kept| {
        if matches!(request, Request::Remove { .. }) {
            kept.shared.removal.notify_one();
        }
        if matches!(request, Request::Probe { .. }) {
            kept.shared.drops.clear();
        }
        kept.requests.send(request).is_ok()
    });
    if !is_sent {
        let failure = failure::bug(format!("lab {lab} does not exist"));
        let _ = event_sender.send(Event::Failed { lab, failure });
    }
}

/// Runs a lab from its build to its removal. The removal cancels the request that is not finished:
/// the front end no longer waits for its answer, and probes may take hours.
async fn run_lab(
    id: LabId,
    requests: mpsc::UnboundedReceiver<Request>,
    shared: SharedLab,
    labs: Labs,
    graveyard: Rc<DeferredCleanup>,
    event_sender: mpsc::UnboundedSender<Event>,
) {
    let mut running: Option<RunningLab> = None;
    tokio::select! {
        biased;
        () = shared.removal.notified() => {}
        () = handle_requests(id, requests, &mut running, &shared, &graveyard, &event_sender) => {}
    }
    shared.streams.end().await;
    if let Some(lab) = running {
        graveyard.defer(lab.end());
    }
    heap::trim();
    labs.borrow_mut().remove(&id);
    let _ = event_sender.send(Event::Removed { lab: id });
}

/// Handles the requests of a lab in sequence, until its removal or until it cannot be built. Sets
/// `running` to the built lab.
async fn handle_requests(
    id: LabId,
    mut requests: mpsc::UnboundedReceiver<Request>,
    running: &mut Option<RunningLab>,
    shared: &SharedLab,
    graveyard: &DeferredCleanup,
    event_sender: &mpsc::UnboundedSender<Event>,
) {
    let send = |event| drop(event_sender.send(event));
    let step = |step| send(Event::Step { lab: id, step });
    let on_health_change: Rc<dyn Fn(BackendHealthChange)> = {
        let say = event_sender.clone();
        Rc::new(move |turn| {
            drop(say.send(Event::BackendHealthChanged {
                lab: id,
                change: turn,
            }));
        })
    };
    while let Some(request) = requests.recv().await {
        match (request, &mut *running) {
            (
                Request::Build {
                    plan,
                    accepts_changes: stays,
                    ..
                },
                _,
            ) => {
                graveyard.wait_for_memory(plan.memory_kib()).await;
                let guard = graveyard.suspend();
                let result = RunningLab::build(*plan, stays, &step, &on_health_change).await;
                drop(guard);
                match result {
                    Ok(lab) => {
                        shared.streams.set_attach_points(lab.attach_points());
                        send(Event::Built {
                            lab: id,
                            descriptors: lab.descriptors(),
                            refused: lab.refused_requests().0,
                        });
                        *running = Some(lab);
                    }
                    Err(failure) => {
                        send(Event::Failed { lab: id, failure });
                        break;
                    }
                }
            }
            (Request::Remove { .. }, _) => break,
            (request, Some(lab)) => {
                let drops = &shared.drops;
                match handle_request(id, request, lab, drops, &step, &on_health_change).await {
                    Ok(event) => send(event),
                    Err(failure) => send(Event::Failed { lab: id, failure }),
                }
            }
            (_, None) => {
                send(Event::Failed {
                    lab: id,
                    failure: failure::bug(format!("lab {id} is not running")),
                });
            }
        }
    }
}

/// Handles a request to a running lab.
async fn handle_request(
    id: LabId,
    request: Request,
    lab: &mut RunningLab,
    drops: &ReportedDrops,
    step: &impl Fn(String),
    on_health_change: &Rc<dyn Fn(BackendHealthChange)>,
) -> Result<Event, Failure> {
    Ok(match request {
        Request::Probe { .. } => Event::Probed {
            lab: id,
            evidence: Box::new(lab.probe(drops, step, on_health_change).await?),
        },
        Request::TakeProfile { .. } => Event::Profiled {
            lab: id,
            profile: profile::take(),
        },
        Request::Change { delta, .. } => {
            let _span = profile::span(Phase::Change);
            lab.apply_delta(*delta, step, on_health_change).await?;
            Event::Changed { lab: id }
        }
        Request::ResetConnections { .. } => {
            lab.reset_state(step, on_health_change).await?;
            Event::ConnectionsReset { lab: id }
        }
        Request::Stop { server, .. } => {
            lab.stop(&server).await?;
            Event::Stopped { lab: id }
        }
        Request::Serve {
            namespace,
            address: at,
            objects,
            ..
        } => Event::Served {
            lab: id,
            version: lab.serve_api(&namespace, at, objects)?,
        },
        Request::UpdateObjects {
            namespace,
            address: at,
            objects,
            ..
        } => Event::Served {
            lab: id,
            version: lab.upsert_objects(&namespace, at, objects)?,
        },
        Request::Start {
            namespace,
            name,
            program,
            arguments,
            ..
        } => {
            lab.start(&namespace, &name, &program, &arguments, program::PATH)?;
            Event::Started { lab: id }
        }
        Request::ProgramStatus { name, .. } => Event::ProgramStatus {
            lab: id,
            status: lab.program_status(&name)?,
        },
        Request::Run {
            namespace,
            program,
            arguments,
            input,
            ..
        } => Event::ProgramFinished {
            lab: id,
            output: lab.run(&namespace, &program, &arguments, &input).await?,
        },
        // Other functions handle these requests.
        Request::Build { .. }
        | Request::Remove { .. }
        | Request::OpenStream { .. }
        | Request::StreamMessage { .. }
        | Request::CloseStream { .. }
        | Request::ReportDrops { .. }
        | Request::SetClock { .. }
        | Request::Ping => {
            return Err(failure::bug(format!(
                "lab {id} received an unexpected request: {request:?}"
            )));
        }
    })
}
