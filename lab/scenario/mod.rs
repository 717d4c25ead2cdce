//! What a user wrote: read, validated, pointed at where it is wrong, and
//! expanded into cases.

pub mod components;
pub mod count;
pub mod expectation;
pub mod lab;
pub mod patch;
pub mod reference;
pub mod suggest;
pub mod values;
pub mod wire;
pub mod within;
