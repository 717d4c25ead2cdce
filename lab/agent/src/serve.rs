//! Serves the protocol: receives requests, sends events, and runs each lab in its own task on one
//! thread.

use std::cell::RefCell;
use std::collections::HashMap;
use std::io;
use std::os::fd::OwnedFd;
use std::rc::Rc;

use bytes::Bytes;
use futures_util::{SinkExt, StreamExt};
use tokio::sync::mpsc;
use tokio_util::codec::{FramedRead, FramedWrite};

use super::graveyard::Graveyard;
use super::lab::Lab;
use super::netns::NetNs;
use super::stream::Stream;
use super::streams::{Say, Streams, failed};
use super::tenant::Tenant;
use super::{failure, greeting, heap, program, surroundings};
use svclab_model::protocol::stream::StreamId;
use svclab_model::protocol::{
    Event, Failure, Fault, LabId, Request, Turn, VERSION, event_framing, framing,
};

/// Serves requests until the input ends.
///
/// # Errors
///
/// When reading or writing fails, or a message is not a valid request.
pub async fn serve(input: OwnedFd, output: OwnedFd) -> io::Result<()> {
    let mut requests = FramedRead::new(Stream::new(input)?, framing());
    let (say, mut said) = mpsc::unbounded_channel::<Event>();
    let mut events = FramedWrite::new(Stream::new(output)?, event_framing());
    let writing = tokio::task::spawn_local(async move {
        while let Some(event) = said.recv().await {
            let text = serde_json::to_vec(&event)?;
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
            let failure = failure::no_place(&error);
            let _ = say.send(Event::Unable { failure });
            drop(say);
            return writing.await.map_err(io::Error::other)?;
        }
    };
    let surroundings = surroundings::look(&home).await;
    // A closed channel means that the front end has disconnected. Reading ends then too.
    let ready = Event::Ready {
        protocol: VERSION,
        surroundings,
    };
    let _ = say.send(ready.clone());

    let labs: Labs = Rc::default();
    let graveyard = Rc::default();
    while let Some(request) = requests.next().await {
        let request: Request = serde_json::from_slice(&request?)?;
        match (&request, request.lab()) {
            (Request::Greet { now, seed }, _) => {
                greeting::set_clock(*now)?;
                greeting::seed(*seed)?;
                let _ = say.send(ready.clone());
            }
            (
                Request::Open { stream, .. }
                | Request::Tell { stream, .. }
                | Request::Close { stream, .. },
                Some(lab),
            ) => {
                let stream = *stream;
                attached(lab, stream, request, &labs, &say);
            }
            (_, Some(lab)) => answer(lab, request, &labs, &graveyard, &say),
            (_, None) => drop(say.send(Event::Alive)),
        }
    }
    drop(say);
    writing.abort();
    Ok(())
}

/// Returns the event that replaces an event above the front end's size limit.
fn too_large(lab: LabId, size: usize, most: usize) -> Event {
    Event::Failed {
        lab,
        failure: Failure {
            fault: Fault::Input,
            message: format!(
                "what the lab has to report is {} MiB, and at most {} MiB are taken",
                size >> 20,
                most >> 20
            ),
            remedy: Some("have fewer connections, or watch fewer interfaces".to_owned()),
            rejected: None,
        },
    }
}

type Labs = Rc<RefCell<HashMap<LabId, Kept>>>;

/// Channels to the task and the streams of a lab.
struct Kept {
    /// Requests, which the lab's task handles in sequence.
    ask: mpsc::UnboundedSender<Request>,
    /// Attached streams, which run in parallel.
    streams: Rc<Streams>,
}

/// Forwards a stream request to the lab's streams, which run independently of other requests.
fn attached(
    lab: LabId,
    stream: StreamId,
    request: Request,
    labs: &Labs,
    say: &mpsc::UnboundedSender<Event>,
) {
    let say: Say = {
        let say = say.clone();
        Rc::new(move |word| drop(say.send(Event::Heard { lab, stream, word })))
    };
    let labs = labs.borrow();
    match (request, labs.get(&lab)) {
        (Request::Open { opening, .. }, Some(kept)) => kept.streams.open(stream, *opening, say),
        (Request::Tell { word, .. }, Some(kept)) => kept.streams.tell(stream, word),
        (Request::Close { .. }, Some(kept)) => kept.streams.close(stream),
        (Request::Open { .. }, None) => {
            say(failed(failure::bug(format!("there is no lab {lab}"))));
        }
        // The client was already notified that the stream has ended.
        _ => {}
    }
}

/// Forwards a request to the lab's task. Labs do not wait for each other, and the requests of a lab
/// are answered in sequence.
fn answer(
    lab: LabId,
    request: Request,
    labs: &Labs,
    graveyard: &Rc<Graveyard>,
    say: &mpsc::UnboundedSender<Event>,
) {
    let mut standing = labs.borrow_mut();
    if matches!(request, Request::Build { .. }) && !standing.contains_key(&lab) {
        let (ask, asked) = mpsc::unbounded_channel();
        let streams = Rc::<Streams>::default();
        let kept = Kept {
            ask,
            streams: Rc::clone(&streams),
        };
        standing.insert(lab, kept);
        let (labs, graveyard) = (Rc::clone(labs), Rc::clone(graveyard));
        tokio::task::spawn_local(keep(lab, asked, streams, labs, graveyard, say.clone()));
    } else if matches!(request, Request::Build { .. }) {
        let failure = failure::bug(format!("there is a lab {lab} already"));
        let _ = say.send(Event::Failed { lab, failure });
        return;
    }
    let asked = standing
        .get(&lab)
        .is_some_and(|kept| kept.ask.send(request).is_ok());
    if !asked {
        let failure = failure::bug(format!("there is no lab {lab}"));
        let _ = say.send(Event::Failed { lab, failure });
    }
}

/// Runs a lab from its build to its removal.
async fn keep(
    id: LabId,
    mut asked: mpsc::UnboundedReceiver<Request>,
    streams: Rc<Streams>,
    labs: Labs,
    graveyard: Rc<Graveyard>,
    say: mpsc::UnboundedSender<Event>,
) {
    let tell = |event| drop(say.send(event));
    let step = |step| tell(Event::Step { lab: id, step });
    let turned: Rc<dyn Fn(Turn)> = {
        let say = say.clone();
        Rc::new(move |turn| drop(say.send(Event::Turned { lab: id, turn })))
    };
    let mut standing: Option<Lab> = None;
    while let Some(request) = asked.recv().await {
        match (request, &mut standing) {
            (
                Request::Build {
                    plan,
                    standing: stays,
                    ..
                },
                _,
            ) => {
                let hush = graveyard.hush();
                let built = Lab::build(*plan, stays, &step, &turned).await;
                drop(hush);
                match built {
                    Ok(lab) => {
                        streams.stand(lab.places());
                        tell(Event::Built {
                            lab: id,
                            descriptors: lab.descriptors(),
                            refused: lab.refused().0,
                        });
                        standing = Some(lab);
                    }
                    Err(failure) => {
                        tell(Event::Failed { lab: id, failure });
                        break;
                    }
                }
            }
            (Request::Remove { .. }, _) => break,
            (request, Some(lab)) => match act(id, request, lab, &step, &turned).await {
                Ok(event) => tell(event),
                Err(failure) => tell(Event::Failed { lab: id, failure }),
            },
            (_, None) => {
                tell(Event::Failed {
                    lab: id,
                    failure: failure::bug(format!("lab {id} does not stand")),
                });
            }
        }
    }
    streams.end().await;
    if let Some(lab) = standing {
        graveyard.bury(lab.end());
    }
    heap::give_back();
    labs.borrow_mut().remove(&id);
    tell(Event::Gone { lab: id });
}

/// Handles a request to a running lab.
async fn act(
    id: LabId,
    request: Request,
    lab: &mut Lab,
    step: &impl Fn(String),
    turned: &Rc<dyn Fn(Turn)>,
) -> Result<Event, Failure> {
    Ok(match request {
        Request::Probe { .. } => Event::Probed {
            lab: id,
            evidence: Box::new(lab.probe(step, turned).await?),
        },
        Request::Change { delta, .. } => {
            lab.change(*delta, step, turned).await?;
            Event::Changed { lab: id }
        }
        Request::Forget { .. } => {
            lab.forget(step, turned).await?;
            Event::Forgotten { lab: id }
        }
        Request::Stop { server, .. } => {
            lab.stop(&server).await?;
            Event::Stopped { lab: id }
        }
        Request::Serve {
            namespace,
            at,
            objects,
            ..
        } => Event::Served {
            lab: id,
            version: lab.serve(&namespace, at, objects)?,
        },
        Request::Put {
            namespace,
            at,
            objects,
            ..
        } => Event::Served {
            lab: id,
            version: lab.put(&namespace, at, objects)?,
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
        Request::Look { name, .. } => Event::Looked {
            lab: id,
            running: lab.look(&name)?,
        },
        Request::Run {
            namespace,
            program,
            arguments,
            input,
            ..
        } => Event::Ran {
            lab: id,
            finished: lab.run(&namespace, &program, &arguments, &input).await?,
        },
        // Other functions handle these requests.
        Request::Build { .. }
        | Request::Remove { .. }
        | Request::Open { .. }
        | Request::Tell { .. }
        | Request::Close { .. }
        | Request::Greet { .. }
        | Request::Ping => {
            return Err(failure::bug(format!("lab {id} was asked to {request:?}")));
        }
    })
}
