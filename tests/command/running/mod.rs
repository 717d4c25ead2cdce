//! Tests labs that run on this host, and the commands for them.

mod capture;
mod exec;
mod explain;
mod kube_proxy;
mod terminal;
mod up;

use std::process::Output;

use svclab_test_support::running::Runtime;

use crate::support::{LAB, svclab, write_lab};

/// A lab file with two cases, and a private runtime directory.
pub struct Labs {
    pub runtime: Runtime,
    pub directory: tempfile::TempDir,
    path: String,
}

impl Labs {
    /// Creates the good lab; no case runs.
    pub fn new() -> Self {
        Self::from_text(LAB)
    }

    /// Creates a lab from a text; no case runs.
    pub fn from_text(text: &str) -> Self {
        let (directory, path) = write_lab(text);
        Self {
            runtime: Runtime::new(svclab),
            directory,
            path: path.display().to_string(),
        }
    }

    /// Creates the good lab and starts the case `policy=Local`.
    pub fn with_running_case() -> Self {
        let labs = Self::new();
        labs.runtime.up(&labs.case("Local"));
        labs
    }

    /// Returns the name of a case.
    pub fn case(&self, policy: &str) -> String {
        format!("{}/policy={policy}", self.path)
    }

    /// Renders the output without parts that differ between tests or machines.
    pub fn render_output(&self, output: &Output) -> String {
        let directory = self.directory.path().display().to_string();
        self.runtime
            .render_output(output)
            .replace(&directory, "LABS")
    }
}

/// Compares rendered output with a snapshot.
macro_rules! assert_output_snapshot {
    ($labs:expr, $output:expr) => {
        insta::with_settings!({filters => vec![
            (r"Linux \d\S*", "Linux RELEASE"),
            (r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", "TIME"),
            (r"(TIME) +\d+ +", "$1  DAEMON  "),
            (r"[0-9a-f]{16}\.log", "CASE.log"),
            (r"(?m) +$", ""),
            (r" {2,}", "  "),
        ]}, {
            insta::assert_snapshot!($labs.render_output(&$output));
        })
    };
}
pub(super) use assert_output_snapshot;
