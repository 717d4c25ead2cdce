//! Defines one exchange of a probe, independent of the protocol.

use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;

use nix::errno::Errno;

use crate::runtime::max_wait::NoAnswer;
use svclab_model::evidence::{Answer, Progress, Verdict};

/// Result of an exchange, before it becomes an attempt of a probe.
pub(crate) struct ExchangeResult {
    /// Verdict of the attempt.
    pub verdict: Verdict,
    /// Servers that answered, and the client addresses that they saw: one for TCP, and one for each
    /// answered datagram of UDP.
    pub answers: Vec<Answer>,
    /// Progress of the exchange, for probes with a payload or several datagrams.
    pub progress: Option<Progress>,
    /// Local address of the socket.
    pub local: Option<SocketAddr>,
    /// Error from the kernel.
    pub error: Option<io::Error>,
    /// Reason why the verdict is unreliable; `None` if it is reliable.
    pub unreliable: Option<UnreliableReason>,
}

/// Reason why a busy host allows no verdict.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum UnreliableReason {
    /// No answer arrived, and packets were still queued.
    #[error("packets were queued for a processor for more than 1 minute")]
    Queued,
    /// The probe sent several SYNs, some of them too late, and the answer may belong to any of
    /// them.
    #[error("the answer may belong to a SYN sent after the probe's time limit")]
    Late,
}

impl ExchangeResult {
    /// Creates the result of an exchange without an answer.
    pub(crate) fn without_answer(
        verdict: Verdict,
        local: Option<SocketAddr>,
        error: Option<io::Error>,
    ) -> Self {
        Self {
            verdict,
            answers: Vec::new(),
            progress: None,
            local,
            error,
            unreliable: None,
        }
    }

    /// Creates the result of an exchange that reached the time limit without an answer.
    pub(crate) fn timed_out(
        verdict: Verdict,
        local: Option<SocketAddr>,
        nothing: NoAnswer,
    ) -> Self {
        Self {
            unreliable: match nothing {
                NoAnswer::TimedOut => None,
                NoAnswer::Queued => Some(UnreliableReason::Queued),
            },
            ..Self::without_answer(verdict, local, None)
        }
    }

    /// Adds how far the exchange came.
    pub(crate) fn with_progress(self, progress: Option<Progress>) -> Self {
        Self { progress, ..self }
    }

    /// Creates the result of an exchange whose first packet the kernel rejected because of the
    /// network.
    pub(crate) fn rejected(local: Option<SocketAddr>, error: io::Error) -> Self {
        Self::without_answer(verdict_from_error(&error), local, Some(error))
    }
}

/// Exchange whose first packet has been sent.
pub(crate) struct Exchange {
    /// Local address of the socket.
    pub local: Option<SocketAddr>,
    /// Future with the result.
    pub outcome: Pin<Box<dyn Future<Output = ExchangeResult>>>,
}

impl Exchange {
    /// Creates an exchange that has started.
    pub(crate) fn new(
        local: Option<SocketAddr>,
        outcome: impl Future<Output = ExchangeResult> + 'static,
    ) -> Self {
        Self {
            local,
            outcome: Box::pin(outcome),
        }
    }

    /// Creates an exchange whose first packet the kernel rejected because of the network. `local`
    /// is the address of a socket that was connected before.
    pub(crate) fn rejected(local: Option<SocketAddr>, error: io::Error) -> Self {
        let result = ExchangeResult::rejected(local, error);
        Self::new(local, std::future::ready(result))
    }
}

/// Returns the verdict for a socket error before an answer.
pub(crate) fn verdict_from_error(error: &io::Error) -> Verdict {
    match error.raw_os_error().map(Errno::from_raw) {
        Some(Errno::ECONNREFUSED) => Verdict::Refused,
        Some(Errno::ETIMEDOUT) => Verdict::Timeout,
        Some(Errno::ECONNRESET | Errno::EPIPE | Errno::ECONNABORTED) => Verdict::Reset,
        // All other ICMP errors map to these errors. So do a missing route and, for a datagram, a
        // packet that the sending host drops.
        _ => Verdict::Unreachable,
    }
}
