//! Runs real kube-proxies in a lab's nodes, each with its own API server.

mod log;
pub(super) mod marker;
mod metrics;
mod waits;

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
use waits::Waits;

use super::lab::Lab;
use super::{failure, program, restore};
use svclab_apiserver::served;
use svclab_model::plan::{API, Backend, Heard, RealProxy, Told};
use svclab_model::protocol::{Failure, Fault};

/// Default address of kube-proxy's metrics (kubernetes v1.20.2,
/// `pkg/proxy/apis/config/v1alpha1/defaults.go`).
const METRICS: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 10249);

/// Program names that kube-proxy calls and that exist for two backends.
const NAMES: [&str; 6] = [
    "iptables",
    "iptables-save",
    "iptables-restore",
    "ip6tables",
    "ip6tables-save",
    "ip6tables-restore",
];

/// Number of configuration files written.
static CONFIGS: AtomicU64 = AtomicU64::new(0);

/// Starts the plan's kube-proxies and waits until each has written its rules.
///
/// # Errors
///
/// When a kube-proxy cannot be started, exits, or does not write its rules in time.
pub async fn start(lab: &mut Lab) -> Result<(), Failure> {
    let proxies = lab.plan.proxies.clone();
    let mut begun = Vec::new();
    for proxy in &proxies {
        let objects = lab.plan.objects.clone();
        lab.serve(&proxy.namespace, API, objects)?;
        let path = format!("{}:{}", names(proxy.backend)?, program::PATH);
        let mut words = proxy.arguments.clone();
        if let Some(config) = &proxy.config {
            words.push(format!("--config={}", written_config(proxy, config)?));
        }
        begun.push(Instant::now());
        lab.start(
            &proxy.namespace,
            &name(proxy),
            &proxy.program,
            &words,
            &path,
        )?;
    }
    for (proxy, begun) in proxies.iter().zip(begun) {
        let waits = Waits::since(begun, lab, proxy)?;
        let synced = waits.written(|metrics| metrics.has_synced(proxy.hears));
        let took = u64::try_from(synced.await?.as_millis()).unwrap_or(u64::MAX);
        lab.synced_ms.insert(proxy.namespace.clone(), took);
    }
    Ok(())
}

/// Metrics of each kube-proxy before a step, and whether its objects contained a marker, by node.
pub type Before = HashMap<String, (Metrics, bool)>;

/// Waits until every kube-proxy is idle and returns its metrics. Returns nothing if the step has no
/// object update.
///
/// # Errors
///
/// When a kube-proxy has exited or does not become idle in time.
pub async fn before(lab: &Lab, told: Option<&Told>) -> Result<Before, Failure> {
    let mut before = Before::new();
    if told.is_none() {
        return Ok(before);
    }
    for proxy in &lab.plan.proxies {
        let waits = Waits::since(Instant::now(), lab, proxy)?;
        let metrics = waits.until(Metrics::is_idle).await?;
        before.insert(proxy.namespace.clone(), (metrics, waits.is_marked()));
    }
    Ok(before)
}

/// Replaces the objects of every API server.
///
/// # Errors
///
/// When an object cannot be served.
pub fn tell(lab: &mut Lab, objects: &[Value]) -> Result<(), Failure> {
    let names: Vec<String> = lab
        .plan
        .proxies
        .iter()
        .map(|proxy| proxy.namespace.clone())
        .collect();
    for namespace in names {
        lab.serve(&namespace, API, objects.to_vec())?;
    }
    Ok(())
}

/// Waits until every kube-proxy has written rules for its new objects.
///
/// # Errors
///
/// When a kube-proxy has exited, does not write its rules in time, or cannot write them.
pub async fn heard(lab: &Lab, told: &Told, before: &Before) -> Result<(), Failure> {
    for proxy in &lab.plan.proxies {
        let Some((before, was_marked)) = before.get(&proxy.namespace) else {
            continue;
        };
        let hears = told.hears.get(&proxy.namespace).copied();
        let mut hears = hears.unwrap_or_default();
        if *was_marked {
            // The marker is deleted, because the new objects do not contain it.
            hears.endpoints += 1;
        } else if hears == Heard::default() {
            continue;
        }
        let waits = Waits::since(Instant::now(), lab, proxy)?;
        let acted = waits.written(|metrics| metrics.has_acted(before, hears));
        acted.await?;
    }
    Ok(())
}

/// Returns the output of each kube-proxy, by name.
///
/// # Errors
///
/// When a kube-proxy has exited.
pub fn said(lab: &Lab) -> Result<impl Iterator<Item = (String, String)>, Failure> {
    let mut all = Vec::new();
    for proxy in &lab.plan.proxies {
        let running = lab.look(&name(proxy))?;
        if let Some(how) = &running.ended {
            let remedy = "build the lab anew: what it would write, nobody writes any more";
            return Err(failed(lab, proxy, how, &running.said, remedy.to_owned()));
        }
        all.push((name(proxy), running.said));
    }
    Ok(all.into_iter())
}

/// Returns the name of a kube-proxy among the lab's programs.
fn name(proxy: &RealProxy) -> String {
    format!("kube-proxy of {}", proxy.namespace)
}

/// Returns the failure of a kube-proxy that exited before it had written its rules.
fn ended(lab: &Lab, proxy: &RealProxy, how: &str, said: &str) -> Failure {
    let remedy = remedy(
        lab,
        proxy,
        "give the path of a kube-proxy, and flags that it knows",
    );
    failed(lab, proxy, how, said, remedy)
}

/// Returns the failure of a kube-proxy, with the requests that its API server refused and the end
/// of its output.
fn failed(lab: &Lab, proxy: &RealProxy, how: &str, said: &str, remedy: String) -> Failure {
    let refused = match refused(lab, proxy) {
        Some(refused) => format!("; its API server refused\n{refused}"),
        None => "; ".to_owned(),
    };
    Failure {
        fault: Fault::Input,
        message: format!(
            "the kube-proxy of {} ({}): {how}{refused}it said last:\n{}",
            proxy.namespace,
            proxy.program,
            log::last(said)
        ),
        remedy: Some(remedy),
        rejected: None,
    }
}

/// Returns the remedy for a kube-proxy that does not write its rules. Refused requests are the most
/// likely reason.
fn remedy(lab: &Lab, proxy: &RealProxy, otherwise: &str) -> String {
    if refused(lab, proxy).is_none() {
        return otherwise.to_owned();
    }
    let served: Vec<&str> = served().collect();
    format!(
        "have it do without that, or give a kube-proxy that does: labs serve {}, and take events",
        served.join(", ")
    )
}

/// Returns the requests that a kube-proxy's API server refused, one per line; `None` if there are
/// none.
fn refused(lab: &Lab, proxy: &RealProxy) -> Option<String> {
    let (mut lines, mut others) = (Vec::new(), 0_u64);
    for api in lab.apis(&proxy.namespace) {
        let refusals = api.refusals();
        others = others.saturating_add(refusals.left_out());
        for each in refusals.kept() {
            if lines.len() < log::LAST {
                lines.push(format!("  {each} ({})\n", each.how_often()));
            } else {
                others = others.saturating_add(each.times);
            }
        }
    }
    match others {
        0 => {}
        1 => lines.push("  and 1 request more\n".to_owned()),
        more => lines.push(format!("  and {more} requests more\n")),
    }
    (!lines.is_empty()).then(|| lines.concat())
}

/// Writes a configuration file and returns its path.
fn written_config(proxy: &RealProxy, config: &str) -> Result<String, Failure> {
    // Labs of one agent may have nodes with the same name.
    let number = CONFIGS.fetch_add(1, Ordering::Relaxed);
    let path = format!("/run/kube-proxy-{number}.json");
    fs::write(&path, config).map_err(|error| {
        let node = &proxy.namespace;
        failure::machine(
            format!("cannot write the configuration of the kube-proxy of {node}: {error}"),
            &error,
        )
    })?;
    Ok(path)
}

/// Creates the directory in which the iptables programs of a backend have the names that kube-proxy
/// calls. Programs that send a table in one message are replaced by [`restore`].
fn names(backend: Backend) -> Result<String, Failure> {
    let directory = PathBuf::from(format!("/run/iptables-{}", backend.word()));
    let made = fs::create_dir_all(&directory).and_then(|()| {
        let named = NAMES.iter().map(|name| (*name, called(name, backend)));
        named
            .chain([("nft", "nft".to_owned())])
            .try_for_each(|(name, program)| link(&directory, name, &program))
    });
    made.map_err(|error| {
        failure::machine(
            format!(
                "cannot give iptables its usual names in {}: {error}",
                directory.display()
            ),
            &error,
        )
    })?;
    Ok(directory.to_string_lossy().into_owned())
}

/// Returns the program name for a backend.
fn called(name: &str, backend: Backend) -> String {
    match name.split_once('-') {
        Some((family, verb)) => format!("{family}-{}-{verb}", backend.word()),
        None => format!("{name}-{}", backend.word()),
    }
}

fn link(directory: &Path, name: &str, program: &str) -> io::Result<()> {
    // The caller of a missing program reports the error.
    let Some(found) = program::find(program) else {
        return Ok(());
    };
    let found = if restore::NAMES.contains(&(name, program)) && restore::is_there() {
        PathBuf::from(restore::PATH)
    } else {
        found
    };
    match symlink(found, directory.join(name)) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(error),
        _ => Ok(()),
    }
}
