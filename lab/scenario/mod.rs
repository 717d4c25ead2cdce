//! What a user wrote: read, validated, pointed at where it is wrong, and
//! expanded into cases.

pub mod components;
pub mod count;
pub mod decode;
pub mod decode_error;
pub mod diagnostic;
pub mod expectation;
pub mod lab;
pub mod patch;
pub mod reference;
mod scalar;
pub mod source;
pub mod suggest;
pub mod tree;
pub mod values;
pub mod wire;
pub mod within;
pub mod yaml;
