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
pub const MAX_BATCH_SIZE: usize = 120_000;

/// Maximum netlink size of a rule, in bytes: a constant, and a factor for the length of its text.
const RULE_SIZE: (usize, usize) = (200, 10);

/// Netlink size of a chain, a set or an element, as for rules.
const ITEM_SIZE: (usize, usize) = (200, 3);

/// Splits input for `nft -f` into batches of at most `limit` bytes of netlink, to be loaded in
/// order. The first batches declare sets and chains, the others add rules and elements. A text that
/// is small enough or cannot be parsed stays one batch.
#[must_use]
pub fn split_batches(text: &str, limit: usize) -> Vec<String> {
    if text.len().saturating_mul(RULE_SIZE.1) <= limit {
        return vec![text.to_owned()];
    }
    let Ok(ruleset) = parse(text) else {
        return vec![text.to_owned()];
    };
    let mut builder = BatchBuilder {
        limit,
        ..BatchBuilder::default()
    };
    for table in &ruleset.tables {
        let lines = table.other_objects.iter().flat_map(|other| &other.body);
        let size = lines.map(|line| estimate_size(ITEM_SIZE, line)).sum();
        builder.add(table, size, |part| {
            part.other_objects.clone_from(&table.other_objects);
        });
        for set in &table.sets {
            let declared = set.declaration();
            builder.add(table, estimate_set_size(&declared), |part| {
                part.sets.push(declared);
            });
        }
        for chain in &table.chains {
            builder.add(table, estimate_size(ITEM_SIZE, &chain.name), |part| {
                part.chains.push(chain.declaration());
            });
        }
    }
    // Rules can only refer to chains and sets that exist.
    builder.finish_batch();
    for table in &ruleset.tables {
        for chain in &table.chains {
            for rule in &chain.rules {
                let size = estimate_size(RULE_SIZE, &rule.text);
                builder.add(table, size, |part| {
                    let last = last_or_new(
                        &mut part.chains,
                        |last| last.name == chain.name,
                        || Chain::regular(chain.name.as_str()),
                    );
                    last.rules.push(rule.clone());
                });
            }
        }
        for set in &table.sets {
            for element in &set.elements {
                let text = element.value.as_ref().map_or(0, String::len) + element.key.len();
                builder.add(table, ITEM_SIZE.0 + ITEM_SIZE.1 * text, |part| {
                    let last = last_or_new(
                        &mut part.sets,
                        |last| last.name == set.name,
                        || set.declaration(),
                    );
                    last.elements.push(element.clone());
                });
            }
        }
    }
    builder.finish_batch();
    builder.finished
}

/// Returns the last item if it matches, or appends a new one.
fn last_or_new<T>(
    items: &mut Vec<T>,
    is_match: impl Fn(&T) -> bool,
    new: impl FnOnce() -> T,
) -> &mut T {
    if !items.last().is_some_and(is_match) {
        items.push(new());
    }
    let index = items.len() - 1;
    &mut items[index]
}

fn estimate_size((base, per_byte): (usize, usize), text: &str) -> usize {
    base + per_byte * text.len()
}

fn estimate_set_size(set: &Set) -> usize {
    let comment = set.comment.as_ref().map_or(0, String::len);
    estimate_size(ITEM_SIZE, &set.name) + ITEM_SIZE.1 * (set.type_line.len() + comment)
}

/// Batches under construction.
#[derive(Debug, Default)]
struct BatchBuilder {
    limit: usize,
    finished: Vec<String>,
    current: Ruleset,
    current_size: usize,
}

impl BatchBuilder {
    /// Adds an item of a table to the last batch. Starts a new batch if the last one would become
    /// too large.
    fn add(&mut self, table: &Table, weight: usize, add: impl FnOnce(&mut Table)) {
        if self.current_size + weight > self.limit {
            self.finish_batch();
        }
        self.current_size += weight;
        let is_same_table =
            |last: &Table| (&last.family, &last.name) == (&table.family, &table.name);
        if !self.current.tables.last().is_some_and(is_same_table) {
            self.current.tables.push(table.header());
        }
        if let Some(last) = self.current.tables.last_mut() {
            add(last);
        }
    }

    fn finish_batch(&mut self) {
        if !self.current.tables.is_empty() {
            self.finished
                .push(std::mem::take(&mut self.current).to_string());
        }
        self.current_size = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn split_batches_declares_first_and_keeps_all_items() {
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
        let parts = split_batches(&text, MAX_BATCH_SIZE);
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
    fn split_batches_small_or_invalid_text_is_one_batch() {
        let small = "table ip t {\n}\n".to_owned();
        assert_eq!(split_batches(&small, MAX_BATCH_SIZE), [small]);
        let invalid = "hello\n".repeat(10_000);
        assert_eq!(split_batches(&invalid, MAX_BATCH_SIZE), [invalid]);
    }
}
