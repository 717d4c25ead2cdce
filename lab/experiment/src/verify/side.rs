//! Defines the sides of a verification.

use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio::time::Instant;

use super::document::SideInfo;
use svclab_model::plan::{Namespace, Plan};
use svclab_rules::kube_proxy::Version;
use svclab_runner::kernel::{Host, KernelError};
use svclab_runner::run::binary::{self, BinaryError};

/// kube-proxy program.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Program {
    /// Absolute path.
    pub path: PathBuf,
    /// Version that the program prints.
    pub version: Version,
}

/// Program or rules of one side.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Side {
    /// A real kube-proxy.
    Program(Program),
    /// Rules that svclab generates for a version.
    Rules(Version),
}

impl Side {
    /// Returns the version.
    #[must_use]
    pub const fn version(&self) -> Version {
        match self {
            Self::Program(program) => program.version,
            Self::Rules(version) => *version,
        }
    }

    /// Returns the path of the program, or `None` for generated rules.
    #[must_use]
    pub fn path(&self) -> Option<&Path> {
        match self {
            Self::Program(program) => Some(&program.path),
            Self::Rules(_) => None,
        }
    }

    /// Returns the entry for results, without measured times.
    #[must_use]
    pub fn to_side_info(&self) -> SideInfo {
        SideInfo {
            program: self.path().map(|path| path.display().to_string()),
            version: self.version().to_string(),
            sync: None,
            shift_times: None,
            refused: Vec::new(),
        }
    }
}

/// Reason why the version of a program cannot be determined.
#[derive(Debug, thiserror::Error)]
pub enum VersionError {
    /// The program cannot run.
    #[error(transparent)]
    Binary(#[from] BinaryError),
    /// No kernel is available to run the program.
    #[error(transparent)]
    Kernel(#[from] KernelError),
    /// The program does not end.
    #[error("{} --version did not exit within {} s", .0.display(), VERSION_LIMIT.as_secs())]
    TimedOut(PathBuf),
    /// The program does not end, but waited for a processor most of the time.
    #[error(
        "this machine is too busy: {} --version did not exit within {} s, and waited for a \
         processor most of the time",
        .path.display(),
        .passed.as_secs()
    )]
    TooBusy {
        /// Path of the program.
        path: PathBuf,
        /// Time since the start of the program.
        passed: Duration,
    },
    /// The output does not contain a kube-proxy version.
    #[error(
        "{} --version does not print a kube-proxy version from {} to {}, but: {output}",
        .path.display(), Version::OLDEST, Version::NEWEST
    )]
    NotKubeProxy {
        /// Path of the program.
        path: PathBuf,
        /// First line of the output.
        output: String,
    },
}

/// Maximum time for printing the version, without waits for a processor, and maximum number of bytes that are read.
const VERSION_LIMIT: Duration = Duration::from_secs(10);
const VERSION_BYTES: &str = "4096";

/// Runs a program with `--version` in a separate namespace.
///
/// # Errors
///
/// See [`VersionError`].
pub async fn read_version(path: &Path, host: Host) -> Result<Program, VersionError> {
    let path = binary::find_executable(path)?;
    let agent = host.with_programs([path.clone()]).start().await?;
    let plan = Plan {
        case: "kube-proxy version".to_owned(),
        namespaces: vec![Namespace {
            name: "node".to_owned(),
            ..Namespace::default()
        }],
        ..Plan::default()
    };
    let mut session = agent.build(plan).await?;
    let program = path.display().to_string();
    // A program that prints endlessly is killed by SIGPIPE once the limit is reached.
    let script = format!("\"$0\" --version 2>&1 | head -c {VERSION_BYTES}");
    let arguments = ["-c", &script, &program];
    let begun = Instant::now();
    let finished = session.run_within(VERSION_LIMIT, "node", "sh", &arguments);
    let Some(finished) = finished.await else {
        return Err(timed_out(path, begun.elapsed()));
    };
    let output = finished?.stdout;
    match parse_version(&output) {
        Some(version) => Ok(Program { path, version }),
        None => Err(VersionError::NotKubeProxy {
            path,
            output: output.lines().next().unwrap_or("nothing").to_owned(),
        }),
    }
}

/// Returns the error for a program that did not exit. `passed` is the time since its start,
/// including the time in which it waited for a processor.
fn timed_out(path: PathBuf, passed: Duration) -> VersionError {
    if passed > VERSION_LIMIT * 2 {
        VersionError::TooBusy { path, passed }
    } else {
        VersionError::TimedOut(path)
    }
}

/// Parses the version from `Kubernetes v1.36.0-alpha.0.12+7d1f`. A build between releases has the
/// version of the next release.
fn parse_version(output: &str) -> Option<Version> {
    let words = output
        .lines()
        .find_map(|line| line.strip_prefix("Kubernetes "))?;
    let release = words.trim().split(['-', '+']).next()?;
    release.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timed_out_after_waits_for_processor_is_too_busy() {
        let error = |seconds| timed_out("/kube-proxy".into(), Duration::from_secs(seconds));
        insta::assert_snapshot!(error(10), @"/kube-proxy --version did not exit within 10 s");
        insta::assert_snapshot!(
            error(100),
            @"this machine is too busy: /kube-proxy --version did not exit within 100 s, and waited for a processor most of the time"
        );
    }

    #[test]
    fn parse_version_reads_kube_proxy_output() {
        let parsed = |output: &str| parse_version(output).map(|version| version.to_string());
        assert_eq!(parsed("Kubernetes v1.20.2\n").as_deref(), Some("v1.20.2"));
        assert_eq!(
            parsed("Kubernetes v1.36.0-alpha.0.12+7d1f-dirty\n").as_deref(),
            Some("v1.36.0")
        );
        assert_eq!(parsed("Kubernetes v0.0.0-master+$Format:%H$\n"), None);
        assert_eq!(parsed("kubectl 1\n"), None);
        assert_eq!(parsed(""), None);
    }
}
