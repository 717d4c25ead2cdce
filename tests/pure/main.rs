//! Tests that need neither privileges nor namespaces.

mod changed_dump;
mod containment;
mod fake_agent;
mod hostile;
