//! Exit codes.

use std::process::ExitCode;

/// What a command ends with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exit {
    /// All as expected: 0.
    Success,
    /// An expectation failed: 1.
    Failed,
    /// The input is wrong: 2.
    Input,
    /// Nothing was selected: 4.
    Nothing,
    /// Interrupted: 130.
    Interrupted,
    /// The exit code of a run's results.
    Of(u8),
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(match exit {
            Exit::Success => 0,
            Exit::Failed => 1,
            Exit::Input => 2,
            Exit::Nothing => 4,
            Exit::Interrupted => 130,
            Exit::Of(code) => code,
        })
    }
}
