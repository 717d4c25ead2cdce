//! Which line of its chain a rule of `nf_tables` is.

use std::collections::HashMap;
use std::io;

use super::attributes::Read;
use crate::netns::NetNs;
use crate::nfnetlink;

/// A list of rules.
const RULES: u16 = 0x0a00 | 7;

/// A chain, by the family of its table.
type Chain = (u8, String, String);

/// Every rule of a namespace.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Rules {
    /// The line, from 1, by family, table and handle.
    lines: HashMap<u8, HashMap<String, HashMap<u64, u32>>>,
}

impl Rules {
    /// Reads them from the kernel.
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
                    // Rules are listed chain by chain, in their order.
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

    /// The line of a rule, from 1.
    #[must_use]
    pub fn line(&self, family: u8, table: &str, handle: u64) -> Option<u32> {
        self.lines.get(&family)?.get(table)?.get(&handle).copied()
    }
}
