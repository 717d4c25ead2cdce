//! `svclab doctor`

use super::args::{DoctorArguments, DoctorFormat};
use super::exit::Exit;
use super::interrupt::unless_interrupted;
use super::output::{print, refused};
use crate::kernel::guest::Cache;
use crate::kernel::{Host, doctor::examine};
use crate::report::doctor::{human, json};

/// Tries what this machine can run and prints what was found.
pub fn doctor(arguments: &DoctorArguments) -> Exit {
    let host = Host::new();
    let examined = examine(&host, Cache::of_environment());
    let diagnosis = match unless_interrupted(examined) {
        Ok(Some(diagnosis)) => diagnosis,
        Ok(None) => return Exit::Interrupted,
        Err(error) => return refused(&error),
    };
    let text = match arguments.format {
        DoctorFormat::Human => human(&diagnosis),
        DoctorFormat::Json => match json(&diagnosis) {
            Ok(text) => text,
            Err(error) => {
                eprintln!("error: {error}");
                return Exit::Of(70);
            }
        },
    };
    match print(&text) {
        Exit::Success => Exit::Of(diagnosis.exit_code()),
        other => other,
    }
}
