//! The `svclab` command.

use std::process::ExitCode;

fn main() -> ExitCode {
    // The agent must be alone in its process: nothing may start a thread first.
    if std::env::args().nth(1).as_deref() == Some("agent") {
        return svclab::agent::main();
    }
    ExitCode::from(2)
}
