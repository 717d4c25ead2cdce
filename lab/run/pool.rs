//! The agents of a run: some for each kernel that its cases need.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::sync::{Mutex, OwnedSemaphorePermit, Semaphore};

use super::at_hand::at_hand;
use super::execute::Options;
use super::prepare::Prepared;
use crate::agent::contain::Standing;
use crate::kernel::{Agent, Kernel, KernelError, Kernels, NoRoom};
use crate::plan::Plan;

/// In what memory is counted, in KiB.
const UNIT: u64 = 1024;

/// So many of [`UNIT`].
fn units(memory: u64) -> u32 {
    let most = u32::MAX >> 3;
    u32::try_from(memory.div_ceil(UNIT)).map_or(most, |units| units.min(most))
}

/// The agents of a run, by kernel.
pub struct Pools {
    kernels: Kernels,
    agents: usize,
    by_kernel: Mutex<BTreeMap<(String, Standing), Arc<Pool>>>,
}

impl Pools {
    /// None yet: agents are started as they are needed. They have the programs at hand
    /// that the cases' nodes run.
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
            by_kernel: Mutex::default(),
        }
    }

    /// Where a case is to run.
    ///
    /// # Errors
    ///
    /// When it can run nowhere.
    pub async fn of_case(&self, prepared: &Prepared) -> Result<Vec<Arc<Pool>>, KernelError> {
        let kernels = self.kernels.of_plan(&prepared.plan).await?;
        let needs = prepared.plan.memory();
        let mut pools = self.by_kernel.lock().await;
        let pool = |kernel: Kernel| {
            let (release, standing) = kernel.key();
            let made = pools
                .entry((release.to_owned(), standing))
                .or_insert_with(|| Arc::new(Pool::new(kernel, self.agents)));
            Arc::clone(made)
        };
        let pools: Vec<_> = kernels.into_iter().map(pool).collect();
        for pool in &pools {
            pool.holds(needs)?;
        }
        Ok(pools)
    }

    /// The versions of svclab and of every program that its agents found.
    pub async fn tools(&self) -> BTreeMap<String, String> {
        let mut tools = BTreeMap::new();
        for pool in self.by_kernel.lock().await.values() {
            tools.extend(pool.tools.lock().await.clone());
        }
        tools.insert("svclab".to_owned(), env!("CARGO_PKG_VERSION").to_owned());
        tools
    }
}

/// The agents of one kernel.
pub struct Pool {
    kernel: Kernel,
    slots: Vec<Mutex<Slot>>,
    places: Arc<Semaphore>,
    /// How much memory there is for labs, in KiB.
    memory: u64,
    /// The same, in [`UNIT`]s: a case takes its part while it stands. Agents of
    /// guests do not share theirs, and a case does not choose its agent: so there
    /// is no more than one has.
    room: Arc<Semaphore>,
    next: AtomicUsize,
    tools: Mutex<BTreeMap<String, String>>,
}

/// The place of one agent.
#[derive(Default)]
enum Slot {
    /// None was needed yet.
    #[default]
    Empty,
    /// An agent, which may have been lost.
    Agent(Agent),
    /// None can be started; trying it again would take as long and end alike.
    Barren(KernelError),
}

impl Pool {
    fn new(kernel: Kernel, agents: usize) -> Self {
        let memory = kernel.room();
        let places = kernel.at_once().saturating_mul(agents);
        Self {
            kernel,
            places: Arc::new(Semaphore::new(places.min(Semaphore::MAX_PERMITS))),
            memory,
            room: Arc::new(Semaphore::new(usize::try_from(units(memory)).unwrap_or(0))),
            slots: (0..agents).map(|_| Mutex::default()).collect(),
            next: AtomicUsize::new(0),
            tools: Mutex::default(),
        }
    }

    /// What its kernel calls itself, as far as that is known without an agent.
    pub fn release(&self) -> &str {
        self.kernel.release()
    }

    /// Waits until its agents have room for one lab more, this one. It has it until
    /// what is returned is dropped.
    pub async fn place(&self, plan: &Plan) -> Option<[OwnedSemaphorePermit; 2]> {
        let room = units(plan.memory()).min(units(self.memory));
        // They fail only for a semaphore that is closed, which nobody does. Waiting
        // first for the one and then for the other, nobody waits for a circle.
        let place = Arc::clone(&self.places).acquire_owned().await.ok()?;
        let room = Arc::clone(&self.room).acquire_many_owned(room).await.ok()?;
        Some([place, room])
    }

    /// Asks whether a lab of this size, in KiB, can stand here at all.
    fn holds(&self, needs: u64) -> Result<(), NoRoom> {
        if needs <= self.memory {
            return Ok(());
        }
        Err(NoRoom {
            place: self.kernel.place(),
            needs,
            has: self.memory,
        })
    }

    /// An agent that lives, as far as is known.
    ///
    /// # Errors
    ///
    /// When none can be started.
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
