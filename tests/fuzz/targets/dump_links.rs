//! Fuzzes the parsers of `ip addr` and `ip -d link` output, as text and as JSON.

#![no_main]

use libfuzzer_sys::fuzz_target;
use svclab_ruleset::tool::Format;
use svclab_test_support::dump::check_dump;

fuzz_target!(|bytes: &[u8]| {
    for format in [Format::Links, Format::LinkDetails] {
        let _ = check_dump(format, bytes);
    }
});
