//! Builds one command for `iptables-restore` from its parts.

use std::fmt::{Display, Write as _};
use std::net::IpAddr;

use svclab_ruleset::Protocol;
use svclab_ruleset::iptables::command::Command;

/// Command without the line end.
#[derive(Debug, Clone)]
pub(in crate::kube_proxy) struct RuleBuilder(Command);

impl RuleBuilder {
    /// Starts a rule that is appended to `chain`.
    pub(crate) fn append(chain: &str) -> Self {
        Self(Command::append(chain, ""))
    }

    /// Starts a rule that is inserted at the top of `chain`.
    pub(crate) fn insert(chain: &str) -> Self {
        Self(Command::insert(chain, ""))
    }

    /// Adds words.
    pub(crate) fn with(mut self, words: impl Display) -> Self {
        let space = if self.0.rule.is_empty() { "" } else { " " };
        // Writing into a String cannot fail.
        let _ = write!(self.0.rule, "{space}{words}");
        self
    }

    /// Adds words if there are any.
    pub(crate) fn with_some(self, words: Option<impl Display>) -> Self {
        match words {
            Some(words) => self.with(words),
            None => self,
        }
    }

    /// Adds a comment. No caller passes a quote or a backslash: names in Kubernetes are DNS labels.
    pub(crate) fn comment(self, text: impl Display) -> Self {
        self.with(format_args!("-m comment --comment \"{text}\""))
    }

    /// Matches packets of `protocol`.
    pub(crate) fn protocol(self, protocol: Protocol) -> Self {
        self.with(format_args!("-m {protocol} -p {protocol}"))
    }

    /// Matches packets to `ip`.
    pub(crate) fn destination(self, ip: IpAddr) -> Self {
        self.with(format_args!("-d {ip}"))
    }

    /// Matches packets to `port`; the rule must already match a protocol.
    pub(crate) fn port(self, port: u16) -> Self {
        self.with(format_args!("--dport {port}"))
    }

    /// Ends the rule with its target.
    pub(crate) fn jump(self, target: &str) -> Command {
        self.with(format_args!("-j {target}")).0
    }

    /// Ends a rule without a target, which only counts.
    pub(crate) fn without_target(self) -> Command {
        self.0
    }
}
