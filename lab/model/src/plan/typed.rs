//! What somebody types on a node once everything is written.

use std::fmt;
use std::time::Duration;

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
    /// What it may take.
    #[serde(default, skip_serializing_if = "CommandLimits::is_default")]
    pub limits: CommandLimits,
}

/// What a command may take. One that takes more is ended, and its case is an error.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CommandLimits {
    /// How long it may run.
    pub time: Duration,
    /// How many bytes it may print, on both of its streams together.
    pub output: u64,
    /// How many processes and threads it may have at once.
    pub processes: u64,
}

impl CommandLimits {
    fn is_default(&self) -> bool {
        *self == Self::default()
    }
}

impl Default for CommandLimits {
    fn default() -> Self {
        Self {
            time: Duration::from_secs(30),
            output: 1 << 20,
            processes: 256,
        }
    }
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
            limits: CommandLimits::default(),
        };
        assert_eq!(typed.command.len(), 9);
        assert_eq!(typed.to_string(), line);
    }
}
