//! Checks the settings of a probe or flow for the content and the number of its packets.

use std::num::NonZeroU32;

use indexmap::IndexMap;

use crate::lab::Probe;
use crate::sink::Sink;
use crate::yaml::tree::{PathSegment, Tree};
use svclab_diagnostic::Diagnostic;
use svclab_model::plan::{MAX_DATAGRAM_BYTES, MAX_STREAM_BYTES, ProbeProtocol};

/// Maximum number of datagrams of a socket. The receive buffer of a server holds about as many.
const MAX_DATAGRAMS: u32 = 1000;

/// Checks the settings of one probe.
pub(crate) fn check_traffic(probe: &Probe, node: &Tree, sink: &mut Sink) {
    let span = |field: &str| node.get(field).map_or(node.head_span(), |value| value.span);
    let max = match probe.protocol {
        ProbeProtocol::Tcp => MAX_STREAM_BYTES,
        ProbeProtocol::Udp | ProbeProtocol::Ping => MAX_DATAGRAM_BYTES,
    };
    if let Some(bytes) = probe.bytes.filter(|bytes| bytes.get() > max) {
        sink.push(
            Diagnostic::error(format!(
                "{bytes} bytes are more than a {} probe can send: {max}",
                probe.protocol
            ))
            .with_position(span("bytes"), ""),
        );
    }
    let datagrams = probe.datagrams.map_or(1, NonZeroU32::get);
    if probe.datagrams.is_some() && probe.protocol == ProbeProtocol::Tcp {
        sink.push(
            Diagnostic::error("a tcp probe sends no datagrams")
                .with_position(span("datagrams"), "")
                .with_help("remove `datagrams`, or add `protocol: udp`"),
        );
    } else if datagrams > MAX_DATAGRAMS {
        sink.push(
            Diagnostic::error(format!(
                "{datagrams} datagrams of one socket, more than {MAX_DATAGRAMS}"
            ))
            .with_position(span("datagrams"), "")
            .with_help("use fewer datagrams: svclab does not measure throughput"),
        );
    }
    if probe.concurrency.is_some() && probe.across.is_some() {
        sink.push(
            Diagnostic::error(
                "connections that stay open across a step are all open at the same time",
            )
            .with_position(span("concurrency"), "")
            .with_help("remove `concurrency`"),
        );
    }
    let Some(first) = probe.source_port else {
        return;
    };
    if probe.protocol == ProbeProtocol::Ping {
        sink.push(
            Diagnostic::error("a ping has no source port").with_position(span("sourcePort"), ""),
        );
    }
    if u32::from(first.get()) + probe.connections.saturating_sub(1) > u32::from(u16::MAX) {
        sink.push(
            Diagnostic::error(format!(
                "{} connections from port {first} need ports above {}",
                probe.connections,
                u16::MAX
            ))
            .with_position(span("sourcePort"), "")
            .with_help("use a smaller `sourcePort` or fewer `connections`"),
        );
    }
}

/// Checks that no two probes of one stage have the same source ports in the same namespace: svclab
/// distinguishes connections by their source addresses.
pub(crate) fn check_source_ports(
    probes: &IndexMap<String, Probe>,
    path: &[PathSegment],
    tree: &Tree,
    sink: &mut Sink,
) {
    let ports = |probe: &Probe| {
        let first = u32::from(probe.source_port?.get());
        Some(first..first + probe.connections.max(1))
    };
    let node = tree.nearest(path);
    let span = |name: &str| {
        let probe = node.get(name);
        let field = probe.and_then(|probe| probe.get("sourcePort"));
        field.or(probe).map_or(node.head_span(), |value| value.span)
    };
    for (index, (name, probe)) in probes.iter().enumerate() {
        let Some(own) = ports(probe) else {
            continue;
        };
        let earlier = probes.iter().take(index).find(|(_, other)| {
            other.from == probe.from
                && other.protocol == probe.protocol
                && ports(other).is_some_and(|used| used.start < own.end && own.start < used.end)
        });
        if let Some((other, _)) = earlier {
            sink.push(
                Diagnostic::error(format!(
                    "probes `{other}` and `{name}` use the same source port in the same stage"
                ))
                .with_position(span(name), "this port")
                .with_related(span(other), "and this port")
                .with_help(
                    "use different ports, or move one of the probes to a step, which can use the \
                     port again",
                ),
            );
        }
    }
}
