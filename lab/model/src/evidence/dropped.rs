//! Packets that a kernel dropped, and why.

use serde::{Deserialize, Serialize};

use super::bytes;

/// A packet that ended in a kernel, by its own account.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct Dropped {
    /// Nanoseconds since the epoch, as in [`super::Packet`].
    pub time: u64,
    /// The namespace.
    pub namespace: String,
    /// The interface it was on, if it was on one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interface: Option<String>,
    /// The kernel's word for it: `IP_RPFILTER`.
    pub reason: String,
    /// The kernel's function it ended in: `ip_rcv_finish_core`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub place: Option<String>,
    /// The packet, from the IP header on and for some bytes beyond.
    #[serde(with = "bytes")]
    #[schemars(with = "String")]
    pub packet: Vec<u8>,
}

/// How drops are known.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum Drops {
    /// Not at all: nobody asked.
    #[default]
    Unwatched,
    /// No tracer could be opened, for this reason: counters must do.
    Uncertain(String),
    /// Every one of them, but for so many that came when there was no room left.
    Watched {
        /// Those that were left out.
        lost: u64,
        /// Those that were seen, in the order of time.
        dropped: Vec<Dropped>,
    },
}

impl Drops {
    /// How many are known to lack.
    #[must_use]
    pub const fn left_out(&self) -> u64 {
        match self {
            Self::Watched { lost, .. } => *lost,
            Self::Unwatched | Self::Uncertain(_) => 0,
        }
    }

    /// Why they are not known, where somebody wanted to know.
    #[must_use]
    pub fn unknown(&self) -> Option<&str> {
        match self {
            Self::Uncertain(why) => Some(why),
            Self::Unwatched | Self::Watched { .. } => None,
        }
    }

    /// Takes away what was dropped at that time, in nanoseconds, or later, and returns it.
    /// What was left out may have been of either.
    #[must_use]
    pub fn split_off(&mut self, time: u64) -> Self {
        match self {
            Self::Watched { lost, dropped } => {
                let at = dropped.partition_point(|one| one.time < time);
                Self::Watched {
                    lost: *lost,
                    dropped: dropped.split_off(at),
                }
            }
            Self::Unwatched => Self::Unwatched,
            Self::Uncertain(why) => Self::Uncertain(why.clone()),
        }
    }

    /// Adds what was seen later.
    pub fn add(&mut self, later: Self) {
        match (&mut *self, later) {
            (
                Self::Watched { lost, dropped },
                Self::Watched {
                    lost: lost_by_now,
                    dropped: more,
                },
            ) => {
                *lost = lost_by_now;
                dropped.extend(more);
            }
            (own, later) => *own = later,
        }
    }
}
