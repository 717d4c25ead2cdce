//! Checks labs and their objects, and reports what svclab does not model.

pub(crate) mod case;
pub(crate) mod lab;
pub(crate) mod limits;
pub(crate) mod objects;
pub(crate) mod traffic;
pub(crate) mod unused;
