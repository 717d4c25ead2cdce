//! Compares two nftables rulesets by their meaning. The order of tables, sets, chains and entries
//! and the notation of rules ([`canonical()`]) are ignored; the order of rules within a chain is
//! significant.

use indexmap::IndexSet;

use crate::difference::{Difference, DumpChange, DumpLocation, Owner, Side};
use crate::lists::{self, ListItem};
use svclab_ruleset::nft::canonical;
use svclab_ruleset::nft::{Chain, Element, Hook, Ruleset, Set, Table, TableObject};

/// Default maximum number of entries of a set to which rules add entries. (Linux v6.12,
/// `nft_dynset_init` in `net/netfilter/nft_dynset.c`.)
const DYNAMIC_SIZE: u64 = 65_535;

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
        let place = DumpLocation::NftSet {
            table: table.to_owned(),
            name,
        };
        compare_set(diff, &place, &pair);
    }
    for (chain, pair) in pairs(&first_table.chains, &second_table.chains, |chain| {
        chain.name.clone()
    }) {
        let place = DumpLocation::Chain {
            program: PROGRAM.to_owned(),
            table: table.to_owned(),
            chain: chain.clone(),
        };
        let owner = chain_owner(table, &chain);
        compare_chain(diff, &place, &pair, owner.as_ref());
    }
    let place = DumpLocation::NftTable {
        table: table.to_owned(),
    };
    let other_items = |others: &[TableObject]| -> Vec<ListItem> {
        let items = others.iter().map(|other| {
            let body = other.body.iter().map(|line| canonical(line));
            let key = format!(
                "{} {{ {} }}",
                other.head,
                body.collect::<Vec<_>>().join("; ")
            );
            ListItem::from_text(key, other.line)
        });
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

fn compare_set(diff: &mut NftDiff, place: &DumpLocation, pair: &Pair<'_, Set>) {
    let empty = Set::default();
    let (first_set, second_set) = match *pair {
        Pair::Both(one, other) => {
            let kind = |set: &Set| if set.is_map { "map" } else { "set" };
            diff.value(place, "kind", Some(&kind(one)), Some(&kind(other)));
            let holds = |set: &Set| canonical(&set.type_line);
            diff.value(
                place,
                "element type",
                Some(&holds(one)),
                Some(&holds(other)),
            );
            diff.value(place, "flags", flags(one).as_ref(), flags(other).as_ref());
            let seconds = |set: &Set| set.timeout.map(|timeout| format!("{timeout}s"));
            let (a, b) = (seconds(one), seconds(other));
            diff.value(place, "timeout", a.as_ref(), b.as_ref());
            diff.value(place, "size", size(one).as_ref(), size(other).as_ref());
            diff.value(
                place,
                "comment",
                one.comment.as_ref(),
                other.comment.as_ref(),
            );
            let properties = |set: &Set| {
                let mut properties_of_set = set.properties.clone();
                properties_of_set.sort_unstable();
                (!properties_of_set.is_empty()).then(|| properties_of_set.join("; "))
            };
            let (a, b) = (properties(one), properties(other));
            diff.value(place, "properties", a.as_ref(), b.as_ref());
            (one, other)
        }
        Pair::One(only, set) => {
            let line = set.line;
            diff.add(
                place,
                DumpChange::Whole { only, line },
                set_owner(place, set),
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
        let items = set.elements.iter().map(|element| ListItem {
            key: canonical_element(element),
            source_text: element.to_string(),
            line: element.line,
        });
        let mut items: Vec<ListItem> = items.collect();
        items.sort_by(|a, b| a.key.cmp(&b.key));
        items
    };
    for change in lists::compare(&entries(first_set), &entries(second_set)) {
        let owner = match &change {
            DumpChange::Item { item, .. } => element_owner(item),
            _ => None,
        };
        let owner = owner.or_else(|| set_owner(place, first_set));
        diff.add(place, change, owner);
    }
}

/// Returns the canonical text of an entry, including its comment.
fn canonical_element(element: &Element) -> String {
    let comment = element.comment.as_deref().unwrap_or_default();
    let value = element.value.as_deref().map(canonical).unwrap_or_default();
    format!("{} : {value} \"{comment}\"", canonical(&element.key))
}

fn flags(set: &Set) -> Option<String> {
    let mut flags = set.flags.clone();
    flags.sort_unstable();
    (!flags.is_empty()).then(|| flags.join(","))
}

fn size(set: &Set) -> Option<u64> {
    let dynamic = set.flags.iter().any(|flag| flag == "dynamic");
    set.size.or(dynamic.then_some(DYNAMIC_SIZE))
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
            let hook_property =
                |chain: &Chain, render: fn(&Hook) -> String| chain.hook.as_ref().map(render);
            let hook: fn(&Hook) -> String = |hook| {
                let Hook {
                    kind,
                    hook,
                    device,
                    priority,
                    ..
                } = hook;
                let hook_text = format!("{kind} {hook} {device}");
                format!("{} priority {priority}", hook_text.trim_end())
            };
            let policy: fn(&Hook) -> String = |hook| hook.policy.clone();
            for (property, of_hook) in [("hook", hook), ("policy", policy)] {
                let (a, b) = (hook_property(one, of_hook), hook_property(other, of_hook));
                diff.value(place, property, a.as_ref(), b.as_ref());
            }
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
    let written =
        |chain: &Chain| -> Vec<String> { chain.rules.iter().map(ToString::to_string).collect() };
    let (a, b) = (written(first_chain), written(second_chain));
    if a != b {
        let items = |chain: &Chain, written: Vec<String>| -> Vec<ListItem> {
            let rules = chain.rules.iter().zip(written);
            rules
                .map(|(rule, written)| ListItem {
                    key: format!(
                        "{} \"{}\"",
                        canonical(&rule.text),
                        rule.comment.as_deref().unwrap_or_default()
                    ),
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

/// Returns the owner of a chain by its name: a service or, in kube-proxy's table, kube-proxy.
fn chain_owner(table: &str, chain: &str) -> Option<Owner> {
    let is_kube_proxys = table.ends_with(" kube-proxy");
    let component = is_kube_proxys.then(|| Owner::Component("kube-proxy".to_owned()));
    service_in_name(chain).or(component)
}

/// Returns the service port in a name such as `service-HASH-default/web/tcp/http`.
fn service_in_name(name: &str) -> Option<Owner> {
    let (_, rest) = name.split_once('-')?;
    let (_, rest) = rest.split_once('-')?;
    let rest = rest.split_once("__").map_or(rest, |(service, _)| service);
    let parts: Vec<&str> = rest.split('/').collect();
    match parts.as_slice() {
        [namespace, service, _, ""] => Some(Owner::Service(format!("{namespace}/{service}"))),
        [namespace, service, _, port] => {
            Some(Owner::Service(format!("{namespace}/{service}:{port}")))
        }
        _ => None,
    }
}

/// Returns the owner of an entry, according to its comment or to its target chain.
fn element_owner(written: &str) -> Option<Owner> {
    if let Some((_, rest)) = written.split_once(" comment \"")
        && let Some((name, _)) = rest.split_once('"')
        && name.contains('/')
    {
        return Some(Owner::Service(name.to_owned()));
    }
    let (_, chain) = written.split_once(" : goto ")?;
    service_in_name(chain)
}

fn set_owner(place: &DumpLocation, set: &Set) -> Option<Owner> {
    match place {
        DumpLocation::NftSet { table, .. } => chain_owner(table, &set.name),
        _ => None,
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
}
