//! Kernels that run plans: the kernel of this host, and those of guests. All other modules use an
//! [`Agent`] and do not depend on the kind of kernel.

mod agent;
pub mod agent_program;
mod asked;
mod audience;
mod busy;
mod choose;
pub mod doctor;
mod drops;
pub mod enter;
mod error;
mod flow;
pub mod guest;
mod host;
mod lists;
mod memory;
mod missing;
mod modules;
mod own_time;
#[cfg(test)]
mod recorded;
mod room;
mod session;
mod trials;
pub mod witness;

pub use agent::Agent;
pub use busy::RunCount;
pub use choose::{Kernel, KernelChoice, KernelSelector};
pub use error::{KernelError, LostAgent};
pub use flow::{StreamHandle, StreamOpener};
pub use guest::Guest;
pub use host::Host;
pub use missing::{MissingItem, MissingRequirements};
pub use modules::{ModuleLists, ModuleState, Modules};
pub use room::NotEnoughMemory;
pub use session::Session;
pub use witness::Certifier;
