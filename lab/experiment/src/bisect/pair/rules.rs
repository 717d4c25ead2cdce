//! The rules of one family of a namespace, laid over each other.
//!
//! A chain is there when both have it, and else when a rule is in it or leads to it: so
//! whatever differences are chosen, no rule leads to nowhere.

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

/// The rules of both.
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
    /// Whether it is there whatever is chosen.
    always: bool,
    /// What a built-in chain does at its end.
    policy: Option<Merged<String>>,
    rules: Merged<LaidRule>,
}

/// A rule, and what it needs.
#[derive(Debug, Clone)]
struct LaidRule {
    written: String,
    meaning: String,
    target: Option<String>,
    sets: Vec<String>,
}

impl Rules {
    /// Lays the rules of two scripts over each other.
    ///
    /// # Errors
    ///
    /// When it cannot be told from a script what it leaves, or a rule cannot be read.
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

    /// Input for `iptables-restore` with these differences; empty where neither has any.
    pub fn with(&self, with: &impl Fn(usize) -> bool) -> String {
        let mut text = String::new();
        for table in &self.tables {
            table.with(with, &mut text);
        }
        text
    }

    /// The sets that rules name with these differences and that not both may have.
    pub fn sets<'r>(&'r self, with: &impl Fn(usize) -> bool, sets: &mut HashSet<&'r str>) {
        let chains = self.tables.iter().flat_map(|table| table.chains.values());
        for rule in chains.flat_map(|chain| chain.rules.with(with)) {
            sets.extend(rule.sets.iter().map(String::as_str));
        }
    }
}

/// A chain of both.
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

    /// A chain's rules, in an order that does not hang on what means nothing.
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
            // It was read before.
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
    /// Has all differences go together that lead round in a circle when only some are
    /// there: no kernel takes such rules.
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
        // What leads to no circle goes, and what no circle leads to.
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
