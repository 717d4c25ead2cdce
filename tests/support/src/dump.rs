//! Checks that hold for every dump, whatever its content.

use svclab_diagnostic::Rendering;
use svclab_dump::compare::iptables::Order;
use svclab_dump::{File, NodeDump, compare};
use svclab_ruleset::iptables::{IptablesRules, Rule};
use svclab_ruleset::tool::Format;

/// Parses a file of a dump, which gives a dump or printable messages. Asserts that the parsed dump
/// equals itself. Returns `None` if the file is refused.
pub fn check_dump(format: Format, bytes: &[u8]) -> Option<NodeDump> {
    let text = std::str::from_utf8(bytes).ok()?;
    let _ = Format::detect(text);
    let read = NodeDump::parse(vec![File {
        name: format.file_name().to_owned(),
        format: Some(format),
        text: text.to_owned(),
    }]);
    for diagnostic in &read.diagnostics {
        let message = diagnostic.render(&read.sources, Rendering::default());
        assert!(
            !message.contains('\u{1b}'),
            "the output contains an escape character"
        );
    }
    let differences = compare(&read.dump, &read.dump);
    assert!(differences.is_empty(), "the dump differs from itself");
    let empty = NodeDump::parse(vec![File {
        name: format.file_name().to_owned(),
        format: Some(format),
        text: String::new(),
    }]);
    let _ = compare(&read.dump, &empty.dump);
    let _ = compare(&empty.dump, &read.dump);
    for rules in read.dump.rules.values() {
        assert_round_trip(rules);
    }
    read.has_no_errors().then_some(read.dump)
}

/// Asserts that parsed rules can be rendered and have the same meaning then.
fn assert_round_trip(rules: &IptablesRules) {
    let mut tables = rules.tables.iter().map(|table| table.table);
    let mut known = Vec::new();
    if tables.any(|table| {
        known.contains(&table) || {
            known.push(table);
            false
        }
    }) {
        // Two tables with the same name are invalid and were reported.
        return;
    }
    let again = IptablesRules::parse(&rules.to_string()).expect("the parsed value can be rendered");
    let differences = svclab_dump::compare::iptables::compare(rules, &again, Order::Strict);
    assert!(
        differences.is_empty(),
        "the rendered rules differ: {differences:?}"
    );
    let chains = rules.tables.iter().flat_map(|table| &table.chains);
    for rule in chains.flat_map(|chain| &chain.rules) {
        let text = rule.canonical_text();
        let again = Rule::from_words(text.as_str()).expect("the text of a rule can be parsed");
        assert_eq!(again.canonical_text(), text, "the canonical text is stable");
    }
}
