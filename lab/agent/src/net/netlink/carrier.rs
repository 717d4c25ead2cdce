//! Waits until interfaces that are up carry packets.

use std::time::{Duration, Instant};

use futures_util::TryStreamExt as _;
use netlink_packet_route::link::{LinkAttribute, State};
use netlink_sys::protocols::NETLINK_ROUTE;
use netlink_sys::{AsyncSocket as _, AsyncSocketExt as _, SocketAddr, TokioSocket};
use tokio::time::timeout;

use super::{NamespaceNetlink, StepResult as _};
use crate::net::netns::NetNs;
use crate::runtime::failure;
use svclab_model::plan::{Link, LinkKind, Namespace};
use svclab_model::protocol::Failure;

/// Time limit for an interface to carry packets once both its ends are up. The kernel's link watch
/// runs at least once per second.
const CARRIER_TIMEOUT: Duration = Duration::from_secs(10);

/// Mask of the multicast group of interfaces (`RTMGRP_LINK`).
const LINK_GROUP: u32 = 1;

/// Maximum time between two queries, because a full socket buffer loses notifications.
const MAX_QUERY_INTERVAL: Duration = Duration::from_millis(200);

/// Notifications about the interfaces of a namespace. The link watch sends one after it has changed
/// a state (Linux v6.12, `net/core/link_watch.c`, `linkwatch_do_dev`).
pub(crate) struct LinkChanges(TokioSocket);

impl LinkChanges {
    /// Subscribes to the notifications of a namespace.
    pub(crate) fn subscribe(ns: &NetNs, name: &str) -> Result<Self, Failure> {
        let open = || {
            let mut socket = TokioSocket::new(NETLINK_ROUTE)?;
            socket.socket_mut().bind(&SocketAddr::new(0, LINK_GROUP))?;
            Ok(Self(socket))
        };
        ns.enter(open)
            .and_then(|opened| opened)
            .map_err(|error| failure::cannot_enter(name, &error))
    }

    /// Waits until an interface changes or the next query is due.
    pub(crate) async fn wait(&self) {
        let mut message = Vec::with_capacity(1 << 12);
        // An error means that notifications were lost.
        let _ = timeout(MAX_QUERY_INTERVAL, self.0.recv(&mut message)).await;
    }
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
    ///
    /// # Errors
    ///
    /// When an interface does not carry packets within [`CARRIER_TIMEOUT`], or the kernel rejects
    /// the query.
    pub(crate) async fn wait_for_carrier(
        &self,
        ns: &NetNs,
        plan: &Namespace,
        namespaces: &[Namespace],
        bridged: bool,
    ) -> Result<(), Failure> {
        let carries = |link: &&Link| match link.kind {
            LinkKind::Veth { .. } => !bridged && has_both_ends_up(link, namespaces),
            LinkKind::Bridge => bridged && has_port(plan, namespaces, &link.name),
            LinkKind::Vxlan { .. } | LinkKind::Dummy => false,
        };
        let mut changes = None;
        for link in plan.links.iter().filter(carries) {
            let index = self.index(plan, &link.name)?;
            let begun = Instant::now();
            let step = format_args!("query interface {}", link.name);
            while !self.is_up(index).await.in_step(&plan.name, step)? {
                if begun.elapsed() > CARRIER_TIMEOUT {
                    return Err(failure::bug(format!(
                        "{} in {} is set up, but its operational state is not up",
                        link.name, plan.name
                    )));
                }
                match &changes {
                    // The state may have changed since the query.
                    None => changes = Some(LinkChanges::subscribe(ns, &plan.name)?),
                    Some(changes) => changes.wait().await,
                }
            }
        }
        Ok(())
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

/// Whether a bridge has a port that can carry packets.
fn has_port(plan: &Namespace, namespaces: &[Namespace], bridge: &str) -> bool {
    let mut links = plan.links.iter();
    links.any(|link| link.bridge.as_deref() == Some(bridge) && has_both_ends_up(link, namespaces))
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
