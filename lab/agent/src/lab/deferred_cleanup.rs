//! Keeps the namespaces of removed labs and deletes them between builds.
//!
//! The kernel deletes namespaces in batches. Meanwhile it waits for grace periods while it holds
//! the lock that every creation of an interface or namespace needs (Linux v6.12,
//! `net/core/net_namespace.c`, `cleanup_net`). This takes about 40 ms, for 1 namespace or for 100,
//! and about 17 ms more for each bridge, one after the other (`net/bridge/br_multicast.c`,
//! `br_multicast_dev_del`, `rcu_barrier`). A lab that is built immediately afterwards would wait for
//! that lock.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;

use tokio::time::Instant;

use crate::net::netns::NetNs;
use crate::runtime::memory;

/// Maximum number of kept namespaces. Each namespace uses memory.
const MAX_NAMESPACES: usize = 96;

/// Time without builds before the namespaces are deleted.
const QUIET_PERIOD: Duration = Duration::from_millis(100);

/// Memory that loading rules and reading state needs beside a lab, in KiB.
const PROGRAM_MEMORY_KIB: u64 = 16 << 10;

/// Time without a gain of memory, and without a removal, after which a build does not wait any longer.
const MAX_WAIT: Duration = Duration::from_secs(3);

/// Namespaces of removed labs, deleted when no build runs.
#[derive(Debug)]
pub(crate) struct DeferredCleanup {
    namespaces: RefCell<Vec<NetNs>>,
    /// Number of labs being built.
    building: Cell<usize>,
    /// Time of the last build or removal.
    last_activity: Cell<Instant>,
    /// Whether a task waits to delete the namespaces.
    has_task: Cell<bool>,
    /// When namespaces were last deleted, or their memory was last seen to be freed.
    last_freed: Cell<Option<Instant>>,
}

impl Default for DeferredCleanup {
    fn default() -> Self {
        Self {
            namespaces: RefCell::default(),
            building: Cell::new(0),
            last_activity: Cell::new(Instant::now()),
            has_task: Cell::new(false),
            last_freed: Cell::new(None),
        }
    }
}

impl DeferredCleanup {
    /// Suspends deletion until the returned guard is dropped.
    pub(crate) fn suspend(&self) -> impl Drop + '_ {
        self.building.set(self.building.get() + 1);
        BuildGuard(self)
    }

    /// Keeps namespaces until no build runs or the maximum is reached.
    pub(crate) fn defer(self: &Rc<Self>, namespaces: impl Iterator<Item = NetNs>) {
        self.last_activity.set(Instant::now());
        let is_full = {
            let mut buried = self.namespaces.borrow_mut();
            buried.extend(namespaces);
            buried.len() >= MAX_NAMESPACES
        };
        if is_full {
            self.delete();
        } else if !self.has_task.replace(true) {
            tokio::task::spawn_local(Rc::clone(self).delete_when_idle());
        }
    }

    /// Waits while this machine lacks memory for a lab of `needed_kib`, and the kernel frees that of
    /// removed labs: in a busy guest, it deletes their namespaces more slowly than new labs are built.
    pub(crate) async fn wait_for_memory(&self, needed_kib: u64) {
        let mut most = None;
        while let Some(available) = memory::available_kib()
            && available < needed_kib.saturating_add(PROGRAM_MEMORY_KIB)
        {
            self.delete();
            let last_freed = self.last_freed.get();
            if last_freed.is_none_or(|at| at.elapsed() >= MAX_WAIT) {
                break;
            }
            let has_gained = most.is_some_and(|most| available > most);
            if has_gained {
                self.last_freed.set(Some(Instant::now()));
            }
            most = most.max(Some(available));
            tokio::time::sleep(QUIET_PERIOD).await;
        }
    }

    /// Has the kernel delete the kept namespaces.
    fn delete(&self) {
        if !self.namespaces.take().is_empty() {
            self.last_freed.set(Some(Instant::now()));
        }
    }

    async fn delete_when_idle(self: Rc<Self>) {
        loop {
            let idle_at = self.last_activity.get() + QUIET_PERIOD;
            if self.building.get() == 0 && Instant::now() >= idle_at {
                break;
            }
            let next_check = idle_at.max(Instant::now() + QUIET_PERIOD);
            tokio::time::sleep_until(next_check).await;
        }
        self.has_task.set(false);
        self.delete();
    }
}

/// Guard that marks a running build.
struct BuildGuard<'a>(&'a DeferredCleanup);

impl Drop for BuildGuard<'_> {
    fn drop(&mut self) {
        self.0.building.set(self.0.building.get() - 1);
        self.0.last_activity.set(Instant::now());
    }
}
