//! Manages the agents of a run: a separate pool for each lab file and each kernel that its cases
//! need. What programs of one lab do to their agent therefore does not affect other labs.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Weak};

use tokio::sync::{Mutex, OnceCell, OwnedSemaphorePermit, Semaphore};

use super::at_hand::at_hand;
use super::execute::Options;
use super::prepare::Prepared;
use crate::kernel::{Agent, Kernel, KernelError, Kernels, NoRoom};
use svclab_agent::contain::Standing;
use svclab_model::plan::Plan;

/// Unit of the memory permits, in KiB.
const UNIT: u64 = 1024;

/// Converts memory in KiB to [`UNIT`]s, rounded up and limited to what a semaphore can hold.
fn units(memory: u64) -> u32 {
    let most = u32::MAX >> 3;
    u32::try_from(memory.div_ceil(UNIT)).map_or(most, |units| units.min(most))
}

/// Release of a kernel, and the privileges of its agents.
type KernelKey = (String, Standing);

/// Versions of programs that agents report, by program name.
type Tools = Arc<Mutex<BTreeMap<String, String>>>;

/// Agents of a run, by kernel and lab file.
pub struct Pools {
    kernels: Kernels,
    agents: usize,
    /// Number of cases by lab file.
    cases: BTreeMap<String, usize>,
    state: Mutex<State>,
    tools: Tools,
}

#[derive(Default)]
struct State {
    shares: BTreeMap<KernelKey, Arc<Share>>,
    /// Pools that cases hold. Agents end when the last case drops its pool.
    pools: BTreeMap<(KernelKey, String), Weak<Pool>>,
    /// Pool that was requested last. The next case often belongs to the same lab.
    last: Option<Arc<Pool>>,
}

/// Limits that all pools of a kernel share.
struct Share {
    /// Memory for labs, in KiB.
    memory: u64,
    /// Permits for this memory, in [`UNIT`]s. `None` for guests, whose agents do not share memory.
    room: Option<Arc<Semaphore>>,
    /// Permits for agents; `None` if their number is unlimited.
    agents: Option<Arc<Semaphore>>,
}

impl Pools {
    /// Creates pools without agents; agents start on demand. Agents get the programs that the nodes
    /// of `cases` run.
    #[must_use]
    pub fn new(options: &Options, cases: &[Prepared]) -> Self {
        let mut kernels = Kernels::new(options.kernels.clone());
        if let Some(agent) = &options.agent {
            kernels = kernels.with_agent(agent.clone());
        }
        if let Some(notice) = options.notice {
            kernels = kernels.with_notice(notice);
        }
        let plans: Vec<&Plan> = cases.iter().map(|case| &case.plan).collect();
        let kernels = at_hand(kernels, &plans, Vec::new(), Vec::new());
        Self {
            kernels,
            agents: options.agents.max(1),
            cases: cases.iter().fold(BTreeMap::new(), |mut counted, case| {
                *counted.entry(lab_file(case)).or_default() += 1;
                counted
            }),
            state: Mutex::default(),
            tools: Tools::default(),
        }
    }

    /// Returns the pools that a case runs in, one for each kernel.
    ///
    /// # Errors
    ///
    /// When no kernel can run the case, or a kernel has too little memory for it.
    pub async fn of_case(&self, prepared: &Prepared) -> Result<Vec<Arc<Pool>>, KernelError> {
        let kernels = self.kernels.of_plan(&prepared.plan).await?;
        let needs = prepared.plan.memory();
        let file = lab_file(prepared);
        let mut state = self.state.lock().await;
        let pools: Vec<_> = kernels
            .into_iter()
            .map(|kernel| self.pool(&mut state, kernel, &file))
            .collect();
        state.last = pools.last().map(Arc::clone);
        for pool in &pools {
            pool.holds(needs)?;
        }
        Ok(pools)
    }

    /// Returns the pool of a lab file in a kernel. Creates the pool if no case holds one.
    fn pool(&self, state: &mut State, kernel: Kernel, file: &str) -> Arc<Pool> {
        let (release, standing) = kernel.key();
        let key = (release.to_owned(), standing);
        let share = state.shares.entry(key.clone());
        let share = share.or_insert_with(|| Arc::new(Share::new(&kernel, self.agents)));
        let share = Arc::clone(share);
        let held = state.pools.entry((key, file.to_owned())).or_default();
        if let Some(pool) = held.upgrade() {
            return pool;
        }
        let cases = self.cases.get(file).copied().unwrap_or(1);
        let agents = part_of_agents(self.agents, cases, self.cases.values().sum());
        let pool = Arc::new(Pool::new(kernel, agents, share, Arc::clone(&self.tools)));
        *held = Arc::downgrade(&pool);
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

/// Returns the number of agents for a lab file with `cases` of `all` cases: at least 1, and
/// at most 1 for each case. More agents slow guests down: each QEMU translates the same
/// code, which takes seconds.
fn part_of_agents(agents: usize, cases: usize, all: usize) -> usize {
    let cases = cases.max(1);
    (agents * cases).div_ceil(all.max(cases)).min(cases)
}

impl Share {
    fn new(kernel: &Kernel, agents: usize) -> Self {
        let memory = kernel.room();
        let semaphore = |permits| Arc::new(Semaphore::new(permits));
        let is_guest = matches!(kernel, Kernel::Guest(_));
        Self {
            memory,
            room: (!is_guest).then(|| semaphore(room(memory))),
            agents: is_guest.then(|| semaphore(agents)),
        }
    }
}

/// Converts memory in KiB to a number of semaphore permits.
fn room(memory: u64) -> usize {
    usize::try_from(units(memory)).unwrap_or(0)
}

/// Agents of one lab file in one kernel. The agents end with the pool.
pub struct Pool {
    kernel: Kernel,
    slots: Vec<Mutex<Slot>>,
    places: Arc<Semaphore>,
    share: Arc<Share>,
    /// Permits for lab memory, in [`UNIT`]s; a case holds its part while it runs. Agents in guests
    /// do not share memory and a case does not choose its agent. A pool of guests therefore has
    /// only the memory of 1 guest.
    room: Arc<Semaphore>,
    /// Permits for as many agents as there are slots, acquired when a case first needs an agent.
    leave: OnceCell<Option<OwnedSemaphorePermit>>,
    next: AtomicUsize,
    tools: Tools,
}

/// Permits of a running case: its place in the pool and its memory.
pub type Held = [OwnedSemaphorePermit; 2];

/// State of one agent of a pool.
#[derive(Default)]
enum Slot {
    /// No agent was needed yet.
    #[default]
    Empty,
    /// Started agent, which may have been lost.
    Agent(Agent),
    /// The agent cannot start. A retry would take as long and fail in the same way.
    Barren(KernelError),
}

impl Pool {
    fn new(kernel: Kernel, agents: usize, share: Arc<Share>, tools: Tools) -> Self {
        let own = || Arc::new(Semaphore::new(room(share.memory)));
        let places = kernel.at_once().saturating_mul(agents);
        Self {
            kernel,
            places: Arc::new(Semaphore::new(places.min(Semaphore::MAX_PERMITS))),
            room: share.room.clone().unwrap_or_else(own),
            share,
            leave: OnceCell::new(),
            slots: (0..agents).map(|_| Mutex::default()).collect(),
            next: AtomicUsize::new(0),
            tools,
        }
    }

    /// Returns the release of the kernel, as far as it is known without an agent.
    pub fn release(&self) -> &str {
        self.kernel.release()
    }

    /// Waits until the agents have room for the lab of `plan`. Dropping the returned permits frees
    /// the room. `None` never occurs: no semaphore is closed.
    pub async fn place(&self, plan: &Plan) -> Option<Held> {
        // A task that waits here holds nothing that other tasks wait for.
        self.leave.get_or_init(|| self.wait_for_agents()).await;
        let room = units(plan.memory()).min(units(self.share.memory));
        // `acquire` fails only for a closed semaphore, and no semaphore is closed. All tasks
        // acquire the two permits in the same order, so they cannot deadlock.
        let place = Arc::clone(&self.places).acquire_owned().await.ok()?;
        let room = Arc::clone(&self.room).acquire_many_owned(room).await.ok()?;
        Some([place, room])
    }

    /// Waits until there are permits for the agents of this pool. `None` if the number of agents is
    /// unlimited.
    async fn wait_for_agents(&self) -> Option<OwnedSemaphorePermit> {
        let agents = self.share.agents.clone()?;
        let wanted = u32::try_from(self.slots.len()).unwrap_or(u32::MAX);
        agents.acquire_many_owned(wanted).await.ok()
    }

    /// Checks that the memory of the kernel suffices for a lab that needs `needs` KiB.
    fn holds(&self, needs: u64) -> Result<(), NoRoom> {
        if needs <= self.share.memory {
            return Ok(());
        }
        Err(NoRoom {
            place: self.kernel.place(),
            needs,
            has: self.share.memory,
        })
    }

    /// Returns an agent that is not known to be lost. The slots are used in turn; an agent is
    /// started if the slot has none.
    ///
    /// # Errors
    ///
    /// When no agent can be started.
    pub async fn agent(&self) -> Result<Agent, KernelError> {
        let at = self.next.fetch_add(1, Ordering::Relaxed) % self.slots.len();
        let mut slot = self.slots[at].lock().await;
        match &*slot {
            Slot::Agent(agent) if !agent.is_lost() => return Ok(agent.clone()),
            Slot::Barren(error) => return Err(error.clone()),
            _ => {}
        }
        match self.kernel.start().await {
            Ok(agent) => {
                let tools = agent.surroundings().tools.clone();
                self.tools.lock().await.extend(tools);
                *slot = Slot::Agent(agent.clone());
                Ok(agent)
            }
            Err(error) => {
                *slot = Slot::Barren(error.clone());
                Err(error)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn part_of_agents_follows_the_number_of_cases() {
        assert_eq!(part_of_agents(2, 30, 30), 2);
        assert_eq!(part_of_agents(2, 30, 105), 1);
        assert_eq!(part_of_agents(16, 30, 105), 5);
        assert_eq!(part_of_agents(16, 1, 105), 1);
        assert_eq!(part_of_agents(16, 2, 2), 2);
        assert_eq!(part_of_agents(2, 0, 0), 1);
    }
}
