//! Merges the iptables rules of a namespace that uses one iptables variant (legacy or nft) or both.

use std::collections::HashSet;

use super::PairError;
use super::atoms::{Atoms, Owned, Where};
use super::difference::Kind;
use super::rules::Rules;
use crate::bisect::merge::Merged;
use svclab_model::plan::{Backend, Iptables, Namespace};

/// Merged rules of each iptables variant.
#[derive(Debug, Clone)]
pub struct Loaded(Vec<Part>);

/// Merged rules of one iptables variant.
#[derive(Debug, Clone)]
struct Part {
    backend: Merged<Backend>,
    v4: Rules,
    v6: Rules,
}

impl Loaded {
    /// Merges the rules of two namespaces.
    ///
    /// If either namespace uses both variants, each variant is merged separately. Otherwise the
    /// rules are merged whatever their variant, because equal rules behave alike in both.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`Rules::of`].
    pub fn of(good: &Namespace, bad: &Namespace, atoms: &mut Atoms) -> Result<Self, PairError> {
        let name = good.name.as_str();
        if good.beside.is_none() && bad.beside.is_none() {
            let sides = [good.iptables.as_ref(), bad.iptables.as_ref()];
            let part = Part::of(name, sides, ["iptables", "ip6tables"], atoms)?;
            return Ok(Self(vec![part]));
        }
        let all = |own: &'_ Namespace| -> Vec<Iptables> {
            own.iptables.iter().chain(&own.beside).cloned().collect()
        };
        let (one, other) = (all(good), all(bad));
        // The default variant comes first, as in a plan.
        let mut backends: Vec<Backend> = Vec::new();
        for rules in one.iter().chain(&other) {
            if !backends.contains(&rules.backend) {
                backends.push(rules.backend);
            }
        }
        let parts = backends.into_iter().map(|backend| {
            let programs = match backend {
                Backend::Nft => ["iptables-nft", "ip6tables-nft"],
                Backend::Legacy => ["iptables-legacy", "ip6tables-legacy"],
            };
            let own = |all: &[Iptables]| {
                let found = all.iter().find(|rules| rules.backend == backend);
                found.cloned().unwrap_or(Iptables {
                    backend,
                    ..Iptables::default()
                })
            };
            let (one, other) = (own(&one), own(&other));
            Part::of(name, [Some(&one), Some(&other)], programs, atoms)
        });
        Ok(Self(parts.collect::<Result<_, _>>()?))
    }

    /// Returns the rules of the default variant and of the other one, with the differences that
    /// `with` selects.
    pub fn with(&self, with: &impl Fn(usize) -> bool) -> [Option<Iptables>; 2] {
        let mut all = self.0.iter().map(|part| part.with(with));
        [all.next().flatten(), all.next().flatten()]
    }

    /// Adds the sets that rules refer to with the differences that `with` selects.
    pub fn sets<'r>(&'r self, with: &impl Fn(usize) -> bool, sets: &mut HashSet<&'r str>) {
        for part in &self.0 {
            part.v4.sets(with, sets);
            part.v6.sets(with, sets);
        }
    }
}

impl Part {
    fn of(
        namespace: &str,
        [good, bad]: [Option<&Iptables>; 2],
        [v4, v6]: [&str; 2],
        atoms: &mut Atoms,
    ) -> Result<Self, PairError> {
        // A side without rules uses the variant of the other side.
        let either = good.or(bad);
        let backend = |own: Option<&Iptables>| -> Vec<Backend> {
            own.or(either)
                .map(|rules| rules.backend)
                .into_iter()
                .collect()
        };
        let at = Where {
            namespace,
            of: Kind::Backend,
            place: "rules".to_owned(),
        };
        let of = |backend: &Backend| {
            let text = format!("loaded by iptables-{}", backend.word());
            (text, Owned::Nobody)
        };
        let backend = atoms.keyed(&at, &backend(good), &backend(bad), |_| (), of);
        let text = |own: Option<&Iptables>, of: fn(&Iptables) -> &String| {
            own.map(of).cloned().unwrap_or_default()
        };
        let mut laid = |program: &str, of: fn(&Iptables) -> &String| {
            Rules::of(namespace, program, &text(good, of), &text(bad, of), atoms)
        };
        Ok(Self {
            v4: laid(v4, |rules| &rules.v4)?,
            v6: laid(v6, |rules| &rules.v6)?,
            backend,
        })
    }

    fn with(&self, with: &impl Fn(usize) -> bool) -> Option<Iptables> {
        let backend = self.backend.with(with).next()?;
        Some(Iptables {
            backend: *backend,
            v4: self.v4.with(with),
            v6: self.v6.with(with),
        })
    }
}
