//! Runs the tested command.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::Value;
use svclab_rules::kube_proxy::Version;
use svclab_test_support::can_trace_drops;

pub fn project() -> &'static Path {
    svclab_test_support::root()
}

/// Returns the command, in the project directory, without environment variables that change its
/// behavior.
pub fn svclab() -> Command {
    let mut command = Command::new(crate::SVCLAB);
    command
        .current_dir(project())
        .env_remove("SVCLAB_TOPOLOGIES")
        .env("XDG_STATE_HOME", env!("CARGO_TARGET_TMPDIR"))
        .env("NO_COLOR", "1");
    command
}

/// Returns the command without the privileges to trace drops on this kernel. Its explanations then
/// rely on counters, which are the same on every kernel. Kernels of guests still report drops.
pub fn svclab_without_drops() -> Command {
    let svclab = svclab();
    if !can_trace_drops() {
        return svclab;
    }
    let mut command = Command::new("setpriv");
    command.arg("--bounding-set=-bpf,-perfmon,-sys_admin");
    command.arg(svclab.get_program());
    for (name, value) in svclab.get_envs() {
        match value {
            Some(value) => command.env(name, value),
            None => command.env_remove(name),
        };
    }
    command
}

/// Runs the command with these arguments and returns its output.
pub fn run(arguments: &[&str]) -> Output {
    svclab()
        .args(arguments)
        .output()
        .expect("the command starts")
}

pub fn stdout(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

pub fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// Replaces the newest version of kube-proxy at the end of a line, which every new version changes.
pub fn without_newest_version(text: &str) -> String {
    text.replace(&format!("to {}\n", Version::NEWEST), "to NEWEST\n")
}

/// A valid lab that tests change: a client, a server and a service on one node, and a probe that
/// connects.
pub const LAB: &str = include_str!("good.yaml");

/// Writes a lab named `lab` to a new directory. Returns the directory and the path.
pub fn write_lab(text: impl AsRef<[u8]>) -> (tempfile::TempDir, PathBuf) {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let path = directory.path().join("lab.yaml");
    std::fs::write(&path, text).expect("the lab can be written");
    (directory, path)
}

/// Asserts that a document matches a schema.
pub fn assert_matches_schema(document: &Value, schema: &str) {
    let schema: Value = serde_json::from_str(schema).expect("JSON");
    let validator = jsonschema::draft202012::new(&schema).expect("a schema");
    let complaints: Vec<String> = validator
        .iter_errors(document)
        .map(|error| format!("{}: {error}", error.instance_path()))
        .collect();
    assert_eq!(complaints, Vec::<String>::new());
}
