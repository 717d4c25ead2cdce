//! Implements `svclab doctor`.

use crate::cli::args::{DoctorArguments, DoctorFormat};
use crate::cli::error::{CommandResult, Outcome};
use crate::cli::interrupt::run_interruptible;
use crate::cli::output::{print, print_json};
use svclab_report::doctor::{document, render_text};
use svclab_runner::kernel::guest::Cache;
use svclab_runner::kernel::{Host, doctor::examine};

/// Checks which features this machine supports, and prints the result.
pub(crate) fn doctor(arguments: &DoctorArguments) -> CommandResult {
    let host = Host::new();
    let diagnosis = run_interruptible(examine(&host, Cache::from_environment()))?;
    match arguments.format {
        DoctorFormat::Human => print(&render_text(&diagnosis))?,
        DoctorFormat::Json => print_json(&document(&diagnosis))?,
    }
    Ok(Outcome::from_code(diagnosis.exit_code()))
}
