//! Tests runs that fail, are interrupted or killed, and what remains on the machine.

mod certified;
mod cgroup;
mod closed;
mod interrupted;
mod killed;
mod panics;
mod short;
mod untouched;
