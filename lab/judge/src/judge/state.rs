//! Compares counters, rules and kernel state with expectations.

use crate::check::{Check, iptables, is_native_table, kernel_state, nft_tables};
use crate::judge::Judge;
use svclab_model::evidence::{Evidence, KernelState, StageEvidence};
use svclab_scenario::expectation::{
    ChainExpectation, CounterExpectation, Expected, RuleExpectation,
};

impl Judge<'_> {
    pub(super) fn check_counter(
        &self,
        expected: &CounterExpectation,
        evidence: &Evidence,
    ) -> Check {
        let netns = self.namespace_of(&expected.on);
        let stages = evidence.stages.iter();
        let increase = stages
            .filter_map(|seen| seen.counters.get(&netns)?.get(&expected.counter))
            .fold(0, |sum: i64, by| sum.saturating_add(*by));
        Check::Counter {
            expected: expected.clone(),
            increase,
        }
    }

    pub(super) fn check_rule(&self, expected: &RuleExpectation, evidence: &Evidence) -> Check {
        let netns = self.namespace_of(&expected.on);
        let last = evidence.stages.last();
        let (hits, missed) = if is_native_table(&expected.table) {
            // The rule must exist at the end. A step may have added it.
            let count = |stage| nft_tables::count_hits(stage, &netns, expected);
            let earlier = evidence.stages.iter().rev().skip(1).filter_map(count);
            let earlier = earlier.fold(0, u64::saturating_add);
            let hits = last.and_then(count);
            // An unrecorded trace event might be a match of the rule.
            let missed = evidence.stages.iter().map(|stage| stage.trace_missed);
            (
                hits.map(|hits| hits.saturating_add(earlier)),
                missed.fold(0, u64::saturating_add),
            )
        } else {
            // Counters of the kernel also have the packets of earlier stages.
            let rules = last.map_or(&[][..], |stage| &stage.rules);
            (iptables::count_hits(rules, &netns, expected), 0)
        };
        Check::Rule {
            expected: expected.clone(),
            hits,
            missed,
        }
    }

    pub(super) fn check_chain(
        &self,
        expected: &ChainExpectation,
        evidence: &StageEvidence,
    ) -> Check {
        let netns = self.namespace_of(&expected.on);
        let (table, chain) = (&expected.table, &expected.chain);
        let rules = if is_native_table(table) {
            let state = evidence.kernel_state.get(&netns);
            state.and_then(|state| nft_tables::chain_rules(state, table, chain))
        } else {
            iptables::chain_rules(&evidence.rules, &netns, table, chain)
        };
        Check::Chain {
            expected: expected.clone(),
            rules,
        }
    }

    /// Compares sets, virtual servers and interfaces with the expectations.
    pub(super) fn check_kernel_state(
        &self,
        expected: &Expected,
        evidence: &StageEvidence,
    ) -> Vec<Check> {
        let empty = KernelState::default();
        let state_of = |name: &str| {
            evidence
                .kernel_state
                .get(&self.namespace_of(name))
                .unwrap_or(&empty)
        };
        let sets = expected
            .sets
            .iter()
            .map(|set| kernel_state::check_set(set, state_of(&set.on)));
        let servers = expected
            .ipvs
            .iter()
            .map(|server| kernel_state::check_virtual_server(server, state_of(&server.on)));
        let links = expected
            .links
            .iter()
            .map(|link| kernel_state::check_link(link, state_of(&link.on.owner)));
        sets.chain(servers).chain(links).collect()
    }
}
