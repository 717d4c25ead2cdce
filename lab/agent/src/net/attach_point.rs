//! Place to which clients of a running lab attach streams.

use std::collections::HashMap;

use crate::net::netns::NetNs;

/// Namespace of a running lab, with the data needed to attach a stream.
#[derive(Clone)]
pub(crate) struct AttachPoint {
    /// Network namespace.
    pub ns: NetNs,
    /// Names of its interfaces, by index.
    pub interfaces: HashMap<u32, String>,
}
