//! A user's runtime directory of a test's own, and the labs that stand in it. They
//! are taken away with it.

use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};

use tempfile::TempDir;

/// A runtime directory.
pub struct Runtime {
    directory: TempDir,
    /// The command, without what tells it where labs are held.
    svclab: fn() -> Command,
}

impl Runtime {
    /// One for labs that this command holds.
    pub fn of(svclab: fn() -> Command) -> Self {
        // A socket's path must be short.
        let directory = tempfile::tempdir_in("/tmp").expect("a directory");
        Self { directory, svclab }
    }

    /// The command, there.
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

    /// What the command did.
    pub fn run(&self, arguments: &[&str]) -> Output {
        self.svclab(arguments).output().expect("the command starts")
    }

    /// The command, under way.
    pub fn start(&self, arguments: &[&str]) -> Child {
        self.svclab(arguments).spawn().expect("the command starts")
    }

    /// Builds a lab, which stands when this returns; what was said.
    pub fn up(&self, lab: &str) -> String {
        let output = self.run(&["up", "--detach", lab]);
        assert_eq!(output.status.code(), Some(0), "{output:?}");
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    /// Where its sockets are.
    pub fn sockets(&self) -> PathBuf {
        self.directory.path().join("svclab")
    }

    /// The names of the files beside the sockets, and of those.
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

    /// The only lab that stands, as `ps` tells it.
    pub fn about(&self) -> serde_json::Value {
        let output = self.run(&["ps", "--format", "json"]);
        assert_eq!(output.status.code(), Some(0), "{output:?}");
        let document: serde_json::Value =
            serde_json::from_slice(&output.stdout).expect("a document");
        assert_eq!(document["labs"].as_array().map(Vec::len), Some(1));
        document["labs"][0].clone()
    }

    /// The process that holds the only lab there is.
    pub fn holder(&self) -> i32 {
        let holder = self.about()["holder"].as_i64().expect("a number");
        i32::try_from(holder).expect("a small number")
    }

    /// What was said, on both streams and with its end, without what differs from
    /// one test or machine to another.
    pub fn told(&self, output: &Output) -> String {
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
