//! Implements `svclab completions` and `svclab man`.

use std::path::Path;

use crate::cli::command;
use crate::cli::complete::script;
use crate::cli::error::{CliError, CommandResult, Outcome};
use crate::cli::output::print;

/// Prints a completion script.
pub(crate) fn completions(shell: clap_complete::Shell) -> CommandResult {
    let script = script(shell).ok_or_else(|| {
        CliError::refused(
            format!("there is no completion for {shell}"),
            "use bash, elvish, fish, powershell or zsh",
        )
    })?;
    print(&script)?;
    Ok(Outcome::SUCCESS)
}

/// Writes a man page for each command: `svclab.1`, `svclab-run.1`.
pub(crate) fn man(directory: &Path) -> CommandResult {
    std::fs::create_dir_all(directory)
        .and_then(|()| clap_mangen::generate_to(command(), directory))
        .map_err(|source| CliError::Write {
            target: directory.display().to_string(),
            source,
            help: Some("give a writable directory"),
        })?;
    Ok(Outcome::SUCCESS)
}
