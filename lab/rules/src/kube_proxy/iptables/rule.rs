//! One command for `iptables-restore`, put together piece by piece.

use std::fmt::{Display, Write as _};
use std::net::IpAddr;

use crate::kube_proxy::services::Protocol;

/// A command without its line end.
#[derive(Debug, Clone)]
pub(in crate::kube_proxy) struct Rule(String);

impl Rule {
    /// At the end of `chain`.
    pub fn append(chain: &str) -> Self {
        Self(format!("-A {chain}"))
    }

    /// At the beginning of `chain`.
    pub fn insert(chain: &str) -> Self {
        Self(format!("-I {chain}"))
    }

    /// Some words.
    pub fn with(mut self, words: impl Display) -> Self {
        // Writing into a String cannot fail.
        let _ = write!(self.0, " {words}");
        self
    }

    /// Words that may be missing.
    pub fn with_some(self, words: Option<impl Display>) -> Self {
        match words {
            Some(words) => self.with(words),
            None => self,
        }
    }

    /// A comment. Nothing that reaches one holds a quote or a backslash: names
    /// in Kubernetes are DNS labels.
    pub fn comment(self, text: impl Display) -> Self {
        self.with(format_args!("-m comment --comment \"{text}\""))
    }

    /// Packets of `protocol`.
    pub fn protocol(self, protocol: Protocol) -> Self {
        self.with(format_args!("-m {protocol} -p {protocol}"))
    }

    /// Packets to `ip`.
    pub fn destination(self, ip: IpAddr) -> Self {
        self.with(format_args!("-d {ip}"))
    }

    /// Packets to `port`; a protocol must have been named.
    pub fn port(self, port: u16) -> Self {
        self.with(format_args!("--dport {port}"))
    }

    /// The end: what happens to such packets.
    pub fn jump(self, target: &str) -> String {
        self.with(format_args!("-j {target}")).0
    }

    /// The end of a rule that only counts.
    pub fn only(self) -> String {
        self.0
    }
}
