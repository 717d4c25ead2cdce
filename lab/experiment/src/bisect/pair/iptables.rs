//! Merges the iptables rules of a namespace that uses one iptables variant (legacy or nft) or both.

use std::collections::HashSet;

use super::PairError;
use super::difference::Kind;
use super::graph::{DifferenceGraph, OwnerKey, Scope};
use super::rules::Rules;
use crate::bisect::merge::Merged;
use svclab_model::plan::{Backend, Iptables, Namespace};
use svclab_ruleset::input::Input;
use svclab_ruleset::iptables::script::IptablesScript;

/// Merged rules of each iptables variant.
#[derive(Debug, Clone)]
pub struct MergedIptables(Vec<MergedVariant>);

/// Merged rules of one iptables variant.
#[derive(Debug, Clone)]
struct MergedVariant {
    backend: Merged<Backend>,
    v4: Rules,
    v6: Rules,
}

impl MergedIptables {
    /// Merges the rules of two namespaces.
    ///
    /// If either namespace uses both variants, each variant is merged separately. Otherwise the
    /// rules are merged whatever their variant, because equal rules behave alike in both.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`Rules::new`].
    pub fn new(
        good: &Namespace,
        bad: &Namespace,
        graph: &mut DifferenceGraph,
    ) -> Result<Self, PairError> {
        let name = good.name.as_str();
        if good.other_iptables.is_none() && bad.other_iptables.is_none() {
            let sides = [good.iptables.as_ref(), bad.iptables.as_ref()];
            let part = MergedVariant::new(name, sides, ["iptables", "ip6tables"], graph)?;
            return Ok(Self(vec![part]));
        }
        let variants = |namespace: &'_ Namespace| -> Vec<Iptables> {
            namespace.iptables_rules().cloned().collect()
        };
        let (good_variants, bad_variants) = (variants(good), variants(bad));
        // The default variant comes first, as in a plan.
        let mut backends: Vec<Backend> = Vec::new();
        for rules in good_variants.iter().chain(&bad_variants) {
            if !backends.contains(&rules.backend) {
                backends.push(rules.backend);
            }
        }
        let parts = backends.into_iter().map(|backend| {
            let programs = match backend {
                Backend::Nft => ["iptables-nft", "ip6tables-nft"],
                Backend::Legacy => ["iptables-legacy", "ip6tables-legacy"],
            };
            let find_variant = |variants: &[Iptables]| {
                let found = variants.iter().find(|rules| rules.backend == backend);
                found.cloned().unwrap_or(Iptables {
                    backend,
                    ..Iptables::default()
                })
            };
            let (good_rules, bad_rules) =
                (find_variant(&good_variants), find_variant(&bad_variants));
            MergedVariant::new(name, [Some(&good_rules), Some(&bad_rules)], programs, graph)
        });
        Ok(Self(parts.collect::<Result<_, _>>()?))
    }

    /// Returns the rules of the default variant and of the other one, with the differences that
    /// `with` selects.
    pub fn build(&self, with: &impl Fn(usize) -> bool) -> [Option<Iptables>; 2] {
        let mut variants = self.0.iter().map(|part| part.build(with));
        [variants.next().flatten(), variants.next().flatten()]
    }

    /// Adds the sets that rules refer to with the differences that `with` selects.
    pub fn collect_sets<'r>(&'r self, with: &impl Fn(usize) -> bool, sets: &mut HashSet<&'r str>) {
        for part in &self.0 {
            part.v4.collect_sets(with, sets);
            part.v6.collect_sets(with, sets);
        }
    }
}

/// Selects the rules of one family.
type Select = fn(&Iptables) -> &Input<IptablesScript>;

impl MergedVariant {
    fn new(
        namespace: &str,
        [good, bad]: [Option<&Iptables>; 2],
        [v4, v6]: [&str; 2],
        graph: &mut DifferenceGraph,
    ) -> Result<Self, PairError> {
        // A side without rules uses the variant of the other side.
        let either = good.or(bad);
        let backend = |side: Option<&Iptables>| -> Vec<Backend> {
            side.or(either)
                .map(|rules| rules.backend)
                .into_iter()
                .collect()
        };
        let scope = Scope {
            namespace,
            kind: Kind::Backend,
            location: "rules".to_owned(),
        };
        let describe = |backend: &Backend| {
            let text = format!("loaded by iptables-{}", backend.name());
            (text, OwnerKey::Unknown)
        };
        let backend = graph.add_keyed(&scope, &backend(good), &backend(bad), |_| (), describe);
        let input =
            |side: Option<&Iptables>, select: Select| side.map(select).cloned().unwrap_or_default();
        let mut merge = |program: &str, select: Select| {
            Rules::new(
                namespace,
                program,
                &input(good, select),
                &input(bad, select),
                graph,
            )
        };
        Ok(Self {
            v4: merge(v4, |rules| &rules.v4)?,
            v6: merge(v6, |rules| &rules.v6)?,
            backend,
        })
    }

    fn build(&self, with: &impl Fn(usize) -> bool) -> Option<Iptables> {
        let backend = self.backend.selected(with).next()?;
        Some(Iptables {
            backend: *backend,
            v4: self.v4.build(with).into(),
            v6: self.v6.build(with).into(),
        })
    }
}
