//! Locates trace events: maps handles and positions to rules by their line in the chain.

use std::collections::HashMap;
use std::sync::Arc;

use super::rules::RuleLines;
use super::step::{ChainEnd, RawTraceEvent, TracePosition};
use super::{TracedNamespace, legacy_table};
use svclab_model::evidence::TraceEvent;
use svclab_model::evidence::trace::TracePoint;

/// Locator of rules by line, for one namespace.
pub(super) struct RuleLocator<'a> {
    traced: &'a TracedNamespace,
    /// Current rules, read on first use.
    current: Option<RuleLines>,
    /// Number of rules by chain, for each legacy table.
    legacy: HashMap<(u8, Arc<str>), HashMap<String, u32>>,
}

impl<'a> RuleLocator<'a> {
    pub(super) fn new(traced: &'a TracedNamespace) -> Self {
        Self {
            traced,
            current: None,
            legacy: HashMap::new(),
        }
    }

    pub(super) fn locate(&mut self, step: RawTraceEvent) -> TraceEvent {
        let point = match step.position {
            TracePosition::Handle(family, handle) => {
                TracePoint::Rule(self.line(family, &step.table, handle))
            }
            TracePosition::LastRuleOrEnd(line, end) if line > self.count_rules(&step) => end.into(),
            TracePosition::Rule(line) | TracePosition::LastRuleOrEnd(line, _) => {
                TracePoint::Rule(line)
            }
            TracePosition::End(end) => end.into(),
        };
        let interface_name = |index: Option<u32>| self.traced.interfaces.get(&index?).cloned();
        TraceEvent {
            namespace: self.traced.name.clone(),
            backend: step.backend,
            trace_id: step.trace_id,
            packet: step.packet,
            ip_version: step.ip,
            input: interface_name(step.input),
            output: interface_name(step.output),
            mark: step.mark,
            table: step.table.as_ref().to_owned(),
            inet: step.inet,
            chain: step.chain.as_ref().to_owned(),
            point,
            verdict: step.verdict,
        }
    }

    /// Returns the line of a rule, or 0 for a rule that was added and removed during the trace.
    fn line(&mut self, family: u8, table: &str, handle: u64) -> u32 {
        let traced = self.traced;
        traced
            .rules
            .line(family, table, handle)
            .or_else(|| {
                self.current
                    .get_or_insert_with(|| RuleLines::read(&traced.ns).unwrap_or_default())
                    .line(family, table, handle)
            })
            .unwrap_or(0)
    }

    /// Returns the number of rules in the chain of an event.
    fn count_rules(&mut self, step: &RawTraceEvent) -> u32 {
        let ns = &self.traced.ns;
        self.legacy
            .entry((step.ip, Arc::clone(&step.table)))
            .or_insert_with(|| {
                legacy_table::count_rules(ns, step.ip, &step.table).unwrap_or_default()
            })
            .get(step.chain.as_ref())
            .copied()
            .unwrap_or(0)
    }
}

impl From<ChainEnd> for TracePoint {
    fn from(end: ChainEnd) -> Self {
        match end {
            ChainEnd::Return => Self::Return,
            ChainEnd::Policy => Self::Policy,
        }
    }
}
