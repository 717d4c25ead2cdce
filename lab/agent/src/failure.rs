//! The failures several steps share.

use std::io;

use svclab_diagnostic::shortage;
use svclab_model::protocol::{Failure, Fault, Rejected};

/// A namespace could not be entered.
pub fn entering(name: &str, error: &io::Error) -> Failure {
    machine(
        format!("cannot enter the namespace of {name}: {error}"),
        error,
    )
}

/// A lab's programs have no place to run in.
pub fn no_place(error: &io::Error) -> Failure {
    machine(
        format!("cannot make a place for the lab's programs: {error}"),
        error,
    )
}

/// The machine ran out of something, or lacks a right.
pub fn machine(message: String, error: &io::Error) -> Failure {
    Failure {
        fault: Fault::Machine,
        message,
        remedy: shortage::remedy(error).map(str::to_owned),
        rejected: None,
    }
}

/// Something that cannot be, unless svclab itself is wrong.
pub fn bug(message: String) -> Failure {
    Failure {
        fault: Fault::Bug,
        message,
        remedy: Some("this is a bug in svclab; please report it with the lab file".to_owned()),
        rejected: None,
    }
}

/// The same failure, of something that the kernel was told in place of a program, as that
/// one would have taken it.
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
