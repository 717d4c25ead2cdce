//! One exchange of a probe, whatever it speaks.

use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;

use nix::errno::Errno;

use super::patience::Nothing;
use svclab_model::evidence::Verdict;

/// What an exchange came to, before it is known as an attempt of a probe.
pub struct Outcome {
    /// What became of it.
    pub verdict: Verdict,
    /// Who answered and whom it saw.
    pub answer: Option<(String, SocketAddr)>,
    /// The socket's own address.
    pub local: Option<SocketAddr>,
    /// The system's words.
    pub error: Option<io::Error>,
    /// Why the verdict is not to be relied on.
    pub doubt: Option<Doubt>,
}

/// Why a busy machine leaves no verdict.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Doubt {
    /// No answer came, and packets had not been processed.
    #[error("packets waited for a processor for more than a minute")]
    Queued,
    /// An answer came to one of several SYNs of which some were sent too late.
    #[error("an answer was so slow that it may be to a SYN of after the probe's patience")]
    Late,
}

impl Outcome {
    /// An exchange that ended without an answer.
    pub fn ended(verdict: Verdict, local: Option<SocketAddr>, error: Option<io::Error>) -> Self {
        Self {
            verdict,
            answer: None,
            local,
            error,
            doubt: None,
        }
    }

    /// One whose patience ended without an answer.
    pub fn unanswered(verdict: Verdict, local: Option<SocketAddr>, nothing: Nothing) -> Self {
        Self {
            doubt: match nothing {
                Nothing::InTime => None,
                Nothing::Queued => Some(Doubt::Queued),
            },
            ..Self::ended(verdict, local, None)
        }
    }

    /// One that the system did not let begin, as the network would not have it.
    pub fn refused(error: io::Error) -> Self {
        Self::ended(verdict_of(&error), None, Some(error))
    }
}

/// An exchange whose first packet is on its way.
pub struct Exchange {
    /// The socket's own address.
    pub local: Option<SocketAddr>,
    /// What it comes to.
    pub outcome: Pin<Box<dyn Future<Output = Outcome>>>,
}

impl Exchange {
    /// One that has begun.
    pub fn begun(
        local: Option<SocketAddr>,
        outcome: impl Future<Output = Outcome> + 'static,
    ) -> Self {
        Self {
            local,
            outcome: Box::pin(outcome),
        }
    }

    /// One that the system did not let begin, as the network would not have it.
    pub fn refused(error: io::Error) -> Self {
        Self::begun(None, std::future::ready(Outcome::refused(error)))
    }
}

/// What an error on the way to an answer means.
pub fn verdict_of(error: &io::Error) -> Verdict {
    match error.raw_os_error().map(Errno::from_raw) {
        Some(Errno::ECONNREFUSED) => Verdict::Refused,
        Some(Errno::ETIMEDOUT) => Verdict::Timeout,
        Some(Errno::ECONNRESET | Errno::EPIPE | Errno::ECONNABORTED) => Verdict::Reset,
        // Every other ICMP error arrives as one of these; so do a missing route
        // and, for a datagram, a packet dropped on its way out of the host.
        _ => Verdict::Unreachable,
    }
}
