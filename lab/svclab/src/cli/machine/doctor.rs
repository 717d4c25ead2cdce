//! Implements `svclab doctor`.

use crate::cli::args::{DoctorArguments, DoctorFormat};
use crate::cli::exit::Exit;
use crate::cli::interrupt::run_interruptible;
use crate::cli::output::{print, print_json, print_start_error};
use svclab_report::doctor::{document, render_text};
use svclab_runner::kernel::guest::Cache;
use svclab_runner::kernel::{Host, doctor::examine};

/// Checks which features this machine supports, and prints the result.
pub fn doctor(arguments: &DoctorArguments) -> Exit {
    let host = Host::new();
    let examined = examine(&host, Cache::from_environment());
    let diagnosis = match run_interruptible(examined) {
        Ok(Some(diagnosis)) => diagnosis,
        Ok(None) => return Exit::Interrupted,
        Err(error) => return print_start_error(&error),
    };
    let printed = match arguments.format {
        DoctorFormat::Human => print(&render_text(&diagnosis)),
        DoctorFormat::Json => print_json(&document(&diagnosis)),
    };
    match printed {
        Exit::Success => Exit::Code(diagnosis.exit_code()),
        other => other,
    }
}
