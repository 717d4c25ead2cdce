//! What netfilter did with a packet, step by step, as its kernel traced it.

use serde::{Deserialize, Serialize};

use super::bytes;
use crate::plan::Backend;

/// The most trace events that evidence has of one stage of a case.
pub const MAX_MET: usize = 200_000;

/// A rule that a packet met and that matched, or the end of a chain.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct Met {
    /// The namespace. Within one, and one [`Met::by`], steps are in the order in which
    /// they were taken.
    pub namespace: String,
    /// Which of the kernel's two filters told it.
    pub by: Backend,
    /// What tells this packet's pass through one hook from those of others at the same
    /// time; 0 where the kernel gives no such number (legacy).
    #[serde(default)]
    pub pass: u32,
    /// The packet as it was at this step, from the IP header on and for some bytes
    /// beyond; none where it is as at the step before of the same pass.
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        with = "bytes::maybe"
    )]
    #[schemars(with = "Option<String>")]
    pub packet: Option<Vec<u8>>,
    /// 4 or 6.
    pub ip: u8,
    /// The interface it came in by, if it came in.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub input: Option<String>,
    /// The interface it is to go out by, once that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output: Option<String>,
    /// Its mark before the step. Where both filters are in one namespace, what the
    /// other one did to it since the step before is told a step late.
    #[serde(default)]
    pub mark: u32,
    /// The table: `nat`.
    pub table: String,
    /// Whether that is one of the family `inet`, for IPv4 and IPv6 alike, of which no
    /// iptables knows.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub inet: bool,
    /// The chain: `KUBE-SERVICES`.
    pub chain: String,
    /// What it met there.
    pub at: At,
    /// What came of it; none where the kernel does not say (legacy).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub verdict: Option<Verdict>,
}

/// Where in a chain a step was taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum At {
    /// At this rule, counted from 1 as `iptables -L --line-numbers` does; 0 of a rule
    /// that came and went while probes ran.
    Rule(u32),
    /// At the end of a chain that was jumped to; with legacy only, as newer kernels do
    /// not tell it of `nf_tables`.
    Return,
    /// At the end of a hook's own chain.
    Policy,
}

/// What came of a step.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum Verdict {
    /// The packet is through with this hook's chain.
    Accept,
    /// It is no more.
    Drop,
    /// Go on with the next rule.
    Continue,
    /// Back to where this chain was jumped from.
    Return,
    /// To another chain, and back.
    Jump(String),
    /// To another chain for good.
    Goto(String),
    /// Somebody took it, a program or the rule itself.
    Stolen,
}
