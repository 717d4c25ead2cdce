//! Splits a ruleset into batches that a user namespace can send.
//!
//! `nft` sends a file to the kernel in one message and enlarges the socket buffer with
//! `SO_SNDBUFFORCE` (nftables v1.0.6, `mnl_nft_batch_talk` in `src/mnl.c`). The kernel allows that
//! only for root of the initial user namespace (Linux v6.1, `net/core/sock.c`, `sock_setsockopt`).
//! In another user namespace, a message with some 500 rules fails with "Message too long".

use super::parse;
use crate::nft::{Chain, Rule, Ruleset, Set, Table};

/// Maximum netlink size of a batch, in bytes. The default size of the buffer is 212,992 bytes
/// (`net.core.wmem_default`).
pub const MAX_BATCH_SIZE: usize = 200_000;

/// Maximum netlink size of a text, for each byte of the text.
const SIZE_PER_BYTE: usize = 12;

/// Netlink size of an item: a constant, and a factor for the length of its text. Measured with
/// nftables v1.0.6.
type ItemSize = (usize, usize);

const RULE_SIZE: ItemSize = (150, 5);
const CHAIN_SIZE: ItemSize = (100, 1);
const ELEMENT_SIZE: ItemSize = (60, 1);
const COMMAND_SIZE: ItemSize = (40, 1);
/// Size of a set or of another object.
const OBJECT_SIZE: ItemSize = (200, 3);

/// Netlink size of an anonymous set or map in a rule.
const ANONYMOUS_SET_SIZE: usize = 250;

/// Splits input for `nft -f` into batches of at most `limit` bytes of netlink, to be loaded in
/// order. The input has commands that remove objects, then tables, then such commands again. The
/// first batches of the tables declare sets and chains, the others add rules and elements. A text
/// that is small enough or cannot be parsed stays one batch.
#[must_use]
pub fn split_batches(text: &str, limit: usize) -> Vec<String> {
    let whole = || vec![text.to_owned()];
    if text.len().saturating_mul(SIZE_PER_BYTE) <= limit {
        return whole();
    }
    let [before, tables, after] = split_commands(text);
    let Ok(ruleset) = parse(tables) else {
        return whole();
    };
    let mut builder = BatchBuilder {
        limit,
        ..BatchBuilder::default()
    };
    builder.add_commands(before);
    builder.add_declarations(&ruleset);
    // Rules can only refer to chains and sets that exist.
    builder.finish_batch();
    builder.add_content(&ruleset);
    builder.finish_batch();
    builder.add_commands(after);
    builder.finish_batch();
    if builder.total_size <= limit {
        return whole();
    }
    builder.finished
}

/// Returns the commands before the tables, the tables, and the commands after them.
fn split_commands(text: &str) -> [&str; 3] {
    let is_command = |line: &&str| line.starts_with("delete ") || line.starts_with("flush ");
    let lines = text.split_inclusive('\n');
    let before: usize = lines.take_while(is_command).map(str::len).sum();
    let (before, rest) = text.split_at(before);
    let lines = rest.split_inclusive('\n').rev();
    let after: usize = lines.take_while(is_command).map(str::len).sum();
    let (tables, after) = rest.split_at(rest.len() - after);
    [before, tables, after]
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

fn estimate_size((base, per_byte): ItemSize, length: usize) -> usize {
    base + per_byte * length
}

fn estimate_rule_size(rule: &Rule) -> usize {
    let anonymous_sets = rule.text.matches('{').count();
    let comment = rule.comment.as_ref().map_or(0, String::len);
    estimate_size(RULE_SIZE, rule.text.len()) + comment + ANONYMOUS_SET_SIZE * anonymous_sets
}

fn estimate_set_size(set: &Set) -> usize {
    let comment = set.comment.as_ref().map_or(0, String::len);
    estimate_size(OBJECT_SIZE, set.name.len() + set.type_line.len() + comment)
}

/// Batches under construction.
#[derive(Debug, Default)]
struct BatchBuilder {
    limit: usize,
    finished: Vec<String>,
    /// Commands of the last batch, before its tables.
    commands: String,
    current: Ruleset,
    current_size: usize,
    total_size: usize,
}

impl BatchBuilder {
    fn add_commands(&mut self, commands: &str) {
        for command in commands.split_inclusive('\n') {
            self.reserve(estimate_size(COMMAND_SIZE, command.len()));
            self.commands.push_str(command);
        }
    }

    /// Adds all objects of tables but their rules and elements.
    fn add_declarations(&mut self, ruleset: &Ruleset) {
        for table in &ruleset.tables {
            let lines = table.other_objects.iter().flat_map(|other| &other.body);
            let size = lines
                .map(|line| estimate_size(OBJECT_SIZE, line.len()))
                .sum();
            self.add(table, size, |part| {
                part.other_objects.clone_from(&table.other_objects);
            });
            for set in &table.sets {
                let declared = set.declaration();
                self.add(table, estimate_set_size(&declared), |part| {
                    part.sets.push(declared);
                });
            }
            for chain in &table.chains {
                let size = estimate_size(CHAIN_SIZE, chain.name.len());
                self.add(table, size, |part| part.chains.push(chain.declaration()));
            }
        }
    }

    /// Adds the rules and elements of tables.
    fn add_content(&mut self, ruleset: &Ruleset) {
        for table in &ruleset.tables {
            for chain in &table.chains {
                for rule in &chain.rules {
                    let size = chain.name.len() + estimate_rule_size(rule);
                    self.add(table, size, |part| {
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
                    let texts = [element.value.as_ref(), element.comment.as_ref()];
                    let length: usize = texts.into_iter().flatten().map(String::len).sum();
                    let size = estimate_size(ELEMENT_SIZE, element.key.len() + length);
                    self.add(table, size, |part| {
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
    }

    /// Adds an item of a table to the last batch.
    fn add(&mut self, table: &Table, size: usize, add: impl FnOnce(&mut Table)) {
        self.reserve(size);
        let is_same_table =
            |last: &Table| (&last.family, &last.name) == (&table.family, &table.name);
        if !self.current.tables.last().is_some_and(is_same_table) {
            self.current.tables.push(table.header());
        }
        if let Some(last) = self.current.tables.last_mut() {
            add(last);
        }
    }

    /// Counts the size of the next item. Starts a new batch if the last one would become too large.
    fn reserve(&mut self, size: usize) {
        if self.current_size + size > self.limit {
            self.finish_batch();
        }
        self.current_size += size;
        self.total_size += size;
    }

    fn finish_batch(&mut self) {
        let batch = std::mem::take(&mut self.commands) + &self.current.to_string();
        if !batch.is_empty() {
            self.finished.push(batch);
        }
        self.current = Ruleset::default();
        self.current_size = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn split_batches_declares_first_and_keeps_all_items() {
        let rules: Vec<String> = (0..2_000)
            .map(|n| {
                format!(
                    "\t\tip saddr 10.0.{}.{} jump b comment \"{n}\"\n",
                    n / 256,
                    n % 256
                )
            })
            .collect();
        let entries: Vec<String> = (0..2_000)
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
        let numbers: Vec<String> = (0..2_000).map(|n| n.to_string()).collect();
        assert_eq!(found, (numbers, entries));
    }

    #[test]
    fn split_batches_removals_stay_before_and_after_tables() {
        let commands = |verb: &str| -> String {
            let lines = (0..1_000).map(|n| format!("{verb} chain ip t a-chain-of-a-service-{n}\n"));
            lines.collect()
        };
        let (before, after) = (commands("flush"), commands("delete"));
        let table = "table ip t {\n\n\tchain a {\n\t\tjump b\n\t}\n\n\tchain b {\n\t}\n}\n";
        let text = format!("{before}{table}{after}");
        assert_eq!(split_batches(&text, text.len() * 4), [text.as_str()]);
        let parts = split_batches(&text, 60_000);
        assert!(parts.len() > 4, "{}", parts.len());
        let joined = parts.concat();
        let rest = joined.strip_prefix(&before).unwrap();
        let tables = rest.strip_suffix(&after).unwrap();
        assert!(tables.ends_with("\t\tjump b\n\t}\n}\n"), "{tables}");
        assert_eq!(split_batches(&before, 60_000).concat(), before);
    }

    #[test]
    fn split_batches_small_or_invalid_text_is_one_batch() {
        let small = "table ip t {\n}\n".to_owned();
        assert_eq!(split_batches(&small, MAX_BATCH_SIZE), [small]);
        let invalid = "hello\n".repeat(10_000);
        assert_eq!(split_batches(&invalid, MAX_BATCH_SIZE), [invalid]);
    }
}
