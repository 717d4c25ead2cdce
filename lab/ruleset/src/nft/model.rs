//! Defines an nftables ruleset as data: tables with sets, maps and chains. The types render
//! themselves as input for `nft -f`.
//!
//! Rules are texts. [`crate::nft::canonical()`] makes equivalent texts equal.

use std::fmt;

use crate::Family;
use crate::iptables::script;

/// Ruleset: all tables in printed order.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Ruleset {
    /// Tables in printed order.
    pub tables: Vec<Table>,
}

/// Table with its sets, maps, chains and other objects.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Table {
    /// Address family, such as `ip`.
    pub family: String,
    /// Name, unique in the family.
    pub name: String,
    /// Comment of the table. `None` without a comment.
    pub comment: Option<String>,
    /// Flags of the table, such as `dormant`. `None` without flags.
    pub flags: Option<String>,
    /// Sets and maps of the table.
    pub sets: Vec<Set>,
    /// Chains of the table.
    pub chains: Vec<Chain>,
    /// Other objects of the table, such as flow tables and named counters.
    pub other_objects: Vec<TableObject>,
    /// Line number of the first line, from 1. 0 if the item was not parsed from a file.
    pub line: u32,
}

/// Named set, or map from keys to values.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Set {
    /// Whether the object is a map.
    pub is_map: bool,
    /// Name, unique in the table.
    pub name: String,
    /// Data type line, such as `type ipv4_addr . inet_proto : verdict`.
    pub type_line: String,
    /// Flags: `interval`, `dynamic`, `timeout`.
    pub flags: Vec<String>,
    /// Timeout of the elements, in seconds. `None` without a timeout.
    pub timeout: Option<u64>,
    /// Maximum number of elements. `None` without a limit.
    pub size: Option<u64>,
    /// Comment of the set. `None` without a comment.
    pub comment: Option<String>,
    /// Lines with other properties.
    pub properties: Vec<String>,
    /// Elements in printed order.
    pub elements: Vec<Element>,
    /// Line number of the first line, from 1. 0 if the item was not parsed from a file.
    pub line: u32,
}

/// Element of a set or map.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Element {
    /// Key of the element: `10.96.0.10 . tcp . 80`.
    pub key: String,
    /// Value of a map element: `goto service-…`. `None` for a set.
    pub value: Option<String>,
    /// Comment of the element. `None` without a comment.
    pub comment: Option<String>,
    /// Line number, from 1. 0 if the item was not parsed from a file.
    pub line: u32,
}

/// Chain of rules.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Chain {
    /// Name, unique in the table.
    pub name: String,
    /// Hook of a base chain. `None` for a regular chain.
    pub hook: Option<Hook>,
    /// Comment of the chain. `None` without a comment.
    pub comment: Option<String>,
    /// Rules in order of evaluation.
    pub rules: Vec<Rule>,
    /// Line number of the first line, from 1. 0 if the item was not parsed from a file.
    pub line: u32,
}

/// Hook of a base chain.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Hook {
    /// Chain type: `filter`, `nat` or `route`.
    pub kind: String,
    /// Hook name: `prerouting`, `input`, …
    pub hook: String,
    /// Devices of the chain, as printed. Empty for all devices.
    pub device: String,
    /// Priority. The kernel evaluates chains with low numbers first.
    pub priority: i32,
    /// Policy for packets without a verdict: `accept` or `drop`.
    pub policy: String,
}

/// Rule of a chain.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Rule {
    /// Matches and statements of the rule, without its comment.
    pub text: String,
    /// Comment of the rule. `None` without a comment.
    pub comment: Option<String>,
    /// Line number, from 1. 0 if the item was not parsed from a file.
    pub line: u32,
}

/// Object of a table that is neither a set nor a chain.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct TableObject {
    /// Kind and name: `counter web`.
    pub head: String,
    /// Lines of the object.
    pub body: Vec<String>,
    /// Line number of the first line, from 1. 0 if the item was not parsed from a file.
    pub line: u32,
}

impl Table {
    /// Returns the family and the name: `ip kube-proxy`.
    #[must_use]
    pub fn full_name(&self) -> String {
        format!("{} {}", self.family, self.name)
    }

    /// Whether chains of the table receive packets of this address family.
    #[must_use]
    pub fn covers(&self, family: Family) -> bool {
        [family.nft(), "inet"].contains(&self.family.as_str())
    }

    /// Returns the address family and the table of iptables if this is one of iptables-nft. `None`
    /// for other tables.
    #[must_use]
    pub fn of_iptables(&self) -> Option<(Family, script::Table)> {
        let ip = match self.family.as_str() {
            "ip" => Family::V4,
            "ip6" => Family::V6,
            _ => return None,
        };
        Some((ip, script::Table::from_name(&self.name)?))
    }

    /// Returns the table without its sets, chains and other objects.
    #[must_use]
    pub fn header(&self) -> Self {
        Self {
            family: self.family.clone(),
            name: self.name.clone(),
            comment: self.comment.clone(),
            flags: self.flags.clone(),
            line: self.line,
            ..Self::default()
        }
    }

    /// Returns the chain with a name. `None` if there is none.
    #[must_use]
    pub fn chain(&self, name: &str) -> Option<&Chain> {
        self.chains.iter().find(|chain| chain.name == name)
    }

    /// Returns the set or map with a name. `None` if there is none.
    #[must_use]
    pub fn set(&self, name: &str) -> Option<&Set> {
        self.sets.iter().find(|set| set.name == name)
    }
}

impl Set {
    /// Returns the set without its elements.
    #[must_use]
    pub fn declaration(&self) -> Self {
        Self {
            is_map: self.is_map,
            name: self.name.clone(),
            type_line: self.type_line.clone(),
            flags: self.flags.clone(),
            timeout: self.timeout,
            size: self.size,
            comment: self.comment.clone(),
            properties: self.properties.clone(),
            elements: Vec::new(),
            line: self.line,
        }
    }
}

impl Element {
    /// Creates an element of a set.
    #[must_use]
    pub fn set_element(key: impl Into<String>) -> Self {
        Self {
            key: key.into(),
            ..Self::default()
        }
    }

    /// Creates an element of a map.
    #[must_use]
    pub fn map_element(key: impl Into<String>, value: impl Into<String>) -> Self {
        Self {
            key: key.into(),
            value: Some(value.into()),
            ..Self::default()
        }
    }
}

impl Rule {
    /// Creates a rule without a comment.
    #[must_use]
    pub fn new(text: impl Into<String>) -> Self {
        Self {
            text: text.into(),
            ..Self::default()
        }
    }

    /// Returns the rule with a comment.
    #[must_use]
    pub fn with_comment(self, comment: impl Into<String>) -> Self {
        Self {
            comment: Some(comment.into()),
            ..self
        }
    }
}

impl Chain {
    /// Creates an empty regular chain.
    #[must_use]
    pub fn regular(name: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            ..Self::default()
        }
    }

    /// Returns the chain without its rules.
    #[must_use]
    pub fn declaration(&self) -> Self {
        Self {
            name: self.name.clone(),
            hook: self.hook.clone(),
            comment: self.comment.clone(),
            rules: Vec::new(),
            line: self.line,
        }
    }

    /// Appends a rule without a comment.
    pub fn push_rule(&mut self, text: impl Into<String>) {
        self.rules.push(Rule::new(text));
    }
}

impl Hook {
    /// Returns the type, hook, devices and priority: `filter input priority 0`.
    #[must_use]
    pub fn attachment(&self) -> String {
        let Self {
            kind,
            hook,
            device,
            priority,
            ..
        } = self;
        let space = if device.is_empty() { "" } else { " " };
        format!("{kind} {hook}{space}{device} priority {priority}")
    }
}

impl fmt::Display for Ruleset {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.tables.iter().try_for_each(|table| table.fmt(f))
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "table {} {} {{", self.family, self.name)?;
        if let Some(comment) = &self.comment {
            writeln!(f, "\tcomment \"{comment}\"")?;
        }
        if let Some(flags) = &self.flags {
            writeln!(f, "\tflags {flags}")?;
        }
        for (index, set) in self.sets.iter().enumerate() {
            if index > 0 {
                writeln!(f)?;
            }
            set.fmt(f)?;
        }
        for other in &self.other_objects {
            writeln!(f, "\n\t{} {{", other.head)?;
            for line in &other.body {
                writeln!(f, "\t\t{line}")?;
            }
            writeln!(f, "\t}}")?;
        }
        for chain in &self.chains {
            f.write_str("\n")?;
            chain.fmt(f)?;
        }
        writeln!(f, "}}")
    }
}

impl fmt::Display for Set {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = if self.is_map { "map" } else { "set" };
        writeln!(f, "\t{kind} {} {{", self.name)?;
        writeln!(f, "\t\t{}", self.type_line)?;
        if let Some(size) = self.size {
            writeln!(f, "\t\tsize {size}")?;
        }
        if !self.flags.is_empty() {
            writeln!(f, "\t\tflags {}", self.flags.join(","))?;
        }
        if let Some(timeout) = self.timeout {
            writeln!(f, "\t\ttimeout {timeout}s")?;
        }
        for property in &self.properties {
            writeln!(f, "\t\t{property}")?;
        }
        if let Some(comment) = &self.comment {
            writeln!(f, "\t\tcomment \"{comment}\"")?;
        }
        for (index, element) in self.elements.iter().enumerate() {
            let prefix = if index == 0 {
                "\t\telements = { "
            } else {
                ",\n\t\t\t     "
            };
            write!(f, "{prefix}{element}")?;
        }
        if !self.elements.is_empty() {
            writeln!(f, " }}")?;
        }
        writeln!(f, "\t}}")
    }
}

impl fmt::Display for Element {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.key)?;
        if let Some(comment) = &self.comment {
            write!(f, " comment \"{comment}\"")?;
        }
        match &self.value {
            Some(value) => write!(f, " : {value}"),
            None => Ok(()),
        }
    }
}

impl fmt::Display for Chain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "\tchain {} {{", self.name)?;
        if let Some(comment) = &self.comment {
            writeln!(f, "\t\tcomment \"{comment}\"")?;
        }
        if let Some(hook) = &self.hook {
            writeln!(f, "\t\t{hook}")?;
        }
        for rule in &self.rules {
            f.write_str("\t\t")?;
            rule.fmt(f)?;
            f.write_str("\n")?;
        }
        f.write_str("\t}\n")
    }
}

impl fmt::Display for Hook {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            kind,
            hook,
            device,
            priority,
            policy,
        } = self;
        let space = if device.is_empty() { "" } else { " " };
        write!(
            f,
            "type {kind} hook {hook}{space}{device} priority {priority}; policy {policy};"
        )
    }
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)?;
        match &self.comment {
            Some(comment) => write!(f, " comment \"{comment}\""),
            None => Ok(()),
        }
    }
}
