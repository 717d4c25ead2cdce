//! Namespaces of labs that are over, kept until it suits.
//!
//! The kernel takes namespaces away in batches, and waits for grace periods while
//! it holds the lock that everybody needs who makes an interface or a namespace
//! (Linux v6.12, `net/core/net_namespace.c`, `cleanup_net`): some forty
//! milliseconds, for one namespace as for a hundred. A lab that is built right
//! after another would stand in that queue.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;

use tokio::time::Instant;

use super::netns::NetNs;

/// How many are kept at most. Each holds memory.
const MANY: usize = 96;

/// How long no lab must have been built before they are let go.
const QUIET: Duration = Duration::from_millis(100);

/// Namespaces that nothing is in any more.
#[derive(Debug)]
pub struct Graveyard {
    buried: RefCell<Vec<NetNs>>,
    /// How many labs are being built.
    building: Cell<usize>,
    /// When a lab was last built or ended.
    stirred: Cell<Instant>,
    /// Whether somebody waits for quiet.
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
    /// Lets nothing go while a lab is built.
    pub fn hush(&self) -> impl Drop + '_ {
        self.building.set(self.building.get() + 1);
        Hush(self)
    }

    /// Keeps namespaces until it is quiet or they are too many.
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

/// While there is one, a lab is being built.
struct Hush<'a>(&'a Graveyard);

impl Drop for Hush<'_> {
    fn drop(&mut self) {
        self.0.building.set(self.0.building.get() - 1);
        self.0.stirred.set(Instant::now());
    }
}
