//! Runs the command on a machine with only the programs and the cache of a test. Checks that the
//! command leaves nothing behind.

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead as _, BufReader};
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStderr, Command, Output, Stdio};

use svclab_test_support::guests::assert_clean;
use svclab_test_support::processes::{HeldProcess, session_processes};

use super::SVCLAB;

/// Name of the QEMU program that guests need.
pub const QEMU: &str = "qemu-system-x86_64";

/// Creates a directory of programs: links to installed programs, and shell scripts.
pub fn program_directory(real: &[&str], scripts: &[(&str, &str)]) -> tempfile::TempDir {
    let directory = tempfile::tempdir().expect("a directory");
    for name in real {
        symlink(installed(name), directory.path().join(name)).expect("a link");
    }
    for (name, text) in scripts {
        let path = directory.path().join(name);
        fs::write(&path, format!("#!/bin/sh\n{text}\n")).expect("a script");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).expect("a script");
    }
    directory
}

/// Returns the path of an installed program.
pub fn installed(name: &str) -> PathBuf {
    let path = std::env::var_os("PATH").expect("PATH is set");
    std::env::split_paths(&path)
        .map(|directory| directory.join(name))
        .find(|path| path.is_file())
        .unwrap_or_else(|| panic!("{name} is not installed"))
}

/// Returns the command with this cache and this `PATH`, as leader of a new session.
pub fn svclab(cache: &Path, path: &Path) -> Command {
    command_on_machine(SVCLAB, cache, path)
}

/// Returns another program, which starts the command, in the same environment.
pub fn command_on_machine(program: &str, cache: &Path, path: &Path) -> Command {
    let mut command = Command::new(program);
    command
        .current_dir(svclab_test_support::root())
        .env_clear()
        .env("NO_COLOR", "1")
        .env("SVCLAB_CACHE", cache)
        .env("PATH", path)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    // SAFETY: one async-signal-safe system call is made between fork and exec.
    unsafe {
        command.pre_exec(|| {
            nix::unistd::setsid()?;
            Ok(())
        });
    }
    command
}

/// Exit code and output of an ended command.
pub struct CommandResult {
    pub code: Option<i32>,
    pub output: String,
}

/// Runs the command until it ends. Then asserts that no process of the command runs, no lock of the
/// cache is held, and no entry is incomplete.
pub fn run(cache: &Path, path: &Path, arguments: &[&str]) -> CommandResult {
    let child = svclab(cache, path)
        .args(arguments)
        .spawn()
        .expect("the command starts");
    wait_for_end(child, cache)
}

/// Waits until a started command ends.
pub fn wait_for_end(child: Child, cache: &Path) -> CommandResult {
    let session = i32::try_from(child.id()).expect("the PID fits");
    let output = child.wait_with_output().expect("the command ends");
    let ended = to_result(&output);
    assert_eq!(
        session_processes(session),
        BTreeMap::new(),
        "{}",
        ended.output
    );
    assert_clean(cache);
    ended
}

fn to_result(output: &Output) -> CommandResult {
    let text = [&output.stdout, &output.stderr]
        .map(|bytes| String::from_utf8_lossy(bytes).into_owned())
        .concat();
    CommandResult {
        code: output.status.code(),
        output: text,
    }
}

/// Returns the output without parts that differ between machines and runs.
pub fn normalized(ended: &CommandResult, cache: &Path) -> String {
    let mut text = ended
        .output
        .replace(&cache.display().to_string(), "CACHE")
        .replace(SVCLAB, "SVCLAB");
    // The text of a kernel console varies.
    if let Some((before, rest)) = text.split_once("  output: ") {
        let after = rest.find("help: ").map_or("", |at| {
            rest[..at].rfind('\n').map_or("", |end| &rest[end..])
        });
        text = format!("{before}  output: WORDS{after}");
    }
    let lines: Vec<&str> = text
        .lines()
        .filter(|line| !line.contains(" passed, "))
        .collect();
    lines.join("\n")
}

/// Compares the output with a snapshot.
macro_rules! assert_output_snapshot {
    ($ended:expr, $cache:expr) => {
        insta::with_settings!({filters => vec![
            (r"\(\d+\.\d+ s\)", "(TIME)"),
            (r"/tmp/\.tmp\w+", "DIR"),
            (r"\.yaml:\d+", ".yaml:LINE"),
            (r"\d+\.\d+\.\d+[-+]\S*-(amd64|generic)", "RELEASE"),
        ]}, {
            insta::assert_snapshot!($crate::command::normalized(&$ended, $cache));
        })
    };
}
pub(crate) use assert_output_snapshot;

/// A running command whose debug log is read.
pub struct LoggedCommand {
    child: Child,
    lines: std::io::Lines<BufReader<ChildStderr>>,
}

impl LoggedCommand {
    pub fn start(cache: &Path, path: &Path, arguments: &[&str]) -> Self {
        let mut child = svclab(cache, path)
            .args(arguments)
            .env("SVCLAB_LOG", "debug")
            .spawn()
            .expect("the command starts");
        let stderr = child.stderr.take().expect("standard error is a pipe");
        Self {
            child,
            lines: BufReader::new(stderr).lines(),
        }
    }

    /// Returns the PID of the command.
    pub fn id(&self) -> i32 {
        i32::try_from(self.child.id()).expect("the PID fits")
    }

    /// Reads the log until a line contains the text. Returns the rest of the line.
    pub fn read_until(&mut self, words: &str) -> String {
        let mut before = Vec::new();
        for line in self.lines.by_ref() {
            let line = line.expect("a line of text");
            if let Some((_, rest)) = line.split_once(words) {
                return rest.to_owned();
            }
            before.push(line);
        }
        panic!("the command never printed `{words}`: {}", before.join("\n"));
    }

    /// Waits until the command starts QEMU. Returns QEMU's PID and pidfd.
    pub fn wait_for_qemu(&mut self) -> (i32, HeldProcess) {
        let process = self.read_until("QEMU runs process=");
        let process = process.trim().parse().expect("a PID");
        (process, HeldProcess::new(process))
    }

    /// Waits until the command ends.
    pub fn wait_for_end(mut self, cache: &Path) -> CommandResult {
        // Reads the log to its end, so that the command does not block.
        let lines = self.lines;
        let reading = std::thread::spawn(move || lines.for_each(drop));
        self.child.stderr = None;
        let ended = wait_for_end(self.child, cache);
        reading.join().expect("the thread ends");
        ended
    }

    /// Kills the command with SIGKILL.
    pub fn kill(mut self) {
        let lines = self.lines;
        let reading = std::thread::spawn(move || lines.for_each(drop));
        self.child.kill().expect("the process runs");
        self.child.wait().expect("the command ends");
        reading.join().expect("the thread ends");
    }
}
