//! Fuzzes the parser of `ip route` output.

#![no_main]

mod shared;

use libfuzzer_sys::fuzz_target;
use svclab_ruleset::tool::Format;
use svclab_ruleset::tool::IpFamily;

fuzz_target!(|bytes: &[u8]| {
    let _ = shared::check_dump(Format::Routes(IpFamily::V4), bytes);
});
