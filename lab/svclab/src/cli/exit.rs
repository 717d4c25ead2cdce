//! Exit codes of commands.

use std::process::ExitCode;

use svclab_diagnostic::exit_code;

/// Exit code of a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exit {
    /// The value of [`exit_code::SUCCESS`].
    Success,
    /// The value of [`exit_code::FAILED`].
    Failed,
    /// The value of [`exit_code::INVALID_INPUT`].
    Input,
    /// The value of [`exit_code::HOST_UNABLE`].
    Machine,
    /// The value of [`exit_code::NOTHING_SELECTED`].
    Nothing,
    /// The value of [`exit_code::BUG`].
    Bug,
    /// The value of [`exit_code::INTERRUPTED`].
    Interrupted,
    /// Exit code of a run's results, or of a program in a lab.
    Code(u8),
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(match exit {
            Exit::Success => exit_code::SUCCESS,
            Exit::Failed => exit_code::FAILED,
            Exit::Input => exit_code::INVALID_INPUT,
            Exit::Machine => exit_code::HOST_UNABLE,
            Exit::Nothing => exit_code::NOTHING_SELECTED,
            Exit::Bug => exit_code::BUG,
            Exit::Interrupted => exit_code::INTERRUPTED,
            Exit::Code(code) => code,
        })
    }
}
