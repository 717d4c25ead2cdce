//! How much of a kernel's memory a plan takes.

use super::delta::Change;
use super::{Namespace, Plan};

/// What a namespace takes, in KiB. Between 250 and 385 were measured of slabs and
/// per-processor memory (Linux 6.18, `canal-stale-rule` and `six-namespaces`, 120
/// to 180 namespaces each).
const NAMESPACE: u64 = 512;

/// How much more memory rules take than their text. A rule of iptables with a
/// comment takes some 500 bytes in the kernel and some 130 of text; while it is
/// loaded there are two of it, in the kernel and in the program that loads it.
const RULES: u64 = 16;

/// What a real kube-proxy takes, in KiB: 36 MiB of 1.20.2 were measured.
const PROXY: u64 = 64 << 10;

impl Plan {
    /// How much memory the plan takes where it stands, in KiB: an estimate that
    /// is rather too high.
    #[must_use]
    pub fn memory(&self) -> u64 {
        let namespaces: u64 = self.namespaces.iter().map(Namespace::memory).sum();
        let later = self.steps.iter().flat_map(|step| &step.delta.namespaces);
        let changed: u64 = later.map(Change::memory).sum();
        let namespaces = namespaces.saturating_add(changed);
        let proxies = u64::try_from(self.proxies.len()).unwrap_or(u64::MAX);
        namespaces.saturating_add(proxies.saturating_mul(PROXY))
    }
}

impl Namespace {
    fn memory(&self) -> u64 {
        let both = self.iptables.iter().chain(&self.beside);
        let rules: usize = both.map(|rules| rules.v4.len() + rules.v6.len()).sum();
        let text = u64::try_from(rules + self.ipset.len() + self.nft.len()).unwrap_or(u64::MAX);
        NAMESPACE + text.saturating_mul(RULES) / 1024
    }
}

impl Change {
    fn memory(&self) -> u64 {
        let sets = self.sets.as_ref().map_or(0, |sets| sets.before.len());
        let both = self.iptables.iter().chain(&self.beside);
        let rules: usize = both
            .map(|rules| rules.batches.v4.len() + rules.batches.v6.len())
            .sum();
        let tables = self.nft.as_ref().map_or(0, |tables| tables.come.len());
        let text = u64::try_from(sets + rules + tables).unwrap_or(u64::MAX);
        text.saturating_mul(RULES) / 1024
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn namespaces_and_rules_count() {
        let mut plan = Plan::default();
        assert_eq!(plan.memory(), 0);
        plan.namespaces = vec![Namespace::default(); 2];
        assert_eq!(plan.memory(), 1024);
        plan.namespaces[0].ipset = "-".repeat(64 << 10);
        assert_eq!(plan.memory(), 2048);
    }
}
