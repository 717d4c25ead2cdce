//! Selects a running lab.

use crate::cli::error::CliError;
use crate::live::{LabInfo, SocketDir, pick_lab, running_labs};

/// Returns the socket directory and the selected lab. `selector` is the argument to recommend if
/// several labs match.
pub(crate) async fn find_running_lab(
    name: Option<&str>,
    selector: &'static str,
) -> Result<(SocketDir, LabInfo), CliError> {
    let directory = SocketDir::from_env()?;
    let mut labs = running_labs(&directory).await?;
    let index = pick_lab(&labs, name, selector)?;
    Ok((directory, labs.swap_remove(index)))
}
