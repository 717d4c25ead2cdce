//! Defines commands to run on a node after all rules have been written.

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// Command to run in a namespace, after all rules have been loaded and each kube-proxy has written
/// its rules.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct NodeCommand {
    /// Namespace to run the command in.
    pub namespace: String,
    /// Program name, followed by its arguments.
    pub command: Vec<String>,
    /// Standard input of the command.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub input: String,
    /// Resource limits of the command.
    #[serde(default, skip_serializing_if = "CommandLimits::is_default")]
    pub limits: CommandLimits,
}

impl NodeCommand {
    /// Whether the words or the input of the command contain the name of a program.
    #[must_use]
    pub fn mentions(&self, program: &str) -> bool {
        let mut texts = self.command.iter().chain([&self.input]);
        texts.any(|text| text.contains(program))
    }
}

/// Resource limits of a command. A command that exceeds a limit is killed, and its case is an
/// error.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CommandLimits {
    /// Maximum running time. Default: 30 s.
    pub max_time: Duration,
    /// Maximum output on standard output and standard error together, in bytes. Default: 1 MiB.
    pub max_output: u64,
    /// Maximum number of processes and threads at the same time. Default: 256.
    pub max_processes: u64,
}

impl CommandLimits {
    fn is_default(&self) -> bool {
        *self == Self::default()
    }
}

impl Default for CommandLimits {
    fn default() -> Self {
        Self {
            max_time: Duration::from_secs(30),
            max_output: 1 << 20,
            max_processes: 256,
        }
    }
}

/// Formats the command as a shell command line, without its input.
impl fmt::Display for NodeCommand {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let words = self.command.iter().map(String::as_str);
        match shlex::try_join(words) {
            Ok(line) => f.write_str(&line),
            // `try_join` fails only for a NUL byte, which an argument cannot contain.
            Err(_) => write!(f, "{:?}", self.command),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn node_command_display_renders_shell_line() {
        let line = "iptables -t nat -I X -m comment --comment 'a b'";
        let command = NodeCommand {
            namespace: "node-1".to_owned(),
            command: shlex::split(line).unwrap(),
            input: String::new(),
            limits: CommandLimits::default(),
        };
        assert_eq!(command.command.len(), 9);
        assert_eq!(command.to_string(), line);
    }
}
