//! Parses captured frames into sightings: one packet on one interface.

use std::collections::HashMap;

use super::{PacketHeader, TunnelPacket, socket_address};
use crate::packet::{Frame, InvariantFields, Payload};
use svclab_model::evidence::{AddressPair, Direction, Packet};
use svclab_model::plan::{LinkKind, Mac, Plan};

/// Properties that identify a packet and stay the same wherever it is seen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct PacketId {
    payload: Payload,
    fields: InvariantFields,
}

impl PacketId {
    pub(super) fn from_frame(frame: &Frame) -> Self {
        let mut fields = frame.invariant_fields;
        if let Some(quoted) = &frame.quoted {
            // An ICMP error is identified by the packet it quotes. Addresses in the quote are
            // rewritten together with its own.
            fields.segment = quoted.invariant_fields.segment;
            fields.echo = quoted.invariant_fields.echo;
        }
        Self {
            payload: frame.payload,
            fields,
        }
    }

    pub(super) const fn payload(self) -> Payload {
        self.payload
    }

    /// Returns the identity without the parts that need more than the beginning of the packet: a
    /// trace has 20 bytes behind the IP header (Linux v6.12, `net/netfilter/nf_tables_trace.c`,
    /// `NFT_TRACETYPE_TRANSPORT_HSIZE`), too few for the packet that an ICMP error quotes.
    pub(super) fn without_data(mut self) -> Self {
        self.fields.data = None;
        if self.payload == Payload::Unreachable {
            self.fields.segment = None;
            self.fields.echo = None;
        }
        self
    }

    /// Returns the identity that retransmissions share, without the IP identification that the
    /// sender increments.
    pub(super) fn without_identification(mut self) -> Self {
        self.fields.identification = 0;
        self
    }
}

/// A packet on an interface.
#[derive(Debug, Clone)]
pub(super) struct Sighting<'e> {
    pub time: u64,
    pub namespace: &'e str,
    pub interface: &'e str,
    pub out: bool,
    pub flow: AddressPair,
    /// Addresses of the packet that an ICMP error quotes.
    pub quoted: Option<AddressPair>,
    pub identity: PacketId,
    pub frame: Frame,
    /// Tunnel packet that carries this packet.
    pub outer: Option<Frame>,
    /// Destination hardware address of the captured frame.
    pub destination_mac: Option<Mac>,
    /// Index of the packet in the evidence.
    pub packet: usize,
}

impl Sighting<'_> {
    /// Whether the packet was encapsulated by a tunnel.
    pub(super) const fn wrapped(&self) -> bool {
        self.outer.is_some()
    }

    /// Returns the headers of the packet.
    pub(super) fn header(&self) -> PacketHeader {
        let mac = self.destination_mac.filter(|_| !self.wrapped());
        header(&self.frame, mac)
    }

    /// Returns the tunnel packet that carries the packet.
    pub(super) fn tunnel(&self) -> Option<TunnelPacket> {
        let outer = self.outer.as_ref()?;
        Some(tunnel_packet(outer, self.destination_mac))
    }
}

fn header(frame: &Frame, destination_mac: Option<Mac>) -> PacketHeader {
    PacketHeader {
        ttl: frame.ttl,
        length: frame.length,
        dont_fragment: frame.dont_fragment,
        destination_mac,
    }
}

/// Returns a packet that carries another one through a tunnel.
pub(super) fn tunnel_packet(outer: &Frame, destination_mac: Option<Mac>) -> TunnelPacket {
    TunnelPacket {
        addresses: flow(outer),
        header: header(outer, destination_mac),
    }
}

/// Returns the addresses of a frame. The identifier of an ICMP echo replaces the ports.
pub(super) fn flow(frame: &Frame) -> AddressPair {
    let echo = frame.identifier.map(|identifier| (identifier, identifier));
    let ports = frame.ports.or(echo);
    AddressPair {
        source: socket_address(frame.source, ports.map(|ports| ports.0)),
        destination: socket_address(frame.destination, ports.map(|ports| ports.1)),
    }
}

/// Returns the packet without the header of a tunnel, and the tunnel packet that carried it.
pub(super) fn unwrapped(mut frame: Frame) -> (Frame, Option<Frame>) {
    match frame.inner.take() {
        Some(inner) => (*inner, Some(frame)),
        None => (frame, None),
    }
}

/// Hardware addresses of a plan, by which copies of flooded frames are recognised.
struct HardwareAddresses<'p> {
    /// Address of each interface that is neither a bridge nor a port of one, by namespace and name.
    own: HashMap<(&'p str, &'p str), Mac>,
    /// Bridge of each port, and the address of the interface at its other end.
    ports: HashMap<(&'p str, &'p str), (&'p str, Mac)>,
}

impl<'p> HardwareAddresses<'p> {
    fn new(plan: &'p Plan) -> Self {
        let links = plan.namespaces.iter();
        let links = links.flat_map(|ns| ns.links.iter().map(move |link| (&*ns.name, link)));
        let ends = links
            .clone()
            .filter(|(_, link)| link.bridge.is_none() && !matches!(link.kind, LinkKind::Bridge));
        let own: HashMap<(&str, &str), Mac> = ends
            .map(|(namespace, link)| ((namespace, &*link.name), link.mac))
            .collect();
        let ports = links.filter_map(|(name, link)| {
            let LinkKind::Veth { namespace, peer } = &link.kind else {
                return None;
            };
            let peer = own.get(&(&**namespace, &**peer))?;
            Some(((name, &*link.name), (link.bridge.as_deref()?, *peer)))
        });
        Self {
            ports: ports.collect(),
            own,
        }
    }

    /// Whether a frame is a copy that a bridge flooded to an interface with another address. A frame
    /// to an address that no port leads to is no copy.
    fn is_copy(&self, packet: &Packet) -> bool {
        let place = (packet.namespace.as_str(), packet.interface.as_str());
        let Some(to) = packet.bytes.first_chunk().copied().map(Mac) else {
            return false;
        };
        if to.0[0] & 1 == 1 {
            return false;
        }
        match packet.direction {
            Direction::In => self.own.get(&place).is_some_and(|own| *own != to),
            Direction::Out => self.ports.get(&place).is_some_and(|(bridge, peer)| {
                let mut ports = self.ports.iter();
                *peer != to
                    && ports.any(|((namespace, _), (own, other))| {
                        (*namespace, own) == (place.0, bridge) && *other == to
                    })
            }),
        }
    }
}

/// Parses all IP packets of the evidence, except copies of frames that a bridge flooded.
pub(super) fn parse_sightings<'e>(packets: &'e [Packet], plan: &Plan) -> Vec<Sighting<'e>> {
    let addresses = HardwareAddresses::new(plan);
    packets
        .iter()
        .enumerate()
        .filter(|(_, packet)| !addresses.is_copy(packet))
        .filter_map(|(index, packet)| {
            let (frame, outer) = unwrapped(Frame::from_ethernet(&packet.bytes)?);
            Some(Sighting {
                time: packet.time,
                namespace: &packet.namespace,
                interface: &packet.interface,
                out: packet.direction == Direction::Out,
                flow: flow(&frame),
                quoted: frame.quoted.as_deref().map(flow),
                identity: PacketId::from_frame(&frame),
                frame,
                outer,
                destination_mac: packet.bytes.first_chunk().copied().map(Mac),
                packet: index,
            })
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A trace has the first 20 bytes behind the IP header.
    #[test]
    fn identity_of_error_in_trace_is_that_of_whole_error() {
        let mut error = vec![0x45, 0, 0, 56, 0, 7, 0, 0, 64, 1, 0, 0];
        error.extend([10, 0, 0, 1, 10, 0, 0, 2]);
        error.extend([3, 1, 0, 0, 0, 0, 0, 0]);
        error.extend([0x45, 0, 0, 40, 0, 9, 0x40, 0, 63, 6, 0, 0]);
        error.extend([10, 0, 0, 2, 10, 0, 0, 9]);
        error.extend([0x0f, 0xa0, 0, 80, 0, 0, 0, 1]);
        let identity = |length: usize| {
            let frame = Frame::from_ip(&error[..length]).expect("a packet");
            PacketId::from_frame(&frame).without_data()
        };
        assert_eq!(identity(20 + 20), identity(error.len()));
    }
}
