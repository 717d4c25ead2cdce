//! Compares the virtual servers of two plans.

use super::{AddRemove, difference};
use svclab_model::plan::VirtualServer;

/// Returns the virtual servers to remove and to add. A server with any difference is removed and
/// added again: the position of a round robin and the affinity of clients are not part of a plan
/// and start again.
pub fn diff(current: &[VirtualServer], wanted: &[VirtualServer]) -> AddRemove<VirtualServer> {
    AddRemove {
        remove: difference(current, wanted),
        add: difference(wanted, current),
    }
}
