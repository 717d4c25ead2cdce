//! Compares captured packets with expectations about interfaces.

use std::net::IpAddr;
use std::time::Duration;

use crate::check::{Check, retransmissions};
use crate::judge::Judge;
use svclab_journey::Frame;
use svclab_model::evidence::Evidence;
use svclab_model::plan::ProbeProtocol;
use svclab_scenario::wire::{Overlay, PacketPattern, Peer, WireExpectation};

impl Judge<'_> {
    /// Compares the number of matching packets, and the intervals between retransmissions, with an
    /// expectation.
    pub(super) fn check_packets(&self, wire: &WireExpectation, evidence: &Evidence) -> Vec<Check> {
        let netns = self.namespace_of(&wire.on.owner);
        let stages = evidence.stages.iter();
        let missed = stages.clone().map(|stage| stage.packets_missed);
        let missed = missed.fold(0, u64::saturating_add);
        let frames: Vec<(u64, Frame)> = stages
            .flat_map(|stage| &stage.packets)
            .filter(|packet| packet.namespace == netns && packet.interface == wire.on.interface)
            .filter_map(|packet| Some((packet.time, Frame::from_ethernet(&packet.bytes)?)))
            .filter(|(_, frame)| {
                self.matches_pattern(&wire.pattern, frame) && matches_tcp_fields(wire, frame)
            })
            .collect();
        let mut checks = vec![Check::Packets {
            expected: wire.clone(),
            count: u32::try_from(frames.len()).unwrap_or(u32::MAX),
            missed,
        }];
        if let Some(expected) = &wire.resent {
            let max_wait = self.min_wait();
            let mut series =
                retransmissions::intervals(frames.iter().map(|(time, frame)| (*time, frame)));
            let differing = series
                .iter()
                .position(|seen| !retransmissions::matches(expected, seen, max_wait))
                .unwrap_or(0);
            checks.push(Check::Retransmissions {
                expected: wire.clone(),
                max_wait,
                intervals: (!series.is_empty()).then(|| series.swap_remove(differing)),
                missed,
            });
        }
        checks
    }

    /// Returns the shortest maximum wait of all TCP probes.
    fn min_wait(&self) -> Duration {
        let probes = self.case.plan.probes();
        probes
            .filter(|probe| probe.protocol == ProbeProtocol::Tcp)
            .map(|probe| probe.max_wait)
            .min()
            .unwrap_or_default()
    }

    fn matches_pattern(&self, sight: &PacketPattern, frame: &Frame) -> bool {
        let frame = match sight.via {
            Some(Overlay::Vxlan) => match &frame.inner {
                Some(inner) => inner,
                None => return false,
            },
            None => frame,
        };
        let is_peer = |peer: Option<&Peer>, address: IpAddr, port: Option<u16>| {
            peer.is_none_or(|peer| {
                self.addresses(&peer.name)
                    .is_ok_and(|known| known.contains(&address))
                    && peer.port.is_none_or(|wanted| port == Some(wanted))
            })
        };
        let (from, to) = frame.ports.unzip();
        frame.has_kind(sight.kind)
            && is_peer(sight.from.as_ref(), frame.source, from)
            && is_peer(sight.to.as_ref(), frame.destination, to)
    }
}

/// Whether the TCP header of a packet has the expected window and maximum segment size.
fn matches_tcp_fields(wire: &WireExpectation, frame: &Frame) -> bool {
    let segment = match wire.pattern.via {
        Some(Overlay::Vxlan) => frame.inner.as_ref().and_then(|inner| inner.tcp_header),
        None => frame.tcp_header,
    };
    wire.mss
        .is_none_or(|mss| segment.is_some_and(|segment| segment.mss == Some(mss)))
        && wire
            .window
            .is_none_or(|window| segment.is_some_and(|segment| segment.window == window))
}
