//! Stops all captures and traces of a lab at the same time, once no packets are in flight.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::Duration;

use tokio::time::sleep;

use crate::lab::RunningLab;
use crate::net::netlink::StepResult as _;
use crate::runtime::softnet::BacklogQueues;
use crate::watch::capture::{Capture, CaptureBuffer};
use crate::watch::trace::Trace;
use svclab_model::protocol::Failure;

/// Interval between checks. The kernel has no event for the absence of packets. The interval is this
/// process's own time: while the host is busy with other processes, the servers and clients in this
/// process send no packets either.
const POLL_INTERVAL: Duration = Duration::from_millis(2);

/// Number of consecutive checks without a new packet that end the wait.
const QUIET_CHECKS: u32 = 5;

/// Maximum number of checks, because packets may continue without end.
const MAX_CHECKS: u32 = 500;

/// Unresolved neighbours when packets stopped, by namespace.
pub(crate) type UnresolvedNeighbours = BTreeMap<String, Vec<IpAddr>>;

/// Captures and trace of a lab.
pub(crate) struct Recorders<'a> {
    pub captures: &'a [Capture],
    pub buffer: &'a RefCell<CaptureBuffer>,
    pub trace: Option<&'a mut Trace>,
}

impl RunningLab {
    /// Waits until no packets are in flight, and stops recording at that moment. Later packets
    /// would be recorded in some namespaces only, so that their paths would be incomplete. Returns
    /// the neighbours that were unresolved then.
    pub(crate) async fn quiesce(
        &self,
        recorders: Recorders<'_>,
    ) -> Result<UnresolvedNeighbours, Failure> {
        let Recorders {
            captures,
            buffer,
            mut trace,
        } = recorders;
        let mut checks = 0;
        loop {
            let (end_time, captured) = wait_until_quiet(captures, buffer, &mut checks).await;
            // Neighbours must be read before the drops that end a neighbour discovery are recorded.
            let unresolved = self.unresolved_neighbours().await?;
            if let Some(trace) = &mut trace {
                trace.pause()?;
            }
            captures.iter().for_each(Capture::drain);
            // Trace events have no timestamps. If no packet arrived while they were read, all of
            // them are older than the end time.
            if buffer.borrow().count_captured() == captured || checks >= MAX_CHECKS {
                buffer.borrow_mut().end_at(end_time);
                return Ok(unresolved);
            }
            if let Some(trace) = &mut trace {
                trace.resume()?;
            }
        }
    }

    /// Returns the unresolved neighbours of the traced namespaces.
    async fn unresolved_neighbours(&self) -> Result<UnresolvedNeighbours, Failure> {
        let mut by_namespace = UnresolvedNeighbours::new();
        for (namespace, wire) in self.plan.namespaces.iter().zip(&self.netlinks) {
            let name = &namespace.name;
            if self.plan.evidence.trace.contains(name) {
                let unresolved = wire.unresolved_neighbours().await;
                let unresolved = unresolved.in_step(name, "read the neighbours")?;
                if !unresolved.is_empty() {
                    by_namespace.insert(name.clone(), unresolved);
                }
            }
        }
        Ok(by_namespace)
    }
}

/// Waits until several consecutive checks find no new packet and no packet queued for a processor.
/// Returns the time of the last check and the number of packets captured until then.
async fn wait_until_quiet(
    captures: &[Capture],
    buffer: &RefCell<CaptureBuffer>,
    checks: &mut u32,
) -> (u64, u64) {
    let mut quiet_checks = 0;
    loop {
        let packets_before = buffer.borrow().count_captured();
        let now = buffer.borrow_mut().now();
        captures.iter().for_each(Capture::drain);
        let packets = buffer.borrow().count_captured();
        let is_active = packets > packets_before || !BacklogQueues::read().busy.is_empty();
        quiet_checks = if is_active { 0 } else { quiet_checks + 1 };
        *checks += 1;
        if quiet_checks == QUIET_CHECKS || *checks >= MAX_CHECKS {
            return (now, packets);
        }
        sleep(POLL_INTERVAL).await;
    }
}
