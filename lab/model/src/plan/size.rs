//! Estimates the memory that a plan uses in the kernel.

use super::delta::NamespaceDelta;
use super::{Iptables, Namespace, Plan};

/// Memory of a namespace, in KiB. Measured were 250 to 385 KiB of slabs and per-CPU memory (Linux
/// 6.18, `canal-stale-rule` and `six-namespaces`, 120 to 180 namespaces each).
const NAMESPACE_KIB: u64 = 512;

/// Ratio of the memory of rules to the size of their text. An iptables rule with a comment uses
/// some 500 bytes in the kernel and some 130 bytes of text. During loading, the rule exists twice,
/// in the kernel and in the program that loads it.
const RULES_PER_TEXT: u64 = 16;

/// Memory of a real kube-proxy, in KiB. Measured were 36 MiB for version 1.20.2.
const KUBE_PROXY_KIB: u64 = 64 << 10;

impl Plan {
    /// Returns an estimate of the memory that the running lab uses, in KiB. The estimate is rather
    /// too high.
    #[must_use]
    pub fn memory_kib(&self) -> u64 {
        let namespaces: u64 = self.namespaces.iter().map(Namespace::memory_kib).sum();
        let later = self.steps().flat_map(|step| &step.delta.namespaces);
        let changed: u64 = later.map(NamespaceDelta::memory_kib).sum();
        let namespaces = namespaces.saturating_add(changed);
        let proxies = u64::try_from(self.kube_proxies.len()).unwrap_or(u64::MAX);
        namespaces.saturating_add(proxies.saturating_mul(KUBE_PROXY_KIB))
    }
}

impl Namespace {
    fn memory_kib(&self) -> u64 {
        let backends = self.iptables_rules();
        let rules: usize = backends.map(Iptables::text_len).sum();
        let text = u64::try_from(rules + self.ipset.text().len() + self.nft.text().len())
            .unwrap_or(u64::MAX);
        NAMESPACE_KIB + text.saturating_mul(RULES_PER_TEXT) / 1024
    }
}

impl Iptables {
    fn text_len(&self) -> usize {
        self.v4.text().len() + self.v6.text().len()
    }
}

impl NamespaceDelta {
    fn memory_kib(&self) -> u64 {
        let sets = self.sets.iter().map(|sets| sets.before_rules().len());
        let backends = self.iptables_rules();
        let rules = backends.map(|rules| rules.batches.text_len());
        let tables = self.nft.iter().map(|tables| tables.add.text().len());
        let text: usize = sets.chain(rules).chain(tables).sum();
        let text = u64::try_from(text).unwrap_or(u64::MAX);
        text.saturating_mul(RULES_PER_TEXT) / 1024
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use svclab_ruleset::input::Input;

    #[test]
    fn plan_memory_counts_namespaces_and_rules() {
        let mut plan = Plan::default();
        assert_eq!(plan.memory_kib(), 0);
        plan.namespaces = vec![Namespace::default(); 2];
        assert_eq!(plan.memory_kib(), 1024);
        plan.namespaces[0].ipset = Input::from_text("-".repeat(64 << 10));
        assert_eq!(plan.memory_kib(), 2048);
    }
}
