//! Maps rule handles of `nf_tables` to line numbers in their chains.

use std::collections::HashMap;
use std::io;

use super::attributes::Read;
use crate::netns::NetNs;
use crate::nfnetlink;

/// Request for a dump of rules.
const RULES: u16 = 0x0a00 | 7;

/// Chain: family of its table, name of its table, and name.
type Chain = (u8, String, String);

/// Rules of a namespace.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Rules {
    /// Line numbers from 1, by family, table and handle.
    lines: HashMap<u8, HashMap<String, HashMap<u64, u32>>>,
}

impl Rules {
    /// Reads the rules from the kernel.
    ///
    /// # Errors
    ///
    /// When the namespace cannot be entered, or the kernel does not answer.
    pub fn read(ns: &NetNs) -> io::Result<Self> {
        let mut rules = Self::default();
        let mut last: HashMap<Chain, u32> = HashMap::new();
        ns.enter(|| {
            nfnetlink::list(RULES, |message| {
                let of = Read(message.attributes);
                if let (Some(table), Some(chain), Some(handle)) =
                    (of.text(1), of.text(2), of.long(3))
                {
                    // The kernel lists rules by chain, in order.
                    let chain = (message.family, table.to_owned(), chain.to_owned());
                    let line = last.entry(chain).or_default();
                    *line += 1;
                    rules.put(message.family, table, handle, *line);
                }
            })
        })??;
        Ok(rules)
    }

    fn put(&mut self, family: u8, table: &str, handle: u64, line: u32) {
        let tables = self.lines.entry(family).or_default();
        if !tables.contains_key(table) {
            tables.insert(table.to_owned(), HashMap::new());
        }
        if let Some(handles) = tables.get_mut(table) {
            handles.insert(handle, line);
        }
    }

    /// Returns the line number of a rule, from 1, or `None` if the rule does not exist.
    #[must_use]
    pub fn line(&self, family: u8, table: &str, handle: u64) -> Option<u32> {
        self.lines.get(&family)?.get(table)?.get(&handle).copied()
    }
}
