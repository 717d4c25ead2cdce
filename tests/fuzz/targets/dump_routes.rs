//! Fuzzes the parser of `ip route` output.

#![no_main]

use libfuzzer_sys::fuzz_target;
use svclab_ruleset::Family;
use svclab_ruleset::tool::Format;
use svclab_test_support::dump::check_dump;

fuzz_target!(|bytes: &[u8]| {
    let _ = check_dump(Format::Routes(Family::V4), bytes);
});
