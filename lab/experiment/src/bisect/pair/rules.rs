//! Merges the iptables rules of one IP family of a namespace.
//!
//! A chain of both sides always exists. Any other chain exists if it has rules or a rule jumps to
//! it. Therefore every jump has its target, whatever differences are selected.

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};

use indexmap::{IndexMap, IndexSet};

use super::PairError;
use super::difference::Kind;
use super::graph::{DifferenceGraph, Jump, OwnerKey, Scope};
use crate::bisect::merge::{self, Merged};
use svclab_dump::compare::iptables::{Order, normalized_rules};
use svclab_ruleset::input::Input;
use svclab_ruleset::iptables::chains::{Chains, TableChains};
use svclab_ruleset::iptables::script::{IptablesScript, Table, TableScript};
use svclab_ruleset::iptables::{Chain, Rule};

/// Merged rules of one IP family.
#[derive(Debug, Clone)]
pub struct Rules {
    tables: Vec<MergedTable>,
}

#[derive(Debug, Clone)]
struct MergedTable {
    table: Table,
    chains: IndexMap<String, MergedChain>,
}

#[derive(Debug, Clone)]
struct MergedChain {
    /// Whether the chain exists in every subset of differences.
    always: bool,
    /// Policy of a built-in chain.
    policy: Option<Merged<String>>,
    rules: Merged<MergedRule>,
}

/// Rule and the chain and sets that it refers to.
#[derive(Debug, Clone)]
struct MergedRule {
    text: String,
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
    pub fn new(
        namespace: &str,
        program: &str,
        good: &Input<IptablesScript>,
        bad: &Input<IptablesScript>,
        graph: &mut DifferenceGraph,
    ) -> Result<Self, PairError> {
        let chains_of = |input: &Input<IptablesScript>| {
            let unsupported = |why: String| PairError::UnsupportedCommand {
                namespace: namespace.to_owned(),
                why,
            };
            let script = input
                .state()
                .map_err(|error| unsupported(error.to_string()))?;
            Chains::from_script(script).map_err(|error| unsupported(error.to_string()))
        };
        let (good, bad) = (chains_of(good)?, chains_of(bad)?);
        let names: IndexSet<Table> = good
            .tables
            .keys()
            .chain(bad.tables.keys())
            .copied()
            .collect();
        let empty = TableChains::default();
        let mut tables = Vec::new();
        for name in names {
            let [good, bad] = [&good, &bad].map(|side| side.tables.get(&name).unwrap_or(&empty));
            let chains: IndexSet<&String> = [good, bad]
                .into_iter()
                .flat_map(|side| side.chains.keys().chain(side.policies.keys()))
                .collect();
            let mut table = MergedTable {
                table: name,
                chains: IndexMap::new(),
            };
            for chain in chains {
                let context = ChainContext {
                    namespace,
                    program,
                    table: name,
                    chain,
                };
                let merged = context.merge(good, bad, graph)?;
                table.chains.insert(chain.clone(), merged);
            }
            table.join_loops(graph);
            tables.push(table);
        }
        Ok(Self { tables })
    }

    /// Returns the script with the differences that `with` selects; empty if neither side has a
    /// table.
    pub fn build(&self, with: &impl Fn(usize) -> bool) -> IptablesScript {
        let mut script = IptablesScript::new();
        for table in &self.tables {
            *script.table_mut(table.table) = table.build(with);
        }
        script
    }

    /// Adds the sets that rules refer to with the differences that `with` selects.
    pub fn collect_sets<'r>(&'r self, with: &impl Fn(usize) -> bool, sets: &mut HashSet<&'r str>) {
        let chains = self.tables.iter().flat_map(|table| table.chains.values());
        for rule in chains.flat_map(|chain| chain.rules.selected(with)) {
            sets.extend(rule.sets.iter().map(String::as_str));
        }
    }
}

/// Chain that is merged, with its table, program and namespace.
struct ChainContext<'t> {
    namespace: &'t str,
    program: &'t str,
    table: Table,
    chain: &'t str,
}

impl ChainContext<'_> {
    fn merge(
        &self,
        good: &TableChains,
        bad: &TableChains,
        graph: &mut DifferenceGraph,
    ) -> Result<MergedChain, PairError> {
        let Self {
            namespace,
            program,
            table,
            chain,
        } = *self;
        let built_in = table.is_built_in(chain);
        let make_scope = |kind| Scope {
            namespace,
            kind,
            location: format!("{program} {table} {chain}"),
        };
        let policy = built_in.then(|| {
            let policies = |side: &TableChains| {
                let policy = side.policies.get(chain);
                vec![policy.map_or("ACCEPT", String::as_str).to_owned()]
            };
            let (good_policies, bad_policies) = (policies(good), policies(bad));
            let merged = merge::merge_keyed(
                &good_policies,
                &bad_policies,
                Clone::clone,
                |_| (),
                graph.next_index(),
            );
            graph.add(
                &make_scope(Kind::Policy),
                &merged,
                &good_policies,
                &bad_policies,
                |policy| {
                    let owned = OwnerKey::Chain {
                        table: table.to_string(),
                        chain: chain.to_owned(),
                    };
                    (format!("policy {policy}"), owned)
                },
            );
            merged
        });
        let good_rules = self.parse_rules(good.chains.get(chain))?;
        let bad_rules = self.parse_rules(bad.chains.get(chain))?;
        let meaning = |rule: &MergedRule| rule.meaning.clone();
        let merged = merge::merge_ordered(
            &good_rules,
            &bad_rules,
            meaning,
            meaning,
            graph.next_index(),
        );
        graph.add(
            &make_scope(Kind::Rule),
            &merged,
            &good_rules,
            &bad_rules,
            |rule| {
                let owned = OwnerKey::Rule {
                    table: table.to_string(),
                    chain: chain.to_owned(),
                    rule: rule.text.clone(),
                };
                (rule.text.clone(), owned)
            },
        );
        let has = |side: &TableChains| side.chains.contains_key(chain);
        Ok(MergedChain {
            always: built_in || has(good) && has(bad),
            policy,
            rules: merged,
        })
    }

    /// Parses a chain's rules and sorts them where order has no meaning.
    fn parse_rules(&self, texts: Option<&Vec<String>>) -> Result<Vec<MergedRule>, PairError> {
        let parse = |text: &String| {
            Rule::from_words(text.as_str()).map_err(|problem| PairError::Rule {
                namespace: self.namespace.to_owned(),
                rule: format!("-A {} {text}", self.chain),
                why: problem.kind.to_string(),
            })
        };
        let rules: Result<Vec<Rule>, PairError> = texts.into_iter().flatten().map(parse).collect();
        let chain = Chain {
            name: self.chain.to_owned(),
            policy: None,
            rules: rules?,
            line: 0,
        };
        let items = normalized_rules(&chain, Order::ServicesInAnyOrder);
        let merged = items.into_iter().map(|item| {
            // The rule was parsed above without error.
            let rule = Rule::from_words(item.source_text.as_str()).ok();
            let rule = rule.as_ref();
            MergedRule {
                target: rule.and_then(Rule::target).map(Cow::into_owned),
                sets: rule.map_or_else(Vec::new, |rule| {
                    rule.sets()
                        .into_iter()
                        .map(|(set, _)| set.into_owned())
                        .collect()
                }),
                meaning: item.key,
                text: item.source_text,
            }
        });
        Ok(merged.collect())
    }
}

impl MergedTable {
    /// Joins differences whose jumps could form a loop.
    fn join_loops(&self, graph: &mut DifferenceGraph) {
        let chains = self.chains.iter();
        let jumps = chains.flat_map(|(name, chain)| {
            chain.rules.slots.iter().filter_map(move |slot| {
                Some(Jump {
                    from: name.as_str(),
                    to: slot.item.target.as_deref()?,
                    difference: slot.origin.difference(),
                })
            })
        });
        graph.join_loops(&jumps.collect::<Vec<_>>());
    }

    fn build(&self, with: &impl Fn(usize) -> bool) -> TableScript {
        let mut rules: HashMap<&str, Vec<&MergedRule>> = HashMap::new();
        let mut needed: HashSet<&str> = HashSet::new();
        for (name, chain) in &self.chains {
            let included: Vec<&MergedRule> = chain.rules.selected(with).collect();
            needed.extend(included.iter().filter_map(|rule| rule.target.as_deref()));
            rules.insert(name, included);
        }
        let mut script = TableScript::default();
        for (name, chain) in &self.chains {
            let included = &rules[name.as_str()];
            let policy = chain.policy.as_ref();
            if let Some(policy) = policy.and_then(|policy| policy.selected(with).next()) {
                script.policies.push((name.clone(), policy.clone()));
            } else if chain.always || !included.is_empty() || needed.contains(name.as_str()) {
                script.declare_chain(name);
            }
            for rule in included {
                script.append(name, &rule.text);
            }
        }
        script
    }
}
