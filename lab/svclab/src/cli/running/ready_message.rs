//! Renders the message that a lab is running, with example commands.

use std::fmt::Write as _;

use crate::cli::args::shell_word;
use crate::live::LabInfo;
use svclab_model::evidence::RejectedRequest;
use svclab_model::plan::{Plan, ProbeProtocol};
use svclab_report::refused;
use svclab_runner::run::Prepared;

/// Renders the message for the user: kernel and namespaces of the lab, and example commands.
pub(super) fn ready_message(
    info: &LabInfo,
    case: &Prepared,
    proxies: &str,
    several: bool,
    detached: bool,
) -> String {
    let name = shell_word(&info.case);
    let lab = if several {
        format!(" --lab {name}")
    } else {
        String::new()
    };
    let mut text = format!(
        "{} is running on {}. Namespaces:\n",
        info.case,
        info.describe_kernel()
    );
    for namespace in &info.namespaces {
        let _ = writeln!(text, "  {namespace}");
    }
    text += proxies;
    let mut lines = Vec::new();
    let inside = case
        .cluster
        .nodes
        .first()
        .map(|node| node.name.as_str())
        .or(info.namespaces.first().map(String::as_str));
    if let Some(inside) = inside {
        let inside = shell_word(inside);
        lines.push(format!("svclab exec{lab} {inside} -- ip route"));
        lines.push(format!("svclab shell{lab} {inside}"));
    }
    if let Some(probe) = case.case.spec.probes.values().next() {
        let (from, to) = (shell_word(&probe.from), shell_word(&probe.to));
        let protocol = match probe.protocol {
            ProbeProtocol::Tcp => String::new(),
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

/// Describes the nodes of each real kube-proxy, and the requests that were refused.
pub(super) fn describe_proxies(plan: &Plan, refused: &[RejectedRequest]) -> String {
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
