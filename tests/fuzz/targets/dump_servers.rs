//! Fuzzes the parser of `ipvsadm -Sn` output.

#![no_main]

use libfuzzer_sys::fuzz_target;
use svclab_ruleset::tool::Format;
use svclab_test_support::dump::check_dump;

fuzz_target!(|bytes: &[u8]| {
    let _ = check_dump(Format::VirtualServers, bytes);
});
