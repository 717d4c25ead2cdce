//! Waits until a kube-proxy has written rules for all its objects.
//!
//! The counts of syncs are not sufficient: they include failed syncs, and changes that arrive
//! during a sync are written by the next sync. The counts of pending changes are shared by the IP
//! families, each of which clears them (v1.21 to v1.36). Therefore the agent sends a [`marker`]
//! once kube-proxy has received everything else. The sync that processes the marker starts later,
//! and kube-proxy counts the marker if that sync succeeds.

use std::time::Duration;

use tokio::time::{Instant, sleep, timeout};

use super::log;
use super::metrics::Metrics;
use super::{ended, failed, name, remedy};
use crate::api::{Api, Interest};
use crate::daemon::Daemon;
use crate::failure;
use crate::lab::Lab;
use crate::netns::NetNs;
use svclab_model::plan::{API, RealProxy};
use svclab_model::protocol::Failure;

/// Interval between reads of the metrics.
const PAUSE: Duration = Duration::from_millis(20);

/// Maximum number of consecutive failed syncs. kube-proxy retries only after its sync period, which
/// is 1 hour in a lab; each marker triggers a retry.
const TRIES: u32 = 3;

/// Time limit for a client that listed endpoints to watch them.
const WATCHES: Duration = Duration::from_secs(2);

/// Time limit for a program without marker support to recover from a failed sync.
const GIVES_UP: Duration = Duration::from_secs(20);

/// Result of a marker.
enum Shown {
    Written,
    /// More services arrived during the sync.
    Late,
    Failed,
}

/// Wait for one kube-proxy.
pub struct Waits<'l> {
    lab: &'l Lab,
    proxy: &'l RealProxy,
    ns: &'l NetNs,
    begun: Instant,
}

impl<'l> Waits<'l> {
    /// Starts to wait for `proxy`. Times count from `begun`.
    ///
    /// # Errors
    ///
    /// When the namespace of its node does not exist.
    pub fn since(begun: Instant, lab: &'l Lab, proxy: &'l RealProxy) -> Result<Self, Failure> {
        let ns = lab.namespace(&proxy.namespace)?;
        Ok(Self {
            lab,
            proxy,
            ns,
            begun,
        })
    }

    /// Whether the kube-proxy's objects contain a marker.
    pub fn is_marked(&self) -> bool {
        self.api().is_some_and(Api::is_marked)
    }

    /// Waits until the metrics satisfy `is_so` and returns them.
    ///
    /// # Errors
    ///
    /// When the kube-proxy exits or exceeds its time limit.
    pub async fn until(&self, is_so: impl Fn(&Metrics) -> bool) -> Result<Metrics, Failure> {
        loop {
            if let Some(metrics) = self.read().await?
                && is_so(&metrics)
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
    /// When the kube-proxy exits, exceeds its time limit, or cannot write its rules.
    pub async fn written(&self, received: impl Fn(&Metrics) -> bool) -> Result<Duration, Failure> {
        self.until(&received).await?;
        let took = self.begun.elapsed();
        if self.takes_markers().await {
            self.takes_up_a_marker().await?;
        } else {
            self.has_succeeded(received).await?;
        }
        Ok(took)
    }

    /// Whether the program watches endpoints, as every kube-proxy does.
    async fn takes_markers(&self) -> bool {
        let listed = Instant::now();
        loop {
            match self.api().map_or(Interest::None, Api::endpoints) {
                Interest::Watched => return true,
                Interest::Listed if listed.elapsed() < WATCHES => sleep(PAUSE).await,
                Interest::None | Interest::Listed => return false,
            }
        }
    }

    async fn takes_up_a_marker(&self) -> Result<(), Failure> {
        let mut failures = 0;
        loop {
            match self.mark().await? {
                Shown::Written => return Ok(()),
                Shown::Late => {}
                Shown::Failed => failures += 1,
            }
            if failures == TRIES {
                return Err(self.cannot_write(&format!("its last {TRIES} syncs failed")));
            }
        }
    }

    /// Sends a marker and waits for the end of the sync that processes the marker.
    async fn mark(&self) -> Result<Shown, Failure> {
        let before = self.until(|_| true).await?;
        let name = name(self.proxy);
        let daemon = self.lab.daemon(&name);
        let printed = daemon.map_or(0, Daemon::printed);
        let log = || {
            daemon
                .map(|daemon| daemon.printed_since(printed))
                .unwrap_or_default()
        };
        let api = self
            .api()
            .ok_or_else(|| failure::bug(format!("no API for {name}")))?;
        api.mark()?;
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
                return Ok(if log::has_left_out(&log()) {
                    Shown::Failed
                } else if metrics.services() == before.services() {
                    Shown::Written
                } else {
                    Shown::Late
                });
            }
            // Metrics read during a sync may be inconsistent, so that a failure must appear twice.
            let was = std::mem::replace(&mut failed, has_failed(&metrics, &before, &log()));
            if was && failed {
                return Ok(Shown::Failed);
            }
        }
    }

    /// Waits until the metrics and the log show a successful sync, for a program without marker
    /// support.
    async fn has_succeeded(&self, received: impl Fn(&Metrics) -> bool) -> Result<(), Failure> {
        let mut last = (0, Instant::now());
        loop {
            let Some(metrics) = self.read().await? else {
                continue;
            };
            let log = self.lab.look(&name(self.proxy))?.said;
            let failed = log::failed_syncs(&log);
            let succeeded = metrics.last_sync_succeeded(failed) && !log::has_left_out(&log);
            if received(&metrics) && succeeded {
                return Ok(());
            }
            if last.0 != metrics.syncs() {
                last = (metrics.syncs(), Instant::now());
            }
            let has_failed = metrics.failures().max(failed) > 0 || log::has_left_out(&log);
            if has_failed && last.1.elapsed() > GIVES_UP {
                return Err(self.cannot_write("its last sync failed"));
            }
        }
    }

    /// Reads the metrics and pauses. Returns `None` if the program does not serve its metrics yet.
    async fn read(&self) -> Result<Option<Metrics>, Failure> {
        let running = self.lab.look(&name(self.proxy))?;
        if let Some(how) = &running.ended {
            return Err(ended(self.lab, self.proxy, how, &running.said));
        }
        let within = self.proxy.within;
        let metrics = timeout(within, Metrics::read(self.ns)).await;
        if let Ok(Ok(metrics)) = metrics
            && self.begun.elapsed() <= within
        {
            sleep(PAUSE).await;
            return Ok(Some(metrics));
        }
        if self.begun.elapsed() > within {
            let how = format!("it wrote no rules within {} s", within.as_secs());
            let otherwise = "see what it waits for; it must be a kube-proxy that serves its metrics \
                          on 127.0.0.1:10249";
            let remedy = remedy(self.lab, self.proxy, otherwise);
            return Err(failed(self.lab, self.proxy, &how, &running.said, remedy));
        }
        sleep(PAUSE).await;
        Ok(None)
    }

    fn cannot_write(&self, how: &str) -> Failure {
        let log = self.lab.look(&name(self.proxy)).map(|running| running.said);
        let how = format!("it cannot write its rules: {how}");
        let otherwise = "see why in its log; the rules of this node are not those of its objects";
        let remedy = remedy(self.lab, self.proxy, otherwise);
        failed(self.lab, self.proxy, &how, &log.unwrap_or_default(), remedy)
    }

    fn api(&self) -> Option<&'l Api> {
        self.lab.api(&self.proxy.namespace, API)
    }
}

/// Whether a sync that processed all endpoints ended since `before` and failed.
fn has_failed(metrics: &Metrics, before: &Metrics, log: &str) -> bool {
    metrics.endpoints() > before.endpoints()
        && metrics.nothing_pending()
        && metrics.syncs() > before.syncs()
        && (metrics.failures() > before.failures() || log::has_complaint(log))
}
