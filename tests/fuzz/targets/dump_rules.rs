//! Fuzzes the parser of `iptables-save` output. Parsed rules can be rendered and have the same
//! meaning then.

#![no_main]

mod shared;

use libfuzzer_sys::fuzz_target;
use svclab_ruleset::tool::Format;
use svclab_ruleset::tool::{DumpedBackend, IpFamily};

fuzz_target!(|bytes: &[u8]| {
    let _ = shared::check_dump(Format::Rules(IpFamily::V4, DumpedBackend::Default), bytes);
});
