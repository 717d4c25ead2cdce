//! Tests of whole labs: valid, invalid, hostile and mutated.

pub(crate) mod any;
pub(crate) mod bad_input;
pub(crate) mod balancers;
pub(crate) mod case;
pub(crate) mod example;
pub(crate) mod flow;
pub(crate) mod hostile;
pub(crate) mod mutation;
pub(crate) mod object_files;
pub(crate) mod steps;
pub(crate) mod unmodelled;
