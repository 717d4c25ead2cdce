//! Guests for tests: their kernels are fetched once and shared by all tests,
//! their snapshots by those that damage nothing.

use std::path::{Path, PathBuf};

use svclab_runner::kernel::guest::{Cache, Guest, Wanted};

/// The agent of hosts and guests.
pub const AGENT: &str = env!("CARGO_BIN_EXE_svclab-agent");

/// The cache that tests share; other processes of theirs may use it, too.
pub fn shared() -> Cache {
    let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join("guests");
    Cache::open(directory).expect("a cache")
}

/// Runs something on a thread of its own runtime.
pub fn block_on<T>(work: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("a runtime")
        .block_on(work)
}

/// A guest of that series from the shared cache.
pub async fn guest(series: &str) -> Guest {
    Guest::with_agent(
        shared(),
        &Wanted::Series(series.to_owned()),
        PathBuf::from(AGENT),
    )
    .await
    .expect("a kernel")
}
