//! Labs that stand on this host, and what a user does in them.

mod capture;
mod exec;
mod explain;
mod kube_proxy;
mod terminal;
mod up;

use std::process::Output;

use super::standing_labs::Runtime;
use super::support::{LAB, lab, svclab};

/// A lab of two cases.
pub struct Labs {
    pub runtime: Runtime,
    directory: tempfile::TempDir,
    path: String,
}

impl Labs {
    /// None stands yet.
    pub fn none() -> Self {
        Self::of(LAB)
    }

    /// The same of another lab.
    pub fn of(text: &str) -> Self {
        let (directory, path) = lab(text);
        Self {
            runtime: Runtime::of(svclab),
            directory,
            path: path.display().to_string(),
        }
    }

    /// One of its cases stands.
    pub fn one() -> Self {
        let labs = Self::none();
        labs.runtime.up(&labs.case("Local"));
        labs
    }

    /// The name of a case.
    pub fn case(&self, policy: &str) -> String {
        format!("{}/policy={policy}", self.path)
    }

    /// What a user is told, without what differs from one test or machine to another.
    pub fn told(&self, output: &Output) -> String {
        let directory = self.directory.path().display().to_string();
        self.runtime.told(output).replace(&directory, "LABS")
    }
}

/// Compares what a user is told with what is kept.
macro_rules! assert_told {
    ($labs:expr, $output:expr) => {
        insta::with_settings!({filters => vec![
            (r"Linux \d\S*", "Linux RELEASE"),
            (r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", "TIME"),
            (r"(TIME) +\d+ +", "$1  HOLDER  "),
            (r"[0-9a-f]{16}\.log", "CASE.log"),
            (r"(?m) +$", ""),
            (r" {2,}", "  "),
        ]}, {
            insta::assert_snapshot!($labs.told(&$output));
        })
    };
}
pub(super) use assert_told;
