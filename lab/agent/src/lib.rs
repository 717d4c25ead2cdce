//! Builds labs in a kernel, runs their probes and records evidence. Only this crate changes kernel
//! state. The agent exchanges [`svclab_model::protocol`] messages on standard input and output, and
//! exits when they close.

#![warn(unreachable_pub)]

mod arguments;
mod lab;
mod net;
mod probe;
mod program;
mod rules;
mod runtime;
mod sandbox;
mod serve;
mod servers;
mod watch;

pub use rules::restore;
pub use runtime::{memory, poll};
pub use sandbox::{capabilities, contain, rootfs, seccomp};
pub use watch::drops;

use std::io::Write;
use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;
use std::process::ExitCode;

use bytes::{Bytes, BytesMut};
use tokio_util::codec::Encoder;

use svclab_diagnostic::{bug, exit_code};
use svclab_model::protocol::{Event, event_framing};

/// Option that runs the agent as the first process of a guest.
pub const INIT: &str = "--init";

/// Option that lets the agent keep the root privileges that IPVS needs.
pub const HOST_OPTION: &str = "--machine";

/// Option before the path of a program that labs may run.
pub const PROGRAM: &str = "--program";

pub use arguments::run_from_args;
pub use program::{PATH, find as find_program};
pub use sandbox::init::{MODULES_DIR, PORT_NAME};

/// Runs the agent until its input ends. `programs` are available to labs in addition to the
/// system's programs. The calling process must have one thread.
#[must_use]
pub fn run_contained(standing: contain::AgentPrivilege, programs: &[PathBuf]) -> ExitCode {
    exit_on_panic(|| std::process::exit(exit_code::BUG.into()));
    runtime::heap::configure();
    // If memory runs out, the kernel kills the agent first: the front end can then report the
    // error. Every process may raise this value for itself.
    let _ = std::fs::write("/proc/self/oom_score_adj", "1000");
    if let Err(failure) = contain::contain(standing, programs) {
        let _ = send_event(&Event::StartFailed { failure });
        return ExitCode::FAILURE;
    }
    match serve_stdio() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            print_error(&format!("svclab agent: {error}"));
            ExitCode::FAILURE
        }
    }
}

/// Runs the agent as the first process of a guest. Errors are printed on the guest's console.
#[must_use]
pub fn run_as_init() -> ExitCode {
    exit_on_panic(|| sandbox::init::power_off());
    runtime::heap::configure();
    net::sysctl::assume_equal_namespaces();
    let served = sandbox::init::prepare().and_then(|(input, output)| serve_blocking(input, output));
    if let Err(error) = served {
        print_error(&format!("svclab agent: {error}"));
    }
    sandbox::init::power_off()
}

/// Ends the agent at the first panic of any task or thread. Otherwise the evidence of a lab that
/// lost a task would be incomplete.
fn exit_on_panic(end: fn() -> !) {
    std::panic::set_hook(Box::new(move |info| {
        print_error(&bug::agent_panic_message(info));
        end()
    }));
}

/// Prints a line on standard output, which may be closed.
pub(crate) fn print(text: &str) {
    let _ = writeln!(std::io::stdout(), "{text}");
}

/// Prints a line on standard error, which may be closed: unlike `eprintln!`, without a panic.
pub(crate) fn print_error(text: &str) {
    let _ = writeln!(std::io::stderr(), "{text}");
}

fn serve_stdio() -> std::io::Result<()> {
    let input = duplicate(&std::io::stdin())?;
    let output = duplicate(&std::io::stdout())?;
    serve_blocking(input, output)
}

fn serve_blocking(input: OwnedFd, output: OwnedFd) -> std::io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let local = tokio::task::LocalSet::new();
    local.block_on(&runtime, serve::serve(input, output))
}

fn duplicate(stream: &impl AsFd) -> std::io::Result<OwnedFd> {
    stream.as_fd().try_clone_to_owned()
}

/// Sends an event before the runtime exists.
fn send_event(event: &Event) -> std::io::Result<()> {
    let mut frame = BytesMut::new();
    event_framing().encode(Bytes::from(serde_json::to_vec(event)?), &mut frame)?;
    std::io::stdout().write_all(&frame)?;
    std::io::stdout().flush()
}
