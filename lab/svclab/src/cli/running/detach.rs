//! Starts the background daemon of `svclab up --detach`, and waits until its lab is running.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use nix::fcntl::OFlag;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tokio::sync::mpsc;

use crate::cli::error::{CliError, CommandResult, Outcome};
use crate::cli::interrupt::{Interrupts, block_on};
use crate::cli::output::{Messages, print};
use crate::live::SocketDir;
use svclab_diagnostic::exit_code;

/// Byte that the background daemon writes when its lab is running. The message for the user
/// follows.
const RUNNING_MARKER: u8 = b'+';

/// Starts this program as a daemon in the background, and waits until its lab is running.
pub(super) fn run_detached(directory: &SocketDir, case: &str) -> CommandResult {
    let log = directory.initial_log_path(std::process::id());
    let started = spawn_daemon(&log)
        .map_err(CliError::DaemonStart)
        .and_then(|child| block_on(wait_until_running(child))?);
    let result = match started {
        Ok(DaemonStart::Running(message)) => {
            let log = directory.log_path(case);
            print(&format!("{message}Log: {}\n", log.display()))?;
            return Ok(Outcome::SUCCESS);
        }
        Ok(DaemonStart::Ended(code)) => {
            // The daemon may have renamed its log already.
            let final_log = directory.log_path(case);
            let log = if log.exists() { &log } else { &final_log };
            let _ = Messages.write_all(&fs::read(log).unwrap_or_default());
            let _ = fs::remove_file(log);
            Ok(Outcome::from_code(code))
        }
        Err(error) => Err(error),
    };
    let _ = fs::remove_file(&log);
    result
}

fn spawn_daemon(log: &Path) -> io::Result<Child> {
    let mut options = OpenOptions::new();
    options.create(true).append(true).mode(0o600);
    let log_file = options.custom_flags(OFlag::O_NOFOLLOW.bits()).open(log)?;
    let mut command = Command::new("/proc/self/exe");
    command
        .args(std::env::args_os().skip(1))
        .arg("--held")
        .arg(log)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(log_file);
    // SAFETY: between fork and exec, only `setsid` is called, which is async-signal-safe.
    unsafe {
        command.pre_exec(|| Ok(nix::unistd::setsid().map(drop)?));
    }
    command.spawn()
}

/// Result of waiting for the background daemon.
enum DaemonStart {
    /// The lab is running. Contains the message for the user.
    Running(String),
    /// The daemon ended with this exit code.
    Ended(u8),
}

async fn wait_until_running(mut child: Child) -> Result<DaemonStart, CliError> {
    let mut interrupts = Interrupts::listen();
    let (sender, mut result) = mpsc::channel(1);
    let process = Pid::from_raw(i32::try_from(child.id()).unwrap_or(0));
    std::thread::spawn(move || {
        let mut output = Vec::new();
        if let Some(mut out) = child.stdout.take() {
            let _ = out.read_to_end(&mut output);
        }
        let waited = if let Some((&RUNNING_MARKER, message)) = output.split_first() {
            DaemonStart::Running(String::from_utf8_lossy(message).into_owned())
        } else {
            let status = child.wait().ok().and_then(|status| status.code());
            DaemonStart::Ended(
                status
                    .and_then(|code| u8::try_from(code).ok())
                    .unwrap_or(exit_code::AGENT_LOST),
            )
        };
        let _ = sender.blocking_send(waited);
    });
    tokio::select! {
        waited = result.recv() => Ok(waited.unwrap_or(DaemonStart::Ended(exit_code::BUG))),
        () = interrupts.next() => {
            let _ = kill(process, Signal::SIGTERM);
            // Wait for the daemon to end after its signal, so that no resources remain.
            let _ = result.recv().await;
            Err(CliError::Interrupted)
        }
    }
}

/// Announces the running lab: to the user, or to the parent process in the foreground.
pub(super) fn announce(is_background: bool, message: &str) {
    if !is_background {
        // The lab keeps running if the user's output is closed.
        let _ = print(message);
        return;
    }
    let mut out = io::stdout().lock();
    let _ = out.write_all(&[RUNNING_MARKER]);
    let _ = out.write_all(message.as_bytes());
    let _ = out.flush();
    drop(out);
    // The parent process waits for the end of this stream.
    if let Ok(null) = File::options().write(true).open("/dev/null") {
        let _ = nix::unistd::dup2_stdout(null);
    }
    let _ = std::env::set_current_dir("/");
}
