//! Implements `svclab up`.

use std::fmt::Write as _;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::SystemTime;

use nix::fcntl::OFlag;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tokio::sync::mpsc;

use super::which::print_socket_dir_error;
use crate::cli::args::{Common, Selection, UpArguments};
use crate::cli::cases::labs::prepare_labs;
use crate::cli::exit::Exit;
use crate::cli::interrupt::{Interrupts, block_on};
use crate::cli::output::{Messages, print, print_error, print_note, print_start_error};
use crate::live::{
    LabDaemon, LabEnd, LabInfo, SocketDir, State, programs, running_labs, serve_lab,
};
use svclab_model::evidence::RejectedRequest;
use svclab_model::plan::{MaxWait, Plan};
use svclab_report::{refused, shell_quote};
use svclab_runner::kernel::{
    Kernel, KernelChoice, KernelError, KernelSelector, NotEnoughMemory, Session,
};
use svclab_runner::results::{ErrorKind, RunError};
use svclab_runner::run::{Prepared, to_run_error, with_plan_programs};

/// Byte that the background daemon writes when its lab is running. The message for the user
/// follows.
const RUNNING_MARKER: u8 = b'+';

/// Builds one case and keeps it running.
pub fn up(common: &Common, arguments: &UpArguments) -> Exit {
    let case = match load_case(common, arguments) {
        Ok(case) => case,
        Err(exit) => return exit,
    };
    let directory = match SocketDir::from_env() {
        Ok(directory) => directory,
        Err(error) => return print_socket_dir_error(&error),
    };
    if arguments.detach && arguments.held.is_none() {
        return run_detached(&directory, &case.case.id);
    }
    match block_on(run_daemon(arguments, &directory, case)) {
        Ok(exit) => exit,
        Err(error) => print_start_error(&error),
    }
}

/// Returns the single selected case.
fn load_case(common: &Common, arguments: &UpArguments) -> Result<Prepared, Exit> {
    let wrong = |message: String, remedy: String| {
        print_error(&RunError {
            kind: ErrorKind::Input,
            message,
            remedy: Some(remedy),
        })
    };
    if arguments.kernels.choice() == KernelChoice::All {
        return Err(wrong(
            "a lab runs on one kernel".to_owned(),
            "select one with --kernel: host, or a version such as 6.12".to_owned(),
        ));
    }
    for program in &arguments.programs {
        if !program.is_absolute() || !program.is_file() {
            return Err(wrong(
                format!("{} is not an absolute path of a program", program.display()),
                "give --program a path that begins with /".to_owned(),
            ));
        }
    }
    let selection = Selection {
        names: vec![arguments.name.clone()],
        // The user may change a running lab, so its plan does not prove that an answer cannot
        // arrive.
        max_wait: MaxWait::SETTLED.limit.into(),
        kube_proxy: arguments.kube_proxy.clone(),
        allow_outside: arguments.allow_outside,
        kube_proxy_timeout: arguments.kube_proxy_timeout,
    };
    let labs = prepare_labs(common, &selection)?;
    let mut cases: Vec<Prepared> = labs.into_iter().flat_map(|(_, cases)| cases).collect();
    match cases.pop() {
        Some(case) if cases.is_empty() => Ok(case),
        last => {
            let names = cases.iter().chain(&last);
            let case_names: Vec<String> = names
                .map(|case| format!("  {}", shell_quote(&case.cli_name)))
                .collect();
            Err(wrong(
                format!(
                    "`{}` selects {} cases, but only one can be started",
                    arguments.name,
                    case_names.len()
                ),
                format!("select one:\n{}", case_names.join("\n")),
            ))
        }
    }
}

fn now() -> String {
    #[expect(
        clippy::disallowed_methods,
        reason = "the start time of a lab is shown to users"
    )]
    let now = SystemTime::now();
    humantime::format_rfc3339_seconds(now).to_string()
}

/// Runs the daemon of a lab until the lab ends.
async fn run_daemon(arguments: &UpArguments, directory: &SocketDir, case: Prepared) -> Exit {
    let mut interrupts = Interrupts::listen();
    let mut lease = match directory.bind(&case.case.id) {
        Ok(lease) => lease,
        Err(error) => return print_socket_dir_error(&error),
    };
    if let Some(log) = &arguments.held {
        // The log file stays open. The new name is derived from the case.
        let _ = fs::rename(log, directory.log_path(&case.case.id));
    }
    let holder = LabDaemon::new(lab_info(&case));
    let Some(listener) = lease.take_listener() else {
        return Exit::Bug;
    };
    let server = tokio::spawn(std::sync::Arc::clone(&holder).serve(listener));
    let name = case.case.id.clone();
    let built = tokio::select! {
        built = build(arguments, &case, &holder) => built,
        () = interrupts.next() => {
            eprintln!("interrupted");
            holder.report_build_failed();
            let _ = server.await;
            return Exit::Interrupted;
        }
        () = holder.wait_for_down() => {
            eprintln!("{name} was stopped before it was running");
            holder.report_build_failed();
            let _ = server.await;
            return Exit::Interrupted;
        }
    };
    let session = match built {
        Ok(session) => session,
        Err(error) => {
            let exit = print_error(&to_run_error(&error));
            holder.report_build_failed();
            let _ = server.await;
            return exit;
        }
    };
    let mut about = holder.info();
    about.state = State::Running;
    let running_labs = running_labs(directory).await.map_or(0, |labs| labs.len());
    let proxies = describe_proxies(&case.plan, session.refused());
    let message = ready_message(&about, &case, &proxies, running_labs > 1, arguments.detach);
    announce(arguments, &message);
    let ending = serve_lab(&holder, case, session, interrupts.next()).await;
    drop(lease);
    let exit = match ending {
        LabEnd::Interrupted => Exit::Success,
        LabEnd::Down => {
            eprintln!("{name} was stopped");
            Exit::Success
        }
        LabEnd::Lost(error) => print_error(&to_run_error(&error)),
    };
    if arguments.held.is_some() && exit == Exit::Success {
        let _ = fs::remove_file(directory.log_path(&name));
    }
    let _ = server.await;
    exit
}

fn lab_info(case: &Prepared) -> LabInfo {
    let names = case.plan.namespaces.iter().map(|ns| ns.name.clone());
    LabInfo {
        case: case.case.id.clone(),
        lab: case.case.lab.clone(),
        named: case.cli_name.clone(),
        state: State::Building,
        kernel: None,
        guest: false,
        since: now(),
        namespaces: names.collect(),
        daemon_pid: std::process::id(),
        svclab: env!("CARGO_PKG_VERSION").to_owned(),
    }
}

async fn build(
    arguments: &UpArguments,
    case: &Prepared,
    holder: &LabDaemon,
) -> Result<Session, KernelError> {
    let kernels = with_plan_programs(
        KernelSelector::new(arguments.kernels.choice()).with_notice(print_note),
        &[&case.plan],
        arguments.programs.clone(),
        programs::guest_programs(),
    );
    let mut found = kernels.for_plan(&case.plan).await?;
    let kernel = found.remove(0);
    let needs = case.plan.memory_kib();
    if needs > kernel.lab_memory() {
        return Err(NotEnoughMemory {
            kernel: kernel.name(),
            needed_kib: needs,
            available_kib: kernel.lab_memory(),
        }
        .into());
    }
    let agent = kernel.start().await?;
    let release = agent.environment().kernel.clone();
    // Steps are only for runs. The user changes a running lab.
    let mut plan = case.plan.clone();
    plan.steps.clear();
    let session = agent.build(plan).await?;
    holder.set_kernel(&release, matches!(kernel, Kernel::Guest(_)));
    Ok(session)
}

/// Announces the running lab: to the user, or to the parent process in the foreground.
fn announce(arguments: &UpArguments, message: &str) {
    if arguments.held.is_none() {
        // The lab keeps running if the user's output is closed.
        print(message);
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

/// Describes the nodes of each real kube-proxy, and the requests that were refused.
fn describe_proxies(plan: &Plan, refused: &[RejectedRequest]) -> String {
    let mut programs: Vec<(&str, Vec<&str>)> = Vec::new();
    for proxy in &plan.kube_proxies {
        let mut known = programs.iter_mut();
        match known.find(|(program, _)| *program == proxy.program) {
            Some((_, nodes)) => nodes.push(&proxy.namespace),
            None => programs.push((&proxy.program, vec![&proxy.namespace])),
        }
    }
    let mut text = String::new();
    for (program, nodes) in programs {
        let _ = writeln!(text, "{program} runs on {}.", nodes.join(", "));
    }
    for line in refused::render_lines(refused, 0) {
        let _ = writeln!(text, "{}: {line}", refused::LABEL);
    }
    text
}

/// Renders the message for the user: kernel and namespaces of the lab, and example commands.
fn ready_message(
    about: &LabInfo,
    case: &Prepared,
    proxies: &str,
    several: bool,
    detached: bool,
) -> String {
    let quoted = |text: &str| {
        let plain = |each: char| each.is_ascii_alphanumeric() || "/-_.=,:".contains(each);
        if text.chars().all(plain) {
            text.to_owned()
        } else {
            format!("'{}'", text.replace('\'', r"'\''"))
        }
    };
    let name = quoted(&about.case);
    let lab = if several {
        format!(" --lab {name}")
    } else {
        String::new()
    };
    let mut text = format!(
        "{} is running on {}. Namespaces:\n",
        about.case,
        about.describe_kernel()
    );
    for namespace in &about.namespaces {
        let _ = writeln!(text, "  {namespace}");
    }
    text += proxies;
    let mut lines = Vec::new();
    let inside = case
        .cluster
        .nodes
        .first()
        .map(|node| node.name.as_str())
        .or(about.namespaces.first().map(String::as_str));
    if let Some(inside) = inside {
        let inside = quoted(inside);
        lines.push(format!("svclab exec{lab} {inside} -- ip route"));
        lines.push(format!("svclab shell{lab} {inside}"));
    }
    if let Some(probe) = case.case.spec.probes.values().next() {
        let (from, to) = (quoted(&probe.from), quoted(&probe.to));
        let protocol = match probe.protocol {
            svclab_model::plan::ProbeProtocol::Tcp => String::new(),
            other => format!(" --protocol {other}"),
        };
        lines.push(format!("svclab probe{lab} {from} {to}{protocol}"));
        let lab = if several {
            format!(" {name}")
        } else {
            String::new()
        };
        lines.push(format!("svclab explain --running{lab}"));
    }
    lines.push(format!("svclab capture{lab} | wireshark -k -i -"));
    let where_from = if detached {
        "Try:"
    } else {
        "Try in another terminal:"
    };
    text.push_str(where_from);
    text.push('\n');
    for line in lines {
        let _ = writeln!(text, "  {line}");
    }
    let down = if several {
        format!("svclab down {name}")
    } else {
        "svclab down".to_owned()
    };
    if detached {
        let _ = writeln!(text, "Stop it with `{down}`.");
    } else {
        let _ = writeln!(text, "Stop it with Ctrl-C or `{down}`.");
    }
    text
}

/// Starts this program as a daemon in the background, and waits until its lab is running.
fn run_detached(directory: &SocketDir, case: &str) -> Exit {
    let log = directory.initial_log_path(std::process::id());
    let exit = match spawn_daemon(&log) {
        Ok(child) => match block_on(wait_until_running(child)) {
            Ok(DaemonStart::Running(words)) => {
                let log = directory.log_path(case);
                return print(&format!("{words}Log: {}\n", log.display()));
            }
            Ok(DaemonStart::Interrupted) => {
                eprintln!("interrupted");
                Exit::Interrupted
            }
            Ok(DaemonStart::Ended(code)) => {
                // The daemon may have renamed its log already.
                let final_log = directory.log_path(case);
                let log = if log.exists() { &log } else { &final_log };
                let _ = Messages.write_all(&fs::read(log).unwrap_or_default());
                let _ = fs::remove_file(log);
                Exit::Code(code)
            }
            Err(error) => print_start_error(&error),
        },
        Err(error) => {
            eprintln!("error: cannot start the lab daemon: {error}");
            Exit::Machine
        }
    };
    let _ = fs::remove_file(&log);
    exit
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
    /// The user interrupted.
    Interrupted,
}

async fn wait_until_running(mut child: Child) -> DaemonStart {
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
            DaemonStart::Ended(status.and_then(|code| u8::try_from(code).ok()).unwrap_or(5))
        };
        let _ = sender.blocking_send(waited);
    });
    tokio::select! {
        waited = result.recv() => waited.unwrap_or(DaemonStart::Ended(70)),
        () = interrupts.next() => {
            let _ = kill(process, Signal::SIGTERM);
            // Wait for the daemon to end after its signal, so that no resources remain.
            let _ = result.recv().await;
            DaemonStart::Interrupted
        }
    }
}
