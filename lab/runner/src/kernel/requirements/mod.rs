//! Requirements of plans that a kernel must meet: modules, programs, privileges and memory.

pub(super) mod lab_memory;
mod missing;
mod modules;
#[cfg(test)]
mod recorded_tests;

pub(super) use missing::modprobe;
pub use missing::{MissingItem, MissingRequirements};
pub use modules::{ModuleLists, ModuleState, Modules};
