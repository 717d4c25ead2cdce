//! Where the program `svclab-agent` is.

use std::env;
use std::path::{Path, PathBuf};

use svclab_agent::find_program;

/// The variable that names the agent's program.
pub const VARIABLE: &str = "SVCLAB_AGENT";

/// The agent's file name.
pub const NAME: &str = "svclab-agent";

/// The agent's program: the one that [`VARIABLE`] names, else the one in the directory of
/// the running program, or above it where cargo puts tests in `deps`, else the first one of
/// `PATH` and the system's directories. `None` if there is none.
#[must_use]
pub fn find() -> Option<PathBuf> {
    let named = env::var_os(VARIABLE).filter(|path| !path.is_empty());
    let beside = || {
        // The link leads to the running program even when its file was replaced.
        let own = env::current_exe().ok()?;
        let directory = own.parent()?;
        let above = directory.parent().filter(|_| directory.ends_with("deps"));
        first_in(std::iter::once(directory).chain(above))
    };
    let on_path = || {
        let directories: Vec<PathBuf> = env::split_paths(&env::var_os("PATH")?).collect();
        first_in(directories.iter().map(PathBuf::as_path))
    };
    named
        .map(PathBuf::from)
        .or_else(beside)
        .or_else(on_path)
        .or_else(|| find_program(NAME))
}

/// The same, or the path at which it should be.
#[must_use]
pub fn expected() -> PathBuf {
    find().unwrap_or_else(|| {
        let own = env::current_exe().unwrap_or_default();
        own.with_file_name(NAME)
    })
}

fn first_in<'d>(directories: impl Iterator<Item = &'d Path>) -> Option<PathBuf> {
    directories
        .map(|directory| directory.join(NAME))
        .find(|path| path.is_file())
}
