//! Measures the lab with svclab: as a command from start to end, and from plan to verdict in a
//! running agent.

use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use svclab_model::evidence::Verdict;
use svclab_model::plan::{Backend, Plan};
use svclab_runner::kernel::{Agent, Host};
use svclab_test_support::evidence::single_stage;
use tokio::runtime::Runtime;

use super::plan;

/// The lab with one of the two iptables backends.
pub struct Case {
    plan: Plan,
    name: String,
}

impl Case {
    /// Reads the lab with that iptables backend.
    pub fn new(backend: Backend) -> Self {
        Self {
            plan: plan::plan(backend),
            name: plan::name(backend),
        }
    }

    /// Returns the plan of the lab.
    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    /// Runs the command and returns its time from start to end.
    pub fn run(&self) -> Duration {
        let started = Instant::now();
        let status = Command::new(env!("CARGO_BIN_EXE_svclab"))
            .args(["run", &self.name])
            .stdout(Stdio::null())
            .status()
            .expect("svclab can be started");
        let took = started.elapsed();
        assert!(status.success(), "{} ended with {status}", self.name);
        took
    }
}

pub struct RunningAgent {
    runtime: Runtime,
    agent: Agent,
}

impl RunningAgent {
    pub fn start() -> Self {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .expect("a runtime");
        let agent = runtime
            .block_on(Host::with_agent(env!("CARGO_BIN_EXE_svclab-agent").into()).start())
            .expect("the agent starts");
        Self { runtime, agent }
    }

    /// Measures the time from the plan to the verdict. Removes the lab after the measurement.
    pub fn measure_verdict(&self, case: &Case) -> Duration {
        let plan = case.plan().clone();
        self.runtime.block_on(async {
            let begun = Instant::now();
            let mut session = self.agent.build(plan).await.expect("the lab is built");
            let evidence = single_stage(session.probe().await.expect("the lab is probed"));
            let took = begun.elapsed();
            let verdicts: Vec<Verdict> = evidence.attempts.iter().map(|a| a.verdict).collect();
            assert_eq!(verdicts, [Verdict::Connected]);
            drop(session);
            // The agent answers requests in order: once the empty lab is built, the previous lab is
            // removed.
            drop(self.agent.build(Plan::default()).await);
            took
        })
    }
}
