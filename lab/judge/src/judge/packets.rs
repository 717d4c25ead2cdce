//! Compares captured packets with expectations about interfaces.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use crate::check::{Check, retransmissions};
use crate::judge::Judge;
use svclab_journey::Frame;
use svclab_model::evidence::{Evidence, Verdict};
use svclab_model::plan::{Probe, ProbeProtocol};
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
            let packets = frames.iter().map(|(time, frame)| (*time, frame));
            let mut series: Vec<(Duration, Vec<Duration>)> = retransmissions::series(packets)
                .into_iter()
                .map(|seen| (self.wait_of(&seen.ends, evidence), seen.intervals))
                .collect();
            let differing = series
                .iter()
                .position(|(wait, seen)| !retransmissions::matches(expected, seen, *wait));
            let shown = (!series.is_empty()).then(|| series.swap_remove(differing.unwrap_or(0)));
            let (max_wait, intervals) = shown.unzip();
            checks.push(Check::Retransmissions {
                expected: wire.clone(),
                max_wait: max_wait.unwrap_or_else(|| self.shortest_wait(evidence)),
                intervals,
                missed,
            });
        }
        checks
    }

    /// Returns the maximum wait of the probe whose packet has one of these addresses. After source
    /// NAT, the probe is not known.
    fn wait_of(&self, ends: &[SocketAddr], evidence: &Evidence) -> Duration {
        let mut attempts = evidence.attempts();
        let own = attempts.find(|attempt| {
            let local = attempt.local_address;
            local.is_some_and(|local| ends.contains(&local))
        });
        let mut probes = self.case.plan.probes();
        own.and_then(|attempt| probes.find(|probe| probe.name == attempt.probe))
            .map_or_else(|| self.shortest_wait(evidence), |probe| probe.max_wait)
    }

    /// Returns the shortest maximum wait of the TCP probes without a reply, which retransmit; of all
    /// TCP probes if there is no such probe.
    fn shortest_wait(&self, evidence: &Evidence) -> Duration {
        let waits = |is_relevant: &dyn Fn(&Probe) -> bool| {
            let probes = self.case.plan.probes();
            let probes = probes.filter(|probe| probe.protocol == ProbeProtocol::Tcp);
            let relevant = probes.filter(|probe| is_relevant(probe));
            relevant.map(|probe| probe.max_wait).min()
        };
        let has_no_reply = |probe: &Probe| {
            let mut attempts = evidence.attempts();
            attempts
                .any(|attempt| attempt.probe == probe.name && attempt.verdict == Verdict::Timeout)
        };
        let wait = waits(&has_no_reply).or_else(|| waits(&|_| true));
        wait.unwrap_or_default()
    }

    fn matches_pattern(&self, sight: &PacketPattern, frame: &Frame) -> bool {
        let frame = match sight.via {
            Some(Overlay::Vxlan) => match frame.inner_of_vxlan() {
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
        Some(Overlay::Vxlan) => frame.inner_of_vxlan().and_then(|inner| inner.tcp_header),
        None => frame.tcp_header,
    };
    wire.mss
        .is_none_or(|mss| segment.is_some_and(|segment| segment.mss == Some(mss)))
        && wire
            .window
            .is_none_or(|window| segment.is_some_and(|segment| segment.window == window))
}
