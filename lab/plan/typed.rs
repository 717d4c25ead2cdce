//! What somebody types on a node once everything is written.

use std::fmt;

use serde::{Deserialize, Serialize};

/// A command in a namespace, run after all rules were loaded and every kube-proxy has
/// written its own.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Typed {
    /// Where.
    pub namespace: String,
    /// The program by its name, and what it is given.
    pub command: Vec<String>,
    /// What it reads.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub input: String,
}

/// As a shell takes it, without its input.
impl fmt::Display for Typed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let words = self.command.iter().map(String::as_str);
        match shlex::try_join(words) {
            Ok(line) => f.write_str(&line),
            // A nought, which no argument holds.
            Err(_) => write!(f, "{:?}", self.command),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_reads_as_it_was_typed() {
        let line = "iptables -t nat -I X -m comment --comment 'a b'";
        let typed = Typed {
            namespace: "node-1".to_owned(),
            command: shlex::split(line).unwrap(),
            input: String::new(),
        };
        assert_eq!(typed.command.len(), 9);
        assert_eq!(typed.to_string(), line);
    }
}
