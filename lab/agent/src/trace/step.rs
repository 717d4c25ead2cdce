//! One step as a kernel tells it, before it is known which line of which chain a
//! rule is.

use std::collections::HashSet;
use std::sync::Arc;

use svclab_model::evidence::met::Verdict;
use svclab_model::plan::Backend;

/// A step of a packet's.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Step {
    /// Which filter told it.
    pub by: Backend,
    /// As in [`svclab_model::evidence::Met`], as is all that follows.
    pub pass: u32,
    pub packet: Option<Vec<u8>>,
    pub ip: u8,
    pub input: Option<u32>,
    pub output: Option<u32>,
    pub mark: u32,
    pub table: Arc<str>,
    pub inet: bool,
    pub chain: Arc<str>,
    pub place: Place,
    pub verdict: Option<Verdict>,
}

/// Where in its chain.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    /// The rule with this handle, in a table of this family.
    Handle(u8, u64),
    /// The rule with this number.
    Rule(u32),
    /// A verdict without a condition at this number: the last rule of the chain or
    /// what is behind it.
    Last(u32, End),
    /// Behind the last rule.
    End(End),
}

/// What is behind a chain's last rule.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    Return,
    Policy,
}

/// Names that are kept once each.
#[derive(Debug, Default)]
pub struct Names(HashSet<Arc<str>>);

impl Names {
    pub fn keep(&mut self, name: &str) -> Arc<str> {
        if let Some(known) = self.0.get(name) {
            return Arc::clone(known);
        }
        let name: Arc<str> = Arc::from(name);
        self.0.insert(Arc::clone(&name));
        name
    }
}
