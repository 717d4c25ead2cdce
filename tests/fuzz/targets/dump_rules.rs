//! What is said to come from `iptables-save` may be anything; what can be read of
//! it can be written and means the same then.

#![no_main]

mod shared;

use libfuzzer_sys::fuzz_target;
use svclab::dump::Format;
use svclab::dump::format::{Backing, Ip};
use svclab::dump::iptables::{Dump, Order, compare};

fuzz_target!(|bytes: &[u8]| {
    let format = Format::Rules(Ip::V4, Backing::Default);
    let Some(dump) = shared::dump(format, bytes) else {
        return;
    };
    for rules in dump.rules.values() {
        let again = Dump::parse(&rules.to_string()).expect("what was read can be written");
        assert!(compare(rules, &again, Order::Strict).is_empty());
        let chains = rules.tables.iter().flat_map(|table| &table.chains);
        for rule in chains.flat_map(|chain| &chain.rules) {
            let text = rule.text();
            let (_, again) = svclab::dump::iptables::Rule::parse(&format!("-A X {text}"))
                .expect("a rule's text is a rule");
            assert_eq!(again.text(), text, "a text of a text is itself");
        }
    }
});
