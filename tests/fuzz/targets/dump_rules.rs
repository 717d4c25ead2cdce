//! Fuzzes the parser of `iptables-save` output. Parsed rules can be rendered and have the same
//! meaning then.

#![no_main]

mod shared;

use libfuzzer_sys::fuzz_target;
use svclab_ruleset::tool::Format;
use svclab_ruleset::tool::{Backing, Ip};

fuzz_target!(|bytes: &[u8]| {
    let _ = shared::dump(Format::Rules(Ip::V4, Backing::Default), bytes);
});
