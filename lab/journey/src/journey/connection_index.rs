//! Index of conntrack entries and IPVS connections by their addresses.

use std::collections::HashMap;
use std::net::SocketAddr;

use super::grouped::{ByAddresses, grouped};
use svclab_model::evidence::{AddressPair, ConntrackEntry, IpvsConnection, StageEvidence};

/// Index of the conntrack entries and the IPVS connections of all namespaces.
pub(super) struct ConnectionIndex<'e> {
    entries: &'e [ConntrackEntry],
    by_original: ByAddresses<'e>,
    by_reply: ByAddresses<'e>,
    /// IPVS connections by namespace and client.
    ipvs: HashMap<(&'e str, SocketAddr), Vec<&'e IpvsConnection>>,
}

impl<'e> ConnectionIndex<'e> {
    pub(super) fn new(evidence: &'e StageEvidence) -> Self {
        let entries = evidence.conntrack.as_slice();
        let by_addresses = |addresses: fn(&ConntrackEntry) -> AddressPair| {
            let numbered = entries.iter().enumerate();
            grouped(numbered.map(|(number, entry)| ((&*entry.namespace, addresses(entry)), number)))
        };
        let of_ipvs = evidence.ipvs_connections.iter();
        Self {
            entries,
            by_original: by_addresses(|entry| entry.original),
            by_reply: by_addresses(|entry| entry.reply),
            ipvs: grouped(of_ipvs.map(|own| ((&*own.namespace, own.client), own))),
        }
    }

    /// Returns the addresses of a sent packet before conntrack rewrote it on its way out of the
    /// namespace. Rules see only the first packet of a connection before the rewrite.
    pub(super) fn before_sent(
        &self,
        namespace: &'e str,
        sent: AddressPair,
        is_reply: bool,
    ) -> Option<AddressPair> {
        let key = (namespace, sent.reversed());
        if is_reply {
            let first = self.by_original.get(&key)?.first()?;
            Some(self.entries[*first].reply)
        } else {
            let first = self.by_reply.get(&key)?.first()?;
            Some(self.entries[*first].original)
        }
    }

    /// Returns the addresses that conntrack gives to a packet of a tracked connection. `None` if the
    /// packet belongs to no entry or is not rewritten.
    pub(super) fn rewritten(&self, namespace: &'e str, before: AddressPair) -> Option<AddressPair> {
        let key = (namespace, before);
        let numbers = [&self.by_original, &self.by_reply]
            .into_iter()
            .filter_map(|index| index.get(&key))
            .flatten();
        let entry = numbers
            // In a connection from an address to itself, both directions have the same addresses.
            .filter(|at| self.entries[**at].original != self.entries[**at].original.reversed())
            .min()
            .map(|at| &self.entries[*at])?;
        let after = if before == entry.reply {
            entry.original.reversed()
        } else {
            entry.reply.reversed()
        };
        (after != before).then_some(after)
    }

    /// Returns the real server to which IPVS sends the packets of a client to a virtual server.
    pub(super) fn ipvs_destination(
        &self,
        namespace: &'e str,
        before: AddressPair,
    ) -> Option<SocketAddr> {
        let mut connections = self.of_ipvs_client(namespace, before.source);
        let connection = connections.find(|own| own.virtual_server == before.destination)?;
        Some(connection.real_server)
    }

    /// Returns the connections of a client through IPVS.
    pub(super) fn of_ipvs_client(
        &self,
        namespace: &'e str,
        client: SocketAddr,
    ) -> impl Iterator<Item = &'e IpvsConnection> {
        let connections = self.ipvs.get(&(namespace, client));
        connections.into_iter().flatten().copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pair(source: &str, destination: &str) -> AddressPair {
        AddressPair {
            source: source.parse().unwrap(),
            destination: destination.parse().unwrap(),
        }
    }

    fn request() -> AddressPair {
        pair("10.0.0.9:40000", "10.96.0.1:80")
    }

    fn reply() -> AddressPair {
        pair("10.244.0.2:8080", "10.0.0.1:50000")
    }

    fn entry(namespace: &str, original: AddressPair, reply: AddressPair) -> ConntrackEntry {
        ConntrackEntry {
            namespace: namespace.to_owned(),
            protocol: 6,
            original,
            reply,
            mark: 0,
            status: 0,
            state: None,
            expires: None,
        }
    }

    /// A connection through a cluster IP, which node-1 rewrites to an endpoint and masquerades, and
    /// a connection of node-2 from an address to itself.
    fn evidence() -> StageEvidence {
        let through_cluster_ip = entry("node-1", request(), reply());
        let own = pair("10.0.0.2:7000", "10.0.0.2:7000");
        StageEvidence {
            conntrack: vec![through_cluster_ip, entry("node-2", own, own)],
            ..StageEvidence::default()
        }
    }

    #[test]
    fn rewritten_packet_has_addresses_of_other_direction() {
        let evidence = evidence();
        let index = ConnectionIndex::new(&evidence);
        let (request, reply) = (request(), reply());
        assert_eq!(index.rewritten("node-1", request), Some(reply.reversed()));
        assert_eq!(index.rewritten("node-1", reply), Some(request.reversed()));
        // Not a packet that is already rewritten, and not in another namespace.
        assert_eq!(index.rewritten("node-1", reply.reversed()), None);
        assert_eq!(index.rewritten("node-2", request), None);
    }

    #[test]
    fn rewritten_connection_to_itself_is_unchanged() {
        let evidence = evidence();
        let index = ConnectionIndex::new(&evidence);
        let own = pair("10.0.0.2:7000", "10.0.0.2:7000");
        assert_eq!(index.rewritten("node-2", own), None);
    }

    #[test]
    fn before_sent_finds_addresses_before_rewrite() {
        let evidence = evidence();
        let index = ConnectionIndex::new(&evidence);
        let (request, reply) = (request(), reply());
        let sent = index.before_sent("node-1", reply.reversed(), false);
        assert_eq!(sent, Some(request));
        let sent = index.before_sent("node-1", request.reversed(), true);
        assert_eq!(sent, Some(reply));
        assert_eq!(index.before_sent("node-2", reply.reversed(), false), None);
    }
}
