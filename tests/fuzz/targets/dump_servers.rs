//! Fuzzes the parser of `ipvsadm -Sn` output.

#![no_main]

mod shared;

use libfuzzer_sys::fuzz_target;
use svclab_ruleset::tool::Format;

fuzz_target!(|bytes: &[u8]| {
    let _ = shared::check_dump(Format::VirtualServers, bytes);
});
