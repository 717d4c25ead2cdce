//! The agent's side of the conversation: requests in, events out, each lab a
//! task of its own on one thread.

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
use super::{failure, greeting, surroundings};
use crate::protocol::{Event, Failure, LabId, Request, Turn, VERSION, framing};

/// Serves requests until the stream ends.
///
/// # Errors
///
/// When a stream breaks, or what arrives is not a request.
pub async fn serve(input: OwnedFd, output: OwnedFd) -> io::Result<()> {
    let mut requests = FramedRead::new(Stream::new(input)?, framing());
    let (say, mut said) = mpsc::unbounded_channel::<Event>();
    let mut events = FramedWrite::new(Stream::new(output)?, framing());
    let writing = tokio::task::spawn_local(async move {
        while let Some(event) = said.recv().await {
            events
                .send(Bytes::from(serde_json::to_vec(&event)?))
                .await?;
        }
        Ok::<_, io::Error>(())
    });
    let home = NetNs::current()?;
    let surroundings = surroundings::look(&home).await;
    // A closed channel means that the front end is gone; reading ends then too.
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
            (_, Some(lab)) => answer(lab, request, &labs, &graveyard, &say),
            (_, None) => drop(say.send(Event::Alive)),
        }
    }
    drop(say);
    writing.abort();
    Ok(())
}

type Labs = Rc<RefCell<HashMap<LabId, mpsc::UnboundedSender<Request>>>>;

/// Hands a request to its lab's own task, so that labs do not wait for each
/// other and one lab's requests are answered in their order.
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
        standing.insert(lab, ask);
        let (labs, graveyard) = (Rc::clone(labs), Rc::clone(graveyard));
        tokio::task::spawn_local(keep(lab, asked, labs, graveyard, say.clone()));
    } else if matches!(request, Request::Build { .. }) {
        let failure = failure::bug(format!("there is a lab {lab} already"));
        let _ = say.send(Event::Failed { lab, failure });
        return;
    }
    let asked = standing
        .get(&lab)
        .is_some_and(|ask| ask.send(request).is_ok());
    if !asked {
        let failure = failure::bug(format!("there is no lab {lab}"));
        let _ = say.send(Event::Failed { lab, failure });
    }
}

/// A lab from its building to its removal.
async fn keep(
    id: LabId,
    mut asked: mpsc::UnboundedReceiver<Request>,
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
                        tell(Event::Built {
                            lab: id,
                            descriptors: lab.descriptors(),
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
    if let Some(lab) = standing {
        graveyard.bury(lab.end());
    }
    labs.borrow_mut().remove(&id);
    tell(Event::Gone { lab: id });
}

/// Does with a standing lab what is asked.
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
            evidence: Box::new(lab.probe(step).await?),
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
        Request::Start {
            namespace,
            name,
            program,
            arguments,
            ..
        } => {
            lab.start(&namespace, &name, &program, &arguments)?;
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
        // Who keeps labs acts on these.
        Request::Build { .. } | Request::Remove { .. } | Request::Greet { .. } | Request::Ping => {
            return Err(failure::bug(format!("lab {id} was asked to {request:?}")));
        }
    })
}
