//! Determines which SYN of a connection was answered.
//!
//! The kernel retransmits SYNs by its own clock, even while this process waits for a processor. An
//! answer to a SYN sent after the probe's time limit does not count: on an idle host, the probe
//! would already have timed out.

use std::fs;
use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::time::Duration;

use nix::libc;

use crate::net::netns::NetNs;

/// Interval before the first retransmission of a SYN: the initial RTO of RFC 6298 (Linux v6.12,
/// `include/net/tcp.h`, `TCP_TIMEOUT_INIT`).
const FIRST_INTERVAL: Duration = Duration::from_secs(1);

/// Maximum response time of an answer that certainly belongs to the last SYN: SYNs are at least
/// [`FIRST_INTERVAL`] apart.
const MAX_PROMPT_RESPONSE: Duration = Duration::from_millis(500);

/// Sysctl: the number of retransmissions of a SYN before the interval doubles (since Linux 6.5).
const LINEAR_TIMEOUTS_FILE: &str = "/proc/sys/net/ipv4/tcp_syn_linear_timeouts";

/// When the answered SYN was sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum AnsweredSyn {
    /// Within the time limit.
    InTime,
    /// After the time limit.
    Late,
    /// Unknown: SYNs were sent before and after the time limit, and the slow answer may belong to
    /// either.
    Unknown,
}

/// Returns when the SYN was sent whose answer or refusal the socket received. `delay` is how long
/// this process was kept from running since the first SYN.
pub(crate) fn answered_syn(
    socket: &impl AsFd,
    ns: &NetNs,
    max_wait: Duration,
    delay: Duration,
) -> io::Result<AnsweredSyn> {
    let (retransmissions, round_trip) = read_tcp_info(socket)?;
    if retransmissions == 0 {
        return Ok(AnsweredSyn::InTime);
    }
    let linear = ns.enter(|| fs::read_to_string(LINEAR_TIMEOUTS_FILE))?;
    // A kernel without this sysctl doubles every interval.
    let linear = linear
        .ok()
        .and_then(|text| text.trim().parse().ok())
        .unwrap_or(0);
    // The kernel does not measure the round trip of a refusal, or of an answer without TCP
    // timestamps. The response time of these replies is at most the delay of this process, or that
    // of an undelayed packet.
    let response_time = round_trip.unwrap_or(delay);
    Ok(classify(
        retransmission_time(retransmissions, linear),
        response_time,
        max_wait,
    ))
}

/// Returns when the SYN was sent that was answered after `response_time`, given that the last
/// SYN was sent at `last`.
fn classify(last: Duration, response_time: Duration, max_wait: Duration) -> AnsweredSyn {
    if last < max_wait {
        AnsweredSyn::InTime
    } else if response_time < MAX_PROMPT_RESPONSE {
        AnsweredSyn::Late
    } else {
        AnsweredSyn::Unknown
    }
}

/// Returns the time from the first SYN to its retransmission `number` (Linux v6.12,
/// `net/ipv4/tcp_timer.c`, `tcp_retransmit_timer`).
fn retransmission_time(number: u32, linear: u32) -> Duration {
    let mut sum = Duration::ZERO;
    let mut interval = FIRST_INTERVAL;
    for nth in 1..=number {
        sum = sum.saturating_add(interval);
        if nth > linear {
            interval = interval.saturating_mul(2);
        }
    }
    sum
}

/// Returns the number of segments that a connected socket has retransmitted, and the measured
/// round-trip time; `None` if the kernel measured none.
fn read_tcp_info(socket: &impl AsFd) -> io::Result<(u32, Option<Duration>)> {
    // SAFETY: any value is valid for a struct of integers.
    let mut info: libc::tcp_info = unsafe { std::mem::zeroed() };
    let mut length = libc::socklen_t::try_from(size_of_val(&info)).unwrap_or(0);
    // SAFETY: the kernel writes no more than `length` bytes to `info`.
    let got = unsafe {
        libc::getsockopt(
            socket.as_fd().as_raw_fd(),
            libc::IPPROTO_TCP,
            libc::TCP_INFO,
            std::ptr::from_mut(&mut info).cast(),
            &raw mut length,
        )
    };
    if got != 0 {
        return Err(io::Error::last_os_error());
    }
    let round_trip = Duration::from_micros(info.tcpi_rtt.into());
    let round_trip = (!round_trip.is_zero()).then_some(round_trip);
    Ok((info.tcpi_total_retrans, round_trip))
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};

    use super::*;

    const MAX_WAIT: Duration = Duration::from_secs(3);

    fn classify_millis(last: u64, response_time: u64) -> AnsweredSyn {
        let [last, took] = [last, response_time].map(Duration::from_millis);
        classify(last, took, MAX_WAIT)
    }

    #[test]
    fn syn_retransmission_times_match_kernel() {
        let offsets = |linear| {
            let seconds = (1..=6).map(move |number| retransmission_time(number, linear).as_secs());
            seconds.collect::<Vec<_>>()
        };
        assert_eq!(offsets(0), [1, 3, 7, 15, 31, 63]);
        assert_eq!(offsets(4), [1, 2, 3, 4, 5, 7]);
    }

    #[test]
    fn answer_to_syn_within_limit_counts() {
        assert_eq!(classify_millis(2000, 9000), AnsweredSyn::InTime);
        assert_eq!(classify_millis(1000, 0), AnsweredSyn::InTime);
    }

    #[test]
    fn answer_to_syn_after_limit_does_not_count() {
        assert_eq!(classify_millis(3000, 1), AnsweredSyn::Late);
        assert_eq!(classify_millis(7000, 499), AnsweredSyn::Late);
    }

    #[test]
    fn slow_answer_to_many_syns_is_unknown() {
        assert_eq!(classify_millis(3000, 500), AnsweredSyn::Unknown);
        assert_eq!(classify_millis(7000, 5000), AnsweredSyn::Unknown);
    }

    #[test]
    fn connection_on_loopback_has_no_retransmission() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (retransmissions, round_trip) = read_tcp_info(&stream).unwrap();
        assert_eq!(retransmissions, 0);
        assert!(round_trip.is_some());
    }
}
