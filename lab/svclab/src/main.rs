//! Entry point of the `svclab` command.

use std::process::ExitCode;

fn main() -> ExitCode {
    svclab::cli::main()
}
