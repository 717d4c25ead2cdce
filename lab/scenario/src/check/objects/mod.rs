//! Checks the Kubernetes objects of a case: values that no API server returns, and fields and kinds
//! that svclab ignores although they affect packets.

pub(crate) mod addresses;
pub(crate) mod contradictions;
pub(crate) mod fields;
pub(crate) mod kinds;
pub(crate) mod ports;
pub(crate) mod selectors;
mod unmodelled_kinds;

pub(crate) use unmodelled_kinds::{PacketEffect, packet_effect};
