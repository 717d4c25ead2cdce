//! Defines a trace event as the kernel reports it, before the rule's line in its chain is
//! determined.

use std::collections::HashSet;
use std::sync::Arc;

use svclab_model::evidence::trace::RuleVerdict;
use svclab_model::plan::Backend;

/// Trace event of a packet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct RawTraceEvent {
    /// Backend that reported the event.
    pub backend: Backend,
    /// Packet ID. This and the following fields have the meaning of those in
    /// [`svclab_model::evidence::TraceEvent`].
    pub trace_id: u32,
    pub packet: Option<Vec<u8>>,
    pub ip: u8,
    pub input: Option<u32>,
    pub output: Option<u32>,
    pub mark: u32,
    pub table: Arc<str>,
    pub inet: bool,
    pub chain: Arc<str>,
    pub position: TracePosition,
    pub verdict: Option<RuleVerdict>,
}

/// Position in a chain.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TracePosition {
    /// Rule with this handle, in a table of this family.
    Handle(u8, u64),
    /// Rule with this number.
    Rule(u32),
    /// Verdict without a condition at this number: the last rule of the chain, or the end of the
    /// chain.
    LastRuleOrEnd(u32, ChainEnd),
    /// End of the chain.
    End(ChainEnd),
}

/// Action at the end of a chain.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ChainEnd {
    Return,
    Policy,
}

/// Interned names.
#[derive(Debug, Default)]
pub(super) struct InternedNames(HashSet<Arc<str>>);

impl InternedNames {
    pub(super) fn intern(&mut self, name: &str) -> Arc<str> {
        if let Some(interned) = self.0.get(name) {
            return Arc::clone(interned);
        }
        let name: Arc<str> = Arc::from(name);
        self.0.insert(Arc::clone(&name));
        name
    }
}
