//! Running labs in a private runtime directory, their explanations, and runs that wait.

pub mod by_hand;
pub mod waiting;

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};

use tempfile::TempDir;

/// Private runtime directory of a test, with the labs that run in it. Dropping it stops the labs.
pub struct Runtime {
    directory: TempDir,
    /// Creates the command, without the environment variable of the runtime directory.
    svclab: fn() -> Command,
}

impl Runtime {
    /// Creates a runtime directory in `/tmp` for labs that this command starts.
    pub fn new(svclab: fn() -> Command) -> Self {
        // The path of a Unix socket must be short.
        let directory = tempfile::tempdir_in("/tmp").expect("a directory");
        Self { directory, svclab }
    }

    /// Returns the command with its arguments, for this runtime directory.
    pub fn svclab(&self, arguments: &[&str]) -> Command {
        let mut command = (self.svclab)();
        command
            .args(arguments)
            .env("XDG_RUNTIME_DIR", self.directory.path())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        command
    }

    /// Runs the command and returns its output.
    pub fn run(&self, arguments: &[&str]) -> Output {
        self.svclab(arguments).output().expect("the command starts")
    }

    pub fn start(&self, arguments: &[&str]) -> Child {
        self.svclab(arguments).spawn().expect("the command starts")
    }

    /// Starts a lab with `up --detach` and returns the printed text. The lab runs when this
    /// returns.
    pub fn up(&self, lab: &str) -> String {
        let output = self.run(&["up", "--detach", lab]);
        assert_eq!(output.status.code(), Some(0), "{output:?}");
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    /// Returns the directory of the sockets.
    pub fn sockets(&self) -> PathBuf {
        self.directory.path().join("svclab")
    }

    /// Returns the sorted names of all files in the socket directory.
    pub fn files(&self) -> Vec<String> {
        let entries = std::fs::read_dir(self.sockets()).expect("a directory");
        let mut names: Vec<String> = entries
            .map(|entry| {
                entry
                    .expect("an entry")
                    .file_name()
                    .to_string_lossy()
                    .into_owned()
            })
            .collect();
        names.sort();
        names
    }

    /// Returns the only running lab, as `ps` reports it.
    pub fn lab_info(&self) -> serde_json::Value {
        let output = self.run(&["ps", "--format", "json"]);
        assert_eq!(output.status.code(), Some(0), "{output:?}");
        let document: serde_json::Value =
            serde_json::from_slice(&output.stdout).expect("a document");
        assert_eq!(document["labs"].as_array().map(Vec::len), Some(1));
        document["labs"][0].clone()
    }

    /// Returns the PID of the daemon of the only running lab.
    pub fn daemon_pid(&self) -> i32 {
        let holder = self.lab_info()["daemonPid"].as_i64().expect("a number");
        i32::try_from(holder).expect("the number fits")
    }

    /// Renders both output streams and the exit code, without the path of the runtime directory.
    pub fn render_output(&self, output: &Output) -> String {
        let text = format!(
            "{}{}ends with {}",
            String::from_utf8_lossy(&output.stdout),
            String::from_utf8_lossy(&output.stderr),
            output
                .status
                .code()
                .map_or("a signal".to_owned(), |code| code.to_string())
        );
        text.replace(&self.directory.path().display().to_string(), "RUNTIME")
    }
}

impl Drop for Runtime {
    fn drop(&mut self) {
        let _ = self.run(&["down", "--all"]);
    }
}

/// Replaces source ports, the kernel release, and the function of a reverse path filter drop.
pub fn normalized(text: &str) -> String {
    let mut settled = text.to_owned();
    let release = nix::sys::utsname::uname().expect("a kernel");
    settled = settled.replace(&*release.release().to_string_lossy(), "RELEASE");
    // The compiler may inline the function into others, so its name varies.
    for (start, _) in text.match_indices("IP_RPFILTER in ") {
        let rest = &text[start + "IP_RPFILTER in ".len()..];
        let is_part = |each: char| each.is_ascii_alphanumeric() || "_.".contains(each);
        let function = rest.split(|each| !is_part(each)).next().unwrap_or_default();
        settled = settled.replace(function, "FUNCTION");
    }
    // Ports from the range in which the kernel picks source ports.
    let ports: BTreeSet<&str> = text
        .split(':')
        .skip(1)
        .map(|rest| {
            rest.split(|each: char| !each.is_ascii_digit())
                .next()
                .unwrap_or("")
        })
        .filter(|port| port.parse::<u16>().is_ok_and(|port| port >= 32768))
        .collect();
    for port in ports {
        settled = settled.replace(&format!(":{port}"), ":PORT");
    }
    settled
}
