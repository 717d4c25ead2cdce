//! The command as a user meets it: output, exit codes, and what it leaves alone.

mod bad_input;
mod certified;
mod ci;
mod claims;
mod interrupted;
mod kept;
mod killed;
mod node_ports;
mod readme;
mod rules;
mod short;
mod support;
mod untouched;
