//! Selects the kernel of a plan: that of this host if it can run the plan, else that of a guest,
//! unless the user selects another.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::{Arc, OnceLock};

use tokio::sync::{Mutex, OnceCell, Semaphore};

use super::agent::Agent;
use super::error::KernelError;
use super::guest::{self, Cache, Guest, GuestError, Wanted};
use super::host::Host;
use super::missing::Missing;
use super::room;
use svclab_agent::contain::Standing;
use svclab_model::plan::Plan;
use svclab_planner::needs::Needs;

/// Additional memory of a guest with additional programs, in MiB. The guest contains these programs
/// twice while it boots.
const FURTHER: u32 = 128;

/// Kernel that can run plans.
#[derive(Debug, Clone)]
pub enum Kernel {
    /// Kernel of this host.
    Host(Host),
    /// Kernel of a guest.
    Guest(Box<Guest>),
}

impl Kernel {
    /// Starts an agent and waits until it is ready.
    ///
    /// # Errors
    ///
    /// When the agent cannot be started or ends.
    pub async fn start(&self) -> Result<Agent, KernelError> {
        match self {
            Self::Host(host) => host.start().await,
            Self::Guest(guest) => guest.start().await,
        }
    }

    /// Checks that the kernel meets the requirements of a plan.
    ///
    /// # Errors
    ///
    /// When a requirement is not met. The error has the requester.
    pub fn missing(&self, plan: &Plan) -> Result<(), Missing> {
        match self {
            Self::Host(host) => host.missing(plan),
            Self::Guest(guest) => guest.missing(plan),
        }
    }

    /// Checks that the kernel meets requirements, which may be those of several plans.
    ///
    /// # Errors
    ///
    /// When a requirement is not met. The error has the requester.
    pub fn missing_of(&self, needs: &Needs) -> Result<(), Missing> {
        match self {
            Self::Host(host) => host.missing_of(needs),
            Self::Guest(guest) => guest.missing_of(needs),
        }
    }

    /// Returns the maximum number of labs that one agent can hold at the same time without
    /// answering their probes late. More labs would not be faster in a guest, which has 1
    /// processor.
    #[must_use]
    pub const fn at_once(&self) -> usize {
        match self {
            Self::Host(_) => Semaphore::MAX_PERMITS,
            Self::Guest(_) => 2,
        }
    }

    /// Returns the memory for labs, in KiB.
    #[must_use]
    pub fn room(&self) -> u64 {
        match self {
            Self::Host(_) => room::of_host(),
            Self::Guest(guest) => room::of_guest(guest.more_room()),
        }
    }

    /// Returns the name of the kernel in messages.
    #[must_use]
    pub const fn place(&self) -> &'static str {
        match self {
            Self::Host(_) => "this machine",
            Self::Guest(_) => room::GUEST,
        }
    }

    /// Returns the release and privilege that distinguish its agents from those of other kernels.
    #[must_use]
    pub fn key(&self) -> (&str, Standing) {
        match self {
            Self::Host(host) => ("", host.standing()),
            Self::Guest(guest) => (guest.release(), Standing::default()),
        }
    }

    /// Returns the release of the kernel, as far as it is known without an agent: empty for this
    /// host.
    #[must_use]
    pub fn release(&self) -> &str {
        match self {
            Self::Host(_) => "",
            Self::Guest(guest) => guest.release(),
        }
    }
}

/// Kernels that a user selects.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Choice {
    /// This host if it can run the plan, else a guest with the newest kernel.
    #[default]
    Auto,
    /// Only this host.
    Host,
    /// This host if it can run the plan, and a guest of every available series.
    All,
    /// Guest with a kernel of the distribution, by series or release.
    Series(String),
    /// Guest with the user's own kernel.
    Own {
        /// Path of the kernel file.
        kernel: PathBuf,
        /// Directory of the kernel's modules. `None` if it must be searched.
        modules: Option<PathBuf>,
    },
}

impl FromStr for Choice {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        Ok(match text {
            "auto" => Self::Auto,
            "host" => Self::Host,
            "all" => Self::All,
            _ if text.contains('/') => Self::Own {
                kernel: PathBuf::from(text),
                modules: None,
            },
            _ if text.starts_with(|first: char| first.is_ascii_digit()) => {
                Self::Series(text.to_owned())
            }
            _ => {
                return Err(
                    "write auto, host, all, a version such as 6.12, or the path of a kernel's file with a / in it"
                        .to_owned(),
                );
            }
        })
    }
}

impl fmt::Display for Choice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Auto => f.write_str("auto"),
            Self::Host => f.write_str("host"),
            Self::All => f.write_str("all"),
            Self::Series(series) => f.write_str(series),
            Self::Own { kernel, .. } => kernel.display().fmt(f),
        }
    }
}

/// Kernels of a run. Guests are prepared when the first plan needs one.
#[derive(Debug, Default)]
pub struct Kernels {
    choice: Choice,
    host: Host,
    cache: Option<Cache>,
    /// Programs of guests in addition to those that labs need.
    further: Vec<PathBuf>,
    /// Additional memory of guests for labs, in MiB.
    more: u32,
    /// Callback that prints that labs run in a guest because no agent starts on this host.
    notice: Option<fn(&str)>,
    noticed: OnceLock<()>,
    /// Result of starting an agent on this host, by privilege: the host with this agent, or the
    /// error.
    started: Mutex<BTreeMap<Standing, Result<Host, KernelError>>>,
    guests: OnceCell<Result<Vec<Kernel>, Arc<GuestError>>>,
}

impl Kernels {
    /// Creates the kernels that a user selects.
    #[must_use]
    pub fn new(choice: Choice) -> Self {
        Self {
            choice,
            ..Self::default()
        }
    }

    /// Sets another agent program, for this host and for guests. Needed by a caller that is not
    /// `svclab` itself.
    #[must_use]
    pub fn with_agent(mut self, program: PathBuf) -> Self {
        self.host = Host::with_agent(program);
        self
    }

    /// Sets another cache of guests than that of the environment.
    #[must_use]
    pub fn with_cache(mut self, cache: Cache) -> Self {
        self.cache = Some(cache);
        self
    }

    /// Sets additional programs: `everywhere` for all agents, `in_guests` for guests only. Guests
    /// then have more memory.
    #[must_use]
    pub fn with_programs(mut self, everywhere: Vec<PathBuf>, in_guests: Vec<PathBuf>) -> Self {
        self.further = in_guests;
        self.further.extend(everywhere.iter().cloned());
        self.host = self.host.with_programs(everywhere);
        self
    }

    /// Sets the additional memory of guests for labs, in MiB.
    #[must_use]
    pub fn with_more_room(mut self, mebibytes: u32) -> Self {
        self.more = mebibytes;
        self
    }

    /// Sets a callback that receives one line, at most once, if labs run in a guest because no
    /// agent starts on this host.
    #[must_use]
    pub fn with_notice(mut self, notice: fn(&str)) -> Self {
        self.notice = Some(notice);
        self
    }

    /// Returns the kernels that a plan must run in: one, or any number with [`Choice::All`].
    ///
    /// # Errors
    ///
    /// When no kernel can run the plan. The error has the missing requirements and the help.
    pub async fn of_plan(&self, plan: &Plan) -> Result<Vec<Kernel>, KernelError> {
        match (&self.choice, suited_host(&self.host, plan)) {
            (Choice::Host, Ok(host)) => Ok(vec![Kernel::Host(host)]),
            (Choice::Auto, Ok(host)) => match Box::pin(self.start_on(host)).await {
                Ok(host) => Ok(vec![Kernel::Host(host)]),
                // The agent was killed, or a resource ran out. Neither shows what this host can
                // run.
                Err(error) if error.tells_of_a_kill() || error.is_shortage() => Err(error),
                Err(error) => {
                    let guests = self.guests().await.map_err(|guest| KernelError::Nowhere {
                        host: Box::new(error.clone()),
                        guest,
                    })?;
                    let suited = suited(guests, plan)?;
                    self.note(&error, &suited);
                    Ok(suited)
                }
            },
            (Choice::Host, Err(missing)) => Err(KernelError::HostLacks(missing)),
            (Choice::Auto, Err(missing)) => {
                let guests = self
                    .guests()
                    .await
                    .map_err(|no_guest| KernelError::Nowhere {
                        host: Box::new(missing.into()),
                        guest: no_guest,
                    })?;
                suited(guests, plan)
            }
            (Choice::All, host) => {
                let mut kernels = suited(self.guests().await?, plan)?;
                if let Ok(host) = host {
                    match Box::pin(self.start_on(host)).await {
                        Ok(host) => kernels.insert(0, Kernel::Host(host)),
                        Err(error) if error.tells_of_a_kill() || error.is_shortage() => {
                            return Err(error);
                        }
                        Err(error) => self.note(&error, &kernels),
                    }
                }
                Ok(kernels)
            }
            (Choice::Series(_) | Choice::Own { .. }, _) => suited(self.guests().await?, plan),
        }
    }

    /// Returns this host with a started agent, which the first lab uses. The start is tried once
    /// for each privilege.
    async fn start_on(&self, host: Host) -> Result<Host, KernelError> {
        let mut started = self.started.lock().await;
        if let Some(known) = started.get(&host.standing()) {
            return known.clone();
        }
        let standing = host.standing();
        let found = host.started().await;
        if !matches!(&found, Err(error) if error.tells_of_a_kill()) {
            started.insert(standing, found.clone());
        }
        found
    }

    /// Reports once that labs run in these kernels instead of that of this host.
    fn note(&self, error: &KernelError, kernels: &[Kernel]) {
        if self.noticed.set(()).is_err() {
            return;
        }
        let releases: Vec<&str> = kernels.iter().map(Kernel::release).collect();
        let text = notice(error, &releases);
        if let Some(notice) = self.notice {
            notice(&text);
        } else {
            tracing::warn!("{text}");
        }
    }

    async fn guests(&self) -> Result<&[Kernel], Arc<GuestError>> {
        let found = self
            .guests
            .get_or_init(|| async { self.find().await.map_err(Arc::new) })
            .await;
        found.as_deref().map_err(Arc::clone)
    }

    async fn find(&self) -> Result<Vec<Kernel>, GuestError> {
        // Reports a missing QEMU before anything is downloaded.
        guest::look_for_qemu()?;
        let cache = match &self.cache {
            Some(cache) => cache.clone(),
            None => Cache::of_environment()?,
        };
        let wanted = match &self.choice {
            Choice::Auto | Choice::Host => vec![Wanted::Newest],
            Choice::Series(series) => vec![Wanted::Series(series.clone())],
            Choice::Own { kernel, modules } => vec![Wanted::Own {
                kernel: kernel.clone(),
                modules: modules.clone(),
            }],
            Choice::All => guest::every_series(&cache).await?,
        };
        let mut guests = Vec::new();
        for wanted in &wanted {
            let mut guest =
                Guest::with_agent(cache.clone(), wanted, self.host.agent().to_owned()).await?;
            if !self.further.is_empty() {
                guest = guest
                    .with_programs(self.further.iter().cloned())
                    .with_memory(guest::MEMORY + FURTHER + self.more)
                    .with_more_room(self.more);
            }
            guests.push(Kernel::Guest(Box::new(guest)));
        }
        Ok(guests)
    }
}

/// Returns the reason why labs run in guests of these releases, in one line.
fn notice(error: &KernelError, releases: &[&str]) -> String {
    let reason = error.to_string();
    let reason: Vec<&str> = reason.lines().map(str::trim).collect();
    format!(
        "no agent starts on this host, so labs run in a guest (Linux {}): {}",
        releases.join(", "),
        reason.join("; ")
    )
    .replace(char::is_control, " ")
}

/// Returns the host with agents that can run a plan. Agents with privileges of the machine's root
/// run only plans that need these.
fn suited_host(host: &Host, plan: &Plan) -> Result<Host, Missing> {
    if let Err(missing) = host.missing(plan) {
        // The programs reject names without a module. Their messages name the line, and nothing is
        // loaded.
        let left_to_them = missing.modules.is_empty()
            && missing.programs.is_empty()
            && missing.rights.is_none()
            && !missing.absent.iter().any(|lack| guests_have(&lack.name));
        if !left_to_them {
            return Err(missing);
        }
    }
    Ok(match Needs::of(plan).ipvs_by() {
        Some(_) => host.for_ipvs(),
        None => host.clone(),
    })
}

/// Whether guests are known to have a module that this host lacks permanently.
fn guests_have(name: &str) -> bool {
    name == "dummy" || name.starts_with("ip_vs")
}

/// Returns the guests, if they meet the requirements of a plan.
fn suited(guests: &[Kernel], plan: &Plan) -> Result<Vec<Kernel>, KernelError> {
    for guest in guests {
        if let Err(missing) = guest.missing(plan) {
            return Err(KernelError::GuestLacks {
                release: guest.release().to_owned(),
                missing,
            });
        }
    }
    Ok(guests.to_vec())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::LostAgent;

    #[test]
    fn notice_of_guest_is_one_line_with_the_reason() {
        let error = KernelError::Lost(LostAgent {
            how: "it ended with status 1".to_owned(),
            step: None,
            said: "out of\u{1b}memory".to_owned(),
            starved: false,
        });
        insta::assert_snapshot!(
            notice(&error, &["6.12.117+deb12-cloud-amd64"]),
            @"no agent starts on this host, so labs run in a guest (Linux 6.12.117+deb12-cloud-amd64): the agent was lost: it ended with status 1; it had begun nothing; it said: out of memory"
        );
    }

    #[test]
    fn a_choice_is_read_as_it_is_written() {
        for text in [
            "auto",
            "host",
            "all",
            "6.12",
            "6.1.0-56-cloud-amd64",
            "/boot/vmlinuz",
        ] {
            let choice: Choice = text.parse().unwrap();
            assert_eq!(choice.to_string(), text);
        }
        assert!("guest".parse::<Choice>().is_err());
    }
}
