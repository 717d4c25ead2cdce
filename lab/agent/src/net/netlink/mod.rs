//! Configures interfaces, addresses, routes and neighbours over netlink. Each namespace has one
//! socket, and one thread drives all of them.

mod carrier;
mod changes;
mod lifetimes;
pub(crate) mod links;
mod neighbours;
mod routes;

use std::collections::HashMap;
use std::fmt::Display;

use nix::errno::Errno;
use rtnetlink::{Handle, LinkUnspec};
use tokio::task::JoinHandle;

pub(crate) use carrier::LinkChanges;

use crate::net::netns::NetNs;
use crate::runtime::failure;
use svclab_model::plan::Namespace;
use svclab_model::protocol::{Failure, FailureKind};

/// Index of the loopback interface in every namespace.
const LOOPBACK: u32 = 1;

/// Index of the first interface of the plan. The others follow in the plan's order, so that no
/// index needs to be queried. A new namespace may contain a few devices of loaded modules (`tunl0`,
/// `sit0`), whose indexes are lower.
const FIRST_INDEX: u32 = 100;

/// Netlink socket of a namespace, and the indexes of its interfaces.
pub(crate) struct NamespaceNetlink {
    pub(crate) handle: Handle,
    driver: JoinHandle<()>,
    indexes: HashMap<String, u32>,
}

impl Drop for NamespaceNetlink {
    fn drop(&mut self) {
        self.driver.abort();
    }
}

impl NamespaceNetlink {
    /// Opens a netlink socket in a namespace and brings its loopback interface up.
    pub(crate) async fn open(ns: &NetNs, plan: &Namespace) -> Result<Self, Failure> {
        let (connection, handle, _) = ns
            .enter(rtnetlink::new_connection)
            .and_then(|opened| opened)
            .map_err(|error| failure::cannot_enter(&plan.name, &error))?;
        let driver = tokio::task::spawn_local(connection);
        let indexes = plan
            .links
            .iter()
            .map(|link| link.name.clone())
            .zip(FIRST_INDEX..)
            .chain([("lo".to_owned(), LOOPBACK)])
            .collect();
        let netlink = Self {
            handle,
            driver,
            indexes,
        };
        netlink
            .set_link_up(LOOPBACK)
            .await
            .in_step(&plan.name, "bring up lo")?;
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

    async fn set_link_up(&self, index: u32) -> Result<(), rtnetlink::Error> {
        let up = LinkUnspec::new_with_index(index).up().build();
        self.handle.link().set(up).execute().await
    }

    /// Returns the names of the interfaces by index.
    pub(crate) fn names(&self) -> HashMap<u32, String> {
        self.indexes
            .iter()
            .map(|(name, index)| (*index, name.clone()))
            .collect()
    }
}

/// Conversion of the kernel's response to the failure of a step.
pub(crate) trait StepResult<T> {
    /// Describes an error as the failure of `step`, such as "bring up lo", in a namespace.
    fn in_step(self, namespace: &str, step: impl Display) -> Result<T, Failure>;

    /// Does the same, and adds the line that `program` would have received for this step.
    fn in_step_of(
        self,
        namespace: &str,
        step: impl Display,
        program: &str,
        line: impl Display,
    ) -> Result<T, Failure>;
}

impl<T> StepResult<T> for Result<T, rtnetlink::Error> {
    fn in_step(self, namespace: &str, step: impl Display) -> Result<T, Failure> {
        self.map_err(|error| step_failure(namespace, step, &error))
    }

    fn in_step_of(
        self,
        namespace: &str,
        step: impl Display,
        program: &str,
        line: impl Display,
    ) -> Result<T, Failure> {
        self.in_step(namespace, step).map_err(|failure| {
            failure::with_rejected_input(failure, namespace, program, line.to_string())
        })
    }
}

fn step_failure(namespace: &str, step: impl Display, error: &rtnetlink::Error) -> Failure {
    let reason = match errno(error) {
        Errno::UnknownErrno => error.to_string(),
        errno => errno.desc().to_owned(),
    };
    Failure {
        kind: FailureKind::Machine,
        message: format!("cannot {step} in {namespace}: {reason}"),
        remedy: None,
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
