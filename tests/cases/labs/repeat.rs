//! Repeats cases while all processors are busy: no verdict may depend on scheduling.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::thread::JoinHandle;

use futures_util::{StreamExt, TryStreamExt};
use libtest_mimic::{Failed, Trial};
use svclab_model::evidence::{Evidence, Verdict};
use svclab_runner::run::Prepared;
use svclab_test_support::ordinary_or_full;
use svclab_test_support::programs::with_agent;

/// A case whose packets are dropped, and a case whose packets arrive.
const CASES: [(&str, Verdict); 2] = [
    (
        "canal-stale-rule/stale=present,rpFilter=1,underlay=passes",
        Verdict::Timeout,
    ),
    (
        "canal-stale-rule/stale=removed,rpFilter=1,underlay=drops",
        Verdict::Connected,
    ),
];

/// Number of agents that share the repetitions.
const AGENTS: usize = 2;

/// Number of parallel labs in each agent. Most of a timeout is waiting, and a process may have at
/// most 1024 descriptors.
const PARALLEL_LABS: usize = 25;

/// Returns one trial for each of the cases.
pub fn trials(cases: &[Prepared]) -> Vec<Trial> {
    let times = ordinary_or_full(20, 500);
    CASES
        .iter()
        .map(|(id, verdict)| {
            let prepared = cases
                .iter()
                .find(|prepared| prepared.case.id == *id)
                .unwrap_or_else(|| panic!("no case {id}"))
                .clone();
            let name = format!("repeat/{id}: {times} times {verdict}");
            Trial::test(name, move || check_repetitions(&prepared, *verdict, times))
        })
        .collect()
}

fn check_repetitions(prepared: &Prepared, verdict: Verdict, times: usize) -> Result<(), Failed> {
    let busy = BusyThreads::shared();
    let results = std::thread::scope(|scope| {
        let each = || run_repetitions(prepared, times / AGENTS);
        let agents: Vec<_> = (0..AGENTS).map(|_| scope.spawn(each)).collect();
        agents
            .into_iter()
            .map(|agent| agent.join().expect("no thread panics"))
            .collect::<Result<Vec<_>, _>>()
    });
    drop(busy);
    let evidences = results?.concat();
    assert_eq!(evidences.len(), times);
    let judge = prepared
        .judge()
        .map_err(|problems| format!("{problems:?}"))?;
    for (number, evidence) in evidences.iter().enumerate() {
        let verdicts: Vec<Verdict> = evidence.attempts().map(|a| a.verdict).collect();
        if verdicts != [verdict] {
            return Err(format!("repetition {number}: {evidence:#?}").into());
        }
        let judgement = judge.judge(evidence);
        if !judgement.holds() {
            return Err(format!("repetition {number}: {judgement:#?}").into());
        }
    }
    Ok(())
}

/// Returns the evidence of several repetitions in one agent.
fn run_repetitions(prepared: &Prepared, times: usize) -> Result<Vec<Evidence>, String> {
    with_agent(async |agent| {
        futures_util::stream::iter(0..times)
            .map(|_| async {
                let mut session = agent.build(prepared.plan.clone()).await?;
                session.probe().await
            })
            .buffer_unordered(PARALLEL_LABS)
            .try_collect()
            .await
    })
}

/// Busy threads, one for each processor, which run until this value is dropped.
struct BusyThreads {
    is_over: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl BusyThreads {
    /// Returns the running busy threads, or starts them.
    fn shared() -> Arc<Self> {
        static RUNNING: Mutex<Weak<BusyThreads>> = Mutex::new(Weak::new());
        let mut running = RUNNING.lock().unwrap_or_else(PoisonError::into_inner);
        let busy = running.upgrade().unwrap_or_else(|| Arc::new(Self::start()));
        *running = Arc::downgrade(&busy);
        busy
    }

    fn start() -> Self {
        let is_over = Arc::new(AtomicBool::new(false));
        let processors = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        let threads = (0..processors)
            .map(|_| {
                let enough = Arc::clone(&is_over);
                std::thread::spawn(move || {
                    while !enough.load(Ordering::Relaxed) {
                        std::hint::spin_loop();
                    }
                })
            })
            .collect();
        Self { is_over, threads }
    }
}

impl Drop for BusyThreads {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            drop(thread.join());
        }
    }
}
