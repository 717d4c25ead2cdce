//! The command and its agent at a place that every user may read.

use std::path::{Path, PathBuf};
use std::process::Command;

/// Copies the command and its agent into a directory. Returns the path of the command.
/// Another process copies them: a file that this process had open for writing cannot be
/// started while a process that another test forked meanwhile has it open, too.
pub fn copied(into: &Path) -> PathBuf {
    let agent = env!("CARGO_BIN_EXE_svclab-agent");
    let copied = Command::new("cp")
        .args([env!("CARGO_BIN_EXE_svclab"), agent])
        .arg(into)
        .status()
        .expect("cp is everywhere");
    assert!(copied.success(), "{} cannot be written", into.display());
    into.join("svclab")
}
