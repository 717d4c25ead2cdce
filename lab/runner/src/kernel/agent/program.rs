//! Finds the program `svclab-agent`.

use std::env;
use std::path::{Path, PathBuf};

use svclab_agent::find_program;

/// Environment variable with the path of the agent program.
pub const PATH_VARIABLE: &str = "SVCLAB_AGENT";

/// File name of the agent program.
pub const NAME: &str = "svclab-agent";

/// Returns the path of the agent program. `None` if no agent program was found. Searches in this
/// order:
///
/// - path in [`PATH_VARIABLE`]
/// - directory of the running program, and its parent if it is `deps`, where cargo puts tests
/// - `PATH`, and the directories of the system
#[must_use]
pub fn find() -> Option<PathBuf> {
    let named = env::var_os(PATH_VARIABLE).filter(|path| !path.is_empty());
    let in_own_directory = || {
        // The link points to the running program even if its file was replaced.
        let running_program = env::current_exe().ok()?;
        let directory = running_program.parent()?;
        let above = directory.parent().filter(|_| directory.ends_with("deps"));
        first_in(std::iter::once(directory).chain(above))
    };
    let on_path = || {
        let directories: Vec<PathBuf> = env::split_paths(&env::var_os("PATH")?).collect();
        first_in(directories.iter().map(PathBuf::as_path))
    };
    named
        .map(PathBuf::from)
        .or_else(in_own_directory)
        .or_else(on_path)
        .or_else(|| find_program(NAME))
}

/// Returns the path of the agent program, or the path where it should be.
#[must_use]
pub fn expected_path() -> PathBuf {
    find().unwrap_or_else(|| {
        let running_program = env::current_exe().unwrap_or_default();
        running_program.with_file_name(NAME)
    })
}

fn first_in<'d>(directories: impl Iterator<Item = &'d Path>) -> Option<PathBuf> {
    directories
        .map(|directory| directory.join(NAME))
        .find(|path| path.is_file())
}
