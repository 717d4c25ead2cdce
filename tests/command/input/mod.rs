//! Tests labs, objects, options and versions that users write, and the texts that svclab prints.

mod bad_input;
mod claims;
mod drafts;
mod fields;
mod labs;
mod mistakes;
mod objects;
mod paths;
mod printed;
mod rules;
