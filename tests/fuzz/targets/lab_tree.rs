//! Fuzzes shipped labs with some changed values: each lab is accepted, or refused with a message.

#![no_main]

mod lab;

use std::sync::LazyLock;

use libfuzzer_sys::fuzz_target;
use serde_json::Value;
use svclab_test_support::generated::changed_lab::{change_lab, render_documents};
use svclab_test_support::generated::choices::Choices;

/// Documents of valid labs.
static LABS: LazyLock<Vec<Vec<Value>>> = LazyLock::new(|| {
    let texts = [
        include_str!("../../../lab/scenario/src/example.yaml"),
        include_str!("../../../topologies/canal-stale-rule.yaml"),
        include_str!("../../../topologies/clb-hairpin.yaml"),
        include_str!("../../../topologies/local-ingress.yaml"),
        include_str!("../../../topologies/missing-cluster-cidr.yaml"),
    ];
    let documents = |text| serde_saphyr::from_multiple(text).expect("a valid lab");
    texts.into_iter().map(documents).collect()
});

fuzz_target!(|bytes: &[u8]| {
    let mut choices = Choices(bytes);
    // Half of the runs use the smallest lab, which runs 10 times as fast.
    let index = match choices.below(2) {
        0 => 0,
        _ => choices.below(LABS.len()),
    };
    let mut lab = LABS[index].clone();
    change_lab(&mut lab, &LABS, &mut choices);
    lab::check_lab(render_documents(&lab).as_bytes());
});
