//! Waiting until interfaces that are up carry packets.

use std::time::{Duration, Instant};

use futures_util::TryStreamExt;
use netlink_packet_route::link::{LinkAttribute, State};

use super::failure;
use super::wire::{Wire, refused};
use svclab_model::plan::{Link, LinkKind, Namespace};
use svclab_model::protocol::Failure;

/// How long an interface may take to carry packets once both its ends are up:
/// the kernel's link watch runs at least once a second.
const CARRIES_WITHIN: Duration = Duration::from_secs(10);

/// How long to wait before an interface that does not is looked at again.
const LOOK_AGAIN: Duration = Duration::from_millis(1);

impl Wire {
    /// Waits until the namespace's cables carry packets, or, `bridged`, its
    /// bridges do, which begin once their ports have. `all` are the namespaces of the
    /// lab: nobody waits for a cable whose other end is down.
    ///
    /// An interface that came up before its other end did drops what is sent
    /// through it until the kernel's link watch has run, which a busy machine
    /// puts off: a first SYN would be lost and its retransmission fare otherwise.
    /// Since Linux v6.8 to ask is to have it run (`net/core/rtnetlink.c`,
    /// `rtnl_getlink`); before, it is waited for.
    ///
    /// # Errors
    ///
    /// When one does not within [`CARRIES_WITHIN`], or the kernel refused.
    pub async fn carry(
        &self,
        plan: &Namespace,
        all: &[Namespace],
        bridged: bool,
    ) -> Result<(), Failure> {
        let carries = |link: &&Link| match link.kind {
            LinkKind::Veth { .. } => !bridged && is_whole(link, all),
            LinkKind::Bridge => bridged && has_port(plan, all, &link.name),
            LinkKind::Vxlan { .. } | LinkKind::Dummy => false,
        };
        for link in plan.links.iter().filter(carries) {
            let index = self.index(plan, &link.name)?;
            let begun = Instant::now();
            while !self
                .is_up(index)
                .await
                .map_err(|error| refused(&plan.name, &format!("look at {}", link.name), &error))?
            {
                if begun.elapsed() > CARRIES_WITHIN {
                    return Err(failure::bug(format!(
                        "{} in {} was brought up and carries nothing",
                        link.name, plan.name
                    )));
                }
                tokio::time::sleep(LOOK_AGAIN).await;
            }
        }
        Ok(())
    }

    /// Whether the kernel says that an interface works.
    async fn is_up(&self, index: u32) -> Result<bool, rtnetlink::Error> {
        let mut found = self.handle.link().get().match_index(index).execute();
        let link = found.try_next().await?;
        Ok(link.is_some_and(|link| {
            link.attributes
                .contains(&LinkAttribute::OperState(State::Up))
        }))
    }
}

/// Whether a bridge has a port that can carry anything.
fn has_port(plan: &Namespace, all: &[Namespace], bridge: &str) -> bool {
    let mut links = plan.links.iter();
    links.any(|link| link.bridge.as_deref() == Some(bridge) && is_whole(link, all))
}

/// Whether an interface is to be up, and the other end of its cable, if it is one.
fn is_whole(link: &Link, all: &[Namespace]) -> bool {
    let far = match &link.kind {
        LinkKind::Veth { namespace, peer } => {
            let far = all.iter().find(|each| each.name == *namespace);
            far.and_then(|far| far.links.iter().find(|each| each.name == *peer))
        }
        _ => None,
    };
    !link.down && far.is_none_or(|far| !far.down)
}
