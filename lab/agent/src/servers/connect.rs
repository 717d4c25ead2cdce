//! Connects from inside a namespace.

use std::io;
use std::net::SocketAddr;

use nix::errno::Errno;
use socket2::{Domain, Socket, Type};
use tokio::net::TcpStream;

use crate::net::netns::NetNs;

/// Connects to `target`, from the address `source` if there is one. Calls `on_start` with the own
/// address of the connection before the other end answers.
pub(crate) async fn connect(
    ns: &NetNs,
    target: SocketAddr,
    source: Option<SocketAddr>,
    on_start: impl FnOnce(SocketAddr),
) -> io::Result<TcpStream> {
    let kind = Type::STREAM.nonblocking().cloexec();
    let socket = ns.enter(|| Socket::new(Domain::for_address(target), kind, None))??;
    if let Some(from) = source {
        socket.bind(&from.into())?;
    }
    let started = socket.connect(&target.into());
    if let Some(own) = socket.local_addr()?.as_socket() {
        on_start(own);
    }
    match started {
        Err(error) if error.raw_os_error() != Some(Errno::EINPROGRESS as i32) => return Err(error),
        _ => {}
    }
    let stream = TcpStream::from_std(socket.into())?;
    stream.writable().await?;
    match stream.take_error()? {
        Some(error) => Err(error),
        None => Ok(stream),
    }
}
