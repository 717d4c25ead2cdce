//! Creates failures that several modules return.

use std::io;

use svclab_diagnostic::shortage;
use svclab_model::protocol::{Failure, Fault, Rejected};

/// Returns the failure to enter a namespace.
pub fn entering(name: &str, error: &io::Error) -> Failure {
    machine(
        format!("cannot enter the namespace of {name}: {error}"),
        error,
    )
}

/// Returns the failure to create the environment in which a lab's programs run.
pub fn no_place(error: &io::Error) -> Failure {
    machine(
        format!("cannot make a place for the lab's programs: {error}"),
        error,
    )
}

/// Returns a failure of the host: a resource is exhausted or a privilege is missing.
pub fn machine(message: String, error: &io::Error) -> Failure {
    Failure {
        fault: Fault::Machine,
        message,
        remedy: shortage::remedy(error).map(str::to_owned),
        rejected: None,
    }
}

/// Returns a failure that can only result from a bug in svclab.
pub fn bug(message: String) -> Failure {
    Failure {
        fault: Fault::Bug,
        message,
        remedy: Some("this is a bug in svclab; please report it with the lab file".to_owned()),
        rejected: None,
    }
}

/// Adds to a failure the input that a program would have received. The agent sent the equivalent
/// request to the kernel itself.
pub fn of(mut failure: Failure, namespace: &str, program: &str, line: String) -> Failure {
    failure.rejected = Some(Box::new(Rejected {
        namespace: namespace.to_owned(),
        program: program.to_owned(),
        line,
        said: failure.message.clone(),
        ..Rejected::default()
    }));
    failure
}
