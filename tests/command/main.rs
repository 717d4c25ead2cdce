//! The command as a user meets it: output, exit codes, and what it leaves alone.

mod bad_input;
mod ci;
mod claims;
mod interrupted;
mod kept;
mod readme;
mod support;
mod untouched;
