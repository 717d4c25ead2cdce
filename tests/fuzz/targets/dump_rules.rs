//! Fuzzes the parser of `iptables-save` output. Parsed rules can be rendered and have the same
//! meaning then.

#![no_main]

use libfuzzer_sys::fuzz_target;
use svclab_ruleset::Family;
use svclab_ruleset::tool::Format;
use svclab_ruleset::tool::{DumpedBackend};
use svclab_test_support::dump::check_dump;

fuzz_target!(|bytes: &[u8]| {
    let _ = check_dump(Format::Rules(Family::V4, DumpedBackend::Default), bytes);
});
