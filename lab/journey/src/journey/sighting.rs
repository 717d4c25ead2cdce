//! Parses captured frames into sightings: one packet on one interface.

use std::collections::HashMap;

use super::socket_address;
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

    /// Returns the identity without the part that needs more than the beginning of the packet.
    pub(super) fn without_data(mut self) -> Self {
        self.fields.data = None;
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
    /// Whether the packet was encapsulated by a tunnel.
    pub wrapped: bool,
    pub flow: AddressPair,
    /// Addresses of the packet that an ICMP error quotes.
    pub quoted: Option<AddressPair>,
    pub identity: PacketId,
    /// Identity of the tunnel packet that encapsulates this packet.
    pub outer: Option<PacketId>,
    pub frame: Frame,
    /// Destination hardware address; `None` inside a tunnel.
    pub destination_mac: Option<Mac>,
    /// Index of the packet in the evidence.
    pub packet: usize,
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
            let outer = Frame::from_ethernet(&packet.bytes)?;
            let wrapped = outer.inner.is_some();
            let carrier = wrapped.then(|| PacketId::from_frame(&outer));
            let frame = outer.inner.clone().map_or(outer, |inner| *inner);
            let mac = packet.bytes.first_chunk().copied().map(Mac);
            Some(Sighting {
                time: packet.time,
                namespace: &packet.namespace,
                interface: &packet.interface,
                out: packet.direction == Direction::Out,
                wrapped,
                flow: flow(&frame),
                quoted: frame.quoted.as_deref().map(flow),
                identity: PacketId::from_frame(&frame),
                outer: carrier,
                frame,
                destination_mac: mac.filter(|_| !wrapped),
                packet: index,
            })
        })
        .collect()
}
