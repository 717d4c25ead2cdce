//! Virtual servers that change.

use super::{Swap, without};
use svclab_model::plan::VirtualServer;

/// What comes from one list of virtual servers to another. One that changes in
/// anything goes and comes again: where a round robin stands, and who stays with
/// which real server, is not in any plan, and so begins anew.
pub fn between(there: &[VirtualServer], wanted: &[VirtualServer]) -> Swap<VirtualServer> {
    Swap {
        remove: without(there, wanted),
        add: without(wanted, there),
    }
}
