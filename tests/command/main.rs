//! The command as a user meets it: output, exit codes, and what it leaves alone.

mod bad_input;
mod claims;
mod interrupted;
mod support;
mod untouched;
