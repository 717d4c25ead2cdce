//! Reads the labs, and starts a new agent on this host.

use std::path::{Path, PathBuf};
use std::time::Duration;

use svclab_runner::kernel::{Agent, Host, KernelError};
use svclab_runner::run::{Prepared, prepare, select_labs};
use tokio::runtime::Builder;

/// Wait of the labs' probes, as in `svclab run`.
const MAX_WAIT: Duration = Duration::from_secs(3);

/// Returns the directory of the labs.
pub fn topologies() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("topologies")
}

/// Prepares every case of every lab directly in `topologies/`.
pub fn cases() -> Vec<Prepared> {
    cases_of(&[])
}

/// Prepares every case of the labs with these names.
pub fn cases_of(names: &[String]) -> Vec<Prepared> {
    let labs = select_labs(names, &topologies()).expect("the labs are well-formed");
    labs.iter()
        .flat_map(|lab| lab.scenario.cases().iter().map(move |case| (lab, case)))
        .map(|(lab, case)| prepare(lab, case, MAX_WAIT).expect("every case can be prepared"))
        .collect()
}

/// Runs a function with a new agent on this host, which ends afterwards.
pub fn with_agent<T>(work: impl AsyncFnOnce(Agent) -> Result<T, KernelError>) -> Result<T, String> {
    let runtime = Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("a runtime");
    runtime.block_on(async {
        let host = Host::with_agent(PathBuf::from(env!("CARGO_BIN_EXE_svclab-agent")));
        let agent = host.start().await.map_err(|error| error.to_string())?;
        work(agent).await.map_err(|error| error.to_string())
    })
}
