//! Runs the plan's commands on nodes (`byHand`) after all rules are loaded.

use crate::lab::RunningLab;
use crate::net::netlink::StepResult as _;
use crate::program;
use crate::program::limits::{self, ExceededLimit};
use svclab_model::plan::NodeCommand;
use svclab_model::protocol::{Failure, FailureKind};

/// Runs the plan's commands in sequence. Returns whether the lab may change by itself afterwards:
/// they left processes running, or addresses or routes that expire.
///
/// # Errors
///
/// When a command cannot be started, fails, or exceeds a limit.
pub(crate) async fn run_commands(lab: &RunningLab) -> Result<bool, Failure> {
    let Some(first) = lab.plan.commands.first() else {
        return Ok(false);
    };
    let tenant = lab.recorded_namespace(&first.namespace)?.tenant();
    // Other programs of the lab, such as kube-proxy, do not count against the commands' limits.
    let uncounted = tenant.count_processes();
    for command in &lab.plan.commands {
        let Some((program, words)) = command.command.split_first() else {
            continue;
        };
        let (namespace, input) = (&command.namespace, command.input.as_str());
        let ns = lab.recorded_namespace(namespace)?;
        ns.tenant().note_user_program();
        let finished = limits::run(ns, command, program, words, uncounted)
            .await?
            .map_err(|exceeded| limit_exceeded(command, exceeded))?;
        if finished.success {
            continue;
        }
        let stderr = finished.stderr.trim();
        if !input.is_empty() {
            return Err(program::input_rejected(
                namespace, program, stderr, input, 0,
            ));
        }
        let printed = last_part(&finished.stdout);
        let message = match (stderr, printed.as_str()) {
            ("", "") => "no output".to_owned(),
            ("", one) | (one, "") => one.to_owned(),
            (stderr, printed) => format!("{stderr}\non standard output: {printed}"),
        };
        let (kind, remedy) = if lacks_module(&message) {
            (
                FailureKind::Machine,
                "the kernel has no module for it; use a kernel that has one (`--kernel`)",
            )
        } else {
            (
                FailureKind::Input,
                "check the `byHand` commands of that node",
            )
        };
        return Err(Failure {
            kind,
            message: format!("`{command}` failed on {namespace}: {message}"),
            remedy: Some(remedy.to_owned()),
            rejected: None,
        });
    }
    Ok(tenant.count_processes() > uncounted || has_lifetimes(lab).await?)
}

/// Whether `tc` or `ip` printed that the kernel does not know a kind of object: its module is
/// missing (Linux v6.12, `net/sched/sch_api.c`, `qdisc_create`; `net/sched/cls_api.c`,
/// `tcf_proto_lookup_ops`; `net/core/rtnetlink.c`, `rtnl_newlink`; iproute2 v6.1.0,
/// `lib/libnetlink.c`, `rtnl_open_byproto`).
fn lacks_module(message: &str) -> bool {
    const TEXTS: [&str; 5] = [
        "Specified qdisc kind is unknown",
        "TC classifier not found",
        "Failed to load TC action module",
        "Unknown device type",
        "Cannot open netlink socket: Protocol not supported",
    ];
    TEXTS.iter().any(|text| message.contains(text))
}

/// Whether addresses or routes of the lab expire.
async fn has_lifetimes(lab: &RunningLab) -> Result<bool, Failure> {
    for (namespace, netlink) in lab.plan.namespaces.iter().zip(&lab.netlinks) {
        let expires = netlink.has_lifetimes().await;
        if expires.in_step(&namespace.name, "read its addresses and routes")? {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Returns the end of a command's standard output, which may be long.
fn last_part(stdout: &str) -> String {
    const MAX_BYTES: usize = 1000;
    let text = stdout.trim();
    let start = text.ceil_char_boundary(text.len().saturating_sub(MAX_BYTES));
    let cut = if start > 0 { "…" } else { "" };
    format!("{cut}{}", &text[start..])
}

/// Returns the failure of a command that exceeded a limit.
fn limit_exceeded(typed: &NodeCommand, exceeded: ExceededLimit) -> Failure {
    let limits = &typed.limits;
    let (description, field) = match exceeded {
        ExceededLimit::Time => (
            format!(
                "ran for longer than its time limit of {}",
                humantime::format_duration(limits.max_time)
            ),
            "timeLimit",
        ),
        ExceededLimit::Output => (
            format!(
                "printed more than its output limit of {} bytes",
                limits.max_output
            ),
            "outputLimit",
        ),
        ExceededLimit::Processes => (
            format!(
                "had more processes and threads at once than its limit of {}",
                limits.max_processes
            ),
            "processLimit",
        ),
    };
    Failure {
        kind: FailureKind::Input,
        message: format!("`{typed}` {description} on {}", typed.namespace),
        remedy: Some(format!(
            "raise `spec.nodes.{}.byHand.{field}`, or change the command",
            typed.namespace
        )),
        rejected: None,
    }
}
