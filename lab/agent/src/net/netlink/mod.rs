//! Configures interfaces, addresses, routes and neighbours over netlink. Each namespace has one
//! socket, and one thread drives all of them.

mod batch;
mod changes;
mod lifetimes;
pub(crate) mod links;
mod neighbours;
mod ready;
mod routes;

use std::collections::HashMap;
use std::fmt::Display;

use netlink_packet_route::RouteNetlinkMessage;
use netlink_sys::Socket;
use nix::errno::Errno;
use rtnetlink::{Handle, LinkUnspec};
use tokio::task::JoinHandle;

pub(crate) use ready::{LinkChanges, wait_until_ready};

use self::batch::Batch;
use crate::net::netns::NetNs;
use crate::runtime::failure;
use svclab_model::plan::Namespace;
use svclab_model::protocol::{Failure, FailureKind};

/// Index of the loopback interface in every namespace.
const LOOPBACK: u32 = 1;

/// Index of the first interface of the plan. The others follow in the plan's order, so that no
/// index needs to be queried. A new namespace may contain a few devices of loaded modules (`tunl0`,
/// `sit0`), whose indexes are lower.
pub(crate) const FIRST_INDEX: u32 = 100;

/// Bit of the MTU among the locked metrics of a route: `1 << RTAX_MTU` (Linux v6.12,
/// `include/net/dst.h`, `dst_metric_locked`).
pub(crate) const MTU_LOCK: u32 = 1 << 2;

/// Netlink socket of a namespace, and the indexes of its interfaces.
pub(crate) struct NamespaceNetlink {
    pub(crate) handle: Handle,
    driver: JoinHandle<()>,
    /// Socket for requests that are sent together.
    batches: Socket,
    indexes: HashMap<String, u32>,
}

impl Drop for NamespaceNetlink {
    fn drop(&mut self) {
        self.driver.abort();
    }
}

impl NamespaceNetlink {
    /// Opens a netlink socket in a namespace and brings its loopback interface up.
    ///
    /// The interfaces get indexes from `next_index` on, which is increased. Both ends of a veth pair
    /// need different indexes: otherwise the kernel may report the state of their link up to 1
    /// second late (Linux v6.12, `net/core/link_watch.c`, `linkwatch_urgent_event`).
    pub(crate) fn open(
        ns: &NetNs,
        plan: &Namespace,
        next_index: &mut u32,
    ) -> Result<Self, Failure> {
        let open = || Ok((rtnetlink::new_connection()?, batch::open_socket()?));
        let ((connection, handle, _), batches) = ns
            .enter(open)
            .and_then(|opened| opened)
            .map_err(|error| failure::cannot_enter(&plan.name, &error))?;
        let driver = tokio::task::spawn_local(connection);
        let indexes = plan
            .links
            .iter()
            .map(|link| link.name.clone())
            .zip(*next_index..)
            .chain([("lo".to_owned(), LOOPBACK)])
            .collect::<HashMap<_, _>>();
        *next_index += u32::try_from(plan.links.len()).unwrap_or_default();
        let netlink = Self {
            handle,
            driver,
            batches,
            indexes,
        };
        let mut batch = Batch::new(&netlink);
        batch.push(set_up(LOOPBACK), 0, |error| {
            step_failure(&plan.name, "bring up lo", &error)
        });
        batch.send()?;
        Ok(netlink)
    }

    fn index(&self, plan: &Namespace, dev: &str) -> Result<u32, Failure> {
        self.indexes.get(dev).copied().ok_or_else(|| {
            failure::bug(format!(
                "the plan uses interface {dev}, which {} does not have",
                plan.name
            ))
        })
    }

    /// Returns the names of the interfaces by index.
    pub(crate) fn names(&self) -> HashMap<u32, String> {
        self.indexes
            .iter()
            .map(|(name, index)| (*index, name.clone()))
            .collect()
    }
}

/// Returns the request that sets an interface up.
fn set_up(index: u32) -> RouteNetlinkMessage {
    RouteNetlinkMessage::SetLink(LinkUnspec::new_with_index(index).up().build())
}

/// Conversion of the kernel's response to the failure of a step.
pub(crate) trait StepResult<T> {
    /// Describes an error as the failure of `step`, such as "bring up lo", in a namespace.
    fn in_step(self, namespace: &str, step: impl Display) -> Result<T, Failure>;
}

impl<T> StepResult<T> for Result<T, rtnetlink::Error> {
    fn in_step(self, namespace: &str, step: impl Display) -> Result<T, Failure> {
        self.map_err(|error| step_failure(namespace, step, &error))
    }
}

fn step_failure(namespace: &str, step: impl Display, error: &rtnetlink::Error) -> Failure {
    let errno = errno(error);
    let reason = match errno {
        Errno::UnknownErrno => error.to_string(),
        errno => errno.desc().to_owned(),
    };
    // Every kernel refuses an object that exists already and a next hop that no route reaches.
    let contradiction = match errno {
        Errno::EEXIST => Some("another object of the lab has the same network, address or name"),
        Errno::ENETUNREACH => Some("no other address or route of the lab leads to the next hop"),
        _ => None,
    };
    Failure {
        kind: match contradiction {
            Some(_) => FailureKind::Input,
            None => FailureKind::Machine,
        },
        message: format!("cannot {step} in {namespace}: {reason}"),
        remedy: contradiction.map(str::to_owned),
        rejected: None,
    }
}

/// Returns the error number of the kernel, or [`Errno::UnknownErrno`] for another error.
fn errno(error: &rtnetlink::Error) -> Errno {
    match error {
        rtnetlink::Error::NetlinkError(message) => Errno::from_raw(message.raw_code().abs()),
        _ => Errno::UnknownErrno,
    }
}
