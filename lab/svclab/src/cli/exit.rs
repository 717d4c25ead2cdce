//! What a command ends with.

use std::process::ExitCode;

use svclab_diagnostic::exit_code;

/// What a command ends with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exit {
    /// [`exit_code::SUCCESS`].
    Success,
    /// [`exit_code::FAILED`].
    Failed,
    /// [`exit_code::INPUT`].
    Input,
    /// [`exit_code::MACHINE`].
    Machine,
    /// [`exit_code::NOTHING`].
    Nothing,
    /// [`exit_code::BUG`].
    Bug,
    /// [`exit_code::INTERRUPTED`].
    Interrupted,
    /// The exit code of a run's results, or of a program that ran in a lab.
    Of(u8),
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(match exit {
            Exit::Success => exit_code::SUCCESS,
            Exit::Failed => exit_code::FAILED,
            Exit::Input => exit_code::INPUT,
            Exit::Machine => exit_code::MACHINE,
            Exit::Nothing => exit_code::NOTHING,
            Exit::Bug => exit_code::BUG,
            Exit::Interrupted => exit_code::INTERRUPTED,
            Exit::Of(code) => code,
        })
    }
}
