//! Real kube-proxies in a lab's nodes, each with an API server beside it.

use std::collections::HashMap;
use std::fs;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::Value;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::time::{Instant, sleep, timeout};

use super::health::connect;
use super::lab::Lab;
use super::netns::NetNs;
use super::{failure, program};
use crate::apiserver::served;
use crate::plan::{API, Backend, Heard, RealProxy, Told};
use crate::protocol::{Failure, Fault};

/// Where it tells how often it has written rules, unless it is told otherwise
/// (kubernetes v1.20.2, `pkg/proxy/apis/config/v1alpha1/defaults.go`).
const METRICS: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 10249);

/// Counts how often it has written rules, once in each IP family it writes
/// (`pkg/proxy/metrics/metrics.go`, v1.20.2).
const WRITTEN: &str = "kubeproxy_sync_proxy_rules_duration_seconds_count";

/// Count the objects that it has heard of, and those that it has heard of and not
/// written yet. It begins to write when the objects were read, not when each was handed
/// on (`Run` of `pkg/proxy/config/config.go`, v1.20.2), so what it wrote first may lack
/// some. Versions that count no such thing are believed.
const SERVICES: [&str; 2] = [
    "kubeproxy_sync_proxy_rules_service_changes_total",
    "kubeproxy_sync_proxy_rules_service_changes_pending",
];
const ENDPOINTS: [&str; 2] = [
    "kubeproxy_sync_proxy_rules_endpoint_changes_total",
    "kubeproxy_sync_proxy_rules_endpoint_changes_pending",
];

/// When it was last asked to write rules, and when it last had, in seconds since the epoch
/// (`pkg/proxy/metrics/metrics.go`, v1.20.2).
const QUEUED: &str = "kubeproxy_sync_proxy_rules_last_queued_timestamp_seconds";
const DONE: &str = "kubeproxy_sync_proxy_rules_last_timestamp_seconds";

/// How long it is left alone before it is asked again: it tells nobody by itself.
const PAUSE: Duration = Duration::from_millis(20);

/// How much of what it said last is told, in lines.
const LAST: usize = 12;

/// The names by which it calls programs that there are two kinds of.
const NAMES: [&str; 6] = [
    "iptables",
    "iptables-save",
    "iptables-restore",
    "ip6tables",
    "ip6tables-save",
    "ip6tables-restore",
];

/// Starts the plan's kube-proxies, and waits until each has written its rules.
///
/// # Errors
///
/// When one cannot be started, ends, or does not come to it.
pub async fn start(lab: &mut Lab) -> Result<(), Failure> {
    let proxies = lab.plan.proxies.clone();
    let mut begun = Vec::new();
    for proxy in &proxies {
        let objects = lab.plan.objects.clone();
        lab.serve(&proxy.namespace, API, objects)?;
        let path = format!("{}:{}", names(proxy.backend)?, program::PATH);
        let (own, words) = (&proxy.program, &proxy.arguments);
        begun.push(Instant::now());
        lab.start(&proxy.namespace, &name(proxy), own, words, &path)?;
    }
    for (proxy, begun) in proxies.iter().zip(begun) {
        until(lab, proxy, |metrics| has_written(metrics, proxy.hears)).await?;
        let took = u64::try_from(begun.elapsed().as_millis()).unwrap_or(u64::MAX);
        lab.synced_ms.insert(proxy.namespace.clone(), took);
    }
    Ok(())
}

/// What each kube-proxy counted before it is told anything else, by its node.
pub type Before = HashMap<String, Counted>;

/// What a kube-proxy counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counted {
    /// How often it has written rules, in the family in which it did so least.
    written: u64,
    /// Of how many changes of services it has heard, and of endpoints.
    services: u64,
    endpoints: u64,
}

impl Counted {
    fn of(metrics: &str) -> Self {
        let most = |name| counts(metrics, name).max().unwrap_or(0);
        Self {
            written: counts(metrics, WRITTEN).min().unwrap_or(0),
            services: most(SERVICES[0]),
            endpoints: most(ENDPOINTS[0]),
        }
    }
}

/// Waits until each kube-proxy has nothing to do any more and says what it has counted by
/// then; nothing if they are told of nothing.
///
/// # Errors
///
/// When one has ended, or does not come to it.
pub async fn before(lab: &Lab, told: Option<&Told>) -> Result<Before, Failure> {
    let mut before = Before::new();
    if told.is_none() {
        return Ok(before);
    }
    for proxy in &lab.plan.proxies {
        let metrics = until(lab, proxy, is_idle).await?;
        before.insert(proxy.namespace.clone(), Counted::of(&metrics));
    }
    Ok(before)
}

/// Gives every API server these objects.
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

/// Waits until each kube-proxy has heard of what it was told and has acted on it.
///
/// # Errors
///
/// As [`before`].
pub async fn heard(lab: &Lab, told: &Told, before: &Before) -> Result<(), Failure> {
    for proxy in &lab.plan.proxies {
        let hears = told
            .hears
            .get(&proxy.namespace)
            .copied()
            .unwrap_or_default();
        if hears == Heard::default() {
            continue;
        }
        let before = before.get(&proxy.namespace).copied().unwrap_or_default();
        until(lab, proxy, |metrics| has_acted(metrics, before, hears)).await?;
    }
    Ok(())
}

/// Whether it has heard of so many changes more, and has written rules since.
fn has_acted(metrics: &str, before: Counted, hears: Heard) -> bool {
    let counted = Counted::of(metrics);
    // What it does not count is nought at both times.
    let has_heard = |now: u64, then: u64, of: u64, name| {
        counts(metrics, name).next().is_none() || now >= then.saturating_add(of)
    };
    counted.written > before.written
        && has_heard(
            counted.services,
            before.services,
            hears.services,
            SERVICES[0],
        )
        && has_heard(
            counted.endpoints,
            before.endpoints,
            hears.endpoints,
            ENDPOINTS[0],
        )
        && is_idle(metrics)
}

/// Whether it has nothing to do: nothing that it has heard of is not written, and it has
/// written since it was last asked to.
fn is_idle(metrics: &str) -> bool {
    let pending = |name| counts(metrics, name).all(|count| count == 0);
    let last = |name| times(metrics, name).reduce(f64::max);
    let is_done = match (last(QUEUED), last(DONE)) {
        (Some(queued), Some(done)) => done >= queued,
        _ => true,
    };
    pending(SERVICES[1]) && pending(ENDPOINTS[1]) && is_done
}

/// Says of each kube-proxy what it said, by node.
///
/// # Errors
///
/// When one has ended.
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

/// How it is called among the lab's programs.
fn name(proxy: &RealProxy) -> String {
    format!("kube-proxy of {}", proxy.namespace)
}

/// Waits until what a kube-proxy says of itself is so, and returns it.
async fn until(
    lab: &Lab,
    proxy: &RealProxy,
    is_so: impl Fn(&str) -> bool,
) -> Result<String, Failure> {
    let ns = lab.namespace(&proxy.namespace)?;
    let begun = Instant::now();
    loop {
        let running = lab.look(&name(proxy))?;
        if let Some(how) = &running.ended {
            return Err(ended(lab, proxy, how, &running.said));
        }
        if let Ok(Ok(text)) = timeout(proxy.within, metrics(ns)).await
            && is_so(&text)
        {
            return Ok(text);
        }
        if begun.elapsed() > proxy.within {
            let how = format!("it wrote no rules within {} s", proxy.within.as_secs());
            let otherwise = "see what it waits for; it must be a kube-proxy that serves its metrics \
                          on 127.0.0.1:10249";
            let remedy = self::remedy(lab, proxy, otherwise);
            return Err(failed(lab, proxy, &how, &running.said, remedy));
        }
        sleep(PAUSE).await;
    }
}

/// What it says of itself.
async fn metrics(ns: &NetNs) -> io::Result<String> {
    let mut stream = connect(ns, METRICS, None).await?;
    let question = format!("GET /metrics HTTP/1.1\r\nHost: {METRICS}\r\nConnection: close\r\n\r\n");
    stream.write_all(question.as_bytes()).await?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).await?;
    Ok(String::from_utf8_lossy(&answer).into_owned())
}

/// Whether it has heard of all that there is, and has written it in every family of
/// which it counts that.
fn has_written(metrics: &str, hears: Heard) -> bool {
    let mut written = counts(metrics, WRITTEN).peekable();
    written.peek().is_some()
        && written.all(|count| count > 0)
        && [(SERVICES, hears.services), (ENDPOINTS, hears.endpoints)]
            .into_iter()
            .all(|([total, pending], all)| {
                counts(metrics, total).all(|count| count >= all)
                    && counts(metrics, pending).all(|count| count == 0)
            })
}

/// The values of a count, whatever it is of.
fn counts<'m>(metrics: &'m str, name: &'m str) -> impl Iterator<Item = u64> + 'm {
    metrics.lines().filter_map(move |line| {
        let rest = line.strip_prefix(name)?;
        // Small numbers are written without an exponent.
        rest.starts_with([' ', '{'])
            .then(|| rest.rsplit(' ').next()?.parse().ok())?
    })
}

/// The values of a time; those that never came are nought.
fn times<'m>(metrics: &'m str, name: &'m str) -> impl Iterator<Item = f64> + 'm {
    metrics.lines().filter_map(move |line| {
        let rest = line.strip_prefix(name)?;
        rest.starts_with([' ', '{'])
            .then(|| rest.rsplit(' ').next()?.parse().ok())?
    })
}

/// It has ended, in that way, before it had written rules.
fn ended(lab: &Lab, proxy: &RealProxy, how: &str, said: &str) -> Failure {
    let remedy = remedy(
        lab,
        proxy,
        "give the path of a kube-proxy, and flags that it knows",
    );
    failed(lab, proxy, how, said, remedy)
}

/// What became of a kube-proxy, with what it was refused and what it said last.
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
            last(said)
        ),
        remedy: Some(remedy),
        rejected: None,
    }
}

/// What to do about one that does not come to write rules: if it was refused something,
/// that is likelier the reason than another.
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

/// What a kube-proxy's API server refused, a line each; nothing if it served all.
fn refused(lab: &Lab, proxy: &RealProxy) -> Option<String> {
    let (mut lines, mut others) = (Vec::new(), 0_u64);
    for api in lab.apis(&proxy.namespace) {
        let refusals = api.refusals();
        others = others.saturating_add(refusals.left_out());
        for each in refusals.kept() {
            if lines.len() < LAST {
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

/// The last lines of what a program said; where it complained before them, its last
/// complaints instead, such as of a flag, which it follows up with all that it knows.
fn last(said: &str) -> String {
    let lines: Vec<&str> = said.lines().collect();
    let (before, end) = lines.split_at(lines.len().saturating_sub(LAST));
    let complaints: Vec<&str> = before
        .iter()
        .copied()
        .filter(|line| is_complaint(line))
        .collect();
    if complaints.is_empty() || end.iter().any(|line| is_complaint(line)) {
        return end.join("\n");
    }
    complaints[complaints.len().saturating_sub(LAST)..].join("\n")
}

/// Whether a line tells of an error: of the flags' library, of Go, or of the log, whose
/// lines begin with their severity and a date.
fn is_complaint(line: &str) -> bool {
    let mut rest = line.chars();
    let severe = matches!(rest.next(), Some('E' | 'F'));
    let dated = rest.take(4).filter(char::is_ascii_digit).count() == 4;
    severe && dated
        || ["Error:", "error:", "panic:", "fatal error:"]
            .iter()
            .any(|begin| line.starts_with(begin))
}

/// The directory in which iptables of that kind bears the names that everybody calls.
fn names(backend: Backend) -> Result<String, Failure> {
    let directory = PathBuf::from(format!("/run/iptables-{}", backend.word()));
    let made = fs::create_dir_all(&directory).and_then(|()| {
        NAMES
            .iter()
            .try_for_each(|name| link(&directory, name, backend))
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

fn link(directory: &Path, name: &str, backend: Backend) -> io::Result<()> {
    let own = match name.split_once('-') {
        Some((family, verb)) => format!("{family}-{}-{verb}", backend.word()),
        None => format!("{name}-{}", backend.word()),
    };
    // What is not there is missed by whoever calls it.
    let Some(found) = program::find(&own) else {
        return Ok(());
    };
    match symlink(found, directory.join(name)) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(error),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kube_proxy_has_written_when_every_family_has() {
        let written = |metrics: String| has_written(&metrics, Heard::default());
        let old = "kubeproxy_sync_proxy_rules_duration_seconds_sum 0.1\n\
                   kubeproxy_sync_proxy_rules_duration_seconds_count ";
        assert!(written(format!("{old}1\n")));
        assert!(!written(format!("{old}0\n")));
        assert!(!written("HTTP/1.1 200 OK\r\n\r\n".to_owned()));
        let new = "kubeproxy_sync_proxy_rules_duration_seconds_count{ip_family=\"IPv4\"} 2\n\
                   kubeproxy_sync_proxy_rules_duration_seconds_count{ip_family=\"IPv6\"} ";
        assert!(written(format!("{new}1\n")));
        assert!(!written(format!("{new}0\n")));
    }

    #[test]
    fn it_has_written_all_when_it_has_heard_of_all() {
        let hears = Heard {
            services: 2,
            endpoints: 1,
        };
        let written = |services: u64, pending: u64, endpoints: u64| {
            let metrics = format!(
                "kubeproxy_sync_proxy_rules_duration_seconds_count 1\n\
                 kubeproxy_sync_proxy_rules_service_changes_total {services}\n\
                 kubeproxy_sync_proxy_rules_service_changes_pending {pending}\n\
                 kubeproxy_sync_proxy_rules_endpoint_changes_total {endpoints}\n"
            );
            has_written(&metrics, hears)
        };
        assert!(written(2, 0, 1) && written(3, 0, 2));
        assert!(!written(1, 0, 1) && !written(2, 1, 1) && !written(2, 0, 0));
    }

    #[test]
    fn a_complaint_before_a_long_text_is_told() {
        let usage = "  --flag\n".repeat(50);
        let told = last(&format!(
            "W1122 09:00:00 a\nError: unknown flag: --x\n{usage}"
        ));
        assert_eq!(told, "Error: unknown flag: --x");
        let told = last(&format!(
            "E1122 09:00:00.1 1 a.go:2] no\n{usage}panic: over\n"
        ));
        assert_eq!(told.lines().last(), Some("panic: over"));
        assert_eq!(told.lines().count(), LAST);
    }

    #[test]
    fn only_the_last_lines_are_told() {
        let told = last(&("first\n".repeat(38) + "then\n" + &"last\n".repeat(11)));
        assert_eq!(told.lines().next(), Some("then"));
        assert_eq!(told.lines().count(), LAST);
    }
}
