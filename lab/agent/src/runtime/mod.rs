//! Waits, clocks and descriptors that all parts of the agent share.

pub(crate) mod client_stream;
pub(crate) mod closing;
pub(crate) mod delay;
pub(crate) mod failure;
pub(crate) mod heap;
pub(crate) mod kernel_file;
pub(crate) mod max_wait;
pub mod memory;
pub mod poll;
pub(crate) mod process_clock;
pub(crate) mod profile;
pub(crate) mod softnet;
pub(crate) mod stream;
