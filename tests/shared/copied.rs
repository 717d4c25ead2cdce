//! The command at a place that every user may read.

use std::path::{Path, PathBuf};
use std::process::Command;

/// Copies the command into a directory. Another process does it: a file that this
/// one had open to write cannot be started while a process that was forked in
/// between, by a test beside this one, has it open, too.
pub fn copied(into: &Path) -> PathBuf {
    let program = into.join("svclab");
    let copied = Command::new("cp")
        .arg(env!("CARGO_BIN_EXE_svclab"))
        .arg(&program)
        .status()
        .expect("cp is everywhere");
    assert!(copied.success(), "{} cannot be made", program.display());
    program
}
