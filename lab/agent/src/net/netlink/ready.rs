//! Waits until interfaces that are up carry packets and have their addresses.

use std::time::{Duration, Instant};

use futures_util::TryStreamExt as _;
use netlink_packet_route::AddressFamily;
use netlink_packet_route::address::{AddressHeaderFlags, AddressMessage};
use netlink_packet_route::link::{LinkAttribute, State};
use netlink_sys::protocols::NETLINK_ROUTE;
use netlink_sys::{AsyncSocket as _, AsyncSocketExt as _, SocketAddr, TokioSocket};
use tokio::time::timeout;

use super::links::has_address_of;
use super::{LOOPBACK, NamespaceNetlink, StepResult as _};
use crate::net::netns::NetNs;
use crate::runtime::failure;
use svclab_model::plan::{Link, LinkKind, Namespace};
use svclab_model::protocol::Failure;

/// Time limit for an interface to carry packets once both its ends are up, and for its addresses.
/// The kernel's link watch runs at least once per second.
const READY_TIMEOUT: Duration = Duration::from_secs(10);

/// Mask of the multicast groups of interfaces (`RTMGRP_LINK`) and of their IPv6 addresses
/// (`RTMGRP_IPV6_IFADDR`).
const LINK_GROUPS: u32 = 0x1 | 0x100;

/// Maximum time between two queries, because a full socket buffer loses notifications.
const MAX_QUERY_INTERVAL: Duration = Duration::from_millis(200);

/// Notifications about the interfaces of a namespace and their IPv6 addresses. The link watch sends
/// one after it has changed a state (Linux v6.12, `net/core/link_watch.c`, `linkwatch_do_dev`).
pub(crate) struct LinkChanges(TokioSocket);

impl LinkChanges {
    /// Subscribes to the notifications of a namespace.
    fn subscribe(ns: &NetNs, name: &str) -> Result<Self, Failure> {
        let open = || {
            let mut socket = TokioSocket::new(NETLINK_ROUTE)?;
            socket.socket_mut().bind(&SocketAddr::new(0, LINK_GROUPS))?;
            Ok(Self(socket))
        };
        ns.enter(open)
            .and_then(|opened| opened)
            .map_err(|error| failure::cannot_enter(name, &error))
    }

    /// Waits until an interface changes or the next query is due. The first call subscribes and
    /// returns at once, because the state may have changed since the last query.
    pub(crate) async fn wait(
        changes: &mut Option<Self>,
        ns: &NetNs,
        name: &str,
    ) -> Result<(), Failure> {
        let Some(Self(socket)) = changes else {
            *changes = Some(Self::subscribe(ns, name)?);
            return Ok(());
        };
        let mut message = Vec::with_capacity(1 << 12);
        // An error means that notifications were lost.
        let _ = timeout(MAX_QUERY_INTERVAL, socket.recv(&mut message)).await;
        Ok(())
    }
}

/// Waits until the interfaces of all namespaces of a lab carry packets and have their addresses.
///
/// # Errors
///
/// When an interface is not ready within [`READY_TIMEOUT`], or the kernel rejects a query.
pub(crate) async fn wait_until_ready<'n>(
    wires: impl Iterator<Item = (&'n NetNs, &'n NamespaceNetlink)> + Clone,
    namespaces: &[Namespace],
) -> Result<(), Failure> {
    for bridged in [false, true] {
        for ((ns, wire), plan) in wires.clone().zip(namespaces) {
            wire.wait_for_carrier(ns, plan, namespaces, bridged).await?;
        }
    }
    for ((ns, wire), plan) in wires.zip(namespaces) {
        wire.wait_for_addresses(ns, plan, namespaces).await?;
    }
    Ok(())
}

impl NamespaceNetlink {
    /// Waits until the namespace's veth pairs carry packets or, with `bridged`, its bridges do. A
    /// bridge starts to carry packets after its ports. `namespaces` are all namespaces of the lab;
    /// a veth interface whose peer is down is skipped.
    ///
    /// An interface that came up before its peer drops outgoing packets until the kernel's link
    /// watch has run. A busy machine delays the link watch. A first SYN would be lost and
    /// retransmitted with a different result. Since Linux v6.8, querying the link runs the link
    /// watch (`net/core/rtnetlink.c`, `rtnl_getlink`). On earlier kernels the agent waits for the
    /// link watch.
    async fn wait_for_carrier(
        &self,
        ns: &NetNs,
        plan: &Namespace,
        namespaces: &[Namespace],
        bridged: bool,
    ) -> Result<(), Failure> {
        let is_watched = |link: &&Link| match link.kind {
            LinkKind::Veth { .. } => !bridged,
            LinkKind::Bridge => bridged,
            LinkKind::Vxlan { .. } | LinkKind::Dummy => false,
        };
        let carries = |link: &&Link| carries_packets(link, plan, namespaces);
        let mut changes = None;
        for link in plan.links.iter().filter(is_watched).filter(carries) {
            let index = self.index(plan, &link.name)?;
            let begun = Instant::now();
            let step = format_args!("query interface {}", link.name);
            while !self.is_up(index).await.in_step(&plan.name, step)? {
                if begun.elapsed() > READY_TIMEOUT {
                    return Err(failure::bug(format!(
                        "{} in {} is set up, but its operational state is not up",
                        link.name, plan.name
                    )));
                }
                LinkChanges::wait(&mut changes, ns, &plan.name).await?;
            }
        }
        Ok(())
    }

    /// Waits until the IPv6 addresses of interfaces that carry packets can be used.
    ///
    /// A worker of the kernel completes an address after its interface became ready, even if the
    /// kernel does not check whether the address is unique. Until then the address is tentative: it
    /// is no source address, and no packet to it is accepted (Linux v6.12, `net/ipv6/addrconf.c`,
    /// `addrconf_dad_work`). A busy machine delays the worker.
    async fn wait_for_addresses(
        &self,
        ns: &NetNs,
        plan: &Namespace,
        namespaces: &[Namespace],
    ) -> Result<(), Failure> {
        if !has_address_of(plan, AddressFamily::Inet6) {
            return Ok(());
        }
        let mut ready = Vec::new();
        for link in &plan.links {
            if carries_packets(link, plan, namespaces) {
                ready.push(self.index(plan, &link.name)?);
            }
        }
        let begun = Instant::now();
        let step = "query addresses";
        let mut changes = None;
        while self
            .has_tentative_address(&ready)
            .await
            .in_step(&plan.name, step)?
        {
            if begun.elapsed() > READY_TIMEOUT {
                return Err(failure::bug(format!(
                    "IPv6 addresses of {} are still tentative",
                    plan.name
                )));
            }
            LinkChanges::wait(&mut changes, ns, &plan.name).await?;
        }
        // The worker adds the route to an address shortly after the address is no longer tentative.
        // The query of an interface waits for the lock that the worker holds.
        self.is_up(LOOPBACK).await.in_step(&plan.name, step)?;
        Ok(())
    }

    /// Whether an interface has an IPv6 address that is tentative, and not because it failed the
    /// check for uniqueness.
    async fn has_tentative_address(&self, indexes: &[u32]) -> Result<bool, rtnetlink::Error> {
        let mut query = self.handle.address().get();
        query.message_mut().header.family = AddressFamily::Inet6;
        let is_tentative = |address: &AddressMessage| {
            let flags = address.header.flags;
            indexes.contains(&address.header.index)
                && flags.contains(AddressHeaderFlags::Tentative)
                && !flags.contains(AddressHeaderFlags::Dadfailed)
        };
        let addresses: Vec<AddressMessage> = query.execute().try_collect().await?;
        Ok(addresses.iter().any(is_tentative))
    }

    /// Whether the kernel reports the operational state `up` for an interface.
    async fn is_up(&self, index: u32) -> Result<bool, rtnetlink::Error> {
        let mut found = self.handle.link().get().match_index(index).execute();
        let link = found.try_next().await?;
        Ok(link.is_some_and(|link| {
            link.attributes
                .contains(&LinkAttribute::OperState(State::Up))
        }))
    }
}

/// Whether an interface carries packets once the link watch has run: it is up, and so is the peer of
/// a veth interface or a port of a bridge.
fn carries_packets(link: &Link, plan: &Namespace, namespaces: &[Namespace]) -> bool {
    match link.kind {
        LinkKind::Veth { .. } => has_both_ends_up(link, namespaces),
        LinkKind::Bridge => !link.down && has_port(plan, namespaces, &link.name),
        LinkKind::Vxlan { .. } | LinkKind::Dummy => !link.down,
    }
}

/// Whether a bridge has a port that can carry packets.
fn has_port(plan: &Namespace, namespaces: &[Namespace], bridge: &str) -> bool {
    let mut links = plan.links.iter();
    links.any(|link| {
        link.bridge.as_deref() == Some(bridge)
            && link.port.forwarding
            && has_both_ends_up(link, namespaces)
    })
}

/// Whether the plan sets an interface up and, for a veth interface, its peer too.
fn has_both_ends_up(link: &Link, namespaces: &[Namespace]) -> bool {
    let peer_link = match &link.kind {
        LinkKind::Veth { namespace, peer } => {
            let far = namespaces.iter().find(|each| each.name == *namespace);
            far.and_then(|far| far.links.iter().find(|each| each.name == *peer))
        }
        _ => None,
    };
    !link.down && peer_link.is_none_or(|far| !far.down)
}
