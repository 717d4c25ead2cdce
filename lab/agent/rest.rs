//! The end of watching: when packets have come to rest, at one moment for all of a lab.

use std::cell::RefCell;
use std::time::Duration;

use tokio::time::sleep;

use super::capture::{Basket, Capture};

/// How long is waited between two looks. It is this process's own time: while the
/// machine is busy elsewhere, servers and callers in it have no packets to send, either.
const PAUSE: Duration = Duration::from_millis(2);

/// How many looks in a row find nothing new when packets have come to rest.
const SILENT: u32 = 5;

/// How many looks there are at most: something may go on by itself.
const LOOKS: u32 = 500;

/// Waits until packets have come to rest, and leaves out what comes after that: some
/// namespaces are still watched then, and others no more, so that its way could not be
/// told.
pub async fn wait(captures: &[Capture], basket: &RefCell<Basket>) {
    let mut silent = 0;
    let mut last = 0;
    for _ in 0..LOOKS {
        let heard = basket.borrow().heard();
        last = basket.borrow_mut().now();
        for capture in captures {
            capture.drain();
        }
        if basket.borrow().heard() > heard {
            silent = 0;
        } else {
            silent += 1;
        }
        if silent == SILENT {
            break;
        }
        sleep(PAUSE).await;
    }
    basket.borrow_mut().end_at(last);
}
