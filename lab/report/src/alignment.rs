//! Aligns the hops of two connections, to show where they part.

use similar::{Algorithm, DiffOp, capture_diff_slices};

use crate::text::conclusion::render_rewrite;
use crate::text::journey::describe_end;
use crate::text::journey_groups::without_client_ports;
use svclab_journey::journey::{Hop, Journey, PacketPath};
use svclab_model::evidence::Verdict;

/// Maximum number of hops of a connection that are compared. Retransmissions do not count.
const MAX_HOPS: usize = 64;

/// Way of a connection, to compare it with another. Ports of clients are omitted, because kernels
/// choose them for each connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ConnectionWay {
    pub probe: String,
    /// Number of the connection, from 0.
    pub number: u32,
    pub verdict: Verdict,
    hops: Vec<PlacedHop>,
}

/// Packet and namespace, and what happened there.
type PlacedHop = (String, String);

impl From<&Journey> for ConnectionWay {
    fn from(journey: &Journey) -> Self {
        Self {
            probe: journey.probe.clone(),
            number: journey.number,
            verdict: journey.verdict,
            hops: hops(journey),
        }
    }
}

/// Hops of two connections in the same place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct AlignedHop {
    /// Packet and namespace: `SYN out in node-1`.
    pub place: String,
    /// Description of the events there, on each side. `None` if no packet came there.
    pub sides: [Option<String>; 2],
}

impl AlignedHop {
    /// Whether the sides differ.
    pub(crate) fn differs(&self) -> bool {
        self.sides[0] != self.sides[1]
    }
}

/// Aligns the hops of two connections by packet kind, direction and namespace.
pub(crate) fn align(first: &ConnectionWay, second: &ConnectionWay) -> Vec<AlignedHop> {
    let [first, second] = [&first.hops, &second.hops];
    let places = [first, second].map(|side| {
        let places = side.iter().map(|(place, _)| place.as_str());
        places.collect::<Vec<_>>()
    });
    let operations = capture_diff_slices(Algorithm::Myers, &places[0], &places[1]);
    let only = |side: usize, (place, text): &PlacedHop| {
        let mut sides = [None, None];
        sides[side] = Some(text.clone());
        AlignedHop {
            place: place.clone(),
            sides,
        }
    };
    let mut rows = Vec::new();
    for operation in operations {
        let (old, new) = (operation.old_range(), operation.new_range());
        if let DiffOp::Equal { .. } = operation {
            let pairs = first[old].iter().zip(&second[new]);
            rows.extend(pairs.map(|((place, one), (_, other))| AlignedHop {
                place: place.clone(),
                sides: [Some(one.clone()), Some(other.clone())],
            }));
        } else {
            rows.extend(first[old].iter().map(|hop| only(0, hop)));
            rows.extend(second[new].iter().map(|hop| only(1, hop)));
        }
    }
    rows
}

/// Returns the hops of a connection, each with its place and what happened there.
fn hops(journey: &Journey) -> Vec<PlacedHop> {
    let packets = journey.packets.iter();
    let sent_once = packets.filter(|packet| packet.retransmission_of.is_none());
    let hops = sent_once.flat_map(|packet| {
        let last = packet.hops.len().saturating_sub(1);
        packet.hops.iter().enumerate().map(move |(index, hop)| {
            let direction = if packet.direction { "out" } else { "back" };
            let place = format!("{} {direction} in {}", packet.kind.label(), hop.namespace);
            let end = (index == last).then_some(packet);
            (
                place,
                without_client_ports(journey, &describe(hop, end, journey)),
            )
        })
    });
    hops.take(MAX_HOPS).collect()
}

/// Describes what a namespace did with a packet. `end` is the packet if it ended there.
fn describe(hop: &Hop, end: Option<&PacketPath>, journey: &Journey) -> String {
    let mut parts = vec![hop.before.to_string()];
    if let Some(by) = render_rewrite(hop) {
        parts.push(format!("becomes {} {by}", hop.after));
    }
    let dropped = hop.matches.iter().filter(|step| step.dropped);
    parts.extend(dropped.map(|step| {
        let rule = step.rule.as_ref().or(step.target.as_ref());
        let rule = rule.map_or_else(String::new, |rule| format!(": {rule}"));
        format!("dropped by {} {}{rule}", step.table, step.chain)
    }));
    parts.extend(end.map(|packet| describe_end(packet, journey)));
    parts.join("; ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use svclab_journey::journey::{Kind, PathEnd};
    use svclab_model::evidence::AddressPair;

    fn way(port: u16, path: &[&str], end: &PathEnd) -> ConnectionWay {
        let flow = AddressPair {
            source: ([10, 0, 0, 1], port).into(),
            destination: ([10, 96, 0, 1], 80).into(),
        };
        let hops = path.iter().map(|namespace| Hop {
            namespace: (*namespace).to_owned(),
            crossings: Vec::new(),
            before: flow,
            after: flow,
            tunnel: None,
            rewritten: None,
            matches: Vec::new(),
        });
        let packet = |retransmission_of| PacketPath {
            kind: Kind::Syn,
            time: 0,
            retransmission_of,
            direction: true,
            hops: hops.clone().collect(),
            routing_loop: None,
            end: end.clone(),
            code: None,
            reason: None,
            header: None,
            tunnel: None,
        };
        ConnectionWay::from(&Journey {
            probe: "call".to_owned(),
            number: 0,
            verdict: Verdict::Timeout,
            error: None,
            progress: None,
            addresses: Some(flow),
            from: "client".to_owned(),
            packets: vec![packet(None), packet(Some(0))],
        })
    }

    #[test]
    fn align_equal_ways_with_other_client_ports_do_not_differ() {
        let path = ["client", "node-1", "web"];
        let rows = align(
            &way(40_000, &path, &PathEnd::Delivered),
            &way(40_001, &path, &PathEnd::Delivered),
        );
        let places: Vec<&str> = rows.iter().map(|row| row.place.as_str()).collect();
        assert_eq!(
            places,
            ["SYN out in client", "SYN out in node-1", "SYN out in web"]
        );
        assert!(!rows.iter().any(AlignedHop::differs), "{rows:#?}");
    }

    #[test]
    fn align_other_way_is_marked_from_where_they_part() {
        let rows = align(
            &way(40_000, &["client", "node-1", "web"], &PathEnd::Delivered),
            &way(
                40_000,
                &["client", "node-1", "node-2"],
                &PathEnd::NotReceived,
            ),
        );
        let parted: Vec<(&str, bool)> = rows
            .iter()
            .map(|row| (row.place.as_str(), row.differs()))
            .collect();
        assert_eq!(
            parted,
            [
                ("SYN out in client", false),
                ("SYN out in node-1", false),
                ("SYN out in web", true),
                ("SYN out in node-2", true)
            ]
        );
    }
}
