//! Fuzzes the parser of lab files.

#![no_main]

mod lab;

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| lab::is_taken_or_refused(bytes));
