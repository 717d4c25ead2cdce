//! Compares the virtual servers of two plans.

use super::{Swap, without};
use svclab_model::plan::VirtualServer;

/// Returns the virtual servers to remove and to add. A server with any difference is removed and
/// added again: the position of a round robin and the affinity of clients are not part of a plan
/// and start again.
pub fn between(there: &[VirtualServer], wanted: &[VirtualServer]) -> Swap<VirtualServer> {
    Swap {
        remove: without(there, wanted),
        add: without(wanted, there),
    }
}
