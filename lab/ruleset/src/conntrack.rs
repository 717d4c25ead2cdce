//! Parses the output of `conntrack -L`.

use std::collections::BTreeMap;

use crate::text::problem::{Problem, ProblemKind};
use crate::text::{Text, lines};
use crate::tool::Format;

/// Tracked connections. Connections come and go, so only their number and zones are kept.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Connections {
    /// Number of listed connections.
    pub count: usize,
    /// Number of connections in each zone other than 0.
    pub zones: BTreeMap<u16, usize>,
}

/// Names of zones: of both directions, or of one (conntrack-tools 1.4.7, `src/conntrack.c`;
/// `libnetfilter_conntrack` 1.0.9, `src/conntrack/snprintf_default.c`).
const ZONE_NAMES: [&str; 3] = ["zone=", "zone-orig=", "zone-reply="];

/// Parses the output of `conntrack -L`, or `/proc/net/nf_conntrack`. Lines without addresses are
/// added to `problems`.
#[must_use]
pub fn parse(text: &Text, problems: &mut Vec<Problem>) -> Connections {
    let mut connections = Connections::default();
    for line in lines(text) {
        // The program counts the entries on standard error.
        if line.text.starts_with("conntrack v") {
            continue;
        }
        if !line.text.contains(" src=") {
            let kind = ProblemKind::UnknownLine(Format::Connections);
            problems.push(Problem::new(kind, line.start..line.end()));
            continue;
        }
        connections.count += 1;
        let words = line.text.split_ascii_whitespace();
        let zone = words
            .filter_map(|word| ZONE_NAMES.iter().find_map(|name| word.strip_prefix(name)))
            .find_map(|number| number.parse().ok())
            .filter(|zone| *zone != 0);
        if let Some(zone) = zone {
            *connections.zones.entry(zone).or_default() += 1;
        }
    }
    connections
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parse_conntrack_output_counts_zones() {
        let text = "\
udp      17 27 src=127.0.0.1 dst=127.0.0.1 sport=46424 dport=77 [UNREPLIED] src=127.0.0.1 dst=127.0.0.1 sport=77 dport=46424 mark=0 use=1
tcp      6 431999 ESTABLISHED src=10.0.0.1 dst=10.0.0.2 sport=1 dport=2 src=10.0.0.2 dst=10.0.0.1 sport=2 dport=1 [ASSURED] mark=0 zone=5 use=1
ipv4     2 tcp      6 9 CLOSE src=10.0.0.1 dst=10.0.0.2 sport=3 dport=2 src=10.0.0.2 dst=10.0.0.1 sport=2 dport=3 mark=0 zone=0 use=2
conntrack v1.4.7 (conntrack-tools): 3 flow entries have been shown.
hello
";
        let mut problems = Vec::new();
        let connections = parse(&Text::new(text), &mut problems);
        assert_eq!(connections.count, 3);
        assert_eq!(connections.zones, BTreeMap::from([(5, 1)]));
        assert_eq!(problems.len(), 1);
        assert_eq!(&text[problems[0].range.clone()], "hello");
    }
}
