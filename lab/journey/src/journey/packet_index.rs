//! Index of packets by their addresses.

use std::collections::{BTreeSet, HashMap, HashSet};

use super::followed::FollowedPacket;
use super::grouped::{ByAddresses, grouped};
use super::sighting::PacketId;
use super::track::Kind;
use svclab_model::evidence::{AddressPair, RelayedConnection};

/// Index of all packets.
pub(super) struct PacketIndex<'p> {
    /// Packets by the namespace that sent them, and their addresses before it rewrote them.
    sent_before: ByAddresses<'p>,
    /// Packets by the namespace that sent them, and their addresses after it rewrote them.
    sent_after: ByAddresses<'p>,
    /// ICMP errors by the namespace that sent them, and the addresses that they quote.
    quoting: ByAddresses<'p>,
    /// Packets by the fields that retransmissions share.
    alike: HashMap<(PacketId, AddressPair, Kind), Vec<usize>>,
    /// Packets by their addresses, or those that an ICMP error quotes, in either direction.
    by_connection: HashMap<AddressPair, Vec<usize>>,
    /// Connections of clients to load balancers, by the addresses of the client's connection.
    relayed: HashMap<AddressPair, Vec<&'p RelayedConnection>>,
}

/// Packets that may belong to an attempt, in order, and connections that load balancers relay for it.
pub(super) struct Connected<'p> {
    pub(super) packets: BTreeSet<usize>,
    pub(super) relayed: Vec<&'p RelayedConnection>,
}

impl<'p> PacketIndex<'p> {
    pub(super) fn new(packets: &'p [FollowedPacket<'_>], relayed: &'p [RelayedConnection]) -> Self {
        let numbered = || packets.iter().enumerate();
        let by_addresses = |addresses: fn(&FollowedPacket<'_>) -> Option<AddressPair>| {
            grouped(numbered().filter_map(|(number, packet)| {
                let sender = packet.hops[0].namespace.as_str();
                Some(((sender, addresses(packet)?), number))
            }))
        };
        Self {
            sent_before: by_addresses(|packet| Some(packet.before())),
            sent_after: by_addresses(|packet| Some(packet.hops[0].after)),
            quoting: by_addresses(|packet| packet.quoted),
            alike: grouped(
                numbered().map(|(number, packet)| (packet.shared_by_retransmissions(), number)),
            ),
            by_connection: grouped(numbered().flat_map(|(number, packet)| {
                let either = [Some(packet.before()), packet.quoted];
                let either = either.into_iter().flatten();
                either.map(move |addresses| (undirected(addresses), number))
            })),
            relayed: grouped(
                relayed
                    .iter()
                    .map(|relay| (undirected(relay.client), relay)),
            ),
        }
    }

    /// Returns the packets that a namespace sent with these addresses, before it rewrote them.
    pub(super) fn sent_before(&self, namespace: &'p str, addresses: AddressPair) -> &[usize] {
        found(self.sent_before.get(&(namespace, addresses)))
    }

    /// Returns the packets that a namespace sent with these addresses, after it rewrote them.
    pub(super) fn sent_after(&self, namespace: &'p str, addresses: AddressPair) -> &[usize] {
        found(self.sent_after.get(&(namespace, addresses)))
    }

    /// Returns the ICMP errors of a namespace that quote these addresses.
    pub(super) fn quoting(&self, namespace: &'p str, addresses: AddressPair) -> &[usize] {
        found(self.quoting.get(&(namespace, addresses)))
    }

    /// Returns the packet and its retransmissions.
    pub(super) fn alike(&self, packet: &FollowedPacket<'_>) -> &[usize] {
        found(self.alike.get(&packet.shared_by_retransmissions()))
    }

    /// Returns all packets that may belong to the connection with these addresses: those with its
    /// addresses, with addresses that a namespace gave to one of them, and those of the connections
    /// that load balancers made for it.
    pub(super) fn connected(
        &self,
        addresses: AddressPair,
        packets: &[FollowedPacket<'_>],
    ) -> Connected<'p> {
        let mut open = vec![undirected(addresses)];
        let mut known: HashSet<AddressPair> = open.iter().copied().collect();
        let mut connected = Connected {
            packets: BTreeSet::new(),
            relayed: Vec::new(),
        };
        while let Some(addresses) = open.pop() {
            let mut reached = Vec::new();
            for relay in self.relayed.get(&addresses).into_iter().flatten() {
                connected.relayed.push(relay);
                reached.push(relay.backend);
            }
            for at in self.by_connection.get(&addresses).into_iter().flatten() {
                if connected.packets.insert(*at) && packets[*at].quoted.is_none() {
                    reached.extend(packets[*at].flows());
                }
            }
            let reached = reached.into_iter().map(undirected);
            open.extend(reached.filter(|addresses| known.insert(*addresses)));
        }
        connected
    }
}

/// Returns the same addresses for both directions of a connection.
fn undirected(addresses: AddressPair) -> AddressPair {
    addresses.min(addresses.reversed())
}

/// Returns the packets of an entry of an index; none if there is no entry.
fn found(packets: Option<&Vec<usize>>) -> &[usize] {
    packets.map_or(&[], Vec::as_slice)
}
