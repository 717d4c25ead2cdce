//! Groups connections that went alike, so that they are explained once.

use std::collections::BTreeSet;
use std::net::SocketAddr;

use svclab_journey::journey::Journey;
use svclab_model::evidence::format_address;

/// Groups journeys of a probe with the same verdict and the same explanation. Returns the first of
/// each group with the size of the group. Groups of failing attempts come first.
pub(crate) fn group_journeys<'j, J: AsRef<Journey>>(
    journeys: impl Iterator<Item = &'j J>,
    explain: impl Fn(&J) -> String,
    is_failing: impl Fn(&J) -> bool,
) -> Vec<(&'j J, usize)> {
    let mut groups: Vec<(String, &J, usize)> = Vec::new();
    for explained in journeys {
        let journey = explained.as_ref();
        let explanation = without_client_ports(journey, &explain(explained));
        let key = format!("{} {} {explanation}", journey.probe, journey.verdict);
        match groups.iter_mut().find(|(own, ..)| *own == key) {
            Some((_, _, count)) => *count += 1,
            None => groups.push((key, explained, 1)),
        }
    }
    groups.sort_by_key(|(_, journey, _)| !is_failing(journey));
    let groups = groups.into_iter();
    groups.map(|(_, journey, count)| (journey, count)).collect()
}

/// Whether the attempt of a journey succeeded.
pub(crate) const fn is_success(journey: &Journey) -> bool {
    journey.verdict.is_success()
}

/// Removes the client's ports, which kernels choose for each connection: that of the socket, and
/// those of masqueraded packets.
pub(crate) fn without_client_ports(journey: &Journey, text: &str) -> String {
    let of_packets = journey.packets.iter().flat_map(|flight| {
        let flows = flight.hops.iter().flat_map(|hop| [hop.before, hop.after]);
        flows.map(|flow| {
            if flight.direction {
                flow.source
            } else {
                flow.destination
            }
        })
    });
    let clients = journey.addresses.map(|called| called.source);
    let clients: BTreeSet<SocketAddr> = clients.into_iter().chain(of_packets).collect();
    let mut text = text.to_owned();
    for client in clients.into_iter().rev() {
        let address = format_address(client);
        let ip = address.strip_suffix(&format!(":{}", client.port()));
        text = text.replace(&address, ip.unwrap_or(&address));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use svclab_journey::journey::{Hop, Kind, PacketPath, PathEnd};
    use svclab_model::evidence::AddressPair;
    use svclab_model::evidence::Verdict;

    /// A SYN from a client port, which node-1 masquerades to another port.
    fn journey(number: u32, verdict: Verdict, client: u16, masqueraded: u16) -> Journey {
        let pair = |source: String, destination: &str| AddressPair {
            source: source.parse().unwrap(),
            destination: destination.parse().unwrap(),
        };
        let before = pair(format!("10.0.0.1:{client}"), "10.96.0.1:80");
        let hop = Hop {
            namespace: "node-1".to_owned(),
            crossings: Vec::new(),
            before,
            after: pair(format!("10.0.0.254:{masqueraded}"), "10.244.0.2:80"),
            tunnel: None,
            rewritten: None,
            matches: Vec::new(),
        };
        let request = PacketPath {
            kind: Kind::Syn,
            time: 0,
            retransmission_of: None,
            direction: true,
            hops: vec![hop],
            routing_loop: None,
            end: PathEnd::Delivered,
            code: None,
            reason: None,
            header: None,
            tunnel: None,
        };
        Journey {
            probe: "call".to_owned(),
            number,
            verdict,
            error: None,
            progress: None,
            addresses: Some(before),
            from: "client".to_owned(),
            packets: vec![request],
        }
    }

    #[test]
    fn groups_failures_first_and_alike_together() {
        let journeys = [
            journey(0, Verdict::Connected, 40_000, 50_000),
            journey(1, Verdict::Timeout, 40_001, 50_001),
            journey(2, Verdict::Connected, 4_000, 50_002),
            journey(3, Verdict::Timeout, 40_003, 50_003),
            journey(4, Verdict::Connected, 40_004, 5_000),
        ];
        let explain = |journey: &Journey| {
            let hop = &journey.packets[0].hops[0];
            format!("SYN became {} from {}", hop.after, hop.before.source)
        };
        let groups = group_journeys(journeys.iter(), explain, |journey| !is_success(journey));
        let numbers: Vec<(u32, usize)> = groups
            .iter()
            .map(|(journey, count)| (journey.number, *count))
            .collect();
        assert_eq!(numbers, [(1, 2), (0, 3)]);
    }
}
