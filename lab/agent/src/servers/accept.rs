//! Accepts the connections of the lab's TCP servers.

use std::net::SocketAddr;

use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

/// Accepts connections without end. Each runs in its own task until the returned future is dropped.
pub(super) async fn accept<S: Future<Output = ()> + 'static>(
    listener: TcpListener,
    mut serve: impl FnMut(TcpStream, SocketAddr) -> S,
) {
    let mut conversations = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok((stream, peer)) => drop(conversations.spawn_local(serve(stream, peer))),
                // The client closed the connection, or no file descriptor is left. The next accept
                // may succeed. The client reports its own result.
                Err(_) => tokio::task::yield_now().await,
            },
            Some(_) = conversations.join_next() => {}
        }
    }
}
