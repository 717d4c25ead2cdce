//! The end of watching: when packets have come to rest, at one moment for all of a lab.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::Duration;

use tokio::time::sleep;

use super::capture::{Basket, Capture};
use super::lab::Lab;
use super::softnet::Queues;
use super::trace::Trace;
use super::wire::refused;
use svclab_model::protocol::Failure;

/// How long is waited between two looks. It is this process's own time: while the
/// machine is busy elsewhere, servers and callers in it have no packets to send, either.
const PAUSE: Duration = Duration::from_millis(2);

/// How many looks in a row find nothing new when packets have come to rest.
const SILENT: u32 = 5;

/// How many looks there are at most: something may go on by itself.
const LOOKS: u32 = 500;

/// What neighbours namespaces were looking for when packets had come to rest.
pub type Unresolved = BTreeMap<String, Vec<IpAddr>>;

/// What is watched of a lab.
pub struct Watched<'a> {
    pub captures: &'a [Capture],
    pub basket: &'a RefCell<Basket>,
    pub trace: Option<&'a mut Trace>,
}

impl Lab {
    /// Waits until packets have come to rest, and ends watching at that moment: of what
    /// comes later some namespaces would tell and others no more, so that its way could
    /// not be told.
    ///
    /// # Errors
    ///
    /// When a kernel does not answer.
    pub(super) async fn rest(&self, watched: Watched<'_>) -> Result<Unresolved, Failure> {
        let Watched {
            captures,
            basket,
            mut trace,
        } = watched;
        let mut looks = 0;
        loop {
            let (last, heard) = silence(captures, basket, &mut looks).await;
            // Before the drops are heard that end a search.
            let unresolved = self.unresolved().await?;
            if let Some(trace) = &mut trace {
                trace.hear_out()?;
            }
            captures.iter().for_each(Capture::drain);
            // Steps through rules have no time. Where no packet came while they were
            // heard, all of them were taken before that.
            if basket.borrow().heard() == heard || looks >= LOOKS {
                basket.borrow_mut().end_at(last);
                return Ok(unresolved);
            }
            if let Some(trace) = &mut trace {
                trace.go_on()?;
            }
        }
    }

    /// Whom traced namespaces are still looking for.
    async fn unresolved(&self) -> Result<Unresolved, Failure> {
        let mut all = Unresolved::new();
        for (namespace, wire) in self.plan.namespaces.iter().zip(&self.wires) {
            let name = &namespace.name;
            if self.plan.watch.trace.contains(name) {
                let unresolved = wire
                    .unresolved()
                    .await
                    .map_err(|error| refused(name, "read the neighbours", &error))?;
                if !unresolved.is_empty() {
                    all.insert(name.clone(), unresolved);
                }
            }
        }
        Ok(all)
    }
}

/// Waits until nothing was captured for some looks, and no packet waits for a processor. Returns the moment of the last one,
/// and how many packets had been heard by then.
async fn silence(captures: &[Capture], basket: &RefCell<Basket>, looks: &mut u32) -> (u64, u64) {
    let mut silent = 0;
    loop {
        let before = basket.borrow().heard();
        let now = basket.borrow_mut().now();
        captures.iter().for_each(Capture::drain);
        let heard = basket.borrow().heard();
        let moves = heard > before || !Queues::read().busy.is_empty();
        silent = if moves { 0 } else { silent + 1 };
        *looks += 1;
        if silent == SILENT || *looks >= LOOKS {
            return (now, heard);
        }
        sleep(PAUSE).await;
    }
}
