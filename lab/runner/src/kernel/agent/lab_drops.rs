//! Traces the drops of a lab while its probes run, and reports them to the agent, which may settle
//! timeouts by them.

use std::convert::Infallible;
use std::future::pending;
use std::time::Duration;

use tokio::time::sleep;

use super::AgentLink;
use super::blocking::run_blocking;
use super::drops::{DropTrace, HostAgent};
use svclab_agent::drops::TraceError;
use svclab_model::evidence::{DropEvidence, DroppedPacket};
use svclab_model::protocol::{LabId, Request};

/// First and longest pause between two reports. The agent needs the drops as soon as the packets of
/// its probes have ended.
const MIN_AND_MAX_PAUSE: [Duration; 2] = [Duration::from_millis(10), Duration::from_millis(160)];

/// Maximum number of reported drops. The agent settles no timeout of probes with so many packets.
const MAX_REPORTED: usize = 10_000;

/// Drops of a running lab.
pub(super) struct LabDrops {
    trace: Result<DropTrace, TraceError>,
    recorded: DropEvidence,
}

impl LabDrops {
    /// Starts to trace namespaces, each with the descriptor that the agent reports for it.
    pub(super) async fn start(agent: HostAgent, namespaces: Vec<(String, i32)>) -> Self {
        Self {
            trace: run_blocking(move || DropTrace::start(agent, namespaces)).await,
            recorded: DropEvidence::Unwatched,
        }
    }

    /// Reports drops to the agent until the future is dropped.
    pub(super) async fn report(&mut self, link: &AgentLink, lab: LabId) -> Infallible {
        let Ok(trace) = &mut self.trace else {
            return pending().await;
        };
        let (mut pause, mut reported) = (MIN_AND_MAX_PAUSE[0], 0);
        while reported < MAX_REPORTED {
            sleep(pause).await;
            pause = (2 * pause).min(MIN_AND_MAX_PAUSE[1]);
            let drops = trace.drops();
            if let DropEvidence::Watched { dropped, .. } = &drops
                && !dropped.is_empty()
            {
                reported += dropped.len();
                pause = MIN_AND_MAX_PAUSE[0];
                let drops = drops.clone();
                link.send(Request::ReportDrops { lab, drops });
            }
            self.recorded.add(drops);
        }
        pending().await
    }

    /// Ends the trace. Returns the drops in some of its namespaces.
    pub(super) async fn stop(mut self, namespaces: &[String]) -> DropEvidence {
        match self.trace {
            Ok(trace) => self.recorded.add(run_blocking(move || trace.stop()).await),
            Err(reason) => self.recorded = DropEvidence::Uncertain(reason.describe()),
        }
        if let DropEvidence::Watched { dropped, .. } = &mut self.recorded {
            dropped.retain(|packet: &DroppedPacket| namespaces.contains(&packet.namespace));
        }
        self.recorded
    }
}
