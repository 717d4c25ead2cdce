//! Manages the agents of a run: a separate pool for each lab file and each kernel that its cases
//! need. What programs of one lab do to their agent therefore does not affect other labs.
//!
//! The cases without programs of the user share the guests of a kernel. QEMU without KVM translates
//! the code of a guest when it first runs, so that the first case of each guest takes much longer
//! than later ones.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Weak};

use tokio::sync::{Mutex, OnceCell, OwnedSemaphorePermit, Semaphore};

use super::RunOptions;
use super::idle::Idle;
use super::room::{Machine, Room};
use crate::kernel::{Agent, Kernel, KernelError, KernelSelector, NotEnoughMemory};
use crate::run::prepare::Prepared;
use svclab_agent::contain::AgentPrivilege;
use svclab_agent::find_program;
use svclab_model::plan::Plan;

/// Maximum number of labs of a pool whose probes wait for a timeout, for each lab that needs a
/// processor. A busy guest removes the namespaces of earlier labs late. With 3, it ran out of memory.
const WAITING_LABS: usize = 1;

/// Unit of the memory permits, in KiB.
const PERMIT_KIB: u64 = 1024;

/// Converts memory in KiB to units of [`PERMIT_KIB`], rounded up and limited to what a
/// semaphore can hold.
fn memory_units(memory: u64) -> u32 {
    let max_units = u32::MAX >> 3;
    u32::try_from(memory.div_ceil(PERMIT_KIB)).map_or(max_units, |units| units.min(max_units))
}

/// Release of a kernel, and the privileges of its agents.
type KernelKey = (String, AgentPrivilege);

/// Versions of programs that agents report, by program name.
type Tools = Arc<Mutex<BTreeMap<String, String>>>;

/// Agents of a run, by kernel and lab file.
pub struct Pools {
    kernels: KernelSelector,
    agents: usize,
    /// Number of cases by lab file.
    cases: BTreeMap<String, usize>,
    /// Number of cases that can share guests.
    shareable_cases: usize,
    /// Whether labs keep running after their cases, so that the user can run programs in them.
    keeps_labs: bool,
    state: Mutex<PoolState>,
    machine: Machine,
    /// Pool that was requested last. The next case often belongs to the same lab.
    last: Arc<Idle<Arc<Pool>>>,
    tools: Tools,
}

#[derive(Default)]
struct PoolState {
    limits: BTreeMap<KernelKey, Arc<KernelLimits>>,
    /// Pools that cases hold, by kernel and lab file; `None` is the pool that labs share. Agents end when the last case drops its pool.
    pools: BTreeMap<(KernelKey, Option<String>), Weak<Pool>>,
}

/// Limits that all pools of a kernel share.
struct KernelLimits {
    /// Memory for labs, in KiB.
    memory: u64,
    /// Permits for this memory, one for each [`PERMIT_KIB`]. `None` for guests, whose agents do not
    /// share memory.
    memory_permits: Option<Arc<Semaphore>>,
    /// Permits for agents; `None` if their number is unlimited.
    agent_permits: Option<Arc<Semaphore>>,
}

impl Pools {
    /// Creates pools without agents; agents start on demand. Agents get the programs that the nodes
    /// of `cases` run.
    #[must_use]
    pub fn new(options: &RunOptions, cases: &[Prepared]) -> Self {
        let mut kernels = KernelSelector::new(options.kernels.clone());
        if let Some(agent) = &options.agent {
            kernels = kernels.with_agent(agent.clone());
        }
        if let Some(notice) = options.notice {
            kernels = kernels.with_notice(notice);
        }
        let kernels = kernels.with_plans(cases.iter().map(|case| &case.plan));
        Self {
            kernels,
            agents: options.agents.max(1),
            cases: cases.iter().fold(BTreeMap::new(), |mut counted, case| {
                *counted.entry(lab_file(case)).or_default() += 1;
                counted
            }),
            shareable_cases: cases
                .iter()
                .filter(|case| !case.plan.runs_user_programs())
                .count(),
            keeps_labs: options.keep,
            state: Mutex::default(),
            machine: Machine::default(),
            last: Arc::default(),
            tools: Tools::default(),
        }
    }

    /// Adds programs of this machine to guests, by their names. Programs that are not installed are
    /// omitted.
    #[must_use]
    pub fn with_programs_in_guests<'n>(self, names: impl IntoIterator<Item = &'n str>) -> Self {
        let programs = names.into_iter().filter_map(find_program).collect();
        Self {
            kernels: self.kernels.with_programs(Vec::new(), programs),
            ..self
        }
    }

    /// Returns the pools that a case runs in, one for each kernel.
    ///
    /// # Errors
    ///
    /// When no kernel can run the case, or a kernel has too little memory for it.
    pub async fn pools_for_case(&self, prepared: &Prepared) -> Result<Vec<Arc<Pool>>, KernelError> {
        let kernels = self.kernels.for_plan(&prepared.plan).await?;
        let needs = prepared.plan.memory_kib();
        let shares_guests = !self.keeps_labs && !prepared.plan.runs_user_programs();
        let mut state = self.state.lock().await;
        let pools: Vec<_> = kernels
            .into_iter()
            .map(|kernel| {
                let lab = (!shares_guests || !kernel.is_guest()).then(|| lab_file(prepared));
                self.pool(&mut state, kernel, lab)
            })
            .collect();
        self.last.update(Vec::clear);
        if let Some(last) = pools.last() {
            self.last.keep(Arc::clone(last));
        }
        for pool in &pools {
            pool.check_memory(needs)?;
        }
        Ok(pools)
    }

    /// Returns the pool of a lab file in a kernel, or with `None` the pool that labs share. Creates
    /// the pool if no case holds one.
    fn pool(&self, state: &mut PoolState, kernel: Kernel, lab: Option<String>) -> Arc<Pool> {
        let cases = match &lab {
            Some(file) => self.cases.get(file).copied().unwrap_or(1),
            None => self.shareable_cases,
        };
        let (release, standing) = kernel.key();
        let key = (release.to_owned(), standing);
        let share = state.limits.entry(key.clone());
        let share = share.or_insert_with(|| Arc::new(KernelLimits::new(&kernel, self.agents)));
        let share = Arc::clone(share);
        let weak_pool = state.pools.entry((key, lab)).or_default();
        if let Some(pool) = weak_pool.upgrade() {
            return pool;
        }
        let agents = agents_per_lab(self.agents, cases, self.cases.values().sum());
        let pool = Arc::new(Pool::new(kernel, agents, share, self));
        *weak_pool = Arc::downgrade(&pool);
        pool
    }

    /// Returns the versions of svclab and of all programs that agents found, by name.
    pub async fn tools(&self) -> BTreeMap<String, String> {
        let mut tools = self.tools.lock().await.clone();
        tools.insert("svclab".to_owned(), env!("CARGO_PKG_VERSION").to_owned());
        tools
    }
}

/// Returns the file and the name of a case's lab, as a key.
fn lab_file(prepared: &Prepared) -> String {
    let first = prepared.sources.iter().next();
    let file = first.map_or("", |(_, source)| source.name());
    format!("{file} {}", prepared.case.lab)
}

/// Returns the number of agents for a lab file with `cases` of `all_cases` cases: at least 1, and
/// at most 1 for each case. More agents slow guests down: each QEMU translates the same
/// code, which takes seconds.
fn agents_per_lab(agents: usize, cases: usize, all_cases: usize) -> usize {
    let cases = cases.max(1);
    (agents * cases).div_ceil(all_cases.max(cases)).min(cases)
}

impl KernelLimits {
    fn new(kernel: &Kernel, agents: usize) -> Self {
        let memory = kernel.lab_memory();
        let semaphore = |permits| Arc::new(Semaphore::new(permits));
        let is_guest = kernel.is_guest();
        Self {
            memory,
            memory_permits: (!is_guest).then(|| semaphore(memory_permits(memory))),
            agent_permits: is_guest.then(|| semaphore(agents)),
        }
    }
}

/// Converts memory in KiB to a number of semaphore permits.
fn memory_permits(memory: u64) -> usize {
    usize::try_from(memory_units(memory)).unwrap_or(0)
}

/// Agents of one lab file in one kernel. The agents end with the pool.
pub struct Pool {
    kernel: Kernel,
    slots: Vec<Mutex<Slot>>,
    /// Permits for all labs.
    lab_permits: Arc<Semaphore>,
    /// Permits for labs that need a processor: they are built, or their probes run.
    active_permits: Arc<Semaphore>,
    machine: Machine,
    limits: Arc<KernelLimits>,
    /// Pool that was requested last. It may hold agents that no case uses.
    last: Weak<Idle<Arc<Self>>>,
    /// Permits for lab memory, one for each [`PERMIT_KIB`]; a case holds its part while it runs.
    /// Agents in guests do not share memory and a case does not choose its agent. A pool of guests
    /// therefore has only the memory of 1 guest.
    memory_permits: Arc<Semaphore>,
    /// Permits for as many agents as there are slots, acquired when a case first needs an agent.
    agent_permits: OnceCell<Option<OwnedSemaphorePermit>>,
    next: AtomicUsize,
    tools: Tools,
}

/// State of one agent of a pool.
#[derive(Default)]
enum Slot {
    /// No agent was needed yet.
    #[default]
    Empty,
    /// Started agent, which may have been lost.
    Agent(Agent),
    /// The agent cannot start. A retry would take as long and fail in the same way.
    Failed(KernelError),
}

impl Pool {
    fn new(kernel: Kernel, agents: usize, limits: Arc<KernelLimits>, pools: &Pools) -> Self {
        let new_permits = || Arc::new(Semaphore::new(memory_permits(limits.memory)));
        let active = kernel.max_active_labs().saturating_mul(agents);
        let permits = |labs: usize| Arc::new(Semaphore::new(labs.min(Semaphore::MAX_PERMITS)));
        Self {
            kernel,
            lab_permits: permits(active.saturating_mul(1 + WAITING_LABS)),
            active_permits: permits(active),
            memory_permits: limits.memory_permits.clone().unwrap_or_else(new_permits),
            machine: pools.machine.clone(),
            limits,
            last: Arc::downgrade(&pools.last),
            agent_permits: OnceCell::new(),
            slots: (0..agents).map(|_| Mutex::default()).collect(),
            next: AtomicUsize::new(0),
            tools: Arc::clone(&pools.tools),
        }
    }

    /// Returns the release of the kernel, as far as it is known without an agent.
    pub fn release(&self) -> &str {
        self.kernel.release()
    }

    /// Waits until the agents have room for the lab of `plan`. Dropping the room frees it. `None`
    /// never occurs: no semaphore is closed.
    pub async fn acquire_room(&self, plan: &Plan) -> Option<Room> {
        // A task that waits here holds nothing that other tasks wait for.
        self.agent_permits
            .get_or_init(|| self.wait_for_agents())
            .await;
        let room = memory_units(plan.memory_kib()).min(memory_units(self.limits.memory));
        // `acquire` fails only for a closed semaphore, and no semaphore is closed. All tasks
        // acquire the permits in the same order, so they cannot deadlock.
        let place = Arc::clone(&self.lab_permits).acquire_owned().await.ok()?;
        let room = Arc::clone(&self.memory_permits)
            .acquire_many_owned(room)
            .await
            .ok()?;
        let active = Arc::clone(&self.active_permits)
            .acquire_owned()
            .await
            .ok()?;
        Some(Room::new([place, room], active, &self.machine))
    }

    /// Waits until there are permits for the agents of this pool. `None` if the number of agents is
    /// unlimited.
    async fn wait_for_agents(&self) -> Option<OwnedSemaphorePermit> {
        let agents = self.limits.agent_permits.clone()?;
        let wanted = u32::try_from(self.slots.len()).unwrap_or(u32::MAX);
        let permits = agents.acquire_many_owned(wanted);
        let permits = match self.last.upgrade() {
            Some(last) => last.wait_for(permits).await,
            None => permits.await,
        };
        permits.ok()
    }

    /// Checks that the memory of the kernel suffices for a lab that needs `needs` KiB.
    fn check_memory(&self, needs: u64) -> Result<(), NotEnoughMemory> {
        if needs <= self.limits.memory {
            return Ok(());
        }
        Err(NotEnoughMemory {
            kernel: self.kernel.name(),
            needed_kib: needs,
            available_kib: self.limits.memory,
        })
    }

    /// Returns an agent that is not known to be lost. The slots are used in turn; an agent is
    /// started if the slot has none.
    ///
    /// # Errors
    ///
    /// When no agent can be started.
    pub async fn agent(&self) -> Result<Agent, KernelError> {
        let index = self.next.fetch_add(1, Ordering::Relaxed) % self.slots.len();
        let mut slot = self.slots[index].lock().await;
        match &*slot {
            Slot::Agent(agent) if !agent.is_lost() => return Ok(agent.clone()),
            Slot::Failed(error) => return Err(error.clone()),
            _ => {}
        }
        match self.kernel.start().await {
            Ok(agent) => {
                let tools = agent.environment().tools.clone();
                self.tools.lock().await.extend(tools);
                *slot = Slot::Agent(agent.clone());
                Ok(agent)
            }
            Err(error) => {
                *slot = Slot::Failed(error.clone());
                Err(error)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn agents_per_lab_follows_number_of_cases() {
        assert_eq!(agents_per_lab(2, 30, 30), 2);
        assert_eq!(agents_per_lab(2, 30, 105), 1);
        assert_eq!(agents_per_lab(16, 30, 105), 5);
        assert_eq!(agents_per_lab(16, 1, 105), 1);
        assert_eq!(agents_per_lab(16, 2, 2), 2);
        assert_eq!(agents_per_lab(2, 0, 0), 1);
    }
}
