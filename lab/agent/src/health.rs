//! Runs the health checks of a load balancer over real connections. Real servers receive no new
//! connections while their check fails.

use std::collections::HashMap;
use std::io;
use std::net::SocketAddr;
use std::rc::Rc;

use futures_util::future::try_join_all;
use socket2::{Domain, Socket, Type};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};
use tokio::task::JoinSet;

use super::netns::NetNs;
use super::patience::within;
use super::pulse::Running;
use super::{failure, ipvs};
use svclab_model::plan::HealthCheck;
use svclab_model::plan::health::Question;
use svclab_model::protocol::{Failure, Turn};

/// Maximum number of bytes read of a response.
const LONGEST: u64 = 256;

/// Ratio of the response time limit to the check interval. A busy host must not count as an
/// unhealthy backend.
const PATIENCE: u32 = 5;

/// Checks every backend once, applies the results, and continues the checks in `tasks`. Calls
/// `turned` for every later change of a result, after the change is applied.
///
/// # Errors
///
/// When a namespace is missing, or IPVS rejects a change.
pub async fn begin(
    checks: &[HealthCheck],
    namespaces: &HashMap<String, NetNs>,
    turned: &Rc<dyn Fn(Turn)>,
    tasks: &mut JoinSet<()>,
) -> Result<(), Failure> {
    let mut begun = Vec::new();
    for check in checks {
        let ns = namespaces.get(&check.namespace).ok_or_else(|| {
            failure::bug(format!(
                "a health check asks from {}, which the plan has not got",
                check.namespace
            ))
        })?;
        begun.push((ns.clone(), Rc::new(check.clone())));
    }
    let first = try_join_all(begun.iter().map(|(ns, check)| async move {
        let well = is_well(ns, check).await;
        if !well {
            weigh(ns, check, well).await?;
        }
        Ok::<_, Failure>(well)
    }))
    .await?;
    for ((ns, check), well) in begun.into_iter().zip(first) {
        tasks.spawn_local(go_on(ns, check, well, Rc::clone(turned)));
    }
    Ok(())
}

async fn go_on(ns: NetNs, check: Rc<HealthCheck>, mut well: bool, turned: Rc<dyn Fn(Turn)>) {
    let running = Running::begin();
    let mut last = running.ran();
    loop {
        let since = running.ran().saturating_sub(last);
        running.wait(check.every.saturating_sub(since)).await;
        last = running.ran();
        let now = is_well(&ns, &check).await;
        // A rejected change is repeated with the next result.
        if now != well && weigh(&ns, &check, now).await.is_ok() {
            well = now;
            turned(Turn {
                namespace: check.namespace.clone(),
                backend: check.backend,
                well,
            });
        }
    }
}

async fn weigh(ns: &NetNs, check: &HealthCheck, well: bool) -> Result<(), Failure> {
    ipvs::weigh(ns, &check.namespace, &check.guards, u32::from(well)).await
}

async fn is_well(ns: &NetNs, check: &HealthCheck) -> bool {
    let asked = within(check.every * PATIENCE, ask(ns, check)).await;
    matches!(asked, Ok(Ok(true)))
}

async fn ask(ns: &NetNs, check: &HealthCheck) -> io::Result<bool> {
    let mut stream = connect(
        ns,
        check.backend,
        check.bind.map(|bind| SocketAddr::new(bind, 0)),
    )
    .await?;
    let Question::Get { path } = &check.question else {
        return Ok(true);
    };
    stream
        .write_all(
            format!(
                "GET {path} HTTP/1.1\r\nHost: {}\r\nConnection: close\r\n\r\n",
                check.backend
            )
            .as_bytes(),
        )
        .await?;
    let mut answer = String::new();
    stream.take(LONGEST).read_to_string(&mut answer).await?;
    Ok(answer.split_whitespace().nth(1) == Some("200"))
}

/// Connects from inside a namespace.
///
/// # Errors
///
/// When the network or the kernel rejects the connection.
pub async fn connect(
    ns: &NetNs,
    to: SocketAddr,
    from: Option<SocketAddr>,
) -> io::Result<TcpStream> {
    let socket = ns.enter(|| {
        Socket::new(
            Domain::for_address(to),
            Type::STREAM.nonblocking().cloexec(),
            None,
        )
    })??;
    if let Some(from) = from {
        socket.bind(&from.into())?;
    }
    TcpSocket::from_std_stream(socket.into()).connect(to).await
}
