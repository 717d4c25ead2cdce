//! Runs the trials in which the kernel drops packets without a rule.

use svclab_model::evidence::Verdict;
use svclab_model::plan::Backend;
use svclab_test_support::can_trace_drops;

use super::{DNAT_RANDOM, DNAT_SINGLE, Lab};

/// Names and functions of the trials.
pub const TRIALS: [(&str, fn()); 2] = [
    (
        "drop by reverse path filtering is settled",
        dropped_by_reverse_path_is_settled,
    ),
    (
        "drop before a random choice is confirmed is not settled",
        dropped_before_confirmation_is_not_settled,
    ),
];

const ROUTE_TO_CLIENT: &[&str] = &["ip", "route", "add", "10.0.1.2/32", "dev", "br0"];
const STRICT: (&str, &str) = ("net.ipv4.conf.all.rp_filter", "1");

// Without the privilege to trace drops, nothing is proven.
fn dropped_by_reverse_path_is_settled() {
    let lab = Lab {
        setting: Some(STRICT),
        command: ROUTE_TO_CLIENT,
        ..Lab::new(Backend::Nft, DNAT_SINGLE)
    };
    if can_trace_drops() {
        lab.assert_settled(&[Verdict::Timeout]);
    } else {
        lab.assert_not_settled();
    }
}

// The router chooses a port for each SYN before it drops the packet.
fn dropped_before_confirmation_is_not_settled() {
    let lab = Lab {
        setting: Some(STRICT),
        command: ROUTE_TO_CLIENT,
        ..Lab::new(Backend::Nft, DNAT_RANDOM)
    };
    lab.assert_not_settled();
}
