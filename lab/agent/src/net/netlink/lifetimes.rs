//! Finds addresses and routes that the kernel removes by itself.

use futures_util::TryStreamExt as _;
use netlink_packet_route::AddressFamily;
use netlink_packet_route::address::AddressAttribute;
use netlink_packet_route::route::{RouteAttribute, RouteMessage};

use super::NamespaceNetlink;

/// Valid lifetime of an address that never expires (Linux v6.12, `include/net/addrconf.h`,
/// `INFINITY_LIFE_TIME`).
const INFINITE: u32 = u32::MAX;

impl NamespaceNetlink {
    /// Whether an address or a route of the namespace expires. Only routes of IPv6 can expire.
    pub(crate) async fn has_lifetimes(&self) -> Result<bool, rtnetlink::Error> {
        let mut addresses = self.handle.address().get().execute();
        let mut expires = false;
        // The kernel's answer is read to its end.
        while let Some(message) = addresses.try_next().await? {
            expires |= message.attributes.iter().any(|each| {
                matches!(each, AddressAttribute::CacheInfo(cache) if cache.ifa_valid != INFINITE)
            });
        }
        let mut wanted = RouteMessage::default();
        wanted.header.address_family = AddressFamily::Inet6;
        let mut routes = self.handle.route().get(wanted).execute();
        while let Some(message) = routes.try_next().await? {
            expires |= message
                .attributes
                .iter()
                .any(|each| matches!(each, RouteAttribute::CacheInfo(cache) if cache.expires != 0));
        }
        Ok(expires)
    }
}
