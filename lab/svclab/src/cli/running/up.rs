//! Implements `svclab up`: builds one case, and serves it until the lab ends.

use std::fs;
use std::sync::Arc;
use std::time::SystemTime;

use super::detach::{announce, run_detached};
use super::ready_message::{describe_proxies, ready_message};
use crate::cli::args::{Selection, UpArguments};
use crate::cli::cases::labs::prepare_one_case;
use crate::cli::error::{CliError, CommandResult, Outcome};
use crate::cli::interrupt::{Interrupts, block_on};
use crate::cli::output::{print_message, print_note};
use crate::live::{
    LabDaemon, LabEnd, LabInfo, SocketDir, State, guest_programs, running_labs, serve_lab,
};
use svclab_model::plan::MaxWait;
use svclab_runner::kernel::{
    Kernel, KernelChoice, KernelError, KernelSelector, NotEnoughMemory, Session,
};
use svclab_runner::run::Prepared;

/// Builds one case and keeps it running.
pub(crate) fn up(arguments: &UpArguments) -> CommandResult {
    let case = load_case(arguments)?;
    let directory = SocketDir::from_env()?;
    if arguments.detach && arguments.held.is_none() {
        return run_detached(&directory, &case.case.id);
    }
    block_on(run_daemon(arguments, &directory, case))?
}

/// Returns the single selected case.
fn load_case(arguments: &UpArguments) -> Result<Prepared, CliError> {
    if arguments.kernels.choice() == KernelChoice::All {
        return Err(CliError::refused(
            "a lab runs on one kernel",
            "select one with --kernel: host, or a version such as 6.12",
        ));
    }
    for program in &arguments.programs {
        if !program.is_absolute() || !program.is_file() {
            return Err(CliError::refused(
                format!("{} is not an absolute path of a program", program.display()),
                "give --program a path that begins with /",
            ));
        }
    }
    let selection = Selection {
        names: vec![arguments.name.clone()],
        source: arguments.source.clone(),
        // The user may change a running lab, so its plan does not prove that an answer cannot
        // arrive.
        max_wait: MaxWait::SETTLED.limit.into(),
        kube_proxy: arguments.kube_proxy.clone(),
        allow_outside: arguments.allow_outside,
        kube_proxy_timeout: arguments.kube_proxy_timeout,
    };
    let (_, case) = prepare_one_case(&selection, "started")?;
    Ok(case)
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
async fn run_daemon(
    arguments: &UpArguments,
    directory: &SocketDir,
    case: Prepared,
) -> CommandResult {
    let mut interrupts = Interrupts::listen();
    let (lease, listener) = directory.bind(&case.case.id)?;
    if let Some(log) = &arguments.held {
        // The log file stays open. The new name is derived from the case.
        let _ = fs::rename(log, directory.log_path(&case.case.id));
    }
    let daemon = LabDaemon::new(lab_info(&case));
    let server = tokio::spawn(Arc::clone(&daemon).serve(listener));
    let name = case.case.id.clone();
    let built = tokio::select! {
        built = build(arguments, &case, &daemon) => built.map_err(CliError::from),
        () = interrupts.next() => Err(CliError::Interrupted),
        () = daemon.wait_for_down() => Err(CliError::Stopped { case: name.clone() }),
    };
    let ended = match built {
        Ok(session) => {
            let mut info = daemon.info();
            info.state = State::Running;
            let running_labs = running_labs(directory).await.map_or(0, |labs| labs.len());
            let proxies = describe_proxies(&case.plan, session.refused());
            let is_detached = arguments.detach;
            let message = ready_message(&info, &case, &proxies, running_labs > 1, is_detached);
            announce(arguments.held.is_some(), &message);
            let end = serve_lab(&daemon, case, session, interrupts.next()).await;
            drop(lease);
            match end {
                LabEnd::Interrupted => Ok(Outcome::SUCCESS),
                LabEnd::Down => {
                    print_message(format_args!("{name} was stopped"));
                    Ok(Outcome::SUCCESS)
                }
                LabEnd::Lost(error) => Err(error.into()),
            }
        }
        Err(error) => {
            daemon.report_build_failed();
            Err(error)
        }
    };
    if arguments.held.is_some() && ended.is_ok() {
        let _ = fs::remove_file(directory.log_path(&name));
    }
    let _ = server.await;
    ended
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
    daemon: &LabDaemon,
) -> Result<Session, KernelError> {
    let kernels = KernelSelector::new(arguments.kernels.choice())
        .with_notice(print_note)
        .with_programs(arguments.programs.clone(), guest_programs())
        .with_plans([&case.plan]);
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
    plan.truncate_stages(1);
    let session = agent.build(plan).await?;
    daemon.set_kernel(&release, matches!(kernel, Kernel::Guest(_)));
    Ok(session)
}
