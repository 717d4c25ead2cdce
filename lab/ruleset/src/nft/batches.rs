//! Splits a ruleset into batches that a user namespace can send.
//!
//! `nft` sends a file to the kernel in one message and enlarges the socket buffer with
//! `SO_SNDBUFFORCE` (nftables v1.0.6, `mnl_nft_batch_talk` in `src/mnl.c`). The kernel allows that
//! only for root of the initial user namespace (Linux v6.1, `net/core/sock.c`, `sock_setsockopt`).
//! In another user namespace, a message with some 500 rules fails with "Message too long".

use super::parse;
use crate::nft::{Chain, Ruleset, Set, Table};

/// Maximum netlink size of a batch, in bytes. The default size of the buffer is 212,992 bytes
/// (`net.core.wmem_default`).
const HEAVIEST: usize = 120_000;

/// Maximum netlink size of a rule, in bytes: a constant, and a factor for the length of its text.
const RULE: (usize, usize) = (200, 10);

/// Netlink size of a chain, a set or an element, as for rules.
const NAMED: (usize, usize) = (200, 3);

/// Splits input for `nft -f` into batches, to be loaded in order. The first batches declare sets
/// and chains, the others add rules and elements. A text that is small enough or cannot be parsed
/// stays one batch.
#[must_use]
pub fn batches(text: &str) -> Vec<String> {
    if text.len().saturating_mul(RULE.1) <= HEAVIEST {
        return vec![text.to_owned()];
    }
    let Ok(ruleset) = parse(text) else {
        return vec![text.to_owned()];
    };
    let mut parts = Parts::default();
    for table in &ruleset.tables {
        let others = table.others.iter().flat_map(|other| &other.body);
        let all = others.map(|line| weight(NAMED, line)).sum();
        parts.put(table, all, |part| part.others.clone_from(&table.others));
        for set in &table.sets {
            let declared = Set {
                elements: Vec::new(),
                ..set.clone()
            };
            parts.put(table, weight_of(&declared), |part| part.sets.push(declared));
        }
        for chain in &table.chains {
            let declared = Chain {
                rules: Vec::new(),
                ..chain.clone()
            };
            parts.put(table, weight(NAMED, &chain.name), |part| {
                part.chains.push(declared);
            });
        }
    }
    // Rules can only refer to chains and sets that exist.
    parts.end();
    for table in &ruleset.tables {
        for chain in &table.chains {
            for rule in &chain.rules {
                parts.put(table, weight(RULE, &rule.text), |part| {
                    match part.chains.last_mut() {
                        Some(last) if last.name == chain.name => last.rules.push(rule.clone()),
                        _ => part.chains.push(Chain {
                            rules: vec![rule.clone()],
                            ..Chain::regular(chain.name.as_str())
                        }),
                    }
                });
            }
        }
        for set in &table.sets {
            for element in &set.elements {
                let text = element.value.as_ref().map_or(0, String::len) + element.key.len();
                parts.put(table, NAMED.0 + NAMED.1 * text, |part| {
                    match part.sets.last_mut() {
                        Some(last) if last.name == set.name => last.elements.push(element.clone()),
                        _ => part.sets.push(Set {
                            elements: vec![element.clone()],
                            ..set.clone()
                        }),
                    }
                });
            }
        }
    }
    parts.end();
    parts.texts
}

fn weight((each, of_byte): (usize, usize), text: &str) -> usize {
    each + of_byte * text.len()
}

fn weight_of(set: &Set) -> usize {
    let comment = set.comment.as_ref().map_or(0, String::len);
    weight(NAMED, &set.name) + NAMED.1 * (set.holds.len() + comment)
}

/// Batches under construction.
#[derive(Debug, Default)]
struct Parts {
    texts: Vec<String>,
    last: Ruleset,
    weight: usize,
}

impl Parts {
    /// Adds an item of a table to the last batch. Starts a new batch if the last one would become
    /// too large.
    fn put(&mut self, table: &Table, weight: usize, add: impl FnOnce(&mut Table)) {
        if self.weight + weight > HEAVIEST {
            self.end();
        }
        self.weight += weight;
        let is_it = |last: &Table| (&last.family, &last.name) == (&table.family, &table.name);
        if !self.last.tables.last().is_some_and(is_it) {
            self.last.tables.push(Table {
                sets: Vec::new(),
                chains: Vec::new(),
                others: Vec::new(),
                ..table.clone()
            });
        }
        if let Some(last) = self.last.tables.last_mut() {
            add(last);
        }
    }

    fn end(&mut self) {
        if !self.last.tables.is_empty() {
            self.texts.push(std::mem::take(&mut self.last).to_string());
        }
        self.weight = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_declare_before_they_fill_and_leave_nothing_out() {
        let rules: Vec<String> = (0..400)
            .map(|n| {
                format!(
                    "\t\tip saddr 10.0.{}.{} jump b comment \"{n}\"\n",
                    n / 256,
                    n % 256
                )
            })
            .collect();
        let entries: Vec<String> = (0..400)
            .map(|n| format!("10.1.{}.{}", n / 256, n % 256))
            .collect();
        let text = format!(
            "table ip t {{\n\tset s {{\n\t\ttype ipv4_addr\n\t\telements = {{ {} }}\n\t}}\n\n\
             \tchain a {{\n\t\ttype filter hook input priority 0; policy accept;\n{}\t}}\n\n\
             \tchain b {{\n\t}}\n}}\n",
            entries.join(", "),
            rules.concat()
        );
        let parts = batches(&text);
        assert!(parts.len() > 3, "{}", parts.len());
        assert!(parts[0].contains("chain b") && !parts[0].contains("jump b"));
        let mut found = (Vec::new(), Vec::new());
        for part in &parts[1..] {
            let ruleset = parse(part).unwrap();
            for table in ruleset.tables {
                let rules = table.chains.into_iter().flat_map(|chain| chain.rules);
                found.0.extend(rules.map(|rule| rule.comment.unwrap()));
                let entries = table.sets.into_iter().flat_map(|set| set.elements);
                found.1.extend(entries.map(|entry| entry.key));
            }
        }
        let numbers: Vec<String> = (0..400).map(|n| n.to_string()).collect();
        assert_eq!(found, (numbers, entries));
    }

    #[test]
    fn what_is_small_or_cannot_be_read_is_one_part() {
        let small = "table ip t {\n}\n".to_owned();
        assert_eq!(batches(&small), [small]);
        let odd = "hello\n".repeat(10_000);
        assert_eq!(batches(&odd), [odd]);
    }
}
