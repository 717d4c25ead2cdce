//! Reads the state of a namespace from the kernel: IP sets, nftables tables, virtual servers,
//! interfaces and routes.

use std::time::Duration;

use futures_util::TryStreamExt as _;
use netlink_packet_route::link::LinkFlags;

use crate::net::ipvs;
use crate::net::netlink::{LinkChanges, NamespaceNetlink, StepResult as _};
use crate::net::netns::NetNs;
use crate::program;
use crate::runtime::failure;
use crate::runtime::process_clock::ClockGuard;
use crate::watch::network::{LinkNames, read_links, read_network};
use svclab_model::evidence::{KernelState, LinkState};
use svclab_model::plan::Mode;
use svclab_model::plan::{EvidenceRequest, Namespace, NodeCommand};
use svclab_model::protocol::Failure;

/// Time limit for the kernel to update the state of an interface. Its link watch runs at least once
/// per second (Linux v6.12, `net/core/link_watch.c`). Since v6.8 it also runs when an interface is
/// queried (`net/core/rtnetlink.c`, `rtnl_getlink`).
const LINK_STATE_TIMEOUT: Duration = Duration::from_secs(2);

/// Reads the state that the plan requests of a namespace. Returns `None` if the plan requests
/// nothing. `real` is the mode of a real kube-proxy in the namespace, whose objects are not in the
/// plan, and neither are those of `commands`. `listed` is the output of `nft list ruleset`, if it
/// was read already: `nft` takes a second to print 20,000 rules.
pub(crate) async fn read(
    ns: &NetNs,
    netlink: &NamespaceNetlink,
    plan: &Namespace,
    watch: &EvidenceRequest,
    real: Option<Mode>,
    commands: &[NodeCommand],
    listed: Option<&str>,
) -> Result<Option<KernelState>, Failure> {
    let is_requested = |list: &[String]| list.contains(&plan.name);
    let balances = real == Some(Mode::Ipvs);
    // Without nftables tables, the dump of iptables is complete.
    let tables = !plan.nft.is_empty() || real == Some(Mode::Nftables);
    let tables = tables && is_requested(&watch.rules);
    let (sets, ipvs, links) = (
        is_requested(&watch.sets),
        is_requested(&watch.ipvs),
        is_requested(&watch.links),
    );
    let network = is_requested(&watch.trace);
    if !(tables || sets || ipvs || links || network) {
        return Ok(None);
    }
    let mut state = KernelState::default();
    // Without these the namespace has no sets and servers, and the kernel may not support them.
    let is_used = |program: &str| {
        let mut own = commands.iter().filter(|own| own.namespace == plan.name);
        own.any(|own| own.mentions(program))
    };
    if sets && (balances || !plan.ipset.is_empty() || is_used("ipset")) {
        state.sets = read_sets(ns, &plan.name).await?;
    }
    if tables {
        state.nft = match listed {
            Some(listed) => listed.to_owned(),
            None => run_program(ns, &plan.name, "nft", &["list", "ruleset"]).await?,
        };
    }
    if ipvs && (balances || !plan.ipvs.is_empty() || is_used("ipvsadm")) {
        state.ipvs = ipvs::read::read_virtual_servers(ns, &plan.name)?;
    }
    let names;
    (state.links, names) = if links {
        read_current_links(ns, netlink, &plan.name).await?
    } else if network {
        let found = read_links(&netlink.handle).await;
        found.in_step(&plan.name, "read the interfaces")?
    } else {
        Default::default()
    };
    if network {
        let found = read_network(&netlink.handle, &names).await;
        state.network = Some(found.in_step(&plan.name, "read the routes")?);
    }
    Ok(Some(state))
}

/// Returns the output of `ipset save`.
pub(crate) async fn read_sets(ns: &NetNs, name: &str) -> Result<String, Failure> {
    run_program(ns, name, "ipset", &["save"]).await
}

/// Returns the interfaces and their names. Waits at most [`LINK_STATE_TIMEOUT`] for the kernel to update their state.
async fn read_current_links(
    ns: &NetNs,
    netlink: &NamespaceNetlink,
    name: &str,
) -> Result<(Vec<LinkState>, LinkNames), Failure> {
    let step = "read the interfaces";
    let running = ClockGuard::start();
    let deadline = running.ran() + LINK_STATE_TIMEOUT;
    let mut changes = None;
    loop {
        let (links, names) = read_links(&netlink.handle).await.in_step(name, step)?;
        if links.iter().all(is_state_current) || running.ran() >= deadline {
            return Ok((links, names));
        }
        LinkChanges::wait(&mut changes, ns, name).await?;
        for link in links.iter().filter(|link| !is_state_current(link)) {
            let query = netlink.handle.link().get().match_name(link.name.clone());
            let mut response = query.execute();
            while response.try_next().await.in_step(name, step)?.is_some() {}
        }
    }
}

/// Runs a program and returns its standard output.
async fn run_program(
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
fn is_state_current(link: &LinkState) -> bool {
    let flags = LinkFlags::from_bits_retain(link.flags);
    !flags.contains(LinkFlags::Up)
        || flags.contains(LinkFlags::Running) == flags.contains(LinkFlags::LowerUp)
}
