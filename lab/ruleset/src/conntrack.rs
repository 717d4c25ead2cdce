//! Parses the output of `conntrack -L`.

use std::collections::BTreeSet;
use std::net::IpAddr;

use crate::Protocol;
use crate::text::problem::{Problem, ProblemKind};
use crate::text::{Text, lines};
use crate::tool::Format;

/// Tracked connections, in the order of the output.
pub type Connections = Vec<Connection>;

/// Tracked connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Connection {
    /// Transport protocol. `None` for ICMP and other protocols.
    pub protocol: Option<Protocol>,
    /// Addresses of the packets of the client, before translation.
    pub original: Tuple,
    /// Addresses of the packets of the server, before they are translated back.
    pub reply: Tuple,
    /// Zone. If the directions have different zones, the first one that is not 0.
    pub zone: u16,
    /// Whether the server has not replied yet.
    pub is_unreplied: bool,
    /// Line of the connection, from 1.
    pub line: u32,
}

/// Addresses and ports of the packets of one direction.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Tuple {
    /// Source address.
    pub source: IpAddr,
    /// Destination address.
    pub destination: IpAddr,
    /// Source port. `None` for protocols without ports.
    pub source_port: Option<u16>,
    /// Destination port. `None` for protocols without ports.
    pub destination_port: Option<u16>,
}

/// Names of zones: of both directions, or of one (conntrack-tools 1.4.7, `src/conntrack.c`;
/// `libnetfilter_conntrack` 1.0.9, `src/conntrack/snprintf_default.c`).
const ZONE_NAMES: [&str; 3] = ["zone=", "zone-orig=", "zone-reply="];

/// Parses the output of `conntrack -L`, or `/proc/net/nf_conntrack`. Lines without the addresses of
/// both directions are added to `problems`.
#[must_use]
pub fn parse(text: &Text, problems: &mut Vec<Problem>) -> Connections {
    let mut connections = Connections::new();
    for line in lines(text) {
        // The program counts the entries on standard error. Collectors append the statistics of
        // each processor, which `conntrack -S` prints.
        if line.text.starts_with("conntrack v") || line.text.starts_with("cpu=") {
            continue;
        }
        if let Some(connection) = parse_line(line.text, line.number) {
            connections.push(connection);
        } else {
            let kind = ProblemKind::UnknownLine(Format::Connections);
            problems.push(Problem::new(kind, line.start..line.end()));
        }
    }
    connections
}

/// Parses a line. `None` if it is not a connection.
fn parse_line(text: &str, line: u32) -> Option<Connection> {
    let words = || text.split_ascii_whitespace();
    let values = |name: &'static str| words().filter_map(move |word| word.strip_prefix(name));
    let addresses = |name| values(name).map(|value| value.parse::<IpAddr>().ok());
    let ports = |name| values(name).map(|value| value.parse::<u16>().ok());
    let mut tuples = addresses("src=").zip(addresses("dst="));
    let mut ports = ports("sport=").zip(ports("dport="));
    let mut tuple = || {
        let (source, destination) = tuples.next()?;
        let (source_port, destination_port) = ports.next().unwrap_or_default();
        Some(Tuple {
            source: source?,
            destination: destination?,
            source_port,
            destination_port,
        })
    };
    let zones = ZONE_NAMES.into_iter().flat_map(values);
    let mut zones = zones.filter_map(|zone| zone.parse().ok());
    Some(Connection {
        // `/proc/net/nf_conntrack` prints the network protocol first.
        protocol: words().take(3).find_map(Protocol::from_name),
        original: tuple()?,
        reply: tuple()?,
        zone: zones.find(|zone| *zone != 0).unwrap_or_default(),
        is_unreplied: words().any(|word| word == "[UNREPLIED]"),
        line,
    })
}

/// Returns the zones of connections, without 0.
#[must_use]
pub fn zones(connections: &[Connection]) -> BTreeSet<u16> {
    let zones = connections.iter().map(|connection| connection.zone);
    zones.filter(|zone| *zone != 0).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parse_conntrack_output_reads_both_directions() {
        let text = "\
udp      17 27 src=127.0.0.1 dst=127.0.0.1 sport=46424 dport=77 [UNREPLIED] src=127.0.0.1 dst=127.0.0.1 sport=77 dport=46424 mark=0 use=1
tcp      6 431999 ESTABLISHED src=10.0.0.1 dst=10.96.0.2 sport=1 dport=2 packets=3 bytes=4 src=10.0.0.2 dst=10.0.0.1 sport=3 dport=1 packets=1 bytes=2 [ASSURED] mark=0 zone=5 use=1
ipv4     2 tcp      6 9 CLOSE src=10.0.0.1 dst=10.0.0.2 sport=3 dport=2 src=10.0.0.2 dst=10.0.0.1 sport=2 dport=3 mark=0 zone=0 use=2
icmpv6   58 29 src=fd00::1 dst=fd00::2 type=128 code=0 id=7 src=fd00::2 dst=fd00::1 type=129 code=0 id=7 mark=0 use=1
conntrack v1.4.7 (conntrack-tools): 4 flow entries have been shown.
cpu=0   	found=0 invalid=0 insert=0 insert_failed=0 drop=0 early_drop=0 error=0 search_restart=0
hello
tcp      6 9 CLOSE src=10.0.0.1 dst=10.0.0.2 sport=3 dport=2 mark=0 use=2
";
        let mut problems = Vec::new();
        let connections = parse(&Text::new(text), &mut problems);
        let shown: Vec<String> = connections.iter().map(|own| format!("{own:?}")).collect();
        insta::assert_snapshot!(shown.join("\n"));
        assert_eq!(zones(&connections), BTreeSet::from([5]));
        let lines = problems.iter().map(|problem| &text[problem.range.clone()]);
        let lines: Vec<&str> = lines.collect();
        assert_eq!(lines[0], "hello");
        assert!(lines[1].contains("CLOSE"), "{lines:?}");
        assert_eq!(lines.len(), 2);
    }
}
