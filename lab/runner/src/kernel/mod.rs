//! Kernels that run plans: the kernel of this host, and those of guests. All other modules use an
//! [`Agent`] and do not depend on the kind of kernel.

pub(crate) mod agent;
mod choice;
mod choose;
pub mod doctor;
mod error;
pub mod guest;
pub(crate) mod host;
mod out_of_memory;
mod plan_programs;
pub(crate) mod processes;
mod requirements;
mod retry;

pub use agent::Agent;
pub use agent::program as agent_program;
pub use agent::session::{BuildOptions, Session};
pub use agent::stream::{StreamHandle, StreamOpener};
pub use choice::KernelChoice;
pub use choose::{Kernel, KernelSelector};
pub use error::guest::GuestError;
pub use error::{KernelError, LostAgent};
pub use guest::Guest;
pub use host::{Host, enter};
pub use requirements::lab_memory::NotEnoughMemory;
pub(crate) use requirements::lab_memory::host_memory;
pub use requirements::{MissingItem, MissingRequirements, ModuleLists, ModuleState, Modules};
pub use retry::RunCount;
