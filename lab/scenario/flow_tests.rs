//! Labs with flows: what they become, and what is told of those that are wrong. The
//! snapshots are the messages.

use super::example_tests::{EXAMPLE, told, with};
