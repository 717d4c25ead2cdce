//! Compares two nftables rulesets by their meaning. The order of tables, sets, chains and entries
//! and the notation of rules ([`svclab_ruleset::nft::canonical()`]) are ignored; the order of rules within a chain is
//! significant.

use indexmap::IndexSet;

use crate::difference::{Difference, DumpChange, DumpLocation, Owner, Side};
use crate::lists::{self, ListItem};
use crate::owner::nft as nft_owner;
use svclab_ruleset::nft::{Chain, Hook, Ruleset, Set, Table, TableObject};

/// Returns the differences of `second` from `first`.
#[must_use]
pub fn compare(first: &Ruleset, second: &Ruleset) -> Vec<Difference> {
    let mut diff = NftDiff(Vec::new());
    let named = |table: &Table| format!("{} {}", table.family, table.name);
    for (name, pair) in pairs(&first.tables, &second.tables, named) {
        let place = DumpLocation::NftTable {
            table: name.clone(),
        };
        let (first_table, second_table) = match pair {
            Pair::Both(one, other) => (one, other),
            Pair::One(only, table) => {
                let line = table.line;
                diff.add(&place, DumpChange::Whole { only, line }, None);
                let empty = Table::default();
                match only {
                    Side::First => compare_table_contents(&mut diff, &name, table, &empty),
                    Side::Second => compare_table_contents(&mut diff, &name, &empty, table),
                }
                continue;
            }
        };
        diff.value(
            &place,
            "comment",
            first_table.comment.as_ref(),
            second_table.comment.as_ref(),
        );
        diff.value(
            &place,
            "flags",
            first_table.flags.as_ref(),
            second_table.flags.as_ref(),
        );
        compare_table_contents(&mut diff, &name, first_table, second_table);
    }
    diff.0
}

/// Compares the contents of two tables with the same name.
fn compare_table_contents(
    diff: &mut NftDiff,
    table: &str,
    first_table: &Table,
    second_table: &Table,
) {
    for (name, pair) in pairs(&first_table.sets, &second_table.sets, |set| {
        set.name.clone()
    }) {
        compare_set(diff, table, &name, &pair);
    }
    for (chain, pair) in pairs(&first_table.chains, &second_table.chains, |chain| {
        chain.name.clone()
    }) {
        let place = DumpLocation::Chain {
            program: PROGRAM.to_owned(),
            table: table.to_owned(),
            chain: chain.clone(),
        };
        let owner = nft_owner::chain_owner(table, &chain);
        compare_chain(diff, &place, &pair, owner.as_ref());
    }
    let place = DumpLocation::NftTable {
        table: table.to_owned(),
    };
    let other_items = |others: &[TableObject]| -> Vec<ListItem> {
        let items = others
            .iter()
            .map(|other| ListItem::from_text(other.canonical(), other.line));
        let mut items: Vec<ListItem> = items.collect();
        items.sort_by(|a, b| a.key.cmp(&b.key));
        items
    };
    for change in lists::compare(
        &other_items(&first_table.other_objects),
        &other_items(&second_table.other_objects),
    ) {
        diff.add(&place, change, None);
    }
}

/// Program that prints rulesets.
const PROGRAM: &str = "nft list ruleset";

struct NftDiff(Vec<Difference>);

impl NftDiff {
    fn add(&mut self, place: &DumpLocation, change: DumpChange, owner: Option<Owner>) {
        self.0.push(Difference {
            location: place.clone(),
            change,
            owner,
            repeated_in: None,
        });
    }

    fn value<T: ToString + PartialEq>(
        &mut self,
        place: &DumpLocation,
        what: &str,
        first: Option<&T>,
        second: Option<&T>,
    ) {
        if first != second {
            let change = DumpChange::Value {
                property: what.to_owned(),
                first: first.map(T::to_string),
                second: second.map(T::to_string),
            };
            self.add(place, change, None);
        }
    }
}

/// Objects with the same name in both rulesets, or an object of one ruleset.
enum Pair<'n, N> {
    Both(&'n N, &'n N),
    One(Side, &'n N),
}

/// Pairs objects by name: names of the first list, then names that only the second has.
fn pairs<'n, N>(
    first: &'n [N],
    second: &'n [N],
    name: impl Fn(&N) -> String,
) -> Vec<(String, Pair<'n, N>)> {
    let by_name = |objects: &'n [N]| -> std::collections::HashMap<String, &'n N> {
        objects
            .iter()
            .map(|object| (name(object), object))
            .collect()
    };
    let (first_by_name, second_by_name) = (by_name(first), by_name(second));
    let names: IndexSet<String> = first.iter().chain(second).map(&name).collect();
    let pair = |name: String| {
        let pair = match (first_by_name.get(&name), second_by_name.get(&name)) {
            (Some(a), Some(b)) => Pair::Both(*a, *b),
            (Some(a), None) => Pair::One(Side::First, *a),
            (None, Some(b)) => Pair::One(Side::Second, *b),
            (None, None) => return None,
        };
        Some((name, pair))
    };
    names.into_iter().filter_map(pair).collect()
}

fn compare_set(diff: &mut NftDiff, table: &str, name: &str, pair: &Pair<'_, Set>) {
    let place = &DumpLocation::NftSet {
        table: table.to_owned(),
        name: name.to_owned(),
    };
    let empty = Set::default();
    let (first_set, second_set) = match *pair {
        Pair::Both(one, other) => {
            compare_declarations(diff, place, one, other);
            (one, other)
        }
        Pair::One(only, set) => {
            let line = set.line;
            diff.add(
                place,
                DumpChange::Whole { only, line },
                nft_owner::chain_owner(table, &set.name),
            );
            match only {
                Side::First => (set, &empty),
                Side::Second => (&empty, set),
            }
        }
    };
    if first_set.elements == second_set.elements {
        return;
    }
    let entries = |set: &Set| -> Vec<ListItem> {
        let types = set.element_types();
        let items = set.elements.iter().map(|element| ListItem {
            key: element.canonical_of(&types),
            source_text: element.to_string(),
            line: element.line,
        });
        let mut items: Vec<ListItem> = items.collect();
        items.sort_by(|a, b| a.key.cmp(&b.key));
        items
    };
    for change in lists::compare(&entries(first_set), &entries(second_set)) {
        let owner = match &change {
            DumpChange::Item { item, .. } => nft_owner::element_owner(table, name, item),
            _ => nft_owner::chain_owner(table, name),
        };
        diff.add(place, change, owner);
    }
}

/// Compares the properties of two sets with the same name.
fn compare_declarations(
    diff: &mut NftDiff,
    place: &DumpLocation,
    first_set: &Set,
    second_set: &Set,
) {
    let sides = [first_set, second_set];
    let [first, second] = sides.map(Set::canonical_declaration);
    let mut add = |property: &str, render: fn(&Set) -> Option<String>| {
        let (a, b) = (render(&first), render(&second));
        diff.value(place, property, a.as_ref(), b.as_ref());
    };
    add("kind", |set| {
        Some(if set.is_map { "map" } else { "set" }.to_owned())
    });
    add("element type", |set| Some(set.type_line.clone()));
    add("flags", |set| joined(&set.flags, ","));
    add("timeout", |set| {
        set.timeout.map(|timeout| format!("{timeout}s"))
    });
    add("size", |set| set.size.map(|size| size.to_string()));
    add("properties", |set| joined(&set.properties, "; "));
    let [a, b] = sides.map(|set| set.comment.as_ref());
    diff.value(place, "comment", a, b);
}

/// Joins texts. `None` if there are none.
fn joined(texts: &[String], separator: &str) -> Option<String> {
    (!texts.is_empty()).then(|| texts.join(separator))
}

fn compare_chain(
    diff: &mut NftDiff,
    place: &DumpLocation,
    pair: &Pair<'_, Chain>,
    owner: Option<&Owner>,
) {
    let empty = Chain::default();
    let before = diff.0.len();
    let (first_chain, second_chain) = match *pair {
        Pair::Both(one, other) => {
            diff.value(
                place,
                "comment",
                one.comment.as_ref(),
                other.comment.as_ref(),
            );
            (one, other)
        }
        Pair::One(only, chain) => {
            let line = chain.line;
            diff.add(place, DumpChange::Whole { only, line }, None);
            match only {
                Side::First => (chain, &empty),
                Side::Second => (&empty, chain),
            }
        }
    };
    let sides = [first_chain, second_chain];
    let [a, b] = sides.map(|chain| chain.hook.as_ref().map(Hook::attachment));
    diff.value(place, "hook", a.as_ref(), b.as_ref());
    let [a, b] = sides.map(|chain| chain.hook.as_ref().map(|hook| &hook.policy));
    diff.value(place, "policy", a, b);
    let written =
        |chain: &Chain| -> Vec<String> { chain.rules.iter().map(ToString::to_string).collect() };
    let (a, b) = (written(first_chain), written(second_chain));
    if a != b {
        let items = |chain: &Chain, written: Vec<String>| -> Vec<ListItem> {
            let rules = chain.rules.iter().zip(written);
            rules
                .map(|(rule, written)| ListItem {
                    key: rule.canonical(),
                    source_text: written,
                    line: rule.line,
                })
                .collect()
        };
        for change in lists::compare(&items(first_chain, a), &items(second_chain, b)) {
            diff.add(place, change, None);
        }
    }
    for difference in &mut diff.0[before..] {
        difference.owner = owner.cloned();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use svclab_ruleset::nft::parse;

    #[test]
    fn nft_ruleset_round_trip_has_no_differences() {
        let text = "# Warning: managed by iptables-nft\ntable inet t { # handle 5\n\tcomment \"a\"\n\tflags dormant\n\
            \tset s {\n\t\ttypeof ip saddr\n\t\tpolicy memory\n\t\tflags dynamic,timeout\n\t\ttimeout 1m\n\
            \t\telements = { 10.0.0.1 timeout 1h expires 59m, 10.0.0.2 comment \"b, c\" }\n\t}\n\n\
            \tcounter web {\n\t\tpackets 0 bytes 0\n\t}\n\n\
            \tchain in {\n\t\ttype filter hook ingress device \"eth0\" priority -500; policy drop;\n\
            \t\tip saddr @s counter packets 1 bytes 2 drop comment \"d { e\" # handle 7\n\t}\n}\n";
        let ruleset = parse(text).unwrap();
        let table = &ruleset.tables[0];
        let hook = table.chain("in").and_then(|chain| chain.hook.as_ref());
        let hook = hook.unwrap();
        assert_eq!(
            (hook.device.as_str(), hook.priority, hook.policy.as_str()),
            ("device \"eth0\"", -500, "drop")
        );
        assert_eq!(table.set("s").unwrap().elements.len(), 2);
        let again = parse(&ruleset.to_string()).unwrap();
        assert_eq!(compare(&ruleset, &again), []);
        assert_eq!(
            again.tables[0].sets[0].elements[1].comment.as_deref(),
            Some("b, c")
        );
    }

    fn describe_differences(first: &str, second: &str) -> Vec<String> {
        let wrap = |body: &str| parse(&format!("table ip kube-proxy {{\n{body}\n}}\n")).unwrap();
        let differences = compare(&wrap(first), &wrap(second));
        differences
            .iter()
            .map(|difference| match &difference.owner {
                Some(owner) => format!("{difference} ({owner})"),
                None => difference.to_string(),
            })
            .collect()
    }

    #[test]
    fn compare_nft_only_rule_order_matters() {
        let first = "set a {\ntype ipv4_addr\nelements = { 10.0.0.1, 10.0.0.2 }\n}\n\
            chain one {\nreturn\n}\nchain two {\nip saddr 10.0.0.1 drop\naccept\n}";
        let second = "chain two {\naccept\nip saddr 10.0.0.1 drop\n}\nchain one {\nreturn\n}\n\
            set a {\ntype ipv4_addr\nelements = { 10.0.0.2,\n10.0.0.1 }\n}";
        assert_eq!(
            describe_differences(first, second),
            ["nft ip kube-proxy two: ~ ip saddr 10.0.0.1 drop (kube-proxy)"]
        );
    }

    #[test]
    fn compare_nft_differences_have_owners() {
        let first = "map m {\ntype inet_service : verdict\nelements = { 80 comment \"ns/web:p\" : drop }\n}\n\
            set s {\ntype ipv4_addr\nflags dynamic\n}\n\
            chain service-ABCDEFGH-ns/web/tcp/p {\ndrop\n}\n\
            chain nat {\ntype nat hook output priority dstnat; policy accept;\n}";
        let second = "map m {\ntype inet_service : verdict\nelements = { 81 : goto local-ABCDEFGH-ns/web/tcp/p }\n}\n\
            set s {\ntype ipv4_addr\nflags dynamic\nsize 65535\ntimeout 3h\n}\n\
            chain nat {\ntype nat hook output priority -99; policy accept;\n}\n\
            chain endpoint-ABCDEFGH-ns/web/tcp/__10.0.0.1/80 {\ndrop\n}";
        insta::assert_snapshot!(describe_differences(first, second).join("\n"));
    }

    /// Outputs of nftables 1.0.6 for one state: `nft OPTIONS list ruleset`.
    const OUTPUTS: [&str; 8] = [
        include_str!("recorded/nft/plain.nft"),
        include_str!("recorded/nft/n.nft"),
        include_str!("recorded/nft/p.nft"),
        include_str!("recorded/nft/T.nft"),
        include_str!("recorded/nft/S.nft"),
        include_str!("recorded/nft/y.nft"),
        include_str!("recorded/nft/pT.nft"),
        include_str!("recorded/nft/nS.nft"),
    ];

    fn describe_outputs(first: &str, second: &str) -> String {
        let [first, second] = [first, second].map(|text| parse(text).unwrap());
        let differences = compare(&first, &second);
        let differences = differences.iter().map(ToString::to_string);
        differences.collect::<Vec<_>>().join("\n")
    }

    #[test]
    fn compare_nft_with_all_options_are_equal() {
        for text in OUTPUTS {
            assert_eq!(describe_outputs(OUTPUTS[0], text), "");
        }
    }

    #[test]
    fn compare_nft_with_options_reports_edits() {
        for (from, to) in [
            ("ct state new accept", "ct state related accept"),
            (
                "ct state vmap { invalid : drop",
                "ct state vmap { untracked : drop",
            ),
            ("tcp flags syn accept", "tcp flags ack accept"),
            ("/ fin,syn,rst,ack accept", "/ fin,syn,rst accept"),
            ("ip dscp cs1 accept", "ip dscp cs2 accept"),
            ("ip protocol tcp accept", "ip protocol udp accept"),
            ("ether type ip accept", "ether type arp accept"),
            ("fib saddr type local", "fib saddr type unicast"),
            ("oif missing drop", "oif exists drop"),
            ("icmp type echo-request", "icmp type echo-reply"),
            (
                "reject with icmp admin-prohibited",
                "reject with icmp net-prohibited",
            ),
            ("tcp dport { 80, 443", "tcp dport { 80, 444"),
            ("redirect to :80", "redirect to :443"),
            ("10.0.0.1 . 80", "10.0.0.1 . 443"),
            ("ip saddr timeout 1m }", "ip saddr timeout 2m }"),
            ("timeout 1m30s", "timeout 1m31s"),
            ("gc-interval 1m", "gc-interval 2m"),
            (
                "elements = { tcp, udp, 99 }",
                "elements = { tcp, icmp, 99 }",
            ),
            ("elements = { udp . 53", "elements = { tcp . 53"),
            ("elements = { cs1", "elements = { cs2"),
            ("{ tcp : udp }", "{ tcp : icmp }"),
            ("meta day \"Monday\"", "meta day \"Sunday\""),
            ("iiftype ether", "iiftype ppp"),
        ] {
            let changed = OUTPUTS[0].replace(from, to);
            assert_ne!(changed, OUTPUTS[0], "{from}");
            for text in OUTPUTS {
                assert_ne!(describe_outputs(text, &changed), "", "{from}");
            }
        }
    }
}
