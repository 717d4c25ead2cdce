//! Reads a kube-proxy's metrics: its syncs, the received changes, and its failures.
//!
//! The names are those of `pkg/proxy/metrics/metrics.go`. v1.16 to v1.30 have no IP family label;
//! v1.36 labels all metrics except the counts of changes.

use super::METRICS;
use crate::health::connect;
use crate::netns::NetNs;
use std::io;
use svclab_model::plan::Heard;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

/// Number of syncs, including failed ones: a `defer` observes it (v1.16 to v1.36).
const SYNCS: &str = "kubeproxy_sync_proxy_rules_duration_seconds_count";

/// Number of received changes, and of changes not yet processed by a sync. kube-proxy starts its
/// first sync when all objects were read, but before all were passed on (`Run` of
/// `pkg/proxy/config/config.go`, v1.20.2). Its first sync may lack some objects.
const SERVICES: [&str; 2] = [
    "kubeproxy_sync_proxy_rules_service_changes_total",
    "kubeproxy_sync_proxy_rules_service_changes_pending",
];
const ENDPOINTS: [&str; 2] = [
    "kubeproxy_sync_proxy_rules_endpoint_changes_total",
    "kubeproxy_sync_proxy_rules_endpoint_changes_pending",
];

/// Time of the last request for a sync, and of the last successful sync, in seconds since the
/// epoch.
const QUEUED: &str = "kubeproxy_sync_proxy_rules_last_queued_timestamp_seconds";
const DONE: &str = "kubeproxy_sync_proxy_rules_last_timestamp_seconds";

/// Number of endpoint changes with a trigger time whose rules were written. kube-proxy observes it
/// in every mode only after the rules were accepted (`syncProxyRules` of
/// `pkg/proxy/{iptables,ipvs,nftables}/proxier.go`, v1.16 to v1.36).
const PROGRAMMED: &str = "kubeproxy_network_programming_duration_seconds_count";

/// Numbers of failed syncs. The first exists since v1.16; the second since v1.30 or v1.31. Other
/// failure counters do not mean a failed sync. A failed partial restore (since v1.26) is also
/// counted in the first metric, and a full restore follows. A failed cleanup of stale nftables
/// chains leaves chains that no rule jumps to.
const FAILURES: [&str; 2] = [
    "kubeproxy_sync_proxy_rules_iptables_restore_failures_total",
    "kubeproxy_sync_proxy_rules_nftables_sync_failures_total",
];

/// Label of the IP family that labs have no addresses of.
const IPV6: &str = "ip_family=\"IPv6\"";

/// Metrics at one time.
#[derive(Debug, Clone, Default)]
pub struct Metrics(String);

impl Metrics {
    /// Reads the metrics of the kube-proxy in a namespace.
    pub async fn read(ns: &NetNs) -> io::Result<Self> {
        let mut stream = connect(ns, METRICS, None).await?;
        // An HTTP/1.1 response would be chunked, with chunk lengths inside of lines.
        let request = "GET /metrics HTTP/1.0\r\n\r\n";
        stream.write_all(request.as_bytes()).await?;
        let mut response = Vec::new();
        stream.read_to_end(&mut response).await?;
        Ok(Self(String::from_utf8_lossy(&response).into_owned()))
    }

    /// Returns the number of IPv4 syncs, or of all syncs without IP family labels.
    pub fn syncs(&self) -> u64 {
        self.ipv4(SYNCS).sum()
    }

    /// Returns the number of received service changes, which count once per IP family.
    pub fn services(&self) -> u64 {
        self.counts(SERVICES[0]).max().unwrap_or(0)
    }

    /// Returns the number of received endpoint changes.
    pub fn endpoints(&self) -> u64 {
        self.counts(ENDPOINTS[0]).max().unwrap_or(0)
    }

    /// Returns the number of changes with a trigger time whose rules were written.
    pub fn programmed(&self) -> u64 {
        self.ipv4(PROGRAMMED).sum()
    }

    /// Returns the number of failed IPv4 syncs.
    pub fn failures(&self) -> u64 {
        FAILURES.iter().flat_map(|name| self.ipv4(name)).sum()
    }

    /// Whether the expected changes were received since `before`, and a sync ended since.
    pub fn has_acted(&self, before: &Self, hears: Heard) -> bool {
        // For a version that does not count changes, the changes count as received.
        let has_received = |name, now: u64, then: u64, changes: u64| {
            self.counts(name).next().is_none() || now >= then.saturating_add(changes)
        };
        let (services, endpoints) = (before.services(), before.endpoints());
        // A change of endpoints of one IP family causes only a sync of that family.
        self.syncs() > before.syncs()
            && has_received(
                SERVICES[0],
                self.services(),
                services,
                hears.services.saturating_mul(self.families()),
            )
            && has_received(ENDPOINTS[0], self.endpoints(), endpoints, hears.endpoints)
            && self.nothing_pending()
    }

    /// Whether all objects were received, and every IP family was synced.
    pub fn has_synced(&self, hears: Heard) -> bool {
        self.counts(SYNCS).min().is_some_and(|fewest| fewest > 0)
            && self.has_acted(&Self::default(), hears)
    }

    /// Whether no sync is due: no change is pending, and a sync has succeeded since the last
    /// request.
    pub fn is_idle(&self) -> bool {
        let is_done = match (self.last(QUEUED), self.last(DONE)) {
            (Some(queued), Some(done)) => done >= queued,
            _ => true,
        };
        self.nothing_pending() && is_done
    }

    /// Whether the last IPv4 sync succeeded, as far as this kube-proxy counts failures.
    /// `complaints` is the number of failed syncs in its log.
    pub fn last_sync_succeeded(&self, complaints: u64) -> bool {
        let succeeded = match (self.last(QUEUED), self.last(DONE)) {
            (_, None) => true,
            (queued, Some(done)) => done > 0.0 && queued.is_none_or(|queued| done >= queued),
        };
        succeeded && self.syncs() > self.failures().max(complaints)
    }

    /// Whether every received change was processed by a sync.
    pub fn nothing_pending(&self) -> bool {
        [SERVICES[1], ENDPOINTS[1]]
            .into_iter()
            .all(|name| self.counts(name).all(|pending| pending == 0))
    }

    /// Returns the number of IP families with separate syncs. Each family counts every service
    /// change.
    fn families(&self) -> u64 {
        let labelled = self
            .lines(QUEUED)
            .filter(|(labels, _)| labels.contains("ip_family="));
        u64::try_from(labelled.count().max(1)).unwrap_or(1)
    }

    /// Returns the latest of these times, for IPv4 if the families are labelled.
    fn last(&self, name: &str) -> Option<f64> {
        let lines = self
            .lines(name)
            .filter(|(labels, _)| !labels.contains(IPV6));
        lines.map(|(_, time)| time).reduce(f64::max)
    }

    fn counts<'m>(&'m self, name: &'m str) -> impl Iterator<Item = u64> + 'm {
        self.lines(name).map(|(_, value)| count(value))
    }

    fn ipv4<'m>(&'m self, name: &'m str) -> impl Iterator<Item = u64> + 'm {
        let lines = self
            .lines(name)
            .filter(|(labels, _)| !labels.contains(IPV6));
        lines.map(|(_, value)| count(value))
    }

    /// Returns the labels and values of a metric.
    fn lines<'m>(&'m self, name: &'m str) -> impl Iterator<Item = (&'m str, f64)> + 'm {
        self.0.lines().filter_map(move |line| {
            let rest = line.strip_prefix(name)?;
            let (labels, value) = rest.rsplit_once(' ')?;
            (labels.is_empty() || labels.starts_with('{'))
                .then(|| Some((labels, value.parse().ok()?)))?
        })
    }
}

/// Converts a count, which kube-proxy prints with an exponent if it is large.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a count is a whole number, and a conversion of others saturates"
)]
fn count(value: f64) -> u64 {
    value as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn metrics(text: &str) -> Metrics {
        Metrics(text.to_owned())
    }

    #[test]
    fn metrics_each_family_synced_is_required() {
        let synced = |text: String| metrics(&text).has_synced(Heard::default());
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
    fn metrics_each_change_received_is_required() {
        let hears = Heard {
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
            metrics(&text).has_synced(hears)
        };
        assert!(synced("2", 0, 1, "") && synced("1e+06", 0, 2, ""));
        assert!(!synced("1", 0, 1, "") && !synced("2", 1, 1, "") && !synced("2", 0, 0, ""));
        // Both families count each service.
        let both = "kubeproxy_sync_proxy_rules_last_queued_timestamp_seconds{ip_family=\"IPv4\"} 1\n\
                    kubeproxy_sync_proxy_rules_last_queued_timestamp_seconds{ip_family=\"IPv6\"} 1\n";
        assert!(!synced("3", 0, 1, both) && synced("4", 0, 1, both));
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
