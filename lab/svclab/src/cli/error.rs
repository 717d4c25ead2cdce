//! Outcome of a command, and the errors that end one. Each has an exit code of
//! [`svclab_diagnostic::exit_code`].

use std::io;

use crate::live::{CallError, PickError, SocketDirError};
use svclab_diagnostic::source::{SourceError, Sources};
use svclab_diagnostic::{Diagnostic, exit_code, shortage};
use svclab_dump::folder::DumpFilesError;
use svclab_experiment::bisect::{BisectError, OverlayError};
use svclab_experiment::verify::VersionError;
use svclab_runner::kernel::KernelError;
use svclab_runner::results::{ErrorKind, RunError};
use svclab_runner::run::{SelectError, to_run_error};
use svclab_scenario::InvalidScenario;

/// Exit code of a command that printed its result.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Outcome(u8);

impl Outcome {
    pub(crate) const SUCCESS: Self = Self(exit_code::SUCCESS);
    pub(crate) const FAILED: Self = Self(exit_code::FAILED);

    /// Creates the outcome with the exit code of a document, or of a program in a lab.
    pub(crate) const fn from_code(code: u8) -> Self {
        Self(code)
    }

    /// Returns success, or failure if an expectation failed or a difference was found.
    pub(crate) const fn passed_if(passed: bool) -> Self {
        if passed { Self::SUCCESS } else { Self::FAILED }
    }

    pub(crate) const fn code(self) -> u8 {
        self.0
    }
}

/// Result of a command. `main` prints the error.
pub(crate) type CommandResult = Result<Outcome, CliError>;

/// Diagnostics of one input, with the files that they refer to.
#[derive(Debug)]
pub(crate) struct InvalidInput {
    pub(crate) sources: Sources,
    pub(crate) diagnostics: Vec<Diagnostic>,
}

/// Error of standard output.
#[derive(Debug, thiserror::Error)]
pub(crate) enum OutputError {
    #[error("cannot write the output: {0}")]
    Write(#[source] io::Error),
    #[error(transparent)]
    Json(#[from] serde_json::Error),
}

/// Error that ends a command.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CliError {
    #[error(transparent)]
    Usage(clap::Error),
    /// The arguments contradict each other or the input.
    #[error("{message}")]
    Refused {
        message: String,
        help: Option<String>,
    },
    #[error("the input is invalid")]
    InvalidInput(Vec<InvalidInput>),
    #[error(transparent)]
    Source(#[from] SourceError),
    #[error(transparent)]
    DumpFiles(#[from] DumpFilesError),
    #[error(transparent)]
    Overlay(#[from] OverlayError),
    #[error(transparent)]
    Select(SelectError),
    #[error("{message}")]
    NothingSelected {
        message: String,
        help: Option<String>,
    },
    #[error(transparent)]
    Pick(#[from] PickError),
    #[error(transparent)]
    Call(#[from] CallError),
    /// A capture ended with an error after some packets.
    #[error("{source}")]
    Capture { source: CallError, written: String },
    #[error(transparent)]
    Kernel(#[from] KernelError),
    #[error(transparent)]
    Bisect(#[from] BisectError),
    #[error(transparent)]
    Version(#[from] VersionError),
    /// A case or a request has no result.
    #[error("{}", .0.message)]
    Run(RunError),
    #[error("svclab cannot start: {0}")]
    Start(#[source] io::Error),
    #[error("cannot start the lab daemon: {0}")]
    DaemonStart(#[source] io::Error),
    #[error(transparent)]
    Output(#[from] OutputError),
    #[error("cannot write {target}: {source}")]
    Write {
        target: String,
        source: io::Error,
        help: Option<&'static str>,
    },
    /// The directory of `run --report` cannot be written. The message contains the path.
    #[error("cannot write {0}")]
    Report(#[source] io::Error),
    #[error("interrupted")]
    Interrupted,
    #[error("{case} was stopped before it was running")]
    Stopped { case: String },
    #[error("the lab was stopped")]
    LabStopped,
    /// Error of a command that has its own exit codes.
    #[error("{error}")]
    WithExitCode { code: u8, error: Box<CliError> },
}

impl CliError {
    pub(crate) fn refused(message: impl Into<String>, help: impl Into<String>) -> Self {
        Self::Refused {
            message: message.into(),
            help: Some(help.into()),
        }
    }

    pub(crate) fn nothing_selected() -> Self {
        Self::NothingSelected {
            message: "nothing was selected".to_owned(),
            help: None,
        }
    }

    pub(crate) fn invalid_input(sources: &Sources, diagnostics: Vec<Diagnostic>) -> Self {
        Self::InvalidInput(vec![InvalidInput {
            sources: sources.clone(),
            diagnostics,
        }])
    }

    /// Replaces the exit code.
    pub(crate) fn with_exit_code(self, code: u8) -> Self {
        Self::WithExitCode {
            code,
            error: Box::new(self),
        }
    }

    /// Returns the exit code of the command.
    pub(crate) fn exit_code(&self) -> u8 {
        match self {
            Self::Call(error) | Self::Capture { source: error, .. } => match error {
                CallError::SocketDir(SocketDirError::AlreadyRunning { .. }) => {
                    exit_code::INVALID_INPUT
                }
                CallError::SocketDir(_) | CallError::Io(_) | CallError::UnexpectedReply => {
                    exit_code::HOST_UNABLE
                }
                CallError::Refused(error) => error.kind.exit_code(),
                CallError::DaemonEnded => exit_code::AGENT_LOST,
            },
            Self::Kernel(error)
            | Self::Bisect(BisectError::Kernel(error))
            | Self::Version(VersionError::Kernel(error)) => to_run_error(error).kind.exit_code(),
            Self::Run(error) => error.kind.exit_code(),
            // Something that was not tried may be the cause.
            Self::Bisect(
                BisectError::Indistinguishable { unexamined, .. }
                | BisectError::NoDifferences { unexamined, .. },
            ) if !unexamined.not_tried.is_empty() => exit_code::FAILED,
            Self::Usage(_)
            | Self::Refused { .. }
            | Self::InvalidInput(_)
            | Self::Source(_)
            | Self::DumpFiles(_)
            | Self::Overlay(_)
            | Self::Select(
                SelectError::Source(_)
                | SelectError::InvalidLab(_)
                | SelectError::SameName { .. }
                | SelectError::CaseOfFile { .. },
            )
            | Self::Pick(PickError::Ambiguous { .. })
            | Self::Bisect(
                BisectError::Indistinguishable { .. }
                | BisectError::NoDifferences { .. }
                | BisectError::NoProbe { .. }
                | BisectError::BuildFailed { .. }
                | BisectError::NotProbed { .. }
                | BisectError::Pair(_),
            )
            | Self::Version(
                VersionError::Binary(_)
                | VersionError::TimedOut(_)
                | VersionError::NotKubeProxy { .. },
            ) => exit_code::INVALID_INPUT,
            Self::Bisect(BisectError::Unstable { .. })
            | Self::Version(VersionError::TooBusy { .. })
            | Self::Start(_)
            | Self::DaemonStart(_)
            | Self::Output(OutputError::Write(_))
            | Self::Write { .. }
            | Self::Report(_) => exit_code::HOST_UNABLE,
            Self::Select(_) | Self::NothingSelected { .. } | Self::Pick(_) => {
                exit_code::NOTHING_SELECTED
            }
            Self::LabStopped => exit_code::AGENT_LOST,
            Self::Output(OutputError::Json(_)) => exit_code::BUG,
            Self::Interrupted | Self::Stopped { .. } => exit_code::INTERRUPTED,
            Self::WithExitCode { code, .. } => *code,
        }
    }

    /// Returns the advice of the `help:` line.
    pub(crate) fn help(&self) -> Option<String> {
        match self {
            Self::Refused { help, .. } | Self::NothingSelected { help, .. } => help.clone(),
            Self::Call(error) | Self::Capture { source: error, .. } => match error {
                CallError::SocketDir(error) => Some(error.remedy()),
                CallError::Refused(error) => error.remedy.clone(),
                CallError::Io(_) | CallError::UnexpectedReply => {
                    Some("list running labs with `svclab ps`".to_owned())
                }
                CallError::DaemonEnded => None,
            },
            Self::Kernel(error)
            | Self::Bisect(BisectError::Kernel(error))
            | Self::Version(VersionError::Kernel(error)) => to_run_error(error).remedy,
            Self::Bisect(error) => error.help(),
            Self::Version(VersionError::Binary(error)) => Some(error.remedy().to_owned()),
            Self::Version(VersionError::TimedOut(_)) => Some(
                "give the path of a kube-proxy; the version of a program that waits cannot be read"
                    .to_owned(),
            ),
            Self::Version(VersionError::TooBusy { .. }) => {
                Some("run the command again when the machine is less busy".to_owned())
            }
            Self::Version(VersionError::NotKubeProxy { .. }) => Some(
                "give the path of a kube-proxy; your own build reports its version if it is linked \
                 with -X k8s.io/component-base/version.gitVersion=v1.36.0"
                    .to_owned(),
            ),
            Self::Run(error) => error.remedy.clone(),
            Self::Start(error) => shortage::remedy(error).map(str::to_owned),
            Self::Write { help, .. } => help.map(str::to_owned),
            Self::Report(_) => Some("give a writable directory with --report".to_owned()),
            Self::WithExitCode { error, .. } => error.help(),
            Self::Usage(_)
            | Self::InvalidInput(_)
            | Self::Source(_)
            | Self::DumpFiles(_)
            | Self::Overlay(_)
            | Self::Select(_)
            | Self::Pick(_)
            | Self::DaemonStart(_)
            | Self::Output(_)
            | Self::Interrupted
            | Self::LabStopped
            | Self::Stopped { .. } => None,
        }
    }
}

impl From<SelectError> for CliError {
    fn from(error: SelectError) -> Self {
        match error {
            SelectError::InvalidLab(lab) => Self::invalid_input(&lab.sources, lab.diagnostics),
            error => Self::Select(error),
        }
    }
}

impl From<Box<InvalidScenario>> for CliError {
    fn from(invalid: Box<InvalidScenario>) -> Self {
        Self::invalid_input(&invalid.sources, invalid.diagnostics)
    }
}

impl From<SocketDirError> for CliError {
    fn from(error: SocketDirError) -> Self {
        Self::Call(error.into())
    }
}

impl From<RunError> for CliError {
    fn from(error: RunError) -> Self {
        Self::Run(error)
    }
}

/// Returns the outcome of a command that printed results although some cases have none. The most
/// severe kind of their errors decides.
pub(crate) fn outcome_of_cases(
    printed: Result<(), OutputError>,
    worst: Option<ErrorKind>,
    outcome: Outcome,
) -> CommandResult {
    match (printed, worst.map(ErrorKind::exit_code)) {
        (Ok(()), None) => Ok(outcome),
        (Ok(()), Some(code)) => Ok(Outcome::from_code(code)),
        (Err(error), None) => Err(error.into()),
        (Err(error), Some(code)) => Err(CliError::from(error).with_exit_code(code)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn code_and_help(error: impl Into<CliError>) -> (u8, Option<String>) {
        let error = error.into();
        (error.exit_code(), error.help())
    }

    #[test]
    fn cli_error_has_exit_code_and_help() {
        let help = Some("omit it".to_owned());
        let refused = || CliError::refused("x", "omit it");
        assert_eq!(code_and_help(refused()), (2, help.clone()));
        assert_eq!(code_and_help(refused().with_exit_code(125)), (125, help));
        assert_eq!(code_and_help(PickError::None), (4, None));
        assert_eq!(code_and_help(CallError::DaemonEnded), (5, None));
        assert_eq!(code_and_help(CliError::Interrupted), (130, None));
        let no_files = io::Error::from_raw_os_error(nix::libc::EMFILE);
        let (code, help) = code_and_help(CliError::Start(no_files));
        assert_eq!(code, 3);
        assert!(help.is_some_and(|help| help.contains("ulimit -n")));
        let running = SocketDirError::AlreadyRunning {
            case: "lab".to_owned(),
        };
        assert_eq!(code_and_help(running).0, 2);
    }

    #[test]
    fn worst_case_error_decides_over_the_outcome() {
        let code = |printed, worst, outcome| match outcome_of_cases(printed, worst, outcome) {
            Ok(outcome) => outcome.code(),
            Err(error) => error.exit_code(),
        };
        let full = || Err(OutputError::Write(io::ErrorKind::StorageFull.into()));
        assert_eq!(code(Ok(()), None, Outcome::FAILED), 1);
        assert_eq!(code(Ok(()), Some(ErrorKind::Lost), Outcome::FAILED), 5);
        assert_eq!(code(full(), None, Outcome::SUCCESS), 3);
        assert_eq!(code(full(), Some(ErrorKind::Bug), Outcome::SUCCESS), 70);
    }
}
