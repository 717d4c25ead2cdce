//! Compares evidence, verdicts and packet counts of guests with those of this host.

mod accounts;
mod agree;
mod outcome;
mod trace;
