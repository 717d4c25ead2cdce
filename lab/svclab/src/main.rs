//! The `svclab` command.

use std::process::ExitCode;

fn main() -> ExitCode {
    svclab::cli::main()
}
