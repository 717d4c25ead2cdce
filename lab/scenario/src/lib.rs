//! Loads scenarios: parses and validates the YAML files of a user and expands them into cases.
//!
//! The input is a set of [`svclab_diagnostic::source::Sources`]. The module [`yaml`] parses each
//! file into [`tree`]s. [`Scenario::load`] classifies the documents, decodes the [`lab`] strictly
//! and the Kubernetes [`objects`] leniently, and applies the patches of every combination of axis
//! values. The output is a [`Scenario`] with its [`Case`]s.
//!
//! Every value keeps its span in the file. Errors, also of later stages, are
//! [`svclab_diagnostic::Diagnostic`]s with file, line and caret.

#[cfg(test)]
mod any_tests;
mod apply;
#[cfg(test)]
mod bad_input;
mod balancer_spec;
pub mod case;
#[cfg(test)]
mod case_tests;
mod check_case;
mod check_contradictions;
mod check_fields;
mod check_flow;
mod check_kinds;
mod check_lab;
mod check_object;
mod check_ports;
mod check_removals;
mod check_steps;
mod check_unused;
mod claim_ref;
pub mod components;
pub mod count;
pub mod decode;
pub mod decode_error;
mod defaults;
mod desugar;
mod diff;
mod documents;
pub mod duration;
pub mod endpoints;
#[cfg(test)]
mod endpoints_tests;
#[cfg(test)]
mod example_tests;
mod expand;
pub mod expectation;
pub mod flow;
pub mod flow_count;
#[cfg(test)]
mod flow_tests;
#[cfg(test)]
mod hostile_tests;
mod kinds;
pub mod lab;
pub mod limits;
mod merge;
#[cfg(test)]
mod mutation_tests;
mod node_spec;
pub mod objects;
pub mod patch;
mod probe;
pub mod product;
pub mod reference;
mod scalar;
mod scenario;
pub mod schema;
mod selector;
mod sink;
pub mod spanned_error;
mod state_expectation;
pub mod step;
mod step_expectation;
#[cfg(test)]
mod steps_tests;
pub mod tree;
#[cfg(test)]
mod unmodelled_tests;
mod v1beta1;
pub mod values;
pub mod wire;
mod wire_expectation;
pub mod yaml;
mod yaml_error;

pub use case::Case;
pub use diff::{DocumentDiff, FieldDiff};
pub use scenario::Scenario;
pub use sink::MAX_DIAGNOSTICS;
