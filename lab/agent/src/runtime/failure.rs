//! Creates failures that several modules return.

use std::io;

use svclab_diagnostic::shortage;
use svclab_model::protocol::{Failure, FailureKind, RejectedInput};

/// Returns the failure to enter a namespace.
pub(crate) fn cannot_enter(name: &str, error: &io::Error) -> Failure {
    host(format!("cannot enter namespace {name}: {error}"), error)
}

/// Returns the failure to create the environment in which a lab's programs run.
pub(crate) fn cannot_prepare_programs(error: &io::Error) -> Failure {
    host(
        format!("cannot prepare the environment for the lab's programs: {error}"),
        error,
    )
}

/// Returns a failure of the host: a resource is exhausted or a privilege is missing.
pub(crate) fn host(message: String, error: &io::Error) -> Failure {
    Failure {
        kind: FailureKind::Machine,
        message,
        remedy: shortage::remedy(error).map(str::to_owned),
        rejected: None,
    }
}

/// Returns a failure that can only result from a bug in svclab.
pub(crate) fn bug(message: String) -> Failure {
    Failure {
        kind: FailureKind::Bug,
        message,
        remedy: Some("this is a bug in svclab; please report it with the lab file".to_owned()),
        rejected: None,
    }
}

/// Adds to a failure the input that a program would have received. The agent sent the equivalent
/// request to the kernel itself.
pub(crate) fn with_rejected_input(
    mut failure: Failure,
    namespace: &str,
    program: &str,
    line: String,
) -> Failure {
    failure.rejected = Some(Box::new(RejectedInput {
        namespace: namespace.to_owned(),
        program: program.to_owned(),
        line,
        message: failure.message.clone(),
        ..RejectedInput::default()
    }));
    failure
}
