//! Merges the iptables rules of one IP family of a namespace.
//!
//! A chain of both sides always exists. Any other chain exists if it has rules or a rule jumps to
//! it. Therefore every jump has its target, whatever differences are selected.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::fmt::Write as _;

use indexmap::{IndexMap, IndexSet};

use super::PairError;
use super::atoms::{Atoms, Owned, Where};
use super::difference::Kind;
use crate::bisect::merge::{self, Merged};
use svclab_dump::compare::iptables::{Order, in_order};
use svclab_planner::delta::rules as script;
use svclab_ruleset::iptables::{Chain, Rule};

/// Merged rules of one IP family.
#[derive(Debug, Clone)]
pub struct Rules {
    tables: Vec<Table>,
}

#[derive(Debug, Clone)]
struct Table {
    name: String,
    chains: IndexMap<String, LaidChain>,
}

#[derive(Debug, Clone)]
struct LaidChain {
    /// Whether the chain exists in every subset of differences.
    always: bool,
    /// Policy of a built-in chain.
    policy: Option<Merged<String>>,
    rules: Merged<LaidRule>,
}

/// Rule and the chain and sets that it refers to.
#[derive(Debug, Clone)]
struct LaidRule {
    written: String,
    meaning: String,
    target: Option<String>,
    sets: Vec<String>,
}

impl Rules {
    /// Merges the rules of two scripts.
    ///
    /// # Errors
    ///
    /// Returns an error if the effect of a script is not modelled, or if a rule cannot be parsed.
    pub fn of(
        namespace: &str,
        program: &str,
        good: &str,
        bad: &str,
        atoms: &mut Atoms,
    ) -> Result<Self, PairError> {
        let (one, other) = (script::read(good), script::read(bad));
        let names: IndexSet<&str> = one.keys().chain(other.keys()).copied().collect();
        let none = script::Table::default();
        let mut tables = Vec::new();
        for name in names {
            let sides = [&one, &other].map(|side| side.get(name).unwrap_or(&none));
            if sides.iter().any(|side| side.opaque) {
                return Err(PairError::Opaque {
                    namespace: namespace.to_owned(),
                    table: name.to_owned(),
                });
            }
            let [one, other] = sides;
            let chains: IndexSet<&str> = [&one.chains, &other.chains]
                .into_iter()
                .flat_map(IndexMap::keys)
                .chain(one.policies.keys())
                .chain(other.policies.keys())
                .copied()
                .collect();
            let mut table = Table {
                name: name.to_owned(),
                chains: IndexMap::new(),
            };
            for chain in chains {
                let at = At {
                    namespace,
                    program,
                    table: name,
                    chain,
                };
                let laid = at.lay(one, other, atoms)?;
                table.chains.insert(chain.to_owned(), laid);
            }
            table.tie_circles(atoms);
            tables.push(table);
        }
        Ok(Self { tables })
    }

    /// Returns the input for `iptables-restore` with the differences that `with` selects; empty if
    /// neither side has a table.
    pub fn with(&self, with: &impl Fn(usize) -> bool) -> String {
        let mut text = String::new();
        for table in &self.tables {
            table.with(with, &mut text);
        }
        text
    }

    /// Adds the sets that rules refer to with the differences that `with` selects.
    pub fn sets<'r>(&'r self, with: &impl Fn(usize) -> bool, sets: &mut HashSet<&'r str>) {
        let chains = self.tables.iter().flat_map(|table| table.chains.values());
        for rule in chains.flat_map(|chain| chain.rules.with(with)) {
            sets.extend(rule.sets.iter().map(String::as_str));
        }
    }
}

/// Chain that is merged, with its table, program and namespace.
struct At<'t> {
    namespace: &'t str,
    program: &'t str,
    table: &'t str,
    chain: &'t str,
}

impl At<'_> {
    fn lay(
        &self,
        good: &script::Table<'_>,
        bad: &script::Table<'_>,
        atoms: &mut Atoms,
    ) -> Result<LaidChain, PairError> {
        let Self {
            namespace,
            program,
            table,
            chain,
        } = *self;
        let built_in = script::is_built_in(chain);
        let place = |of| Where {
            namespace,
            of,
            place: format!("{program} {table} {chain}"),
        };
        let policy = built_in.then(|| {
            let of = |side: &script::Table<'_>| {
                vec![
                    side.policies
                        .get(chain)
                        .copied()
                        .unwrap_or("ACCEPT")
                        .split(' ')
                        .next()
                        .unwrap_or_default()
                        .to_owned(),
                ]
            };
            let (one, other) = (of(good), of(bad));
            let merged = merge::keyed(&one, &other, Clone::clone, |_| (), atoms.next());
            atoms.add(&place(Kind::Policy), &merged, &one, &other, |policy| {
                let owned = Owned::Chain {
                    table: table.to_owned(),
                    chain: chain.to_owned(),
                };
                (format!("policy {policy}"), owned)
            });
            merged
        });
        let one = self.rules(good.chains.get(chain))?;
        let other = self.rules(bad.chains.get(chain))?;
        let meaning = |rule: &LaidRule| rule.meaning.clone();
        let merged = merge::ordered(&one, &other, meaning, meaning, atoms.next());
        atoms.add(&place(Kind::Rule), &merged, &one, &other, |rule| {
            let owned = Owned::Rule {
                table: table.to_owned(),
                chain: chain.to_owned(),
                rule: rule.written.clone(),
            };
            (rule.written.clone(), owned)
        });
        let has = |side: &script::Table<'_>| side.chains.contains_key(chain);
        Ok(LaidChain {
            always: built_in || has(good) && has(bad),
            policy,
            rules: merged,
        })
    }

    /// Parses a chain's rules and sorts them where order has no meaning.
    fn rules(&self, texts: Option<&Vec<String>>) -> Result<Vec<LaidRule>, PairError> {
        let read = |text: &String| {
            Rule::of_words(text.as_str()).map_err(|problem| PairError::Rule {
                namespace: self.namespace.to_owned(),
                rule: format!("-A {} {text}", self.chain),
                why: problem.wrong.to_string(),
            })
        };
        let rules: Result<Vec<Rule>, PairError> = texts.into_iter().flatten().map(read).collect();
        let chain = Chain {
            name: self.chain.to_owned(),
            policy: None,
            rules: rules?,
            line: 0,
        };
        let items = in_order(&chain, Order::ServicesInAnyOrder);
        let laid = items.into_iter().map(|item| {
            // The rule was parsed above without error.
            let rule = Rule::of_words(item.written.as_str()).ok();
            let rule = rule.as_ref();
            LaidRule {
                target: rule.and_then(Rule::target).map(Cow::into_owned),
                sets: rule.map_or_else(Vec::new, |rule| {
                    rule.sets()
                        .into_iter()
                        .map(|(set, _)| set.into_owned())
                        .collect()
                }),
                meaning: item.key,
                written: item.written,
            }
        });
        Ok(laid.collect())
    }
}

impl Table {
    /// Joins all differences whose jumps could form a loop with only some of them selected. The
    /// kernel rejects such rules.
    fn tie_circles(&self, atoms: &mut Atoms) {
        let mut leads: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
        for (name, chain) in &self.chains {
            let targets = chain
                .rules
                .slots
                .iter()
                .filter_map(|slot| slot.item.target.as_deref());
            let targets = targets.filter(|target| self.chains.contains_key(*target));
            leads.insert(name, targets.collect());
        }
        // Repeatedly removes chains that jump to no remaining chain and chains that no remaining
        // chain jumps to. Only loops, and chains between loops, are left.
        loop {
            let before: usize = leads.values().map(BTreeSet::len).sum();
            let led_to: BTreeSet<&str> = leads.values().flatten().copied().collect();
            leads.retain(|name, targets| !targets.is_empty() && led_to.contains(name));
            let left: BTreeSet<&str> = leads.keys().copied().collect();
            for targets in leads.values_mut() {
                targets.retain(|target| left.contains(target));
            }
            if leads.values().map(BTreeSet::len).sum::<usize>() == before {
                break;
            }
        }
        let in_circles = |target: &str| leads.contains_key(target);
        let tied = leads.keys().flat_map(|name| {
            let slots = self.chains[*name].rules.slots.iter();
            slots.filter_map(|slot| {
                let target = slot.item.target.as_deref()?;
                slot.from.difference().filter(|_| in_circles(target))
            })
        });
        atoms.tie_all(tied.collect::<Vec<_>>());
    }

    fn with(&self, with: &impl Fn(usize) -> bool, text: &mut String) {
        let mut rules: HashMap<&str, Vec<&LaidRule>> = HashMap::new();
        let mut needed: HashSet<&str> = HashSet::new();
        for (name, chain) in &self.chains {
            let there: Vec<&LaidRule> = chain.rules.with(with).collect();
            needed.extend(there.iter().filter_map(|rule| rule.target.as_deref()));
            rules.insert(name, there);
        }
        let _ = writeln!(text, "*{}", self.name);
        for (name, chain) in &self.chains {
            let there =
                chain.always || !rules[name.as_str()].is_empty() || needed.contains(name.as_str());
            let policy = chain
                .policy
                .as_ref()
                .and_then(|policy| policy.with(with).next());
            if there {
                let policy = policy.map_or("-", String::as_str);
                let _ = writeln!(text, ":{name} {policy} [0:0]");
            }
        }
        for name in self.chains.keys() {
            for rule in &rules[name.as_str()] {
                let _ = writeln!(text, "-A {name} {}", rule.written);
            }
        }
        text.push_str("COMMIT\n");
    }
}
