//! Kernels that run plans: the kernel of this host, and those of guests. All other modules use an
//! [`Agent`] and do not depend on the kind of kernel.

mod agent;
pub mod agent_program;
mod audience;
pub mod certifier;
mod choose;
mod cpu_wait;
pub mod doctor;
mod drops;
pub mod enter;
mod error;
mod evidence_check;
mod feature_checks;
pub mod guest;
mod host;
mod host_lists;
mod lab_memory;
mod missing;
mod modules;
mod out_of_memory;
#[cfg(test)]
mod recorded;
mod retry;
mod session;
mod stream;

pub use agent::Agent;
pub use certifier::Certifier;
pub use choose::{Kernel, KernelChoice, KernelSelector};
pub use error::{KernelError, LostAgent};
pub use guest::Guest;
pub use host::Host;
pub use lab_memory::NotEnoughMemory;
pub use missing::{MissingItem, MissingRequirements};
pub use modules::{ModuleLists, ModuleState, Modules};
pub use retry::RunCount;
pub use session::Session;
pub use stream::{StreamHandle, StreamOpener};
