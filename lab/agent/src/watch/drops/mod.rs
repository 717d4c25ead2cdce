//! Traces the packets that the kernel drops in selected namespaces, with the kernel's function and
//! reason.
//!
//! Tracing requires `CAP_BPF` and `CAP_PERFMON` in the initial user namespace. The tracer runs in
//! the agent of a guest and, on the host, in the front end if the front end has the privileges. An
//! agent on the host receives no descriptor of the ring, the maps or the program. Therefore the
//! agent cannot read, fill, extend or keep any of them. The front end verifies the namespaces that
//! the agent reports.

mod attached;
mod bpf;
mod btf;
mod copies;
mod kernel;
mod program;
mod record;
mod ring;
mod trace_error;

use std::collections::HashMap;
use std::io;

use attached::Attached;
use record::RecordDecoder;
use svclab_model::evidence::{DropEvidence, DroppedPacket};

pub use trace_error::TraceError;

/// Namespaces whose drops are traced.
#[derive(Debug, Clone, Default)]
pub struct Scope {
    /// Names of network namespaces, by inode number.
    pub namespaces: HashMap<u32, String>,
    /// Inode number of the user namespace that owns all of them. A network namespace with another
    /// owner is ignored, even if its inode number matches.
    pub owner_user_namespace: u32,
}

/// Trace of the packets that the kernel drops in some namespaces. Dropping the value ends the
/// trace. The kernel's programs stay attached for the next trace of this process.
#[derive(Debug)]
pub struct DropTracer {
    /// Programs that record the drops; `None` once the trace has ended.
    attached: Option<Attached>,
    decoder: RecordDecoder,
    /// Number of drops without a record before the start, by copy of the program.
    missed_before: Vec<u64>,
}

impl DropTracer {
    /// Starts a trace. The first call reads the kernel's type information, which has some
    /// megabytes.
    ///
    /// # Errors
    ///
    /// When drops cannot be traced on this kernel.
    pub fn start(scope: Scope) -> Result<Self, TraceError> {
        let attached = Attached::take(scope.namespaces.len())?;
        Self::trace(attached, scope).map_err(|error| TraceError::refused(&error))
    }

    fn trace(attached: Attached, scope: Scope) -> io::Result<Self> {
        let missed_before = attached.copies.missed()?;
        let decoder = RecordDecoder::new(&attached.types.reasons, scope.namespaces)?;
        attached.trace(decoder.namespaces(), scope.owner_user_namespace)?;
        Ok(Self {
            attached: Some(attached),
            decoder,
            missed_before,
        })
    }

    /// Returns the drops since the previous call, and an upper bound of the total number of drops
    /// without a record.
    #[must_use]
    pub fn drops(&mut self) -> DropEvidence {
        let Some(attached) = &self.attached else {
            return DropEvidence::Unwatched;
        };
        let records = std::iter::from_fn(|| attached.ring.next());
        let dropped = records.filter_map(|record| self.decoder.decode(&record));
        let mut dropped: Vec<DroppedPacket> = dropped.collect();
        dropped.sort_by_key(|each| each.time);
        match attached.copies.missed() {
            Ok(missed) => DropEvidence::Watched {
                missed: count_missed(&self.missed_before, &missed),
                dropped,
            },
            Err(error) => DropEvidence::Uncertain(TraceError::refused(&error).describe()),
        }
    }
}

impl Drop for DropTracer {
    fn drop(&mut self) {
        if let Some(attached) = self.attached.take() {
            attached.keep(self.decoder.namespaces());
        }
    }
}

/// Returns an upper bound of the number of drops that no copy recorded, from the counts by copy. The
/// kernel also counts the drops of other namespaces for which it skipped a copy; only a drop for
/// which both were skipped is missing.
fn count_missed(before: &[u64], after: &[u64]) -> u64 {
    let missed = after.iter().zip(before);
    let missed = missed.map(|(after, before)| after.saturating_sub(*before));
    missed.min().unwrap_or(0)
}
