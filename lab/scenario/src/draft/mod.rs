//! Writes labs for users: a new one from a template, or one from the objects of a cluster.

mod flow_style;
mod import;
mod kube_proxy;
mod objects;
mod reachable;
mod template;

pub use import::{Draft, ImportError, ImportOptions, import};
pub use template::{NewLab, new_lab};

/// Whether a text can be the name of a new lab and of its file: letters, digits, `-`, `_` and `.`.
#[must_use]
pub fn is_lab_name(name: &str) -> bool {
    let is_valid = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    name.starts_with(|c: char| c.is_ascii_alphanumeric()) && name.chars().all(is_valid)
}
