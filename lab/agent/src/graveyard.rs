//! Keeps the namespaces of removed labs and deletes them between builds.
//!
//! The kernel deletes namespaces in batches. Meanwhile it waits for grace periods while it holds
//! the lock that every creation of an interface or namespace needs (Linux v6.12,
//! `net/core/net_namespace.c`, `cleanup_net`). This takes about 40 ms, for 1 namespace or for 100.
//! A lab that is built immediately afterwards would wait for that lock.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;

use tokio::time::Instant;

use super::netns::NetNs;

/// Maximum number of kept namespaces. Each namespace uses memory.
const MANY: usize = 96;

/// Time without builds before the namespaces are deleted.
const QUIET: Duration = Duration::from_millis(100);

/// Namespaces of removed labs, deleted when no build runs.
#[derive(Debug)]
pub struct Graveyard {
    buried: RefCell<Vec<NetNs>>,
    /// Number of labs being built.
    building: Cell<usize>,
    /// Time of the last build or removal.
    stirred: Cell<Instant>,
    /// Whether a task waits to delete the namespaces.
    watched: Cell<bool>,
}

impl Default for Graveyard {
    fn default() -> Self {
        Self {
            buried: RefCell::default(),
            building: Cell::new(0),
            stirred: Cell::new(Instant::now()),
            watched: Cell::new(false),
        }
    }
}

impl Graveyard {
    /// Suspends deletion until the returned guard is dropped.
    pub fn hush(&self) -> impl Drop + '_ {
        self.building.set(self.building.get() + 1);
        Hush(self)
    }

    /// Keeps namespaces until no build runs or the maximum is reached.
    pub fn bury(self: &Rc<Self>, namespaces: impl Iterator<Item = NetNs>) {
        self.stirred.set(Instant::now());
        let many = {
            let mut buried = self.buried.borrow_mut();
            buried.extend(namespaces);
            buried.len() >= MANY
        };
        if many {
            self.buried.take();
        } else if !self.watched.replace(true) {
            tokio::task::spawn_local(Rc::clone(self).wait_for_quiet());
        }
    }

    async fn wait_for_quiet(self: Rc<Self>) {
        loop {
            let quiet = self.stirred.get() + QUIET;
            if self.building.get() == 0 && Instant::now() >= quiet {
                break;
            }
            let again = quiet.max(Instant::now() + QUIET);
            tokio::time::sleep_until(again).await;
        }
        self.watched.set(false);
        self.buried.take();
    }
}

/// Guard that marks a running build.
struct Hush<'a>(&'a Graveyard);

impl Drop for Hush<'_> {
    fn drop(&mut self) {
        self.0.building.set(self.0.building.get() - 1);
        self.0.stirred.set(Instant::now());
    }
}
