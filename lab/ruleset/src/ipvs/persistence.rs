//! Defines the persistence timeout of virtual servers, in seconds or in ticks of the kernel.

use std::fmt;

/// Ticks per second that a kernel can have (Linux v6.12, `kernel/Kconfig.hz`). The most frequent
/// value of distributions is first.
const TICK_RATES: [u32; 4] = [250, 1000, 100, 300];

/// Persistence timeout: a client keeps its real server for this time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Persistence {
    /// Seconds, as `ipvsadm` prints.
    Seconds(u32),
    /// Ticks, as `/proc/net/ip_vs` prints (Linux v6.12, `net/netfilter/ipvs/ip_vs_ctl.c`,
    /// `ip_vs_info_seq_show`). The file does not show the number of ticks per second.
    Ticks(u32),
}

impl Persistence {
    /// Returns the timeout in seconds. Ticks are converted with the most frequent tick rate.
    #[must_use]
    pub const fn seconds(self) -> u32 {
        match self {
            Self::Seconds(seconds) => seconds,
            Self::Ticks(ticks) => ticks / TICK_RATES[0],
        }
    }

    /// Whether two timeouts can be equal. Ticks equal seconds if a tick rate of Linux converts
    /// them.
    #[must_use]
    pub fn may_equal(self, other: Self) -> bool {
        match (self, other) {
            (Self::Seconds(seconds), Self::Ticks(ticks))
            | (Self::Ticks(ticks), Self::Seconds(seconds)) => TICK_RATES
                .iter()
                .any(|rate| seconds.checked_mul(*rate) == Some(ticks)),
            _ => self == other,
        }
    }
}

impl fmt::Display for Persistence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Seconds(seconds) => write!(f, "{seconds}"),
            Self::Ticks(ticks) => write!(f, "{ticks} ticks"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn persistence_ticks_equal_seconds_of_tick_rate() {
        let seconds = Persistence::Seconds(10_800);
        for rate in TICK_RATES {
            assert!(Persistence::Ticks(10_800 * rate).may_equal(seconds));
        }
        assert!(!Persistence::Ticks(10_800).may_equal(seconds));
        assert!(!Persistence::Ticks(100).may_equal(Persistence::Ticks(1000)));
        assert_eq!(Persistence::Ticks(2_700_000).seconds(), 10_800);
    }
}
