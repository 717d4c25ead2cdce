//! Checks labs and their objects, and reports what svclab does not model.

pub(crate) mod case;
pub(crate) mod contradictions;
pub(crate) mod fields;
pub(crate) mod flow;
pub(crate) mod kinds;
pub(crate) mod lab;
pub(crate) mod limits;
pub(crate) mod object;
pub(crate) mod ports;
pub(crate) mod removals;
pub(crate) mod selector;
pub(crate) mod steps;
pub(crate) mod unmodelled_kinds;
pub(crate) mod unused;
