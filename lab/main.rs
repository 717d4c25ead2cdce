//! The `svclab` command.

fn main() {}
