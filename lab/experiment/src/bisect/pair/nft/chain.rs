//! Merges the chains of an nftables table.

use std::collections::HashSet;

use super::{MergedItem, ObjectName, TableContext, jumps_of};
use crate::bisect::merge::{self, Merged};
use crate::bisect::pair::difference::Kind;
use crate::bisect::pair::graph::{DifferenceGraph, Jump, OwnerKey};
use svclab_dump::owner::nft as nft_owner;
use svclab_ruleset::nft::{Chain, Hook, Rule};

/// Policy of a chain that does not exist or has no hook.
const ACCEPT: &str = "accept";

/// Merged chain.
#[derive(Debug, Clone)]
pub(super) struct MergedChain {
    name: ObjectName,
    /// Chain without rules.
    header: Chain,
    /// Whether the chain exists in every subset of differences.
    always: bool,
    hook: Merged<Hook>,
    /// Policy. Empty on a side without a hook, and where it equals the policy of such a side.
    policy: Merged<String>,
    pub(super) rules: Merged<MergedItem<Rule>>,
}

impl MergedChain {
    pub(super) fn new(
        context: &TableContext<'_>,
        name: String,
        sides: [Option<&Chain>; 2],
        graph: &mut DifferenceGraph,
    ) -> Self {
        let owner = || OwnerKey::from(nft_owner::chain_owner(context.table, &name));
        let location = format!(" {name}");
        let hooks = sides.map(|side| -> Vec<Hook> {
            let hook = side.and_then(|chain| chain.hook.as_ref());
            let without_policy = hook.map(|hook| Hook {
                policy: ACCEPT.to_owned(),
                ..hook.clone()
            });
            without_policy.into_iter().collect()
        });
        let first_hook = graph.next_index();
        let hook = graph.add_with_meaning(
            &context.scope(Kind::Chain, &location),
            [&hooks[0], &hooks[1]],
            Hook::attachment,
            |_| (),
            |hook| (format!("hook {}", hook.attachment()), owner()),
        );
        let both_have_hooks = hooks.iter().all(|hooks| !hooks.is_empty());
        let policies = sides.map(|side| -> Vec<String> {
            let hook = side.and_then(|chain| chain.hook.as_ref());
            let policy = hook.map(|hook| hook.policy.clone());
            let differs = |policy: &String| both_have_hooks || policy != ACCEPT;
            policy.into_iter().filter(differs).collect()
        });
        let policy = graph.add_keyed(
            &context.scope(Kind::Policy, &location),
            &policies[0],
            &policies[1],
            |_| (),
            |policy| (format!("policy {policy}"), owner()),
        );
        let first_rule = graph.next_index();
        let rules = sides.map(|side| -> Vec<MergedItem<Rule>> {
            let rules = side.into_iter().flat_map(|chain| &chain.rules);
            rules
                .map(|rule| MergedItem::new(rule.clone(), rule.canonical(), &rule.text))
                .collect()
        });
        let [good_rules, bad_rules] = &rules;
        let meaning = |rule: &MergedItem<Rule>| rule.meaning.clone();
        let rules = merge::merge_ordered(good_rules, bad_rules, meaning, meaning, first_rule);
        graph.add(
            &context.scope(Kind::Rule, &location),
            &rules,
            good_rules,
            bad_rules,
            |rule| (rule.item.to_string(), owner()),
        );
        let always = sides.iter().all(Option::is_some);
        if always && is_other_hook(&hooks) {
            // Statements such as `masquerade` are valid in some hooks only, and a policy requires a
            // hook.
            graph.join_all(first_hook..graph.next_index());
        }
        let header = sides.into_iter().flatten().next();
        Self {
            header: header.map(Chain::declaration).unwrap_or_default(),
            name: ObjectName::Chain(name),
            always,
            hook,
            policy,
            rules,
        }
    }

    /// Returns the objects that rules refer to with the differences that `with` selects.
    pub(super) fn references(
        &self,
        with: &impl Fn(usize) -> bool,
    ) -> impl Iterator<Item = &ObjectName> {
        let rules = self.rules.selected(with);
        rules.flat_map(|rule| &rule.references)
    }

    pub(super) fn jumps(&self) -> impl Iterator<Item = Jump<ObjectName>> {
        jumps_of(&self.name, &self.rules)
    }

    /// Returns the chain with the differences that `with` selects. `None` if it does not exist.
    ///
    /// A base chain of only one side also exists if one of its rules or its policy is selected.
    pub(super) fn build(
        &self,
        with: &impl Fn(usize) -> bool,
        needed: &HashSet<&ObjectName>,
    ) -> Option<Chain> {
        let rules: Vec<Rule> = self
            .rules
            .selected(with)
            .map(|rule| rule.item.clone())
            .collect();
        let policy = self.policy.selected(with).next();
        let mut hook = self.hook.selected(with).next();
        let exists = self.always
            || hook.is_some()
            || policy.is_some()
            || !rules.is_empty()
            || needed.contains(&self.name);
        if !exists {
            return None;
        }
        if !self.always {
            hook = self.hook.slots.first().map(|slot| &slot.item);
        }
        let hook = hook.map(|hook| Hook {
            policy: policy.unwrap_or(&hook.policy).clone(),
            ..hook.clone()
        });
        Some(Chain {
            hook,
            rules,
            ..self.header.clone()
        })
    }
}

/// Whether the chains are called at different places, and not only with another priority.
fn is_other_hook([good, bad]: &[Vec<Hook>; 2]) -> bool {
    let place = |hook: &Hook| (hook.kind.clone(), hook.hook.clone(), hook.device.clone());
    good.first().map(place) != bad.first().map(place)
}
