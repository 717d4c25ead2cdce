//! Runs real kube-proxies in a lab's nodes, each with its own API server.

mod log;
mod metrics;
mod proxy_wait;

use std::collections::HashMap;
use std::fs;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use serde_json::Value;
use tokio::time::Instant;

use metrics::Metrics;
use proxy_wait::ProxyWait;

use crate::lab::RunningLab;
use crate::program;
use crate::rules::restore;
use crate::runtime::failure;
use crate::sandbox::rootfs;
use svclab_apiserver::served_resources;
use svclab_model::plan::{API_ADDRESS, ApiUpdate, Backend, RealProxy, SyncTarget};
use svclab_model::protocol::{Failure, FailureKind};

/// Default address of kube-proxy's metrics (kubernetes v1.20.2,
/// `pkg/proxy/apis/config/v1alpha1/defaults.go`).
const METRICS_ADDRESS: SocketAddr =
    SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 10249);

/// Program names that kube-proxy calls and that exist for two backends.
const PROGRAM_NAMES: [&str; 6] = [
    "iptables",
    "iptables-save",
    "iptables-restore",
    "ip6tables",
    "ip6tables-save",
    "ip6tables-restore",
];

/// Number of configuration files written.
static CONFIG_COUNT: AtomicU64 = AtomicU64::new(0);

/// Starts the plan's kube-proxies and waits until each has written its rules.
///
/// # Errors
///
/// When a kube-proxy cannot be started, exits, or does not write its rules in time.
pub(crate) async fn start(lab: &mut RunningLab) -> Result<(), Failure> {
    let proxies = lab.plan.kube_proxies.clone();
    let mut start_times = Vec::new();
    for proxy in &proxies {
        let objects = lab.plan.objects.clone();
        lab.serve_api(&proxy.namespace, API_ADDRESS, objects)?;
        let path = format!("{}:{}", link_programs(proxy.backend)?, program::PATH);
        let mut arguments = proxy.arguments.clone();
        if let Some(config) = &proxy.config {
            arguments.push(format!("--config={}", write_config(proxy, config)?));
        }
        start_times.push(Instant::now());
        lab.start(
            &proxy.namespace,
            &program_name(proxy),
            &proxy.program,
            &arguments,
            &path,
        )?;
    }
    for (proxy, started) in proxies.iter().zip(start_times) {
        let waits = ProxyWait::new(started, lab, proxy)?;
        let synced = waits.wait_until_written(|metrics| metrics.has_synced(proxy.sync_target));
        let synced_ms = u64::try_from(synced.await?.as_millis()).unwrap_or(u64::MAX);
        lab.synced_ms.insert(proxy.namespace.clone(), synced_ms);
    }
    Ok(())
}

/// Metrics of each kube-proxy before a step, and whether its objects contained a marker, by node.
pub(crate) type MetricsBefore = HashMap<String, (Metrics, bool)>;

/// Waits until every kube-proxy is idle and returns its metrics. Returns nothing if the step has no
/// object update.
///
/// # Errors
///
/// When a kube-proxy has exited or does not become idle in time.
pub(crate) async fn wait_until_idle(
    lab: &RunningLab,
    update: Option<&ApiUpdate>,
) -> Result<MetricsBefore, Failure> {
    let mut before = MetricsBefore::new();
    if update.is_none() {
        return Ok(before);
    }
    for proxy in &lab.plan.kube_proxies {
        let waits = ProxyWait::new(Instant::now(), lab, proxy)?;
        let metrics = waits.wait_until(Metrics::is_idle).await?;
        before.insert(proxy.namespace.clone(), (metrics, waits.is_marked()));
    }
    Ok(before)
}

/// Replaces the objects of every API server.
pub(crate) fn update_objects(lab: &mut RunningLab, objects: &[Value]) -> Result<(), Failure> {
    let names: Vec<String> = lab
        .plan
        .kube_proxies
        .iter()
        .map(|proxy| proxy.namespace.clone())
        .collect();
    for namespace in names {
        lab.serve_api(&namespace, API_ADDRESS, objects.to_vec())?;
    }
    Ok(())
}

/// Waits until every kube-proxy has written rules for its new objects.
///
/// # Errors
///
/// When a kube-proxy has exited, does not write its rules in time, or cannot write them.
pub(crate) async fn wait_until_applied(
    lab: &RunningLab,
    update: &ApiUpdate,
    before: &MetricsBefore,
) -> Result<(), Failure> {
    for proxy in &lab.plan.kube_proxies {
        let Some((before, was_marked)) = before.get(&proxy.namespace) else {
            continue;
        };
        let target = update.sync_targets.get(&proxy.namespace).copied();
        let mut target = target.unwrap_or_default();
        if *was_marked {
            // The marker is deleted, because the new objects do not contain it.
            target.endpoints += 1;
        } else if target == SyncTarget::default() {
            continue;
        }
        let waits = ProxyWait::new(Instant::now(), lab, proxy)?;
        let applied = waits.wait_until_written(|metrics| metrics.has_applied(before, target));
        applied.await?;
    }
    Ok(())
}

/// Returns the output of each kube-proxy, by name.
///
/// # Errors
///
/// When a kube-proxy has exited.
pub(crate) fn outputs(lab: &RunningLab) -> Result<impl Iterator<Item = (String, String)>, Failure> {
    let mut outputs = Vec::new();
    for proxy in &lab.plan.kube_proxies {
        let running = lab.program_status(&program_name(proxy))?;
        if let Some(how) = &running.ended {
            let remedy = "rebuild the lab: no program updates the rules of this node any more";
            return Err(proxy_failure(
                lab,
                proxy,
                how,
                &running.output,
                remedy.to_owned(),
            ));
        }
        outputs.push((program_name(proxy), running.output));
    }
    Ok(outputs.into_iter())
}

/// Returns the name of a kube-proxy among the lab's programs.
fn program_name(proxy: &RealProxy) -> String {
    format!("kube-proxy of {}", proxy.namespace)
}

/// Returns the failure of a kube-proxy that exited before it had written its rules.
fn exited(lab: &RunningLab, proxy: &RealProxy, end: &str, output: &str) -> Failure {
    let remedy = remedy(
        lab,
        proxy,
        "give the path of a kube-proxy and flags that it supports",
    );
    proxy_failure(lab, proxy, end, output, remedy)
}

/// Returns the failure of a kube-proxy, with the requests that its API server refused and the end
/// of its output.
fn proxy_failure(
    lab: &RunningLab,
    proxy: &RealProxy,
    problem: &str,
    output: &str,
    remedy: String,
) -> Failure {
    let refused_text = match refused_requests(lab, proxy) {
        Some(refused) => format!("; its API server refused:\n{refused}"),
        None => "; ".to_owned(),
    };
    Failure {
        kind: FailureKind::KubeProxy,
        message: format!(
            "the kube-proxy of {} ({}) {problem}{refused_text}last output:\n{}",
            proxy.namespace,
            proxy.program,
            log::relevant_end(output)
        ),
        remedy: Some(remedy),
        rejected: None,
    }
}

/// Returns the remedy for a kube-proxy that does not write its rules. Refused requests are the most
/// likely reason.
fn remedy(lab: &RunningLab, proxy: &RealProxy, otherwise: &str) -> String {
    if refused_requests(lab, proxy).is_none() {
        return otherwise.to_owned();
    }
    let served: Vec<&str> = served_resources().collect();
    format!(
        "use flags or a kube-proxy without these requests: labs serve {}, and accept events",
        served.join(", ")
    )
}

/// Returns the requests that a kube-proxy's API server refused, one per line; `None` if there are
/// none.
fn refused_requests(lab: &RunningLab, proxy: &RealProxy) -> Option<String> {
    let (mut lines, mut omitted) = (Vec::new(), 0_u64);
    for api in lab.apis(&proxy.namespace) {
        let refusals = api.refusals();
        omitted = omitted.saturating_add(refusals.missed());
        for each in refusals.requests() {
            if lines.len() < log::MAX_LINES {
                lines.push(format!("  {each} ({})\n", each.describe_count()));
            } else {
                omitted = omitted.saturating_add(each.times);
            }
        }
    }
    match omitted {
        0 => {}
        1 => lines.push("  and 1 more request\n".to_owned()),
        more => lines.push(format!("  and {more} more requests\n")),
    }
    (!lines.is_empty()).then(|| lines.concat())
}

/// Writes a configuration file and returns its path.
fn write_config(proxy: &RealProxy, config: &str) -> Result<String, Failure> {
    // Labs of one agent may have nodes with the same name.
    let number = CONFIG_COUNT.fetch_add(1, Ordering::Relaxed);
    let path = format!("/run/kube-proxy-{number}.json");
    fs::write(&path, config).map_err(|error| {
        let node = &proxy.namespace;
        failure::host(
            format!("cannot write the configuration of the kube-proxy of {node}: {error}"),
            &error,
        )
    })?;
    Ok(path)
}

/// Creates the directory in which the iptables programs of a backend have the names that kube-proxy
/// calls. Programs that send a table in one message are replaced by [`restore`].
fn link_programs(backend: Backend) -> Result<String, Failure> {
    let directory = PathBuf::from(format!("/run/iptables-{}", backend.name()));
    let result = fs::create_dir_all(&directory).and_then(|()| {
        let named = PROGRAM_NAMES
            .iter()
            .map(|name| (*name, backend_program(name, backend)));
        named
            .chain([("nft", "nft".to_owned())])
            .try_for_each(|(name, program)| link_program(&directory, name, &program))
    });
    result.map_err(|error| {
        failure::host(
            format!(
                "cannot create links to the iptables programs in {}: {error}",
                directory.display()
            ),
            &error,
        )
    })?;
    Ok(directory.to_string_lossy().into_owned())
}

/// Returns the program name for a backend.
fn backend_program(name: &str, backend: Backend) -> String {
    match name.split_once('-') {
        Some((family, verb)) => format!("{family}-{}-{verb}", backend.name()),
        None => format!("{name}-{}", backend.name()),
    }
}

fn link_program(directory: &Path, name: &str, program: &str) -> io::Result<()> {
    // The caller of a missing program reports the error.
    let Some(found) = program::find(program) else {
        return Ok(());
    };
    let found = if restore::NAMES.contains(&(name, program)) && restore::is_installed() {
        PathBuf::from(rootfs::AGENT_PATH)
    } else {
        found
    };
    match symlink(found, directory.join(name)) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(error),
        _ => Ok(()),
    }
}
