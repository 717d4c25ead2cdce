//! Selects a running lab, and reports errors of the selection and of requests to daemons.

use super::exit::Exit;
use super::output::told;
use crate::live::{About, CallError, Directory, PickError, PlaceError, pick, standing};
use svclab_runner::results::{RunError, Trouble};

/// Returns the socket directory and the selected lab.
///
/// # Errors
///
/// Returns the exit code if there is no such lab. The error is printed to standard error.
pub async fn which(name: Option<&str>, with: &'static str) -> Result<(Directory, About), Exit> {
    let directory = Directory::of_environment().map_err(|error| misplaced(&error))?;
    let mut labs = standing(&directory)
        .await
        .map_err(|error| uncalled(&error))?;
    let at = pick(&labs, name, with).map_err(|error| unpicked(&error))?;
    Ok((directory, labs.swap_remove(at)))
}

/// Reports an error of the socket directory.
pub fn misplaced(error: &PlaceError) -> Exit {
    let trouble = match error {
        PlaceError::Up { .. } => Trouble::Input,
        _ => Trouble::Machine,
    };
    told(&RunError {
        trouble,
        message: error.to_string(),
        remedy: Some(error.remedy()),
    })
}

/// Reports that no lab or several labs match.
pub fn unpicked(error: &PickError) -> Exit {
    eprintln!("error: {error}");
    match error {
        PickError::None | PickError::Unknown { .. } => Exit::Nothing,
        PickError::Several { .. } => Exit::Input,
    }
}

/// Reports a failed request to a daemon.
pub fn uncalled(error: &CallError) -> Exit {
    match error {
        CallError::Place(error) => misplaced(error),
        CallError::Refused(error) => told(error),
        CallError::Broken(_) | CallError::Nonsense => told(&RunError {
            trouble: Trouble::Machine,
            message: error.to_string(),
            remedy: Some("`svclab ps` shows the labs that stand".to_owned()),
        }),
        CallError::Ended => {
            eprintln!("error: {error}");
            Exit::Of(Trouble::Lost.exit_code())
        }
    }
}
