//! Guests for tests. All tests share the fetched kernels. Tests that damage nothing also share the
//! snapshots.

use std::path::{Path, PathBuf};

use svclab_runner::kernel::guest::{Cache, Guest, KernelRequest};

/// Path of the agent that runs on hosts and in guests.
pub const AGENT: &str = env!("CARGO_BIN_EXE_svclab-agent");

/// Opens the cache that all tests share, also across processes.
pub fn shared_cache() -> Cache {
    let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join("guests");
    Cache::open(directory).expect("a cache")
}

/// Runs a future on a new single-threaded runtime.
pub fn block_on<T>(work: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("a runtime")
        .block_on(work)
}

/// Creates a guest of a kernel series from the shared cache.
pub async fn new_guest(series: &str) -> Guest {
    Guest::with_agent(
        shared_cache(),
        &KernelRequest::Series(series.to_owned()),
        PathBuf::from(AGENT),
    )
    .await
    .expect("a kernel")
}
