//! Reading back what a namespace holds: sets, tables of nftables, virtual servers,
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

/// How long the kernel may take to tell whether an interface carries packets: its link
/// watch runs at least once a second (Linux v6.12, `net/core/link_watch.c`), and since
/// v6.8 when one interface is asked about (`net/core/rtnetlink.c`, `rtnl_getlink`).
const TOLD_WITHIN: Duration = Duration::from_secs(2);

/// How long to wait before interfaces of which it has not told are looked at again.
const LOOK_AGAIN: Duration = Duration::from_millis(5);

/// What the plan wants to know of a namespace; `None` when that is nothing. A `real`
/// kube-proxy there, by its mode, makes what the plan does not know.
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
    // Of a namespace without tables of nftables' own, its iptables says all.
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
    // A namespace without sets has none, and perhaps no kernel that knows any.
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

/// What a program prints.
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

/// Whether an interface's state follows from whether it carries packets: a bridge that is
/// brought up without ports still runs for a moment.
fn is_told(link: &HeldLink) -> bool {
    let flags = LinkFlags::from_bits_retain(link.flags);
    !flags.contains(LinkFlags::Up)
        || flags.contains(LinkFlags::Running) == flags.contains(LinkFlags::LowerUp)
}

async fn interfaces(wire: &Wire) -> Result<Vec<HeldLink>, rtnetlink::Error> {
    let mut addresses: BTreeMap<u32, Vec<IpNetwork>> = BTreeMap::new();
    let mut all = wire.handle.address().get().execute();
    while let Some(message) = all.try_next().await? {
        // Where the two differ, the local address is the interface's own and the
        // other its peer's.
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
