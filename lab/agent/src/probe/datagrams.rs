//! Exchanges datagrams with one socket: of UDP, or echo requests and their replies.

use std::io;

use svclab_model::evidence::{Progress, Verdict};
use svclab_model::plan::{MAX_DATAGRAM_BYTES, Probe};
use tokio::net::UdpSocket;
use tokio::task::yield_now;

use crate::probe::exchange::{ExchangeResult, verdict_from_error};
use crate::runtime::max_wait;

/// Sends the datagrams of a probe, except the `sent` first ones, and waits for an answer to each.
/// `next` creates a datagram from its number, beginning with 1. `accept` returns whether an answer
/// is valid.
pub(super) async fn exchange(
    socket: &UdpSocket,
    probe: &Probe,
    sent: u32,
    next: impl Fn(u32) -> Vec<u8>,
    mut accept: impl FnMut(&[u8]) -> bool,
) -> ExchangeResult {
    let local = socket.local_addr().ok();
    let number = probe.datagrams.get();
    let mut progress = Progress {
        sent: sent.into(),
        expected: number.into(),
        ..Progress::default()
    };
    let Progress {
        sent: count_sent,
        received,
        ..
    } = &mut progress;
    let sending = async {
        for datagram in sent..number {
            socket.send(&next(datagram + 1)).await?;
            *count_sent += 1;
            // The servers of a lab run on the same thread. If all datagrams were sent at once, they
            // would overflow receive buffers.
            yield_now().await;
        }
        Ok(())
    };
    let receiving = async {
        let mut answer = vec![0; MAX_DATAGRAM_BYTES as usize];
        for _ in 0..number {
            let length = socket.recv(&mut answer).await?;
            if !accept(&answer[..length]) {
                return Ok(false);
            }
            *received += 1;
        }
        Ok(true)
    };
    let both = async { tokio::try_join!(sending, receiving).map(|((), is_valid)| is_valid) };
    let result = match max_wait::within(probe.max_wait, both).await {
        Err(nothing) => ExchangeResult::timed_out(Verdict::Timeout, local, nothing),
        Ok(Err(error)) => {
            ExchangeResult::without_answer(verdict_from_error(&error), local, Some(error))
        }
        Ok(Ok(true)) => ExchangeResult::without_answer(Verdict::Answered, local, None),
        Ok(Ok(false)) => ExchangeResult::without_answer(
            Verdict::Silent,
            local,
            Some(io::Error::other(
                "the answer is not from a server of the lab",
            )),
        ),
    };
    result.with_progress((number > 1).then_some(progress))
}
