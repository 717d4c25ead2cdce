//! Running the built command.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::Value;

use super::rights::may_ask;

/// The directory of the project.
pub fn project() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// The command, in the project's directory, without what the caller's
/// environment would change.
pub fn svclab() -> Command {
    let mut command = Command::new(crate::SVCLAB);
    command
        .current_dir(project())
        .env_remove("SVCLAB_TOPOLOGIES")
        .env("NO_COLOR", "1");
    command
}

/// svclab as one who may not ask this kernel what it drops, and why: what counters tell
/// is the same with every kernel. Guests' kernels are asked.
pub fn uninformed() -> Command {
    let svclab = svclab();
    if !may_ask() {
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

/// What the command did with these arguments.
pub fn run(arguments: &[&str]) -> Output {
    svclab()
        .args(arguments)
        .output()
        .expect("the command starts")
}

/// Standard output as text.
pub fn stdout(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Standard error as text.
pub fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// A lab that is right, to be made wrong: a client, a server and a service on
/// one node, and a probe that connects.
pub const LAB: &str = include_str!("good.yaml");

/// Writes a lab called `lab` into a directory of its own.
pub fn lab(text: impl AsRef<[u8]>) -> (tempfile::TempDir, PathBuf) {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let path = directory.path().join("lab.yaml");
    std::fs::write(&path, text).expect("the lab can be written");
    (directory, path)
}

/// Holds a document against a schema.
pub fn assert_fits(document: &Value, schema: &str) {
    let schema: Value = serde_json::from_str(schema).expect("JSON");
    let validator = jsonschema::draft202012::new(&schema).expect("a schema");
    let complaints: Vec<String> = validator
        .iter_errors(document)
        .map(|error| format!("{}: {error}", error.instance_path()))
        .collect();
    assert_eq!(complaints, Vec::<String>::new());
}
