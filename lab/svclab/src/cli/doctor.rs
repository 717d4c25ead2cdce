//! Implements `svclab doctor`.

use super::args::{DoctorArguments, DoctorFormat};
use super::exit::Exit;
use super::interrupt::unless_interrupted;
use super::output::{print, print_json, refused};
use svclab_report::doctor::{document, human};
use svclab_runner::kernel::guest::Cache;
use svclab_runner::kernel::{Host, doctor::examine};

/// Checks which features this machine supports, and prints the result.
pub fn doctor(arguments: &DoctorArguments) -> Exit {
    let host = Host::new();
    let examined = examine(&host, Cache::of_environment());
    let diagnosis = match unless_interrupted(examined) {
        Ok(Some(diagnosis)) => diagnosis,
        Ok(None) => return Exit::Interrupted,
        Err(error) => return refused(&error),
    };
    let printed = match arguments.format {
        DoctorFormat::Human => print(&human(&diagnosis)),
        DoctorFormat::Json => print_json(&document(&diagnosis)),
    };
    match printed {
        Exit::Success => Exit::Of(diagnosis.exit_code()),
        other => other,
    }
}
