//! Describes in sentences the parts of a plan for which no tool has a format.

use std::borrow::Cow;
use std::fmt::Write as _;

use svclab_model::plan::{NodeCommand, Plan, Probe, ProbeProtocol, RealProxy, Server, ServerKind};

/// Describes a server.
pub fn describe_server(server: &Server) -> String {
    let address = server
        .address
        .map_or_else(|| "all addresses".to_owned(), |address| address.to_string());
    let action = match &server.kind {
        ServerKind::Identify => "answers".to_owned(),
        ServerKind::ListenOnly => "listens without accepting".to_owned(),
        ServerKind::Health {
            service,
            local_endpoints,
        } => format!("reports the health of {service}, with {local_endpoints} local endpoints,"),
        ServerKind::L7Proxy {
            backends,
            retry_after,
        } => {
            let backends: Vec<String> = backends.iter().map(ToString::to_string).collect();
            format!(
                "forwards to {}, to the next backend after {},",
                backends.join(", "),
                humantime::format_duration(*retry_after)
            )
        }
    };
    format!(
        "{} {action} on {address}, {} port {}, in {}",
        server.name, server.protocol, server.port, server.namespace
    )
}

/// Describes a probe.
#[must_use]
pub fn describe_probe(probe: &Probe) -> String {
    let to = if probe.protocol == ProbeProtocol::Ping {
        probe.target.address.to_string()
    } else {
        probe.target.socket().to_string()
    };
    let noun = match probe.protocol {
        ProbeProtocol::Tcp => "connection",
        ProbeProtocol::Udp => "datagram",
        ProbeProtocol::Ping => "echo request",
    };
    let plural = if probe.connections == 1 { "" } else { "s" };
    let mut line = format!(
        "{}: {} {} {noun}{plural} from {} to {to}",
        probe.name, probe.connections, probe.protocol, probe.namespace
    );
    if let Some(concurrency) = probe.concurrency {
        let _ = write!(line, ", at most {concurrency} at the same time");
    }
    if let Some(bind) = probe.bind {
        let _ = write!(line, ", bound to {bind}");
    }
    if let Some(port) = probe.source_port {
        let _ = write!(line, ", source ports from {port}");
    }
    if let Some(bytes) = probe.bytes {
        let _ = write!(line, ", {bytes} bytes in each direction");
    }
    if probe.datagrams.get() > 1 {
        let _ = write!(line, ", {} on each socket", probe.datagrams);
    }
    let _ = write!(
        line,
        ", waiting up to {} for a reply",
        humantime::format_duration(probe.max_wait)
    );
    if probe.settle {
        line.push_str(" or until a proof that no reply can arrive");
    }
    if let Some(after) = &probe.after {
        let _ = write!(line, ", after {after} ends");
    }
    line
}

/// Renders the command line of a real kube-proxy, and the time for its rules.
#[must_use]
pub fn render_real_proxy(proxy: &RealProxy) -> String {
    let words = std::iter::once(&proxy.program).chain(&proxy.arguments);
    let words: Vec<Cow<'_, str>> = words
        .map(|word| shlex::try_quote(word).unwrap_or(Cow::Borrowed(word)))
        .collect();
    let timeout = humantime::format_duration(proxy.sync_timeout);
    let command = words.join(" ");
    format!(
        "{}: {command}  (writes its rules within {timeout})",
        proxy.namespace
    )
}

/// Renders a command and its input lines.
#[must_use]
pub fn render_node_command(typed: &NodeCommand) -> Vec<String> {
    let command = format!("{}: {typed}", typed.namespace);
    let input = typed.input.lines().map(|read| format!("  {read}"));
    std::iter::once(command).chain(input).collect()
}

/// Describes the recorded evidence, one line for each kind.
#[must_use]
pub fn describe_evidence_request(plan: &Plan) -> Vec<String> {
    let watch = &plan.evidence;
    [
        ("packets of", &watch.packets),
        ("kernel counters of", &watch.counters),
        ("rules of", &watch.rules),
    ]
    .into_iter()
    .filter(|(_, names)| !names.is_empty())
    .map(|(kind, names)| format!("{kind} {}", names.join(", ")))
    .collect()
}
