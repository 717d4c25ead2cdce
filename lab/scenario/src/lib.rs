//! Loads scenarios: parses and validates the YAML files of a user and expands them into cases.
//!
//! The input is a set of [`svclab_diagnostic::source::Sources`]. The module `yaml` parses each
//! file into [`tree`]s. [`Scenario::load`] classifies the documents, decodes the [`lab`] strictly
//! and the Kubernetes [`objects`] leniently, and applies the patches of every combination of axis
//! values. The output is a [`Scenario`] with its [`Case`]s.
//!
//! Every value keeps its span in the file. Errors, also of later stages, are
//! [`svclab_diagnostic::Diagnostic`]s with file, line and caret.

#![warn(unreachable_pub)]

mod check;
mod decode;
pub mod draft;
mod expand;
pub mod expectation;
pub mod lab;
mod object_files;
pub mod objects;
mod recognition;
pub mod redact;
mod scenario;
mod sink;
#[cfg(test)]
mod tests;
mod yaml;

pub use decode::duration;
pub use expectation::{count, wire};
pub use lab::{reference, schema};
pub use object_files::{FileAccess, InvalidScenario, with_object_files};
pub use objects::endpoints;
pub use yaml::tree;

pub use expand::case::Case;
pub use expand::diff::{DocumentDiff, FieldDiff};
pub use recognition::has_lab_document;
pub use scenario::Scenario;
pub use sink::MAX_DIAGNOSTICS;
