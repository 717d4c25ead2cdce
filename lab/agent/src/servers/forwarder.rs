//! Implements a layer 7 load balancer. The balancer accepts a connection, connects to a backend,
//! and tries the next backend when one does not answer.

use std::io;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;

use nix::errno::Errno;
use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};

use crate::net::netns::NetNs;
use crate::runtime::delay::Delay;
use crate::runtime::max_wait::within;
use crate::servers::accept::accept;
use crate::servers::connect::connect;
use svclab_model::evidence::AddressPair;

/// Forwards connections to `backends` in turn. Each backend has `retry_after` to answer the
/// connection.
pub(super) async fn serve(
    listener: TcpListener,
    ns: NetNs,
    backends: Vec<SocketAddr>,
    retry_after: Duration,
) {
    let mut next = 0_usize;
    let backends: Rc<[SocketAddr]> = backends.into();
    accept(listener, |client, _| {
        let first = next;
        next = next.wrapping_add(1);
        forward(client, ns.clone(), Rc::clone(&backends), first, retry_after)
    })
    .await;
}

async fn forward(
    mut client: TcpStream,
    ns: NetNs,
    backends: Rc<[SocketAddr]>,
    first: usize,
    max_wait: Duration,
) {
    let Ok(addresses) = client_addresses(&client) else {
        return;
    };
    let connected = connect_to_any(&ns, &backends, first, max_wait, addresses).await;
    if let Ok(mut backend) = connected {
        let _ = copy_bidirectional(&mut client, &mut backend).await;
    }
    // If no backend answers, the client's connection closes without data.
}

async fn connect_to_any(
    ns: &NetNs,
    backends: &[SocketAddr],
    first: usize,
    max_wait: Duration,
    client: AddressPair,
) -> io::Result<TcpStream> {
    for offset in 0..backends.len() {
        let backend = backends[first.wrapping_add(offset) % backends.len()];
        // Recorded before the backend answers.
        let note = |source| {
            let destination = backend;
            ns.note_relayed(
                client,
                AddressPair {
                    source,
                    destination,
                },
            );
        };
        let delay = Delay::start();
        match within(max_wait, connect(ns, backend, None, note)).await {
            Ok(Ok(stream)) => return Ok(stream),
            Ok(Err(error)) if is_timer_error(&error) && delay.process_ms() > 0 => {
                ns.note_late_timer();
            }
            _ => {}
        }
    }
    Err(io::Error::other("no backend answers"))
}

/// Returns the addresses of a client's connection.
fn client_addresses(client: &TcpStream) -> io::Result<AddressPair> {
    Ok(AddressPair {
        source: client.peer_addr()?,
        destination: client.local_addr()?,
    })
}

/// Whether an error may result from a kernel timer that ran on while this process was delayed: an
/// unanswered SYN, or failed neighbour discovery (Linux v6.12, `net/core/neighbour.c`,
/// `neigh_timer_handler`).
fn is_timer_error(error: &io::Error) -> bool {
    let number = error.raw_os_error().map(Errno::from_raw);
    matches!(number, Some(Errno::EHOSTUNREACH | Errno::ETIMEDOUT))
}
