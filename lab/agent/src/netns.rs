//! Network namespaces held by descriptors only: no name, nothing to clean up.

use std::cell::Cell;
use std::fs::File;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::os::unix::fs::MetadataExt as _;
use std::rc::Rc;

use nix::sched::{CloneFlags, setns, unshare};

use super::ports::Ports;
use super::tenant::Tenant;

/// One network namespace. It lives as long as this, or a socket made in it, does.
#[derive(Debug, Clone)]
pub struct NetNs {
    descriptor: Rc<OwnedFd>,
    ports: Rc<Ports>,
    /// The number of the kernel's timers that ended a wait in it while this process was late.
    late_timers: Rc<Cell<u64>>,
    tenant: Tenant,
}

impl NetNs {
    /// The namespace the calling thread is in.
    ///
    /// # Errors
    ///
    /// When `/proc` is not there or no descriptor is left.
    pub fn current(tenant: &Tenant, ports: &Rc<Ports>) -> std::io::Result<Self> {
        Ok(Self {
            descriptor: Rc::new(current()?),
            ports: Rc::clone(ports),
            late_timers: Rc::default(),
            tenant: tenant.clone(),
        })
    }

    /// A new, empty namespace of the lab whose programs that tenant runs and whose ports
    /// those are.
    ///
    /// # Errors
    ///
    /// When the kernel gives no more of them, or no descriptor is left.
    pub fn new(tenant: &Tenant, ports: &Rc<Ports>) -> std::io::Result<Self> {
        let _way_back = WayBack(current()?);
        unshare(CloneFlags::CLONE_NEWNET)?;
        Self::current(tenant, ports)
    }

    /// Who runs programs in it.
    #[must_use]
    pub fn tenant(&self) -> &Tenant {
        &self.tenant
    }

    /// What the kernel calls it: no other namespace that is there has this
    /// number.
    #[must_use]
    pub fn number(&self) -> u64 {
        // It is a file that is open: nothing can keep its number back.
        nix::sys::stat::fstat(&*self.descriptor).map_or(0, |about| about.st_ino)
    }

    /// The ports that connections of its lab left from.
    #[must_use]
    pub fn ports(&self) -> &Ports {
        &self.ports
    }

    /// Notes that a timer of the kernel's ended a wait while this process was late, which
    /// another wait may have ended before on a quiet machine.
    pub fn note_late_timer(&self) {
        self.late_timers.set(self.late_timers.get() + 1);
    }

    /// How often that was so.
    #[must_use]
    pub fn late_timers(&self) -> u64 {
        self.late_timers.get()
    }

    /// Does something inside. Sockets and processes made in there stay in
    /// there. What is done must not await: the thread is not its own until it
    /// is back.
    ///
    /// # Errors
    ///
    /// When the namespace cannot be entered.
    pub fn enter<T>(&self, inside: impl FnOnce() -> T) -> std::io::Result<T> {
        let _way_back = WayBack(current()?);
        setns(&*self.descriptor, CloneFlags::CLONE_NEWNET)?;
        Ok(inside())
    }
}

fn current() -> std::io::Result<OwnedFd> {
    Ok(File::open("/proc/thread-self/ns/net")?.into())
}

/// What the kernel calls the user namespace that this process is in, to which the
/// network namespaces belong that it makes.
///
/// # Errors
///
/// When `/proc` is not there.
pub fn owner() -> std::io::Result<u32> {
    let number = std::fs::metadata("/proc/self/ns/user")?.ino();
    u32::try_from(number).map_err(std::io::Error::other)
}

impl AsRawFd for NetNs {
    fn as_raw_fd(&self) -> RawFd {
        self.descriptor.as_raw_fd()
    }
}

/// Brings the thread back to where it was, also when what was done panicked.
struct WayBack(OwnedFd);

impl Drop for WayBack {
    fn drop(&mut self) {
        if let Err(errno) = setns(&self.0, CloneFlags::CLONE_NEWNET) {
            // A thread in the wrong namespace would answer for the wrong
            // machine from here on. There is no way to go on.
            eprintln!("svclab agent: cannot return to its own namespace: {errno}");
            std::process::abort();
        }
    }
}
