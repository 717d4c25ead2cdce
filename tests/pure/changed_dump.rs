//! Parses randomly changed dumps: runs briefly what `tests/fuzz` runs for minutes.

use proptest::prelude::*;
use proptest::sample::Index;
use svclab_ruleset::Family;
use svclab_ruleset::tool::DumpedBackend;
use svclab_ruleset::tool::Format;
use svclab_test_support::dump::check_dump;

/// Texts with a meaning in at least one format.
const WORDS: [&str; 28] = [
    "\"",
    "\\",
    "!",
    "-A",
    "-j",
    "-m",
    "*nat",
    "COMMIT",
    ":X - [0:0]",
    "[1:2]",
    "create",
    "add",
    "comment",
    "nexthop",
    "via",
    "encap",
    "lock",
    "not",
    "=",
    "<UP>",
    "\u{1b}[2J",
    "é",
    "\t",
    "-r",
    "lladdr",
    "master",
    "PERMANENT",
    "hairpin",
];

#[derive(Debug, Clone)]
enum Edit {
    Remove(Index, usize),
    Insert(Index, &'static str),
    Repeat(Index, usize),
    CutOff(Index),
}

fn edit() -> impl Strategy<Value = Edit> {
    prop_oneof![
        (any::<Index>(), 1..40_usize).prop_map(|(at, length)| Edit::Remove(at, length)),
        (any::<Index>(), 0..WORDS.len()).prop_map(|(at, word)| Edit::Insert(at, WORDS[word])),
        (any::<Index>(), 1..200_usize).prop_map(|(at, length)| Edit::Repeat(at, length)),
        any::<Index>().prop_map(Edit::CutOff),
    ]
}

fn apply(text: &mut String, edit: &Edit) {
    let position = |text: &str, index: &Index| {
        let position_in_text = index.index(text.len() + 1);
        text.floor_char_boundary(position_in_text)
    };
    match edit {
        Edit::Remove(at, length) => {
            let at = position(text, at);
            let end = text.ceil_char_boundary((at + length).min(text.len()));
            text.replace_range(at..end, "");
        }
        Edit::Insert(at, word) => {
            let at = position(text, at);
            text.insert_str(at, word);
        }
        Edit::Repeat(at, length) => {
            let at = position(text, at);
            let end = text.ceil_char_boundary((at + length).min(text.len()));
            let piece = text[at..end].to_owned();
            text.insert_str(at, &piece);
        }
        Edit::CutOff(at) => {
            let at = position(text, at);
            text.truncate(at);
        }
    }
}

/// Formats, each with a file of the project's tests.
const FILES: [(Format, &str); 22] = [
    (
        Format::Rules(Family::V4, DumpedBackend::Default),
        "recorded/kube-proxy/v1.36.2/iptables/a_clusterip.cidr.iptables-save",
    ),
    (
        Format::Rules(Family::V4, DumpedBackend::Default),
        "recorded/odd/iptables-save",
    ),
    (
        Format::Sets,
        "recorded/kube-proxy/v1.36.2/ipvs/e_all.cidr.ipset-save",
    ),
    (
        Format::VirtualServers,
        "recorded/kube-proxy/v1.36.2/ipvs/e_all.cidr.ipvsadm-Sn",
    ),
    (
        Format::Links,
        "recorded/kube-proxy/v1.36.2/ipvs/e_all.cidr.ip-addr",
    ),
    (Format::Routes(Family::V4), "fuzz/seeds/dump_routes/all"),
    (
        Format::RoutingRules(Family::V4),
        "fuzz/seeds/dump_policy/rules",
    ),
    (Format::Sysctls, "fuzz/seeds/dump_sysctls/net"),
    (Format::Neighbours, "fuzz/seeds/dump_neighbours/neighbours"),
    (
        Format::Neighbours,
        "fuzz/seeds/dump_neighbours/neighbours-json",
    ),
    (Format::Forwarding, "fuzz/seeds/dump_neighbours/forwarding"),
    (
        Format::Forwarding,
        "fuzz/seeds/dump_neighbours/forwarding-json",
    ),
    (Format::BridgePorts, "fuzz/seeds/dump_neighbours/ports"),
    (Format::BridgePorts, "fuzz/seeds/dump_neighbours/ports-json"),
    (Format::Links, "fuzz/seeds/dump_links/addr-json"),
    (Format::LinkDetails, "fuzz/seeds/dump_links/link-json"),
    (Format::Routes(Family::V4), "fuzz/seeds/dump_routes/json"),
    (Format::Routes(Family::V6), "fuzz/seeds/dump_routes/json-6"),
    (
        Format::RoutingRules(Family::V4),
        "fuzz/seeds/dump_policy/json",
    ),
    (Format::Nft, "fuzz/seeds/dump_nft/json-families"),
    (Format::Nft, "fuzz/seeds/dump_nft/json-ip"),
    (Format::Nft, "../lab/ruleset/src/json/nft/recorded/ip.json"),
];

fn read_test_file(file: &str) -> String {
    let path = svclab_test_support::root().join("tests").join(file);
    std::fs::read_to_string(path).expect("a file of the project's tests")
}

#[test]
fn recorded_file_own_format_is_parsed() {
    for (format, file) in FILES {
        let read = check_dump(format, read_test_file(file).as_bytes());
        assert!(read.is_some(), "{file}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 400,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn dump_changed_at_random_does_not_panic(
        file in 0..FILES.len(),
        edits in proptest::collection::vec(edit(), 1..6),
    ) {
        let (format, file) = FILES[file];
        let mut text = read_test_file(file);
        for edit in &edits {
            apply(&mut text, edit);
        }
        let _ = check_dump(format, text.as_bytes());
    }

    /// Passes files of each format to the parsers of the others.
    #[test]
    fn parser_file_of_other_format_is_refused(reader in 0..FILES.len(), file in 0..FILES.len()) {
        let read = check_dump(FILES[reader].0, read_test_file(FILES[file].1).as_bytes());
        let alike = FILES[reader].0.is_compatible_with(FILES[file].0);
        prop_assert_eq!(read.is_some(), alike, "{} as {}", FILES[file].1, FILES[reader].0);
    }
}
