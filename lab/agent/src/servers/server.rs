//! Implements the lab's servers. A server answers with its name and the client address that it
//! sees.

use std::collections::HashMap;
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::AsRawFd;
use std::rc::Rc;

use netlink_packet_route::AddressFamily;
use socket2::{Domain, Socket, Type};
use tokio::io::AsyncWriteExt as _;
use tokio::io::unix::AsyncFd;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

use crate::net::netlink::links;
use crate::net::netns::NetNs;
use crate::runtime::{failure, poll};
use crate::servers::accept::accept;
use crate::servers::payload::{self, PayloadRequest};
use crate::servers::{answers, forwarder, pktinfo, service_health};
use svclab_model::plan::{Plan, ProbeProtocol, Server, ServerKind};
use svclab_model::protocol::{Failure, FailureKind};

/// Maximum number of connections that wait for `accept`. A probe may open thousands in parallel.
const BACKLOG: i32 = 4096;

/// Opens a server of a plan in its namespace. Dropping the returned tasks stops the server.
///
/// # Errors
///
/// When the plan lacks the namespace, or the port is in use.
pub(crate) fn open_for_plan(
    plan: &Plan,
    namespaces: &HashMap<String, NetNs>,
    server_plan: &Server,
) -> Result<JoinSet<()>, Failure> {
    let (Some(ns), Some(namespace)) = (
        namespaces.get(&server_plan.namespace),
        plan.namespace(&server_plan.namespace),
    ) else {
        return Err(failure::bug(format!(
            "cannot start {} in {}: the plan has no such namespace",
            server_plan.name, server_plan.namespace
        )));
    };
    let mut tasks = JoinSet::new();
    open_sockets(
        ns,
        server_plan,
        links::has_address_of(namespace, AddressFamily::Inet6),
        &mut tasks,
    )?;
    Ok(tasks)
}

/// Opens a server's sockets in its namespace and serves them in `tasks`.
fn open_sockets(
    ns: &NetNs,
    server: &Server,
    speaks_v6: bool,
    tasks: &mut JoinSet<()>,
) -> Result<(), Failure> {
    let addresses = match server.address {
        Some(address) => vec![address],
        None if speaks_v6 => vec![Ipv4Addr::UNSPECIFIED.into(), Ipv6Addr::UNSPECIFIED.into()],
        None => vec![Ipv4Addr::UNSPECIFIED.into()],
    };
    for address in addresses {
        let socket_address = SocketAddr::new(address, server.port);
        let failure = |error: &io::Error| cannot_open(server, socket_address, error);
        let socket = ns
            .enter(|| bind(server.protocol, socket_address))
            .and_then(|bound| bound)
            .map_err(|error| failure(&error))?;
        match (server.protocol, &server.kind) {
            (_, ServerKind::ListenOnly) => {
                tasks.spawn_local(async move {
                    let _socket = socket;
                    std::future::pending::<()>().await;
                });
            }
            (ProbeProtocol::Tcp, kind) => {
                let listener =
                    TcpListener::from_std(socket.into()).map_err(|error| failure(&error))?;
                listen(listener, ns, server, kind, tasks);
            }
            (ProbeProtocol::Udp, ServerKind::Identify) => {
                let socket = poll::register(socket).map_err(|error| failure(&error))?;
                tasks.spawn_local(answer_datagrams(socket, Rc::from(server.name.as_str())));
            }
            (ProbeProtocol::Udp | ProbeProtocol::Ping, _) => {
                return Err(failure::bug(format!(
                    "the plan has a {} server of a kind that does not exist",
                    server.protocol
                )));
            }
        }
    }
    Ok(())
}

/// Serves TCP connections.
fn listen(
    listener: TcpListener,
    ns: &NetNs,
    server: &Server,
    kind: &ServerKind,
    tasks: &mut JoinSet<()>,
) {
    match kind {
        ServerKind::Identify | ServerKind::ListenOnly => {
            let name: Rc<str> = Rc::from(server.name.as_str());
            tasks.spawn_local(accept(listener, move |stream, peer| {
                answer_requests(stream, peer, Rc::clone(&name))
            }));
        }
        ServerKind::Health {
            service,
            local_endpoints,
        } => {
            tasks.spawn_local(service_health::serve(
                listener,
                service.clone(),
                *local_endpoints,
            ));
        }
        ServerKind::L7Proxy {
            backends,
            retry_after,
        } => {
            tasks.spawn_local(forwarder::serve(
                listener,
                ns.clone(),
                backends.clone(),
                *retry_after,
            ));
        }
    }
}

/// Opens a TCP or UDP socket on an address in the namespace of the calling thread.
pub(super) fn bind(protocol: ProbeProtocol, address: SocketAddr) -> io::Result<Socket> {
    let kind = if protocol == ProbeProtocol::Udp {
        Type::DGRAM
    } else {
        Type::STREAM
    };
    let socket = Socket::new(
        Domain::for_address(address),
        kind.nonblocking().cloexec(),
        None,
    )?;
    if address.is_ipv6() {
        socket.set_only_v6(true)?;
    }
    socket.set_reuse_address(true)?;
    socket.bind(&address.into())?;
    if protocol == ProbeProtocol::Udp {
        pktinfo::enable(&socket, address.ip())?;
    } else {
        socket.listen(BACKLOG)?;
    }
    Ok(socket)
}

/// Reads a request before each answer, so that the verdict "connected" proves data in both
/// directions.
async fn answer_requests(mut stream: TcpStream, peer: SocketAddr, name: Rc<str>) {
    while let Ok(Some(request)) = PayloadRequest::read(&mut stream).await {
        let written = request
            .answer(&mut stream, &answers::record(&name, peer))
            .await;
        if written.is_err() || !request.keep_open {
            let _ = stream.shutdown().await;
            return;
        }
    }
}

async fn answer_datagrams(socket: AsyncFd<Socket>, name: Rc<str>) {
    loop {
        let Ok(mut ready) = socket.readable().await else {
            return;
        };
        // The answer leaves from the destination address of the request, as from a correctly
        // configured server. A server with a wrong source address would be a separate incident.
        let received = ready.try_io(|socket| pktinfo::receive(socket.as_raw_fd()));
        if let Ok(Ok(request)) = received {
            let answer = payload::padded(answers::record(&name, request.source), request.bytes);
            let _ = pktinfo::send(
                socket.as_raw_fd(),
                &answer,
                request.source,
                request.destination,
            );
        }
    }
}

fn cannot_open(server: &Server, address: SocketAddr, error: &io::Error) -> Failure {
    let message = format!(
        "cannot serve {} on {address} in {}: {error}",
        server.name, server.namespace
    );
    if error.raw_os_error() == Some(nix::errno::Errno::EADDRINUSE as i32) {
        return Failure {
            kind: FailureKind::Input,
            message,
            remedy: Some(
                "use different ports: pods that share a network namespace cannot serve the same \
                 port"
                    .to_owned(),
            ),
            rejected: None,
        };
    }
    failure::host(message, error)
}
