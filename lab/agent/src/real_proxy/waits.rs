//! Waiting until a kube-proxy has written rules for all objects that it was given.
//!
//! Its counts of syncs do not tell that: they include failed syncs, changes that arrive
//! during a sync are written by the next one, and the counts of pending changes are shared
//! by its IP families, each of which clears them (v1.21 to v1.36). So it is given a
//! [`marker`] once it has received all else: the sync that takes up the marker began later,
//! and the marker is counted if that sync succeeded.

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

/// Pause between two readings of the metrics.
const PAUSE: Duration = Duration::from_millis(20);

/// The most syncs that may fail, one after the other. kube-proxy itself tries again only
/// after its sync period, which is an hour here; each marker has it try again.
const TRIES: u32 = 3;

/// How long a client that listed endpoints may take to watch them.
const WATCHES: Duration = Duration::from_secs(2);

/// How long a program that takes no marker may leave a failed sync as it is.
const GIVES_UP: Duration = Duration::from_secs(20);

/// What a marker showed.
enum Shown {
    Written,
    /// Further services arrived meanwhile.
    Late,
    Failed,
}

/// One kube-proxy that is waited for.
pub struct Waits<'l> {
    lab: &'l Lab,
    proxy: &'l RealProxy,
    ns: &'l NetNs,
    begun: Instant,
}

impl<'l> Waits<'l> {
    /// Waits for `proxy` from `begun` on.
    ///
    /// # Errors
    ///
    /// When its node is not there.
    pub fn since(begun: Instant, lab: &'l Lab, proxy: &'l RealProxy) -> Result<Self, Failure> {
        let ns = lab.namespace(&proxy.namespace)?;
        Ok(Self {
            lab,
            proxy,
            ns,
            begun,
        })
    }

    /// Whether a marker is among the kube-proxy's objects.
    pub fn is_marked(&self) -> bool {
        self.api().is_some_and(Api::is_marked)
    }

    /// Waits until its metrics show `is_so`, and returns them.
    ///
    /// # Errors
    ///
    /// When it ends before, or takes too long.
    pub async fn until(&self, is_so: impl Fn(&Metrics) -> bool) -> Result<Metrics, Failure> {
        loop {
            if let Some(metrics) = self.read().await?
                && is_so(&metrics)
            {
                return Ok(metrics);
            }
        }
    }

    /// Waits until it has written rules for all objects, which it has received when
    /// `received` holds. Returns after which time that first held.
    ///
    /// # Errors
    ///
    /// When it ends before, takes too long, or cannot write them.
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

    /// Whether it watches endpoints, as every kube-proxy does.
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

    /// Gives it a marker, and waits for the end of the sync that takes it up.
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
                // What it printed before is read by the time of the second reading.
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
            // Metrics that are read during a sync may be those of different times.
            let was = std::mem::replace(&mut failed, has_failed(&metrics, &before, &log()));
            if was && failed {
                return Ok(Shown::Failed);
            }
        }
    }

    /// Waits until the metrics and the log of a program that takes no marker show a
    /// success.
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

    /// Reads its metrics after a pause; `None` if it does not serve them yet.
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

/// Whether a sync that took up all endpoints ended since `before` and failed.
fn has_failed(metrics: &Metrics, before: &Metrics, log: &str) -> bool {
    metrics.endpoints() > before.endpoints()
        && metrics.nothing_pending()
        && metrics.syncs() > before.syncs()
        && (metrics.failures() > before.failures() || log::has_complaint(log))
}
