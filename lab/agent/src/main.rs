//! `svclab-agent`: started by `svclab`, talks to it on standard input and output.

use std::process::ExitCode;

fn main() -> ExitCode {
    svclab_agent::start()
}
