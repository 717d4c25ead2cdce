//! Stops all captures and traces of a lab at the same time, once no packets are in flight.

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

/// Interval between checks. It is this process's own time: while the host is busy with other
/// processes, the servers and clients in this process send no packets either.
const PAUSE: Duration = Duration::from_millis(2);

/// Number of consecutive checks without a new packet that end the wait.
const SILENT: u32 = 5;

/// Maximum number of checks, because packets may continue without end.
const LOOKS: u32 = 500;

/// Unresolved neighbours when packets stopped, by namespace.
pub type Unresolved = BTreeMap<String, Vec<IpAddr>>;

/// Captures and trace of a lab.
pub struct Watched<'a> {
    pub captures: &'a [Capture],
    pub basket: &'a RefCell<Basket>,
    pub trace: Option<&'a mut Trace>,
}

impl Lab {
    /// Waits until no packets are in flight, and stops recording at that moment. Later packets
    /// would be recorded in some namespaces only, so that their paths would be incomplete. Returns
    /// the neighbours that were unresolved then.
    ///
    /// # Errors
    ///
    /// When the kernel does not answer.
    pub(super) async fn rest(&self, watched: Watched<'_>) -> Result<Unresolved, Failure> {
        let Watched {
            captures,
            basket,
            mut trace,
        } = watched;
        let mut looks = 0;
        loop {
            let (last, heard) = silence(captures, basket, &mut looks).await;
            // Neighbours must be read before the drops that end a neighbour discovery are recorded.
            let unresolved = self.unresolved().await?;
            if let Some(trace) = &mut trace {
                trace.hear_out()?;
            }
            captures.iter().for_each(Capture::drain);
            // Trace events have no timestamps. If no packet arrived while they were read, all of
            // them are older than the end time.
            if basket.borrow().heard() == heard || looks >= LOOKS {
                basket.borrow_mut().end_at(last);
                return Ok(unresolved);
            }
            if let Some(trace) = &mut trace {
                trace.go_on()?;
            }
        }
    }

    /// Returns the unresolved neighbours of the traced namespaces.
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

/// Waits until several consecutive checks find no new packet and no packet queued for a processor.
/// Returns the time of the last check and the number of packets captured until then.
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
