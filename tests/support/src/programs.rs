//! The built programs, their directory for temporary files, and copies that every user can read.

use std::path::{Path, PathBuf};
use std::process::Command;

use svclab_runner::kernel::{Agent, Host, KernelError};

use crate::block_on;

/// Returns a directory of the target directory, `levels` above the running test. Cargo builds tests
/// and benchmarks in `target/PROFILE/deps`. `env!("CARGO_BIN_EXE_svclab")` and
/// `env!("CARGO_TARGET_TMPDIR")` are the same paths, but are not set for a library.
fn above_this_program(levels: usize) -> PathBuf {
    let program = std::env::current_exe().expect("this program");
    let mut directories = program.ancestors();
    directories
        .nth(levels)
        .expect("a directory of target")
        .to_owned()
}

/// Returns the path of the command.
pub fn svclab() -> PathBuf {
    above_this_program(2).join("svclab")
}

/// Returns the path of the agent that runs on hosts and in guests.
pub fn agent() -> PathBuf {
    above_this_program(2).join("svclab-agent")
}

/// Returns the directory for files that outlive a test.
pub fn target_tmpdir() -> PathBuf {
    above_this_program(3).join("tmp")
}

/// Runs a function with a new agent on this host, which ends afterwards.
pub fn with_agent<T>(work: impl AsyncFnOnce(Agent) -> Result<T, KernelError>) -> Result<T, String> {
    block_on(async {
        let agent = Host::with_agent(agent()).start().await;
        work(agent.map_err(|error| error.to_string())?)
            .await
            .map_err(|error| error.to_string())
    })
}

/// Copies the command and its agent into a directory. Returns the path of the command.
///
/// `cp` copies the files, not this process. If this process wrote a file, a concurrent fork of
/// another test could inherit the descriptor. Then `execve` of the file would fail with `ETXTBSY`.
pub fn copy_programs(directory: &Path) -> PathBuf {
    let copied = Command::new("cp")
        .args([svclab(), agent()])
        .arg(directory)
        .status()
        .expect("cp is installed");
    assert!(
        copied.success(),
        "{} cannot be written",
        directory.display()
    );
    directory.join("svclab")
}
