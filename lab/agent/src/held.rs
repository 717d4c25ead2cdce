//! Reads the state of a namespace from the kernel: IP sets, nftables tables, virtual servers and
//! interfaces.

use std::collections::BTreeMap;
use std::time::Duration;

use futures_util::TryStreamExt as _;
use ipnetwork::IpNetwork;
use netlink_packet_route::address::AddressAttribute;
use netlink_packet_route::link::{LinkAttribute, LinkFlags};
use tokio::time::sleep;

use super::netns::NetNs;
use super::pulse::Running;
use super::wire::{Wire, refused};
use super::{failure, ipvs_read, program};
use svclab_model::evidence::{Held, HeldLink};
use svclab_model::plan::Mode;
use svclab_model::plan::{Namespace, Watch};
use svclab_model::protocol::Failure;

/// Time limit for the kernel to update the state of an interface. Its link watch runs at least once
/// per second (Linux v6.12, `net/core/link_watch.c`). Since v6.8 it also runs when an interface is
/// queried (`net/core/rtnetlink.c`, `rtnl_getlink`).
const TOLD_WITHIN: Duration = Duration::from_secs(2);

/// Interval between queries of interfaces whose state is not up to date.
const LOOK_AGAIN: Duration = Duration::from_millis(5);

/// Reads the state that the plan requests of a namespace. Returns `None` if the plan requests
/// nothing. `real` is the mode of a real kube-proxy in the namespace, whose objects are not in the
/// plan.
///
/// # Errors
///
/// When a program cannot be started, or the kernel does not answer.
pub async fn read(
    ns: &NetNs,
    wire: &Wire,
    plan: &Namespace,
    watch: &Watch,
    real: Option<Mode>,
) -> Result<Option<Held>, Failure> {
    let wanted = |list: &[String]| list.contains(&plan.name);
    let balances = real == Some(Mode::Ipvs);
    // Without nftables tables, the dump of iptables is complete.
    let tables = !plan.nft.is_empty() || real == Some(Mode::Nftables);
    let tables = tables && wanted(&watch.rules);
    let (sets, ipvs, links) = (
        wanted(&watch.sets),
        wanted(&watch.ipvs),
        wanted(&watch.links),
    );
    if !(tables || sets || ipvs || links) {
        return Ok(None);
    }
    let mut held = Held::default();
    // Without planned sets the namespace has none, and the kernel may lack ipset support.
    if sets && (balances || !plan.ipset.is_empty()) {
        held.sets = printed(ns, &plan.name, "ipset", &["save"]).await?;
    }
    if tables {
        held.nft = printed(ns, &plan.name, "nft", &["list", "ruleset"]).await?;
    }
    if ipvs && (balances || !plan.ipvs.is_empty()) {
        held.ipvs = ipvs_read::all(ns, &plan.name).await?;
    }
    if links {
        let unread = |error| refused(&plan.name, "read the interfaces", &error);
        let running = Running::begin();
        let begun = running.ran();
        held.links = interfaces(wire).await.map_err(unread)?;
        while !held.links.iter().all(is_told) && running.ran() < begun + TOLD_WITHIN {
            sleep(LOOK_AGAIN).await;
            for link in held.links.iter().filter(|link| !is_told(link)) {
                let asked = wire.handle.link().get().match_name(link.name.clone());
                let mut asked = asked.execute();
                while asked.try_next().await.map_err(unread)?.is_some() {}
            }
            held.links = interfaces(wire).await.map_err(unread)?;
        }
    }
    Ok(Some(held))
}

/// Runs a program and returns its standard output.
async fn printed(
    ns: &NetNs,
    name: &str,
    program: &str,
    arguments: &[&str],
) -> Result<String, Failure> {
    let finished = program::run(ns, name, program, arguments, "").await?;
    if finished.success {
        return Ok(finished.stdout);
    }
    Err(failure::bug(format!(
        "{program} {} failed in {name}: {}",
        arguments.join(" "),
        finished.stderr.trim()
    )))
}

/// Whether the `RUNNING` flag agrees with the carrier state. A bridge that comes up without ports
/// has the flag for a short time.
fn is_told(link: &HeldLink) -> bool {
    let flags = LinkFlags::from_bits_retain(link.flags);
    !flags.contains(LinkFlags::Up)
        || flags.contains(LinkFlags::Running) == flags.contains(LinkFlags::LowerUp)
}

async fn interfaces(wire: &Wire) -> Result<Vec<HeldLink>, rtnetlink::Error> {
    let mut addresses: BTreeMap<u32, Vec<IpNetwork>> = BTreeMap::new();
    let mut all = wire.handle.address().get().execute();
    while let Some(message) = all.try_next().await? {
        // For a point-to-point interface, `Local` is the address of the interface and `Address` is
        // the address of its peer.
        let own = message.attributes.iter().find_map(|each| match each {
            AddressAttribute::Local(address) => Some(*address),
            _ => None,
        });
        let any = message.attributes.iter().find_map(|each| match each {
            AddressAttribute::Address(address) => Some(*address),
            _ => None,
        });
        if let Some(address) = own.or(any)
            && let Ok(address) = IpNetwork::new(address, message.header.prefix_len)
        {
            addresses
                .entry(message.header.index)
                .or_default()
                .push(address);
        }
    }
    let mut links = Vec::new();
    let mut all = wire.handle.link().get().execute();
    while let Some(message) = all.try_next().await? {
        let name = message.attributes.iter().find_map(|each| match each {
            LinkAttribute::IfName(name) => Some(name.clone()),
            _ => None,
        });
        let Some(name) = name else { continue };
        links.push(HeldLink {
            name,
            flags: message.header.flags.bits(),
            addresses: addresses.remove(&message.header.index).unwrap_or_default(),
        });
    }
    Ok(links)
}
