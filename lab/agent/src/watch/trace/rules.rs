//! Maps rule handles of `nf_tables` to line numbers in their chains.

use std::collections::HashMap;
use std::io;

use crate::net::netfilter::attributes::ReceivedAttributes;
use crate::net::netfilter::nfnetlink;
use crate::net::netns::NetNs;

/// Request for a dump of rules.
const GET_RULE: u16 = 0x0a00 | 7;

/// Chain: family of its table, name of its table, and name.
type ChainKey = (u8, String, String);

/// Rules of a namespace.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct RuleLines {
    /// Line numbers from 1, by family, table and handle.
    lines: HashMap<u8, HashMap<String, HashMap<u64, u32>>>,
}

impl RuleLines {
    /// Reads the rules from the kernel.
    pub(super) fn read(ns: &NetNs) -> io::Result<Self> {
        let mut rules = Self::default();
        let mut last_lines: HashMap<ChainKey, u32> = HashMap::new();
        ns.enter(|| {
            nfnetlink::dump(GET_RULE, |message| {
                let attributes = ReceivedAttributes(message.attributes);
                if let (Some(table), Some(chain), Some(handle)) = (
                    attributes.text(1),
                    attributes.text(2),
                    attributes.get_u64(3),
                ) {
                    // The kernel lists rules by chain, in order.
                    let chain = (message.family, table.to_owned(), chain.to_owned());
                    let line = last_lines.entry(chain).or_default();
                    *line += 1;
                    rules.insert(message.family, table, handle, *line);
                }
            })
        })??;
        Ok(rules)
    }

    fn insert(&mut self, family: u8, table: &str, handle: u64, line: u32) {
        let tables = self.lines.entry(family).or_default();
        if !tables.contains_key(table) {
            tables.insert(table.to_owned(), HashMap::new());
        }
        if let Some(handles) = tables.get_mut(table) {
            handles.insert(handle, line);
        }
    }

    /// Returns the line number of a rule, from 1, or `None` if the rule does not exist.
    pub(super) fn line(&self, family: u8, table: &str, handle: u64) -> Option<u32> {
        self.lines.get(&family)?.get(table)?.get(&handle).copied()
    }
}
