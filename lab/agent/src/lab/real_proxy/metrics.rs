//! Reads what a kube-proxy serves at its metrics address: its mode, its syncs, the received changes,
//! and its failures.
//!
//! The names are those of `pkg/proxy/metrics/metrics.go`. v1.16 to v1.30 have no IP family label;
//! v1.36 labels all metrics except the counts of changes.

use super::METRICS_ADDRESS;
use crate::net::netns::NetNs;
use crate::servers::connect::connect;
use std::io;
use svclab_model::plan::SyncTarget;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWriteExt as _};

/// Number of syncs, including failed ones: a `defer` observes it (v1.16 to v1.36).
const SYNC_COUNT: &str = "kubeproxy_sync_proxy_rules_duration_seconds_count";

/// Number of received changes, and of changes not yet processed by a sync. kube-proxy starts its
/// first sync when all objects were read, but before all were passed on (`Run` of
/// `pkg/proxy/config/config.go`, v1.20.2). Its first sync may lack some objects.
const SERVICE_CHANGES: [&str; 2] = [
    "kubeproxy_sync_proxy_rules_service_changes_total",
    "kubeproxy_sync_proxy_rules_service_changes_pending",
];
const ENDPOINT_CHANGES: [&str; 2] = [
    "kubeproxy_sync_proxy_rules_endpoint_changes_total",
    "kubeproxy_sync_proxy_rules_endpoint_changes_pending",
];

/// Time of the last request for a sync, and of the last successful sync, in seconds since the
/// epoch.
const LAST_QUEUED: &str = "kubeproxy_sync_proxy_rules_last_queued_timestamp_seconds";
const LAST_SUCCEEDED: &str = "kubeproxy_sync_proxy_rules_last_timestamp_seconds";

/// Number of endpoint changes with a trigger time whose rules were written. kube-proxy observes it
/// in every mode only after the rules were accepted (`syncProxyRules` of
/// `pkg/proxy/{iptables,ipvs,nftables}/proxier.go`, v1.16 to v1.36).
const PROGRAMMED_COUNT: &str = "kubeproxy_network_programming_duration_seconds_count";

/// Numbers of failed syncs. The first exists since v1.16; the second since v1.30 or v1.31. Other
/// failure counters do not mean a failed sync. A failed partial restore (since v1.26) is also
/// counted in the first metric, and a full restore follows. A failed cleanup of stale nftables
/// chains leaves chains that no rule jumps to.
const FAILURE_COUNTS: [&str; 2] = [
    "kubeproxy_sync_proxy_rules_iptables_restore_failures_total",
    "kubeproxy_sync_proxy_rules_nftables_sync_failures_total",
];

/// Maximum size of the metrics in bytes. Those of kube-proxy have less than 1 MB.
pub(super) const MAX_METRICS_BYTES: u64 = 4 << 20;

/// Label of the IP family that labs have no addresses of.
const IPV6: &str = "ip_family=\"IPv6\"";

/// Metrics at one time.
#[derive(Debug, Clone, Default)]
pub(crate) struct Metrics(String);

impl Metrics {
    /// Reads the metrics of the kube-proxy in a namespace.
    ///
    /// # Errors
    ///
    /// When nothing answers, or with the kind [`io::ErrorKind::FileTooLarge`], when the response
    /// exceeds [`MAX_METRICS_BYTES`].
    pub(crate) async fn read(ns: &NetNs) -> io::Result<Self> {
        Ok(Self(get(ns, "/metrics").await?))
    }

    /// Returns the number of IPv4 syncs, or of all syncs without IP family labels.
    pub(crate) fn syncs(&self) -> u64 {
        sum(self.ipv4_counts(SYNC_COUNT))
    }

    /// Returns the number of received service changes, which count once per IP family.
    pub(crate) fn services(&self) -> u64 {
        self.counts(SERVICE_CHANGES[0]).max().unwrap_or(0)
    }

    /// Returns the number of received endpoint changes.
    pub(crate) fn endpoints(&self) -> u64 {
        self.counts(ENDPOINT_CHANGES[0]).max().unwrap_or(0)
    }

    /// Returns the number of changes with a trigger time whose rules were written.
    pub(crate) fn programmed(&self) -> u64 {
        sum(self.ipv4_counts(PROGRAMMED_COUNT))
    }

    /// Returns the number of failed IPv4 syncs.
    pub(crate) fn failures(&self) -> u64 {
        sum(FAILURE_COUNTS
            .iter()
            .flat_map(|name| self.ipv4_counts(name)))
    }

    /// Whether the expected changes were received since `before`, and a sync ended since.
    pub(crate) fn has_applied(&self, before: &Self, target: SyncTarget) -> bool {
        // For a version that does not count changes, the changes count as received.
        let has_received = |name, now: u64, then: u64, changes: u64| {
            self.counts(name).next().is_none() || now >= then.saturating_add(changes)
        };
        let (services, endpoints) = (before.services(), before.endpoints());
        // A change of endpoints of one IP family causes only a sync of that family.
        self.syncs() > before.syncs()
            && has_received(
                SERVICE_CHANGES[0],
                self.services(),
                services,
                target.services.saturating_mul(self.families()),
            )
            && has_received(
                ENDPOINT_CHANGES[0],
                self.endpoints(),
                endpoints,
                target.endpoints,
            )
            && self.has_nothing_pending()
    }

    /// Whether all objects were received, and every IP family was synced.
    pub(crate) fn has_synced(&self, target: SyncTarget) -> bool {
        self.counts(SYNC_COUNT)
            .min()
            .is_some_and(|fewest| fewest > 0)
            && self.has_applied(&Self::default(), target)
    }

    /// Whether no sync is due: no change is pending, and a sync has succeeded since the last
    /// request.
    pub(crate) fn is_idle(&self) -> bool {
        let is_done = match (
            self.latest_time(LAST_QUEUED),
            self.latest_time(LAST_SUCCEEDED),
        ) {
            (Some(queued), Some(done)) => done >= queued,
            _ => true,
        };
        self.has_nothing_pending() && is_done
    }

    /// Whether the last IPv4 sync succeeded, as far as this kube-proxy counts failures.
    /// `failed_syncs` is the number of failed syncs in its log.
    pub(crate) fn last_sync_succeeded(&self, failed_syncs: u64) -> bool {
        let succeeded = match (
            self.latest_time(LAST_QUEUED),
            self.latest_time(LAST_SUCCEEDED),
        ) {
            (_, None) => true,
            (queued, Some(done)) => done > 0.0 && queued.is_none_or(|queued| done >= queued),
        };
        succeeded && self.syncs() > self.failures().max(failed_syncs)
    }

    /// Whether every received change was processed by a sync.
    pub(crate) fn has_nothing_pending(&self) -> bool {
        [SERVICE_CHANGES[1], ENDPOINT_CHANGES[1]]
            .into_iter()
            .all(|name| self.counts(name).all(|pending| pending == 0))
    }

    /// Returns the number of IP families with separate syncs. Each family counts every service
    /// change.
    fn families(&self) -> u64 {
        let labelled = self
            .samples(LAST_QUEUED)
            .filter(|(labels, _)| labels.contains("ip_family="));
        u64::try_from(labelled.count().max(1)).unwrap_or(1)
    }

    /// Returns the latest of these times, for IPv4 if the families are labelled.
    fn latest_time(&self, name: &str) -> Option<f64> {
        let lines = self
            .samples(name)
            .filter(|(labels, _)| !labels.contains(IPV6));
        lines.map(|(_, time)| time).reduce(f64::max)
    }

    fn counts<'m>(&'m self, name: &'m str) -> impl Iterator<Item = u64> + 'm {
        self.samples(name).map(|(_, value)| to_count(value))
    }

    fn ipv4_counts<'m>(&'m self, name: &'m str) -> impl Iterator<Item = u64> + 'm {
        let lines = self
            .samples(name)
            .filter(|(labels, _)| !labels.contains(IPV6));
        lines.map(|(_, value)| to_count(value))
    }

    /// Returns the labels and values of a metric.
    fn samples<'m>(&'m self, name: &'m str) -> impl Iterator<Item = (&'m str, f64)> + 'm {
        self.0.lines().filter_map(move |line| {
            let rest = line.strip_prefix(name)?;
            let (labels, value) = rest.rsplit_once(' ')?;
            (labels.is_empty() || labels.starts_with('{'))
                .then(|| Some((labels, value.parse().ok()?)))?
        })
    }
}

/// Reads the proxy mode that a kube-proxy works in, which can differ from its configuration: v1.20.2
/// falls back to iptables mode if the kernel lacks IPVS (`cmd/kube-proxy/app/server_others.go`,
/// `getProxyMode`). Returns `None` if the program does not report a mode. Every kube-proxy does
/// (`serveMetrics` of `cmd/kube-proxy/app/server.go`, v1.16 to v1.36).
pub(super) async fn read_mode(ns: &NetNs) -> io::Result<Option<String>> {
    Ok(parse_mode(&get(ns, "/proxyMode").await?))
}

fn parse_mode(response: &str) -> Option<String> {
    let (head, body) = response.split_once("\r\n\r\n")?;
    let succeeded = head.split_whitespace().nth(1) == Some("200");
    let is_word = !body.is_empty() && body.bytes().all(|byte| byte.is_ascii_lowercase());
    (succeeded && is_word).then(|| body.to_owned())
}

/// Requests a path of a kube-proxy's metrics address and returns the whole response.
async fn get(ns: &NetNs, path: &str) -> io::Result<String> {
    let mut stream = connect(ns, METRICS_ADDRESS, None, drop).await?;
    // An HTTP/1.1 response would be chunked, with chunk lengths inside of lines.
    let request = format!("GET {path} HTTP/1.0\r\n\r\n");
    stream.write_all(request.as_bytes()).await?;
    read_response(stream).await
}

/// Reads a response.
///
/// # Errors
///
/// With the kind [`io::ErrorKind::FileTooLarge`], when the response exceeds [`MAX_METRICS_BYTES`].
async fn read_response(stream: impl AsyncRead + Unpin) -> io::Result<String> {
    let mut response = Vec::new();
    let mut limited = stream.take(MAX_METRICS_BYTES + 1);
    if limited.read_to_end(&mut response).await? as u64 > MAX_METRICS_BYTES {
        return Err(io::ErrorKind::FileTooLarge.into());
    }
    Ok(String::from_utf8_lossy(&response).into_owned())
}

/// Returns the sum of counts, which a program selects.
fn sum(counts: impl Iterator<Item = u64>) -> u64 {
    counts.fold(0, u64::saturating_add)
}

/// Converts a count, which kube-proxy prints with an exponent if it is large.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "counts are whole numbers, and the conversion of other values saturates"
)]
fn to_count(value: f64) -> u64 {
    value as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn metrics(text: &str) -> Metrics {
        Metrics(text.to_owned())
    }

    #[test]
    fn metrics_family_without_sync_is_not_synced() {
        let synced = |text: String| metrics(&text).has_synced(SyncTarget::default());
        let old = "kubeproxy_sync_proxy_rules_duration_seconds_sum 0.1\n\
                   kubeproxy_sync_proxy_rules_duration_seconds_count ";
        assert!(synced(format!("{old}1\n")));
        assert!(!synced(format!("{old}0\n")));
        assert!(!synced("HTTP/1.1 200 OK\r\n\r\n".to_owned()));
        let new = "kubeproxy_sync_proxy_rules_duration_seconds_count{ip_family=\"IPv4\"} 2\n\
                   kubeproxy_sync_proxy_rules_duration_seconds_count{ip_family=\"IPv6\"} ";
        assert!(synced(format!("{new}1\n")));
        assert!(!synced(format!("{new}0\n")));
    }

    #[test]
    fn metrics_missing_change_is_not_synced() {
        let target = SyncTarget {
            services: 2,
            endpoints: 1,
        };
        let synced = |services: &str, pending: u64, endpoints: u64, queued: &str| {
            let text = format!(
                "kubeproxy_sync_proxy_rules_duration_seconds_count 1\n\
                 kubeproxy_sync_proxy_rules_service_changes_total {services}\n\
                 kubeproxy_sync_proxy_rules_service_changes_pending {pending}\n\
                 kubeproxy_sync_proxy_rules_endpoint_changes_total {endpoints}\n{queued}"
            );
            metrics(&text).has_synced(target)
        };
        assert!(synced("2", 0, 1, "") && synced("1e+06", 0, 2, ""));
        assert!(!synced("1", 0, 1, "") && !synced("2", 1, 1, "") && !synced("2", 0, 0, ""));
        // Both families count each service.
        let both = "kubeproxy_sync_proxy_rules_last_queued_timestamp_seconds{ip_family=\"IPv4\"} 1\n\
                    kubeproxy_sync_proxy_rules_last_queued_timestamp_seconds{ip_family=\"IPv6\"} 1\n";
        assert!(!synced("3", 0, 1, both) && synced("4", 0, 1, both));
    }

    #[tokio::test]
    async fn metrics_endless_response_returns_error() {
        let error = read_response(tokio::io::repeat(b'a')).await;
        assert_eq!(error.unwrap_err().kind(), io::ErrorKind::FileTooLarge);
    }

    #[test]
    fn parse_mode_other_response_is_none() {
        for (response, expected) in [
            ("HTTP/1.0 200 OK\r\nA: b\r\n\r\nipvs", Some("ipvs")),
            ("HTTP/1.0 404 Not Found\r\n\r\nipvs", None),
            ("HTTP/1.0 200 OK\r\n\r\n", None),
            ("HTTP/1.0 200 OK\r\n\r\na_metric 1\n", None),
            ("ipvs", None),
        ] {
            assert_eq!(parse_mode(response).as_deref(), expected, "{response}");
        }
    }

    #[test]
    fn metrics_sum_of_largest_counts_saturates() {
        for name in [SYNC_COUNT, PROGRAMMED_COUNT, FAILURE_COUNTS[0]] {
            let text = format!("{name}{{a=\"1\"}} 1e300\n{name}{{a=\"2\"}} 1e300\n");
            let metrics = metrics(&text);
            let counts = [metrics.syncs(), metrics.programmed(), metrics.failures()];
            assert_eq!(counts.into_iter().max(), Some(u64::MAX), "{name}");
        }
    }

    #[test]
    fn metrics_failed_sync_is_not_a_success() {
        let succeeded = |text: &str| metrics(text).last_sync_succeeded(0);
        let syncs = "kubeproxy_sync_proxy_rules_duration_seconds_count";
        let restore = "kubeproxy_sync_proxy_rules_iptables_restore_failures_total";
        let nftables = "kubeproxy_sync_proxy_rules_nftables_sync_failures_total";
        assert!(succeeded(&format!("{syncs} 1\n{restore} 0\n")));
        assert!(!succeeded(&format!("{syncs} 1\n{restore} 1\n")));
        assert!(!succeeded(&format!(
            "{syncs}{{ip_family=\"IPv4\"}} 1\n{syncs}{{ip_family=\"IPv6\"}} 1\n\
             {nftables}{{ip_family=\"IPv4\"}} 1\n"
        )));
        // The retry succeeded.
        assert!(succeeded(&format!("{syncs} 2\n{restore} 1\n")));
        assert!(!metrics(&format!("{syncs} 1\n")).last_sync_succeeded(1));
        let times = |queued: &str, done: &str| {
            let name = "kubeproxy_sync_proxy_rules_last";
            format!(
                "{syncs} 2\n{name}_queued_timestamp_seconds {queued}\n{name}_timestamp_seconds {done}\n"
            )
        };
        assert!(succeeded(&times("1.7e+09", "1.700000001e+09")));
        assert!(!succeeded(&times("1.7e+09", "0")));
        assert!(!succeeded(&times("1.700000001e+09", "1.7e+09")));
    }
}
