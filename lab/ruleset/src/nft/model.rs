//! A ruleset of nftables as data: tables with their sets, maps and chains, and the
//! text that `nft -f` reads.
//!
//! Rules are texts: what they mean is told by [`crate::nft::canonical()`].

use std::fmt;

/// Tables, in the order they are written.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Ruleset {
    /// The tables.
    pub tables: Vec<Table>,
}

/// One table.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Table {
    /// Its family, `ip`.
    pub family: String,
    /// Its name in that family.
    pub name: String,
    /// What is said about it.
    pub comment: Option<String>,
    /// Its flags, as in `dormant`.
    pub flags: Option<String>,
    /// Its sets and maps.
    pub sets: Vec<Set>,
    /// Its chains.
    pub chains: Vec<Chain>,
    /// What else it holds: flow tables, named counters and the like.
    pub others: Vec<Other>,
    /// The line it begins at, from 1; 0 if it is of no file.
    pub line: u32,
}

/// A named set, or a map from keys to values.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Set {
    /// Whether it is a map.
    pub map: bool,
    /// Its name.
    pub name: String,
    /// What it holds, as in `type ipv4_addr . inet_proto : verdict`.
    pub holds: String,
    /// Its flags: `interval`, `dynamic`, `timeout`.
    pub flags: Vec<String>,
    /// For how many seconds an entry stays.
    pub timeout: Option<u64>,
    /// How many entries it may have.
    pub size: Option<u64>,
    /// What is said about it.
    pub comment: Option<String>,
    /// Its other properties, a line each.
    pub properties: Vec<String>,
    /// Its entries.
    pub elements: Vec<Element>,
    /// The line it begins at, from 1; 0 if it is of no file.
    pub line: u32,
}

/// An entry of a set or map.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Element {
    /// What is looked up: `10.96.0.10 . tcp . 80`.
    pub key: String,
    /// What is found, of a map: `goto service-…`.
    pub value: Option<String>,
    /// What is said about it.
    pub comment: Option<String>,
    /// Its line, from 1; 0 if it is of no file.
    pub line: u32,
}

/// A chain of rules.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Chain {
    /// Its name.
    pub name: String,
    /// Where the kernel calls it, if it does.
    pub hook: Option<Hook>,
    /// What is said about it.
    pub comment: Option<String>,
    /// Its rules, in order.
    pub rules: Vec<Rule>,
    /// The line it begins at, from 1; 0 if it is of no file.
    pub line: u32,
}

/// Where the kernel calls a chain.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Hook {
    /// `filter`, `nat` or `route`.
    pub kind: String,
    /// `prerouting`, `input`, …
    pub hook: String,
    /// The interfaces that it is for, as written; empty for all.
    pub device: String,
    /// Chains of smaller numbers come first.
    pub priority: i32,
    /// What becomes of packets that no rule decides about: `accept` or `drop`.
    pub policy: String,
}

/// A rule of a chain.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Rule {
    /// What it matches and does, without its comment.
    pub text: String,
    /// What is said about it.
    pub comment: Option<String>,
    /// Its line, from 1; 0 if it is of no file.
    pub line: u32,
}

/// Something in a table that is neither a set nor a chain.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Other {
    /// Its kind and name: `counter web`.
    pub head: String,
    /// What is in it, a line each.
    pub body: Vec<String>,
    /// The line it begins at, from 1; 0 if it is of no file.
    pub line: u32,
}

impl Table {
    /// The chain of that name.
    #[must_use]
    pub fn chain(&self, name: &str) -> Option<&Chain> {
        self.chains.iter().find(|chain| chain.name == name)
    }

    /// The set or map of that name.
    #[must_use]
    pub fn set(&self, name: &str) -> Option<&Set> {
        self.sets.iter().find(|set| set.name == name)
    }
}

impl Element {
    /// An entry of a set.
    #[must_use]
    pub fn of_set(key: impl Into<String>) -> Self {
        Self {
            key: key.into(),
            ..Self::default()
        }
    }

    /// An entry of a map.
    #[must_use]
    pub fn of_map(key: impl Into<String>, value: impl Into<String>) -> Self {
        Self {
            key: key.into(),
            value: Some(value.into()),
            ..Self::default()
        }
    }
}

impl Rule {
    /// A rule without a comment.
    #[must_use]
    pub fn new(text: impl Into<String>) -> Self {
        Self {
            text: text.into(),
            ..Self::default()
        }
    }

    /// The same with a comment.
    #[must_use]
    pub fn comment(self, comment: impl Into<String>) -> Self {
        Self {
            comment: Some(comment.into()),
            ..self
        }
    }
}

impl Chain {
    /// A chain that rules lead to, still empty.
    #[must_use]
    pub fn regular(name: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            ..Self::default()
        }
    }

    /// Adds a rule without a comment at the end.
    pub fn rule(&mut self, text: impl Into<String>) {
        self.rules.push(Rule::new(text));
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
        for (at, set) in self.sets.iter().enumerate() {
            if at > 0 {
                writeln!(f)?;
            }
            set.fmt(f)?;
        }
        for other in &self.others {
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
        let kind = if self.map { "map" } else { "set" };
        writeln!(f, "\t{kind} {} {{", self.name)?;
        writeln!(f, "\t\t{}", self.holds)?;
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
        for (at, element) in self.elements.iter().enumerate() {
            let begun = if at == 0 {
                "\t\telements = { "
            } else {
                ",\n\t\t\t     "
            };
            write!(f, "{begun}{element}")?;
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
