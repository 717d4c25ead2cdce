//! Reads the unresolved neighbours of a namespace.

use std::net::IpAddr;

use futures_util::TryStreamExt as _;
use netlink_packet_route::neighbour::{NeighbourAddress, NeighbourAttribute, NeighbourState};

use super::NamespaceNetlink;

impl NamespaceNetlink {
    /// Returns the neighbours whose hardware address the kernel is resolving. Packets to them wait
    /// until the neighbour answers, or are dropped after 3 s by default (`mcast_solicit` times
    /// `retrans_time_ms`; Linux v6.12, `net/core/neighbour.c`, `__neigh_event_send` and
    /// `neigh_timer_handler`).
    pub(crate) async fn unresolved_neighbours(&self) -> Result<Vec<IpAddr>, rtnetlink::Error> {
        let mut unresolved = Vec::new();
        let mut neighbours = self.handle.neighbours().get().execute();
        while let Some(message) = neighbours.try_next().await? {
            if message.header.state != NeighbourState::Incomplete {
                continue;
            }
            unresolved.extend(message.attributes.iter().find_map(|each| match each {
                NeighbourAttribute::Destination(NeighbourAddress::Inet(v4)) => {
                    Some(IpAddr::V4(*v4))
                }
                NeighbourAttribute::Destination(NeighbourAddress::Inet6(v6)) => {
                    Some(IpAddr::V6(*v6))
                }
                _ => None,
            }));
        }
        unresolved.sort_unstable();
        Ok(unresolved)
    }
}
