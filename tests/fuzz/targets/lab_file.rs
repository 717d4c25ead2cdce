//! Fuzzes the parser of lab files.

#![no_main]

mod lab;

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| lab::check_lab(bytes));
