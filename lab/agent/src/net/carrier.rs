//! Waits until interfaces that are up carry packets.

use std::time::{Duration, Instant};

use futures_util::TryStreamExt;
use netlink_packet_route::link::{LinkAttribute, State};

use crate::net::namespace_netlink::{NamespaceNetlink, step_failure};
use crate::runtime::failure;
use svclab_model::plan::{Link, LinkKind, Namespace};
use svclab_model::protocol::Failure;

/// Time limit for an interface to carry packets once both its ends are up. The kernel's link watch
/// runs at least once per second.
const CARRIER_TIMEOUT: Duration = Duration::from_secs(10);

/// Interval between checks of the interface state.
const POLL_INTERVAL: Duration = Duration::from_millis(1);

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
    pub async fn wait_for_carrier(
        &self,
        plan: &Namespace,
        namespaces: &[Namespace],
        bridged: bool,
    ) -> Result<(), Failure> {
        let carries = |link: &&Link| match link.kind {
            LinkKind::Veth { .. } => !bridged && has_both_ends_up(link, namespaces),
            LinkKind::Bridge => bridged && has_port(plan, namespaces, &link.name),
            LinkKind::Vxlan { .. } | LinkKind::Dummy => false,
        };
        for link in plan.links.iter().filter(carries) {
            let index = self.index(plan, &link.name)?;
            let begun = Instant::now();
            while !self.is_up(index).await.map_err(|error| {
                step_failure(
                    &plan.name,
                    &format!("query interface {}", link.name),
                    &error,
                )
            })? {
                if begun.elapsed() > CARRIER_TIMEOUT {
                    return Err(failure::bug(format!(
                        "{} in {} is set up, but its operational state is not up",
                        link.name, plan.name
                    )));
                }
                tokio::time::sleep(POLL_INTERVAL).await;
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
