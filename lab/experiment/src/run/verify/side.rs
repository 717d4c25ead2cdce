//! What runs on one side of a comparison.

use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio::time::timeout;

use crate::verify::Ran;
use svclab_model::plan::{Namespace, Plan};
use svclab_rules::kube_proxy::Version;
use svclab_runner::kernel::{Host, KernelError};
use svclab_runner::run::binary::{self, BinaryError};

/// A kube-proxy that can be run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Program {
    /// Its whole path.
    pub path: PathBuf,
    /// Which version it says it is.
    pub version: Version,
}

/// What runs on the nodes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Side {
    /// A program.
    Program(Program),
    /// The rules of a version, as svclab generates them.
    Rules(Version),
}

impl Side {
    /// Its version.
    #[must_use]
    pub const fn version(&self) -> Version {
        match self {
            Self::Program(program) => program.version,
            Self::Rules(version) => *version,
        }
    }

    /// The program's path, if it is one.
    #[must_use]
    pub fn path(&self) -> Option<&Path> {
        match self {
            Self::Program(program) => Some(&program.path),
            Self::Rules(_) => None,
        }
    }

    /// As results name it; nothing was timed yet.
    #[must_use]
    pub fn named(&self) -> Ran {
        Ran {
            program: self.path().map(|path| path.display().to_string()),
            version: self.version().to_string(),
            sync: None,
            moving: None,
            refused: Vec::new(),
        }
    }
}

/// Why the version of a program is not known.
#[derive(Debug, thiserror::Error)]
pub enum SaysNothing {
    /// It cannot be run at all.
    #[error(transparent)]
    Binary(#[from] BinaryError),
    /// There is no place to ask it in.
    #[error(transparent)]
    Kernel(#[from] KernelError),
    /// It does not end.
    #[error("{} --version did not end within {} s", .0.display(), VERSION_LIMIT.as_secs())]
    Endless(PathBuf),
    /// It says something else.
    #[error("{} --version does not say that it is a kube-proxy v1.9 or newer, but: {said}", .path.display())]
    Otherwise {
        /// The program.
        path: PathBuf,
        /// What it said.
        said: String,
    },
}

/// How long a program may take to print its version, and how many bytes of that are read.
const VERSION_LIMIT: Duration = Duration::from_secs(10);
const VERSION_BYTES: &str = "4096";

/// Asks a program, in a namespace of its own, which version of kube-proxy it is.
///
/// # Errors
///
/// When it cannot be run, or says nothing of the kind.
pub async fn version_of(path: &Path, host: Host) -> Result<Program, SaysNothing> {
    let path = binary::find(path)?;
    let agent = host.with_programs([path.clone()]).start().await?;
    let plan = Plan {
        case: "the version of a kube-proxy".to_owned(),
        namespaces: vec![Namespace {
            name: "node".to_owned(),
            ..Namespace::default()
        }],
        ..Plan::default()
    };
    let mut session = agent.build(plan).await?;
    let program = path.display().to_string();
    // A program that prints on is ended when nothing reads what it prints.
    let script = format!("\"$0\" --version 2>&1 | head -c {VERSION_BYTES}");
    let arguments = ["-c", &script, &program];
    let finished = session.run("node", "sh", &arguments, "");
    let Ok(finished) = timeout(VERSION_LIMIT, finished).await else {
        return Err(SaysNothing::Endless(path));
    };
    let said = finished?.stdout;
    match version(&said) {
        Some(version) => Ok(Program { path, version }),
        None => Err(SaysNothing::Otherwise {
            path,
            said: said.lines().next().unwrap_or("nothing").to_owned(),
        }),
    }
}

/// The version in `Kubernetes v1.36.0-alpha.0.12+7d1f`: of what is built between
/// releases, the one that it will be.
fn version(said: &str) -> Option<Version> {
    let words = said
        .lines()
        .find_map(|line| line.strip_prefix("Kubernetes "))?;
    let release = words.trim().split(['-', '+']).next()?;
    release.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_kube_proxy_says_of_itself_is_read() {
        let read = |said: &str| version(said).map(|version| version.to_string());
        assert_eq!(read("Kubernetes v1.20.2\n").as_deref(), Some("v1.20.2"));
        assert_eq!(
            read("Kubernetes v1.36.0-alpha.0.12+7d1f-dirty\n").as_deref(),
            Some("v1.36.0")
        );
        assert_eq!(read("Kubernetes v0.0.0-master+$Format:%H$\n"), None);
        assert_eq!(read("kubectl 1\n"), None);
        assert_eq!(read(""), None);
    }
}
