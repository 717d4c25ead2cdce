//! Selects the kernel of a plan: that of this host if it can run the plan, else that of a guest,
//! unless the user selects another.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};

use tokio::sync::{Mutex, OnceCell, Semaphore};

use super::agent::Agent;
use super::choice::KernelChoice;
use super::error::KernelError;
use super::error::guest::GuestError;
use super::guest::{self, Cache, Guest, KernelRequest};
use super::host::Host;
use super::plan_programs::{CheckedPrograms, PlanPrograms, memory_mib};
use super::requirements::MissingRequirements;
use super::requirements::lab_memory;
use svclab_agent::contain::AgentPrivilege;
use svclab_model::plan::Plan;
use svclab_planner::requirements::Requirements;

/// Kernel that can run plans.
#[derive(Debug, Clone)]
pub enum Kernel {
    /// Kernel of this host.
    Host(Host),
    /// Kernel of a guest.
    Guest(Box<Guest>),
}

impl Kernel {
    /// Whether the kernel runs in a guest.
    #[must_use]
    pub const fn is_guest(&self) -> bool {
        matches!(self, Self::Guest(_))
    }

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
    pub fn check_plan(&self, plan: &Plan) -> Result<(), MissingRequirements> {
        match self {
            Self::Host(host) => host.check_plan(plan),
            Self::Guest(guest) => guest.check_plan(plan),
        }
    }

    /// Checks that the kernel meets requirements, which may be those of several plans.
    ///
    /// # Errors
    ///
    /// When a requirement is not met. The error has the requester.
    pub fn check_requirements(&self, needs: &Requirements) -> Result<(), MissingRequirements> {
        match self {
            Self::Host(host) => host.check_requirements(needs),
            Self::Guest(guest) => guest.check_requirements(needs),
        }
    }

    /// Returns the maximum number of labs that one agent can build or probe at the same time without
    /// answering their probes late. More labs would not be faster in a guest, which has 1
    /// processor.
    #[must_use]
    pub const fn max_active_labs(&self) -> usize {
        match self {
            Self::Host(_) => Semaphore::MAX_PERMITS,
            Self::Guest(_) => 2,
        }
    }

    /// Returns the memory for labs, in KiB.
    #[must_use]
    pub fn lab_memory(&self) -> u64 {
        match self {
            Self::Host(_) => lab_memory::host_memory(),
            Self::Guest(guest) => lab_memory::guest_memory(guest.additional_memory()),
        }
    }

    /// Returns the name of the kernel in messages.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Host(_) => "this machine",
            Self::Guest(_) => lab_memory::GUEST_NAME,
        }
    }

    /// Returns the release and privilege that distinguish its agents from those of other kernels.
    #[must_use]
    pub fn key(&self) -> (&str, AgentPrivilege) {
        match self {
            Self::Host(host) => ("", host.privilege()),
            Self::Guest(guest) => (guest.release(), AgentPrivilege::default()),
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

/// Kernels of a run. Guests are prepared when the first plan needs one.
#[derive(Debug, Default)]
pub struct KernelSelector {
    choice: KernelChoice,
    host: Host,
    cache: Option<Cache>,
    /// Programs of guests in addition to those that labs need.
    guest_programs: Vec<PathBuf>,
    /// Programs of the plans that need any, with the privilege of the agents of this host that can
    /// run the plan. `None` if this host cannot run it.
    plan_programs: BTreeSet<(Option<AgentPrivilege>, PlanPrograms)>,
    /// Result of checking the programs of plans that run in guests.
    checked_programs: CheckedPrograms,
    /// Callback that prints that labs run in a guest because no agent starts on this host.
    notice: Option<fn(&str)>,
    has_noticed: OnceLock<()>,
    /// Result of starting an agent on this host, by privilege: the host with this agent, or the
    /// error.
    started_hosts: Mutex<BTreeMap<AgentPrivilege, Result<Host, KernelError>>>,
    guests: OnceCell<Result<Vec<Kernel>, Arc<GuestError>>>,
}

impl KernelSelector {
    /// Creates the kernels that a user selects.
    #[must_use]
    pub fn new(choice: KernelChoice) -> Self {
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
        self.guest_programs = in_guests;
        self.guest_programs.extend(everywhere.iter().cloned());
        self.host = self.host.with_programs(everywhere);
        self
    }

    /// Adds the programs of the plans that will run. Agents of this host get the kube-proxies. A
    /// guest gets the programs of the plans that run in guests, and memory for them.
    #[must_use]
    pub fn with_plans<'p>(mut self, plans: impl IntoIterator<Item = &'p Plan>) -> Self {
        let programs = plans
            .into_iter()
            .map(|plan| (plan, PlanPrograms::from_plan(plan)));
        let programs: Vec<_> = programs.filter(|(_, added)| !added.is_empty()).collect();
        let proxies = programs.iter().flat_map(|(_, added)| added.kube_proxies());
        let proxies: BTreeSet<PathBuf> = proxies.cloned().collect();
        self.host = self.host.with_programs(proxies);
        let programs = programs.into_iter().map(|(plan, added)| {
            let host = host_for_plan(&self.host, plan).ok();
            (host.map(|host| host.privilege()), added)
        });
        self.plan_programs = programs.collect();
        self
    }

    /// Sets a callback that receives lines: if labs run in a guest because no agent starts on this
    /// host, and before a kernel is downloaded.
    #[must_use]
    pub fn with_notice(mut self, notice: fn(&str)) -> Self {
        self.notice = Some(notice);
        self
    }

    /// Returns the kernels that a plan must run in: one, or any number with [`KernelChoice::All`].
    ///
    /// # Errors
    ///
    /// When no kernel can run the plan. The error has the missing requirements and the help.
    pub async fn for_plan(&self, plan: &Plan) -> Result<Vec<Kernel>, KernelError> {
        match (&self.choice, host_for_plan(&self.host, plan)) {
            (KernelChoice::Host, Ok(host)) => Ok(vec![Kernel::Host(host)]),
            (KernelChoice::Auto, Ok(host)) => match Box::pin(self.start_agent(host)).await {
                Ok(host) => Ok(vec![Kernel::Host(host)]),
                // The agent was killed, or a resource ran out. Neither shows what this host can
                // run.
                Err(error) if error.is_kill() || error.is_shortage() => Err(error),
                Err(error) => {
                    let guests = self.guests().await.map_err(|guest| KernelError::NoKernel {
                        host: Box::new(error.clone()),
                        guest,
                    })?;
                    let kernels = self.guests_for_plan(guests, plan).await?;
                    self.notify_once(&error, &kernels);
                    Ok(kernels)
                }
            },
            (KernelChoice::Host, Err(missing)) => Err(KernelError::HostMissing(missing)),
            (KernelChoice::Auto, Err(missing)) => {
                let guests = self
                    .guests()
                    .await
                    .map_err(|no_guest| KernelError::NoKernel {
                        host: Box::new(missing.into()),
                        guest: no_guest,
                    })?;
                self.guests_for_plan(guests, plan).await
            }
            (KernelChoice::All, host) => {
                let mut kernels = self.guests_for_plan(self.guests().await?, plan).await?;
                if let Ok(host) = host {
                    match Box::pin(self.start_agent(host)).await {
                        Ok(host) => kernels.insert(0, Kernel::Host(host)),
                        Err(error) if error.is_kill() || error.is_shortage() => {
                            return Err(error);
                        }
                        Err(error) => self.notify_once(&error, &kernels),
                    }
                }
                Ok(kernels)
            }
            (KernelChoice::Series(_) | KernelChoice::UserKernel { .. }, _) => {
                self.guests_for_plan(self.guests().await?, plan).await
            }
        }
    }

    /// Returns this host with a started agent, which the first lab uses. The start is tried once
    /// for each privilege.
    async fn start_agent(&self, host: Host) -> Result<Host, KernelError> {
        let mut started = self.started_hosts.lock().await;
        if let Some(result) = started.get(&host.privilege()) {
            return result.clone();
        }
        let standing = host.privilege();
        let result = host.with_started_agent().await;
        if !matches!(&result, Err(error) if error.is_kill()) {
            started.insert(standing, result.clone());
        }
        result
    }

    /// Reports once that labs run in these kernels instead of that of this host.
    fn notify_once(&self, error: &KernelError, kernels: &[Kernel]) {
        if self.has_noticed.set(()).is_err() {
            return;
        }
        let releases: Vec<&str> = kernels.iter().map(Kernel::release).collect();
        self.notify(&guest_notice(error, &releases));
    }

    fn notify(&self, text: &str) {
        if let Some(notice) = self.notice {
            notice(text);
        } else {
            tracing::warn!("{text}");
        }
    }

    async fn guests(&self) -> Result<&[Kernel], Arc<GuestError>> {
        let guests = self
            .guests
            .get_or_init(|| async { self.prepare_guests().await.map_err(Arc::new) })
            .await;
        guests.as_deref().map_err(Arc::clone)
    }

    async fn prepare_guests(&self) -> Result<Vec<Kernel>, GuestError> {
        // Reports a missing QEMU before anything is downloaded.
        guest::check_qemu()?;
        let cache = match &self.cache {
            Some(cache) => cache.clone(),
            None => Cache::from_environment()?,
        };
        let wanted = match &self.choice {
            KernelChoice::Auto | KernelChoice::Host => vec![KernelRequest::Newest],
            KernelChoice::Series(series) => vec![KernelRequest::Series(series.clone())],
            KernelChoice::UserKernel { kernel, modules } => vec![KernelRequest::UserKernel {
                kernel: kernel.clone(),
                modules: modules.clone(),
            }],
            KernelChoice::All => guest::every_series(&cache).await?,
        };
        let (programs, additional_memory) = self.programs_in_guests().await;
        let mut guests = Vec::new();
        let is_stored = |wanted| {
            matches!(wanted, &KernelRequest::UserKernel { .. })
                || guest::find_undamaged(&cache, wanted).is_some()
        };
        if let Some(missing) = wanted.iter().find(|wanted| !is_stored(wanted)) {
            guest::find_package(missing).await?;
            self.notify(
                "a Linux kernel for guests is downloaded, once for each user (`svclab doctor` prints \
                 what this host lacks)",
            );
        }
        for wanted in &wanted {
            let mut guest =
                Guest::with_agent(cache.clone(), wanted, self.host.agent().to_owned()).await?;
            if !programs.is_empty() {
                guest = guest
                    .with_programs(programs.iter().cloned())
                    .with_memory(
                        lab_memory::DEFAULT_MEMORY_MIB + memory_mib(&programs) + additional_memory,
                    )
                    .with_additional_memory(additional_memory);
            }
            guests.push(Kernel::Guest(Box::new(guest)));
        }
        Ok(guests)
    }

    /// Returns the additional programs of guests, and the memory for the labs that run them, in
    /// MiB. Programs that a guest cannot contain are errors of their own plans only.
    async fn programs_in_guests(&self) -> (Vec<PathBuf>, u32) {
        let (mut programs, mut memory) = (BTreeSet::new(), 0);
        for (privilege, of_plan) in &self.plan_programs {
            if self.runs_in_guest(*privilege).await
                && self.checked_programs.check(of_plan).await.is_ok()
            {
                programs.extend(of_plan.in_guest());
                memory = memory.max(of_plan.memory_mib());
            }
        }
        programs.extend(self.guest_programs.iter().cloned());
        (programs.into_iter().collect(), memory)
    }

    /// Whether a plan runs in a guest. `privilege` is that of the agents of this host that can run
    /// the plan.
    async fn runs_in_guest(&self, privilege: Option<AgentPrivilege>) -> bool {
        let host = match (&self.choice, privilege) {
            (KernelChoice::Host, _) => return false,
            (KernelChoice::Auto, Some(AgentPrivilege::Host)) => self.host.with_ipvs_privileges(),
            (KernelChoice::Auto, Some(_)) => self.host.clone(),
            _ => return true,
        };
        Box::pin(self.start_agent(host)).await.is_err()
    }

    /// Returns the guests, if they can contain the programs of a plan and meet its requirements.
    async fn guests_for_plan(
        &self,
        guests: &[Kernel],
        plan: &Plan,
    ) -> Result<Vec<Kernel>, KernelError> {
        let programs = PlanPrograms::from_plan(plan);
        self.checked_programs.check(&programs).await?;
        for guest in guests {
            if let Err(missing) = guest.check_plan(plan) {
                return Err(KernelError::GuestMissing {
                    release: guest.release().to_owned(),
                    missing,
                });
            }
        }
        Ok(guests.to_vec())
    }
}

/// Returns the reason why labs run in guests of these releases, in one line.
fn guest_notice(error: &KernelError, releases: &[&str]) -> String {
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
fn host_for_plan(host: &Host, plan: &Plan) -> Result<Host, MissingRequirements> {
    let needs = Requirements::from_plan(plan);
    if let Err(missing) = host.check_requirements(&needs) {
        // The programs reject names without a module. Their messages name the line, and nothing is
        // loaded.
        let is_left_to_programs = missing.modules.is_empty()
            && missing.programs.is_empty()
            && missing.privileges.is_none()
            && !missing.absent.iter().any(|lack| is_in_guests(&lack.name));
        if !is_left_to_programs {
            return Err(missing);
        }
    }
    Ok(match needs.ipvs_requester() {
        Some(_) => host.with_ipvs_privileges(),
        None => host.clone(),
    })
}

/// Whether guests are known to have a module that this host lacks permanently.
fn is_in_guests(name: &str) -> bool {
    name == "dummy" || name.starts_with("ip_vs")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::LostAgent;

    #[test]
    fn guest_notice_is_one_line_with_reason() {
        let error = KernelError::Lost(LostAgent {
            cause: "exited with status 1".to_owned(),
            last_step: None,
            stderr: "out of\u{1b}memory".to_owned(),
            is_out_of_memory: false,
        });
        insta::assert_snapshot!(
            guest_notice(&error, &["6.12.117+deb12-cloud-amd64"]),
            @"no agent starts on this host, so labs run in a guest (Linux 6.12.117+deb12-cloud-amd64): the agent was lost: exited with status 1; no step started; output: out of memory"
        );
    }
}
