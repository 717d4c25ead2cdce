//! Copies the command and its agent to a directory that every user can read.

use std::path::{Path, PathBuf};
use std::process::Command;

/// Copies the command and its agent into a directory. Returns the path of the command.
///
/// `cp` copies the files, not this process. If this process wrote a file, a concurrent fork of
/// another test could inherit the descriptor. Then `execve` of the file would fail with `ETXTBSY`.
pub fn copy_programs(directory: &Path) -> PathBuf {
    let agent = env!("CARGO_BIN_EXE_svclab-agent");
    let copied = Command::new("cp")
        .args([env!("CARGO_BIN_EXE_svclab"), agent])
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
