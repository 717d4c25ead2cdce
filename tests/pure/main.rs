//! Tests that need neither privileges nor namespaces.

mod changed_dump;
mod containment;
mod dictionary;
mod fake_agent;
mod hostile;
