//! Waits until a kube-proxy has written rules for all its objects.
//!
//! The counts of syncs are not sufficient: they include failed syncs, and changes that arrive
//! during a sync are written by the next sync. The counts of pending changes are shared by the IP
//! families, each of which clears them (v1.21 to v1.36). Therefore the agent sends a
//! [`crate::servers::marker`] once kube-proxy has received everything else. The sync that processes the
//! marker starts later, and kube-proxy counts the marker if that sync succeeds.

use std::io;
use std::time::Duration;

use tokio::time::{Instant, sleep, timeout};

use super::log;
use super::metrics::{self, MAX_METRICS_BYTES, Metrics};
use super::{exited, program_name, proxy_failure, remedy};
use crate::lab::RunningLab;
use crate::net::netns::NetNs;
use crate::program::background::BackgroundProgram;
use crate::runtime::failure;
use crate::servers::api::{Api, EndpointRequests};
use svclab_model::plan::{API_ADDRESS, RealProxy};
use svclab_model::protocol::Failure;

/// Interval between reads of the metrics. kube-proxy does not notify its clients of a sync.
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// Maximum number of consecutive failed syncs. kube-proxy retries only after its sync period, which
/// is 1 hour in a lab; each marker triggers a retry.
const MAX_FAILED_SYNCS: u32 = 3;

/// Time limit for a client that listed endpoints to watch them.
const WATCH_TIMEOUT: Duration = Duration::from_secs(2);

/// Time limit for a program without marker support to recover from a failed sync.
const RECOVERY_TIMEOUT: Duration = Duration::from_secs(20);

/// Result of a marker.
enum MarkerResult {
    Written,
    /// More services arrived during the sync.
    Late,
    Failed,
}

/// Wait for one kube-proxy.
pub(super) struct ProxyWait<'l> {
    lab: &'l RunningLab,
    proxy: &'l RealProxy,
    ns: &'l NetNs,
    started: Instant,
}

impl<'l> ProxyWait<'l> {
    /// Starts to wait for `proxy`. Times count from `started`.
    ///
    /// # Errors
    ///
    /// When the namespace of its node does not exist.
    pub(super) fn new(
        started: Instant,
        lab: &'l RunningLab,
        proxy: &'l RealProxy,
    ) -> Result<Self, Failure> {
        let ns = lab.recorded_namespace(&proxy.namespace)?;
        Ok(Self {
            lab,
            proxy,
            ns,
            started,
        })
    }

    /// Whether the kube-proxy's objects contain a marker.
    pub(super) fn is_marked(&self) -> bool {
        self.api().is_some_and(Api::is_marked)
    }

    /// Waits until the metrics satisfy `is_satisfied` and returns them.
    ///
    /// # Errors
    ///
    /// When the kube-proxy exits or exceeds its time limit.
    pub(super) async fn wait_until(
        &self,
        is_satisfied: impl Fn(&Metrics) -> bool,
    ) -> Result<Metrics, Failure> {
        loop {
            if let Some(metrics) = self.read().await?
                && is_satisfied(&metrics)
            {
                return Ok(metrics);
            }
        }
    }

    /// Waits until rules for all objects are written. All objects are received when the metrics
    /// satisfy `received`. Returns the time until the objects were received.
    ///
    /// # Errors
    ///
    /// When the kube-proxy exits, exceeds its time limit, has not requested the objects of its
    /// rules, works in another mode than that of the lab, or cannot write its rules.
    pub(super) async fn wait_until_written(
        &self,
        received: impl Fn(&Metrics) -> bool,
    ) -> Result<Duration, Failure> {
        self.wait_until(&received).await?;
        let receive_time = self.started.elapsed();
        self.check_requests()?;
        self.check_mode().await?;
        if self.supports_markers().await {
            self.wait_for_marker().await?;
        } else {
            self.wait_for_success(received).await?;
        }
        Ok(receive_time)
    }

    /// Checks that the program requested the objects that every kube-proxy needs for its rules.
    fn check_requests(&self) -> Result<(), Failure> {
        let missing = self.api().map(Api::unrequested_kinds).unwrap_or_default();
        if missing.is_empty() {
            return Ok(());
        }
        let problem = format!(
            "reports that it has written rules, but has not requested the {} from its API server",
            missing.join(" and the ")
        );
        let remedy = "give the path of a kube-proxy, without flags that select another API server";
        let (lab, proxy) = (self.lab, self.proxy);
        let output = lab.program_status(&program_name(proxy))?.output;
        let remedy = remedy.to_owned();
        Err(proxy_failure(lab, proxy, &problem, &output, remedy))
    }

    /// Checks that the kube-proxy works in the lab's mode, if it reports one.
    async fn check_mode(&self) -> Result<(), Failure> {
        let (lab, proxy) = (self.lab, self.proxy);
        let expected = proxy.mode.to_string();
        let reported = timeout(proxy.sync_timeout, metrics::read_mode(self.ns)).await;
        let reported = reported.ok().and_then(Result::ok).flatten();
        let Some(mode) = reported.filter(|mode| *mode != expected) else {
            return Ok(());
        };
        let problem = format!("works in {mode} mode instead of {expected} mode");
        let remedy = format!("find the cause in its log, or select {mode} mode in the lab");
        let output = lab.program_status(&program_name(proxy))?.output;
        Err(proxy_failure(lab, proxy, &problem, &output, remedy))
    }

    /// Whether the program watches endpoints, as every kube-proxy does.
    async fn supports_markers(&self) -> bool {
        match self.api() {
            Some(api) => api.endpoint_requests(WATCH_TIMEOUT).await == EndpointRequests::Watched,
            None => false,
        }
    }

    async fn wait_for_marker(&self) -> Result<(), Failure> {
        let mut failures = 0;
        loop {
            match self.send_marker().await? {
                MarkerResult::Written => return Ok(()),
                MarkerResult::Late => {}
                MarkerResult::Failed => failures += 1,
            }
            if failures == MAX_FAILED_SYNCS {
                return Err(self.cannot_write(&format!("its last {MAX_FAILED_SYNCS} syncs failed")));
            }
        }
    }

    /// Sends a marker and waits for the end of the sync that processes the marker.
    async fn send_marker(&self) -> Result<MarkerResult, Failure> {
        let before = self.wait_until(|_| true).await?;
        let name = program_name(self.proxy);
        let daemon = self.lab.background_program(&name);
        let printed = daemon.map_or(0, BackgroundProgram::printed_bytes);
        let log = || {
            daemon
                .map(|daemon| daemon.printed_since(printed))
                .unwrap_or_default()
        };
        let api = self
            .api()
            .ok_or_else(|| failure::bug(format!("no API for {name}")))?;
        api.put_marker()?;
        let (mut written, mut failed) = (false, false);
        loop {
            let Some(metrics) = self.read().await? else {
                continue;
            };
            if metrics.programmed() > before.programmed() {
                // A second read ensures that all earlier output was read too.
                if !std::mem::replace(&mut written, true) {
                    continue;
                }
                return Ok(if log::has_skipped_objects(&log()) {
                    MarkerResult::Failed
                } else if metrics.services() == before.services() {
                    MarkerResult::Written
                } else {
                    MarkerResult::Late
                });
            }
            // Metrics read during a sync may be inconsistent, so that a failure must appear twice.
            let failed_before =
                std::mem::replace(&mut failed, has_failed_sync(&metrics, &before, &log()));
            if failed_before && failed {
                return Ok(MarkerResult::Failed);
            }
        }
    }

    /// Waits until the metrics and the log show a successful sync, for a program without marker
    /// support.
    async fn wait_for_success(&self, received: impl Fn(&Metrics) -> bool) -> Result<(), Failure> {
        let mut last_change = (0, Instant::now());
        loop {
            let Some(metrics) = self.read().await? else {
                continue;
            };
            let log = self.lab.program_status(&program_name(self.proxy))?.output;
            let failed = log::failed_syncs(&log);
            let succeeded = metrics.last_sync_succeeded(failed) && !log::has_skipped_objects(&log);
            if received(&metrics) && succeeded {
                return Ok(());
            }
            if last_change.0 != metrics.syncs() {
                last_change = (metrics.syncs(), Instant::now());
            }
            let has_failed = metrics.failures().max(failed) > 0 || log::has_skipped_objects(&log);
            if has_failed && last_change.1.elapsed() > RECOVERY_TIMEOUT {
                return Err(self.cannot_write("its last sync failed"));
            }
        }
    }

    /// Reads the metrics and pauses. Returns `None` if the program does not serve its metrics yet.
    async fn read(&self) -> Result<Option<Metrics>, Failure> {
        let running = self.lab.program_status(&program_name(self.proxy))?;
        if let Some(how) = &running.ended {
            return Err(exited(self.lab, self.proxy, how, &running.output));
        }
        let time_limit = self.proxy.sync_timeout;
        let metrics = timeout(time_limit, Metrics::read(self.ns)).await;
        if self.started.elapsed() > time_limit {
            let problem = format!("wrote no rules within {} s", time_limit.as_secs());
            let otherwise = "find in its output what it waits for; the program must be a \
                          kube-proxy that serves its metrics on 127.0.0.1:10249";
            let remedy = remedy(self.lab, self.proxy, otherwise);
            return Err(proxy_failure(
                self.lab,
                self.proxy,
                &problem,
                &running.output,
                remedy,
            ));
        }
        if let Ok(Err(error)) = &metrics
            && error.kind() == io::ErrorKind::FileTooLarge
        {
            let problem = format!(
                "serves more than {} MiB of metrics",
                MAX_METRICS_BYTES >> 20
            );
            let remedy = "the program must be a kube-proxy".to_owned();
            let (lab, proxy) = (self.lab, self.proxy);
            return Err(proxy_failure(lab, proxy, &problem, &running.output, remedy));
        }
        sleep(POLL_INTERVAL).await;
        Ok(metrics.ok().and_then(Result::ok))
    }

    fn cannot_write(&self, reason: &str) -> Failure {
        let log = self
            .lab
            .program_status(&program_name(self.proxy))
            .map(|running| running.output);
        let problem = format!("cannot write its rules: {reason}");
        let otherwise =
            "find the cause in its log; the rules of this node do not match its objects";
        let remedy = remedy(self.lab, self.proxy, otherwise);
        proxy_failure(
            self.lab,
            self.proxy,
            &problem,
            &log.unwrap_or_default(),
            remedy,
        )
    }

    fn api(&self) -> Option<&'l Api> {
        self.lab.api(&self.proxy.namespace, API_ADDRESS)
    }
}

/// Whether a sync that processed all endpoints ended since `before` and failed.
fn has_failed_sync(metrics: &Metrics, before: &Metrics, log: &str) -> bool {
    metrics.endpoints() > before.endpoints()
        && metrics.has_nothing_pending()
        && metrics.syncs() > before.syncs()
        && (metrics.failures() > before.failures() || log::has_error(log))
}
