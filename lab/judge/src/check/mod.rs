//! Defines the result of an expectation other than a verdict.

pub(crate) mod iptables;
pub(crate) mod kernel_state;
pub(crate) mod nft_tables;
pub(crate) mod retransmissions;

use std::collections::BTreeSet;
use std::time::Duration;

use ipnetwork::IpNetwork;

use svclab_scenario::expectation::{
    ChainExpectation, CounterExpectation, LinkExpectation, RuleExpectation, SetExpectation,
    VirtualServerExpectation,
};
use svclab_scenario::wire::WireExpectation;

/// Expectation other than a verdict, with the observation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Check {
    /// Number of packets on an interface.
    Packets {
        /// Expected packets.
        expected: WireExpectation,
        /// Number of matching packets.
        count: u32,
        /// Number of packets that were not captured. Each might match.
        missed: u64,
    },
    /// Intervals between retransmissions on an interface.
    Retransmissions {
        /// Expected packets, with their intervals in `resent`.
        expected: WireExpectation,
        /// Shortest maximum wait of all TCP probes. Later retransmissions are ignored.
        max_wait: Duration,
        /// Intervals of the first packet with other intervals than expected, else of the first
        /// packet. `None` if no packet matches.
        intervals: Option<Vec<Duration>>,
        /// Number of packets that were not captured.
        missed: u64,
    },
    /// Growth of a kernel counter.
    Counter {
        /// Expected growth.
        expected: CounterExpectation,
        /// Observed growth.
        increase: i64,
    },
    /// Number of packets that matched rules.
    Rule {
        /// Expected number.
        expected: RuleExpectation,
        /// Observed number; `None` if there is no such rule.
        hits: Option<u64>,
        /// Number of trace events that were not recorded, if they decide the number.
        missed: u64,
    },
    /// Rules of a chain.
    Chain {
        /// Expected rules.
        expected: ChainExpectation,
        /// Observed rules; `None` if there is no such chain.
        rules: Option<Vec<String>>,
    },
    /// Type and members of a set.
    Set {
        /// Expected type and members.
        expected: SetExpectation,
        /// Observed type and members; `None` if there is no such set.
        observed: Option<SetContent>,
    },
    /// Virtual server of IPVS.
    VirtualServer {
        /// Expected virtual server.
        expected: VirtualServerExpectation,
        /// Lines that `ipvsadm -Sn` prints for it; empty if it does not exist.
        lines: BTreeSet<String>,
    },
    /// Flags and addresses of an interface.
    Link {
        /// Expected flags and addresses.
        expected: LinkExpectation,
        /// Observed flags and addresses; `None` if there is no such interface.
        observed: Option<LinkContent>,
    },
}

/// Type and members of a set.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SetContent {
    /// Type, such as `hash:ip,port`.
    pub kind: String,
    /// Members.
    pub members: BTreeSet<String>,
}

/// Flags and addresses of an interface.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LinkContent {
    /// Flags, as `ip link` prints them.
    pub flags: BTreeSet<String>,
    /// Addresses with their prefix lengths.
    pub addresses: BTreeSet<IpNetwork>,
}

impl Check {
    /// Whether the observation ended before everything that is expected could occur, such as
    /// retransmissions after the maximum wait.
    #[must_use]
    pub fn is_incomplete(&self) -> bool {
        let Self::Retransmissions {
            expected,
            intervals: Some(intervals),
            ..
        } = self
        else {
            return false;
        };
        intervals.len() < expected.resent.iter().flatten().count()
    }

    /// Whether the observation meets the expectation.
    #[must_use]
    pub fn holds(&self) -> bool {
        match self {
            // Without an upper bound, additional packets and matches do not matter.
            Self::Packets {
                expected: WireExpectation { count: range, .. },
                count,
                missed,
            } => range.contains(*count) && (*missed == 0 || range.max().is_none()),
            Self::Retransmissions {
                expected,
                max_wait,
                intervals,
                missed,
            } => {
                let wanted = expected.resent.as_deref().unwrap_or_default();
                let is_expected =
                    |seen: &Vec<Duration>| retransmissions::matches(wanted, seen, *max_wait);
                *missed == 0 && intervals.as_ref().is_some_and(is_expected)
            }
            Self::Counter { expected, increase } => {
                u32::try_from(*increase).is_ok_and(|increase| expected.grows.contains(increase))
            }
            Self::Rule {
                expected: RuleExpectation { hits: range, .. },
                hits,
                missed,
            } => {
                let hits = hits.and_then(|hits| u32::try_from(hits).ok());
                hits.is_some_and(|hits| range.contains(hits))
                    && (*missed == 0 || range.max().is_none())
            }
            Self::Chain { expected, rules } => rules.as_ref().is_some_and(|rules| {
                if is_native_table(&expected.table) {
                    nft_tables::is_equivalent(rules, &expected.is)
                } else {
                    *rules == expected.is
                }
            }),
            Self::Set { expected, observed } => observed.as_ref().is_some_and(|seen| {
                seen.kind == expected.kind && is_set_of(&seen.members, &expected.members)
            }),
            Self::VirtualServer { expected, lines } => is_set_of(lines, &expected.is),
            Self::Link { expected, observed } => observed.as_ref().is_some_and(|seen| {
                is_set_of(&seen.flags, &expected.flags)
                    && is_set_of(&seen.addresses, &expected.addresses)
            }),
        }
    }

    /// Returns the interface, namespace or node to which the expectation applies.
    #[must_use]
    pub fn target(&self) -> String {
        match self {
            Self::Packets { expected, .. } | Self::Retransmissions { expected, .. } => {
                expected.on.to_string()
            }
            Self::Link { expected, .. } => expected.on.to_string(),
            Self::Counter {
                expected: CounterExpectation { on, .. },
                ..
            }
            | Self::Rule {
                expected: RuleExpectation { on, .. },
                ..
            }
            | Self::Chain {
                expected: ChainExpectation { on, .. },
                ..
            }
            | Self::Set {
                expected: SetExpectation { on, .. },
                ..
            }
            | Self::VirtualServer {
                expected: VirtualServerExpectation { on, .. },
                ..
            } => on.clone(),
        }
    }
}

/// Whether a list has exactly the items of a set.
fn is_set_of<T: Ord>(set: &BTreeSet<T>, items: &[T]) -> bool {
    set.iter().eq(items.iter().collect::<BTreeSet<_>>())
}

/// Whether a table name is that of a native nftables table: family and name.
pub(crate) fn is_native_table(table: &str) -> bool {
    table.contains(' ')
}
