//! Network namespaces that exist only through descriptors: they have no names and need no cleanup.

use std::cell::{Cell, RefCell};
use std::fs::File;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::os::unix::fs::MetadataExt as _;
use std::rc::Rc;

use nix::sched::{CloneFlags, setns, unshare};

use crate::net::ports::Ports;
use crate::sandbox::tenant::Tenant;
use svclab_model::evidence::AddressPair;

/// Network namespace. It exists as long as this value or a socket of the namespace.
#[derive(Debug, Clone)]
pub(crate) struct NetNs {
    descriptor: Rc<OwnedFd>,
    ports: Rc<Ports>,
    /// Number of waits that a kernel timer ended while this process was delayed.
    late_timers: Rc<Cell<u64>>,
    /// Addresses of the connections of clients and of those that load balancers made for them.
    relayed: Rc<RefCell<Vec<[AddressPair; 2]>>>,
    tenant: Tenant,
}

impl NetNs {
    /// Returns the namespace of the calling thread.
    pub(crate) fn current(tenant: &Tenant, ports: &Rc<Ports>) -> std::io::Result<Self> {
        Ok(Self {
            descriptor: Rc::new(current()?),
            ports: Rc::clone(ports),
            late_timers: Rc::default(),
            relayed: Rc::default(),
            tenant: tenant.clone(),
        })
    }

    /// Creates an empty namespace of the lab with this tenant and these ports.
    pub(crate) fn new(tenant: &Tenant, ports: &Rc<Ports>) -> std::io::Result<Self> {
        let _way_back = RestoreGuard(current()?);
        unshare(CloneFlags::CLONE_NEWNET)?;
        Self::current(tenant, ports)
    }

    /// Returns the tenant that runs programs in the namespace.
    pub(crate) fn tenant(&self) -> &Tenant {
        &self.tenant
    }

    /// Returns the inode number of the namespace, which is unique among existing namespaces.
    pub(crate) fn inode(&self) -> u64 {
        // fstat of an open file cannot fail.
        nix::sys::stat::fstat(&*self.descriptor).map_or(0, |stat| stat.st_ino)
    }

    /// Returns the source ports that connections of the lab have used.
    pub(crate) fn ports(&self) -> &Ports {
        &self.ports
    }

    /// Records that a kernel timer ended a wait while this process was delayed. On an idle host,
    /// another event might have ended the wait earlier.
    pub(crate) fn note_late_timer(&self) {
        self.late_timers.set(self.late_timers.get() + 1);
    }

    /// Returns the number of waits recorded by [`NetNs::note_late_timer`].
    pub(crate) fn late_timers(&self) -> u64 {
        self.late_timers.get()
    }

    /// Records that a load balancer in the namespace connects to a backend for a client.
    pub(crate) fn note_relayed(&self, client: AddressPair, backend: AddressPair) {
        self.relayed.borrow_mut().push([client, backend]);
    }

    /// Removes and returns the connections recorded by [`NetNs::note_relayed`].
    pub(crate) fn take_relayed(&self) -> Vec<[AddressPair; 2]> {
        self.relayed.take()
    }

    /// Runs a function inside the namespace. Sockets and processes created by the function stay in
    /// the namespace. The function must not await, because the whole thread is in the namespace
    /// until the function returns.
    pub(crate) fn enter<T>(&self, run: impl FnOnce() -> T) -> std::io::Result<T> {
        let _way_back = RestoreGuard(current()?);
        setns(&*self.descriptor, CloneFlags::CLONE_NEWNET)?;
        Ok(run())
    }
}

fn current() -> std::io::Result<OwnedFd> {
    Ok(File::open("/proc/thread-self/ns/net")?.into())
}

/// Returns the inode number of this process's user namespace, which owns the network namespaces
/// that the process creates.
pub(crate) fn user_namespace_inode() -> std::io::Result<u32> {
    let number = std::fs::metadata("/proc/self/ns/user")?.ino();
    u32::try_from(number).map_err(std::io::Error::other)
}

impl AsRawFd for NetNs {
    fn as_raw_fd(&self) -> RawFd {
        self.descriptor.as_raw_fd()
    }
}

/// Guard that returns the thread to its namespace, also after a panic.
struct RestoreGuard(OwnedFd);

impl Drop for RestoreGuard {
    fn drop(&mut self) {
        if let Err(errno) = setns(&self.0, CloneFlags::CLONE_NEWNET) {
            // A thread in the wrong namespace would operate on the wrong network stack. The process
            // cannot continue.
            let message = format!("svclab agent: cannot return to its own namespace: {errno}");
            crate::print_error(&message);
            std::process::abort();
        }
    }
}
