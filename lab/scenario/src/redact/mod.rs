//! Renames addresses and names of Kubernetes objects by a secret key, in the same way as
//! `scripts/collect-node --redact-key` does in the files of a dump.
//!
//! The input is a file of objects. The output is YAML with the fields that svclab reads. Every
//! other field is dropped, so that no text of an unknown field remains.

mod address;
mod key;
mod names;
mod objects;
mod shape;
#[cfg(test)]
mod tests;

pub use key::{KeyError, MIN_KEY_BYTES, RedactionKey};
pub use names::NameKind;
pub use objects::{RedactedObjects, redact_objects};
