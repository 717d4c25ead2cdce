//! Runs cases in a new agent on this host. Cases that need IPVS or a dummy interface, which not
//! every host has, run in shared guests.

use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError, mpsc};
use std::thread::JoinHandle;

use svclab_model::evidence::Evidence;
use svclab_model::plan::{LinkKind, Plan};
use svclab_runner::kernel::guest::{Cache, Guest, KernelRequest};
use svclab_runner::kernel::{Agent, Kernel, KernelError};
use svclab_runner::run::Prepared;
use svclab_test_support::programs::{agent, with_agent};
use tokio::runtime::{Builder, Handle};
use tokio::sync::{OnceCell, Semaphore, oneshot};

/// Whether a plan needs a guest.
pub fn needs_guest(plan: &Plan) -> bool {
    plan.namespaces.iter().any(|space| {
        let has_dummy = space.links.iter().any(|link| link.kind == LinkKind::Dummy);
        has_dummy || !space.ipvs.is_empty()
    })
}

/// Runs a function with an agent that can build the plan.
pub fn with_agent_for<T>(
    plan: &Plan,
    work: impl AsyncFnOnce(Agent) -> Result<T, KernelError>,
) -> Result<T, String> {
    if needs_guest(plan) {
        in_guest(work)
    } else {
        with_agent(work)
    }
}

/// Builds the lab of a case and returns the evidence of its probes.
pub fn run(prepared: &Prepared) -> Result<Evidence, String> {
    with_agent_for(&prepared.plan, async |agent| {
        agent.build(prepared.plan.clone()).await?.probe().await
    })
}

/// Guests that all cases share, one for each processor. A separate thread communicates with them.
struct Guests {
    handle: Handle,
    kernel: OnceCell<Result<Kernel, String>>,
    agents: Vec<OnceCell<Result<Agent, String>>>,
    /// Numbers of the free places.
    free_places: Mutex<Vec<usize>>,
    places: Semaphore,
    /// Ends the thread.
    shutdown: Mutex<Option<(oneshot::Sender<()>, JoinHandle<()>)>>,
}

static GUESTS: OnceLock<Guests> = OnceLock::new();

/// Number of parallel labs in a guest, as in `svclab run`.
const LABS_PER_GUEST: usize = 2;

impl Guests {
    fn new() -> Self {
        let (over, ended) = oneshot::channel();
        let (begun, handle) = mpsc::channel();
        let thread = std::thread::spawn(move || {
            let runtime = Builder::new_current_thread()
                .enable_all()
                .build()
                .expect("a runtime");
            begun
                .send(runtime.handle().clone())
                .expect("the caller waits for the handle");
            // A closed channel also ends the thread.
            let _ = runtime.block_on(ended);
        });
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        Self {
            handle: handle.recv().expect("the thread sends it first"),
            kernel: OnceCell::new(),
            agents: (0..processors).map(|_| OnceCell::new()).collect(),
            free_places: Mutex::new(
                (0..processors)
                    .cycle()
                    .take(processors * LABS_PER_GUEST)
                    .collect(),
            ),
            places: Semaphore::new(processors * LABS_PER_GUEST),
            shutdown: Mutex::new(Some((over, thread))),
        }
    }

    async fn agent(&self, index: usize) -> Result<Agent, String> {
        let kernel = self.kernel.get_or_init(|| async {
            let cache = Cache::from_environment().map_err(|error| error.to_string())?;
            let program = agent();
            let guest = Guest::with_agent(cache, &KernelRequest::Newest, program).await;
            let guest = guest.map_err(|error| error.to_string())?;
            Ok(Kernel::Guest(Box::new(guest)))
        });
        let kernel = kernel.await.clone()?;
        let agent = self.agents[index].get_or_init(|| async {
            // QEMU lives as long as the thread that started it.
            let start = self.handle.spawn(async move { kernel.start().await });
            let agent = start.await.expect("the task does not panic");
            agent.map_err(|error| error.to_string())
        });
        agent.await.clone()
    }
}

fn in_guest<T>(doing: impl AsyncFnOnce(Agent) -> Result<T, KernelError>) -> Result<T, String> {
    let guests = GUESTS.get_or_init(Guests::new);
    guests.handle.block_on(async {
        let place = guests
            .places
            .acquire()
            .await
            .expect("the semaphore is open");
        let index = lock_free_places(guests)
            .pop()
            .expect("each permit has a place");
        let done = match guests.agent(index).await {
            Ok(agent) => doing(agent).await.map_err(|error| error.to_string()),
            Err(error) => Err(error),
        };
        lock_free_places(guests).insert(0, index);
        drop(place);
        done
    })
}

fn lock_free_places(guests: &Guests) -> MutexGuard<'_, Vec<usize>> {
    guests
        .free_places
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
}

/// Ends the guests, if any were started: a static is never dropped.
pub fn stop_guests() {
    let over = GUESTS
        .get()
        .and_then(|guests| guests.shutdown.lock().ok()?.take());
    if let Some((over, thread)) = over {
        let _ = over.send(());
        drop(thread.join());
    }
}
