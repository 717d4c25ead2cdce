//! Lists dumped state that is not built, with its possible effects on packets.

pub(super) mod chain_order;
pub(super) mod connections;
pub(super) mod link_state;
pub(super) mod traffic;
