//! Lists dumped state that is not built, with its possible effects on packets.

pub(super) mod chain_order;
pub(super) mod connections;
pub(super) mod full_tables;
pub(super) mod link_state;
pub(super) mod rule_state;
pub(super) mod traffic;
pub(super) mod unsaved_chains;
