//! Fuzzes the parser of `nft list ruleset` output.

#![no_main]

use libfuzzer_sys::fuzz_target;
use svclab_dump::compare;
use svclab_ruleset::nft;
use svclab_ruleset::tool::Format;
use svclab_test_support::dump::check_dump;

fuzz_target!(|bytes: &[u8]| {
    let Some(dump) = check_dump(Format::Nft, bytes) else {
        return;
    };
    let ruleset = dump.nft.expect("a ruleset");
    // A parsed ruleset can be rendered and has the same meaning then.
    let again = nft::parse(&ruleset.to_string()).expect("the parsed value can be rendered");
    let differences = compare::nft::compare(&ruleset, &again);
    assert!(
        differences.is_empty(),
        "the rendered ruleset differs: {differences:?}"
    );
});
