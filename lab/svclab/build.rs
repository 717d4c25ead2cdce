//! Passes the commit and its date to the program, for `svclab --version`.
//!
//! A package is built outside of the repository: `SVCLAB_COMMIT` then contains both. A debug build
//! does not name the commit, because each commit would otherwise compile all tests again.

use std::env;
use std::path::Path;
use std::process::Command;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-env-changed=SVCLAB_COMMIT");
    let commit = env::var("SVCLAB_COMMIT").ok().or_else(|| {
        let is_release = env::var("PROFILE").is_ok_and(|profile| profile == "release");
        if is_release { last_commit() } else { None }
    });
    let commit = commit.unwrap_or_else(|| "unknown commit".to_owned());
    println!("cargo::rustc-env=SVCLAB_COMMIT={commit}");
}

/// Returns the abbreviated hash and the date of the last commit: `0123456789ab 2026-11-26`. `None`
/// outside of a repository.
fn last_commit() -> Option<String> {
    // A commit changes the log of HEAD.
    for file in ["HEAD", "logs/HEAD"] {
        let file = git(&["rev-parse", "--git-path", file])?;
        if Path::new(&file).exists() {
            println!("cargo::rerun-if-changed={file}");
        }
    }
    git(&["log", "-1", "--abbrev=12", "--format=%h %cs"])
}

fn git(arguments: &[&str]) -> Option<String> {
    let output = Command::new("git").args(arguments).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    output
        .status
        .success()
        .then(|| text.trim().to_owned())
        .filter(|text| !text.is_empty())
}
