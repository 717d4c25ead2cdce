//! Parses randomly changed dumps: runs briefly what `tests/fuzz` runs for minutes.

use std::path::Path;

use proptest::prelude::*;
use proptest::sample::Index;
use svclab_ruleset::tool::Format;
use svclab_ruleset::tool::{Backing, Ip};

use super::shared;

/// Texts with a meaning in at least one format.
const WORDS: [&str; 24] = [
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
    let place = |text: &str, at: &Index| {
        let at = at.index(text.len() + 1);
        text.floor_char_boundary(at)
    };
    match edit {
        Edit::Remove(at, length) => {
            let at = place(text, at);
            let end = text.ceil_char_boundary((at + length).min(text.len()));
            text.replace_range(at..end, "");
        }
        Edit::Insert(at, word) => {
            let at = place(text, at);
            text.insert_str(at, word);
        }
        Edit::Repeat(at, length) => {
            let at = place(text, at);
            let end = text.ceil_char_boundary((at + length).min(text.len()));
            let piece = text[at..end].to_owned();
            text.insert_str(at, &piece);
        }
        Edit::CutOff(at) => {
            let at = place(text, at);
            text.truncate(at);
        }
    }
}

/// Formats, each with a file of the project's tests.
const FILES: [(Format, &str); 8] = [
    (
        Format::Rules(Ip::V4, Backing::Default),
        "recorded/kube-proxy/v1.36.2/iptables/a_clusterip.cidr.iptables-save",
    ),
    (
        Format::Rules(Ip::V4, Backing::Default),
        "recorded/odd/iptables-save",
    ),
    (
        Format::Sets,
        "recorded/kube-proxy/v1.36.2/ipvs/e_all.cidr.ipset-save",
    ),
    (
        Format::Servers,
        "recorded/kube-proxy/v1.36.2/ipvs/e_all.cidr.ipvsadm-Sn",
    ),
    (
        Format::Links,
        "recorded/kube-proxy/v1.36.2/ipvs/e_all.cidr.ip-addr",
    ),
    (Format::Routes(Ip::V4), "fuzz/seeds/dump_routes/all"),
    (Format::Policy(Ip::V4), "fuzz/seeds/dump_policy/rules"),
    (Format::Sysctls, "fuzz/seeds/dump_sysctls/net"),
];

fn text(file: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests")
        .join(file);
    std::fs::read_to_string(path).expect("a file of the project's tests")
}

#[test]
fn seeds_are_dumps() {
    for (format, file) in FILES {
        let read = shared::dump(format, text(file).as_bytes());
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
    fn anything_is_read_or_refused(
        file in 0..FILES.len(),
        edits in proptest::collection::vec(edit(), 1..6),
    ) {
        let (format, file) = FILES[file];
        let mut text = text(file);
        for edit in &edits {
            apply(&mut text, edit);
        }
        let _ = shared::dump(format, text.as_bytes());
    }

    /// Passes files of each format to the parsers of the others.
    #[test]
    fn readers_meet_what_is_not_theirs(reader in 0..FILES.len(), file in 0..FILES.len()) {
        let read = shared::dump(FILES[reader].0, text(FILES[file].1).as_bytes());
        let alike = FILES[reader].0.may_be(FILES[file].0);
        prop_assert_eq!(read.is_some(), alike, "{} as {}", FILES[file].1, FILES[reader].0);
    }
}
