//! `svclab-agent`: started by `svclab`, which exchanges messages with the agent on standard input
//! and output.

use std::process::ExitCode;

fn main() -> ExitCode {
    svclab_agent::run_from_args()
}
