//! Records evidence: packets, trace events, drops, counters and the state of the kernel.

pub(crate) mod capture;
pub(crate) mod counters;
pub mod drops;
pub(crate) mod environment;
pub(crate) mod kernel_state;
pub(crate) mod live_capture;
pub(crate) mod packet_clock;
pub(crate) mod quiesce;
pub(crate) mod softnet;
pub(crate) mod timestamps;
pub(crate) mod trace;
