//! Fuzzes the parser of `ip route` output.

#![no_main]

mod shared;

use libfuzzer_sys::fuzz_target;
use svclab_ruleset::tool::Format;
use svclab_ruleset::tool::Ip;

fuzz_target!(|bytes: &[u8]| {
    let _ = shared::dump(Format::Routes(Ip::V4), bytes);
});
