//! What is said to come from `iptables-save` may be anything; what can be read of
//! it can be written and means the same then.

#![no_main]

mod shared;

use libfuzzer_sys::fuzz_target;
use svclab_ruleset::tool::Format;
use svclab_ruleset::tool::{Backing, Ip};

fuzz_target!(|bytes: &[u8]| {
    let _ = shared::dump(Format::Rules(Ip::V4, Backing::Default), bytes);
});
