//! Runs the health checks of a load balancer over real connections. Real servers receive no new
//! connections while their check fails.

use std::collections::HashMap;
use std::io;
use std::net::SocketAddr;
use std::rc::Rc;

use futures_util::future::try_join_all;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::task::JoinSet;

use crate::net::ipvs;
use crate::net::netns::NetNs;
use crate::runtime::failure;
use crate::runtime::max_wait::within;
use crate::runtime::process_clock::ClockGuard;
use crate::servers::connect::connect;
use svclab_model::plan::HealthCheck;
use svclab_model::plan::health::HealthRequest;
use svclab_model::protocol::{BackendHealthChange, Failure};

/// Maximum number of bytes read of a response.
const MAX_RESPONSE_BYTES: u64 = 256;

/// Ratio of the response time limit to the check interval. A busy host must not count as an
/// unhealthy backend.
const TIMEOUT_FACTOR: u32 = 5;

/// Checks every backend once, applies the results, and continues the checks in `tasks`. Calls
/// `on_change` for every later change of a result, after the change is applied.
///
/// # Errors
///
/// When a namespace is missing, or IPVS rejects a change.
pub(crate) async fn start_checks(
    checks: &[HealthCheck],
    namespaces: &HashMap<String, NetNs>,
    on_change: &Rc<dyn Fn(BackendHealthChange)>,
    tasks: &mut JoinSet<()>,
) -> Result<(), Failure> {
    let mut prepared = Vec::new();
    for check in checks {
        let ns = namespaces.get(&check.namespace).ok_or_else(|| {
            failure::bug(format!(
                "cannot run a health check in {}: the plan has no such namespace",
                check.namespace
            ))
        })?;
        prepared.push((ns.clone(), Rc::new(check.clone())));
    }
    let first = try_join_all(prepared.iter().map(|(ns, check)| async move {
        let is_healthy = is_healthy(ns, check).await;
        if !is_healthy {
            set_weights(ns, check, is_healthy)?;
        }
        Ok::<_, Failure>(is_healthy)
    }))
    .await?;
    for ((ns, check), well) in prepared.into_iter().zip(first) {
        tasks.spawn_local(run_check(ns, check, well, Rc::clone(on_change)));
    }
    Ok(())
}

async fn run_check(
    ns: NetNs,
    check: Rc<HealthCheck>,
    mut was_healthy: bool,
    on_change: Rc<dyn Fn(BackendHealthChange)>,
) {
    let running = ClockGuard::start();
    let mut last_check = running.ran();
    loop {
        let elapsed = running.ran().saturating_sub(last_check);
        running.wait(check.interval.saturating_sub(elapsed)).await;
        last_check = running.ran();
        let is_healthy = is_healthy(&ns, &check).await;
        // A rejected change is repeated with the next result.
        if is_healthy != was_healthy && set_weights(&ns, &check, is_healthy).is_ok() {
            was_healthy = is_healthy;
            on_change(BackendHealthChange {
                namespace: check.namespace.clone(),
                backend: check.backend,
                healthy: was_healthy,
            });
        }
    }
}

fn set_weights(ns: &NetNs, check: &HealthCheck, is_healthy: bool) -> Result<(), Failure> {
    ipvs::set_weights(
        ns,
        &check.namespace,
        &check.real_servers,
        u32::from(is_healthy),
    )
}

async fn is_healthy(ns: &NetNs, check: &HealthCheck) -> bool {
    let response = within(check.interval * TIMEOUT_FACTOR, run_once(ns, check)).await;
    matches!(response, Ok(Ok(true)))
}

async fn run_once(ns: &NetNs, check: &HealthCheck) -> io::Result<bool> {
    let source = check.bind.map(|bind| SocketAddr::new(bind, 0));
    let mut stream = connect(ns, check.backend, source, drop).await?;
    let HealthRequest::Get { path } = &check.request else {
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
    let mut response = Vec::new();
    stream
        .take(MAX_RESPONSE_BYTES)
        .read_to_end(&mut response)
        .await?;
    Ok(is_success(&response))
}

/// Whether a response has the status 200. The response may end inside a character.
fn is_success(response: &[u8]) -> bool {
    let mut words = response.split(u8::is_ascii_whitespace);
    words.nth(1) == Some(b"200".as_slice())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn response_cut_inside_character_is_success() {
        let whole = "HTTP/1.1 200 OK\r\n\r\nhealthy: ✓".as_bytes();
        assert!(is_success(&whole[..whole.len() - 1]));
        assert!(!is_success(b"HTTP/1.1 503 Service Unavailable\r\n\r\n200"));
        assert!(!is_success(b"HTTP/1.1"));
    }
}
