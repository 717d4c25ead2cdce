//! Compares two nftables rulesets by their meaning. The order of tables, sets, chains and entries
//! and the notation of rules ([`canonical()`]) are ignored; the order of rules within a chain is
//! significant.

use indexmap::IndexSet;

use crate::difference::{Change, Difference, Owner, Place, Side};
use crate::lists::{self, Item};
use svclab_ruleset::nft::canonical;
use svclab_ruleset::nft::{Chain, Element, Hook, Other, Ruleset, Set, Table};

/// Default maximum number of entries of a set to which rules add entries. (Linux v6.12,
/// `nft_dynset_init` in `net/netfilter/nft_dynset.c`.)
const DYNAMIC_SIZE: u64 = 65_535;

/// Returns the differences of `second` from `first`.
#[must_use]
pub fn compare(first: &Ruleset, second: &Ruleset) -> Vec<Difference> {
    let mut found = Found(Vec::new());
    let named = |table: &Table| format!("{} {}", table.family, table.name);
    for (name, pair) in pairs(&first.tables, &second.tables, named) {
        let place = Place::NftTable {
            table: name.clone(),
        };
        let (one, other) = match pair {
            Pair::Both(one, other) => (one, other),
            Pair::One(only, table) => {
                let line = table.line;
                found.add(&place, Change::Whole { only, line }, None);
                let empty = Table::default();
                match only {
                    Side::First => parts(&mut found, &name, table, &empty),
                    Side::Second => parts(&mut found, &name, &empty, table),
                }
                continue;
            }
        };
        found.value(
            &place,
            "comment",
            one.comment.as_ref(),
            other.comment.as_ref(),
        );
        found.value(&place, "flags", one.flags.as_ref(), other.flags.as_ref());
        parts(&mut found, &name, one, other);
    }
    found.0
}

/// Compares the contents of two tables with the same name.
fn parts(found: &mut Found, table: &str, one: &Table, other: &Table) {
    for (name, pair) in pairs(&one.sets, &other.sets, |set| set.name.clone()) {
        let place = Place::NftSet {
            table: table.to_owned(),
            name,
        };
        set(found, &place, &pair);
    }
    for (chain, pair) in pairs(&one.chains, &other.chains, |chain| chain.name.clone()) {
        let place = Place::Chain {
            program: PROGRAM.to_owned(),
            table: table.to_owned(),
            chain: chain.clone(),
        };
        let owner = owner_of(table, &chain);
        rules(found, &place, &pair, owner.as_ref());
    }
    let place = Place::NftTable {
        table: table.to_owned(),
    };
    let others = |others: &[Other]| -> Vec<Item> {
        let items = others.iter().map(|other| {
            let body = other.body.iter().map(|line| canonical(line));
            let key = format!(
                "{} {{ {} }}",
                other.head,
                body.collect::<Vec<_>>().join("; ")
            );
            Item::plain(key, other.line)
        });
        let mut items: Vec<Item> = items.collect();
        items.sort_by(|a, b| a.key.cmp(&b.key));
        items
    };
    for change in lists::compare(&others(&one.others), &others(&other.others)) {
        found.add(&place, change, None);
    }
}

/// Program that prints rulesets.
const PROGRAM: &str = "nft list ruleset";

struct Found(Vec<Difference>);

impl Found {
    fn add(&mut self, place: &Place, change: Change, owner: Option<Owner>) {
        self.0.push(Difference {
            place: place.clone(),
            change,
            owner,
        });
    }

    fn value<T: ToString + PartialEq>(
        &mut self,
        place: &Place,
        what: &str,
        first: Option<&T>,
        second: Option<&T>,
    ) {
        if first != second {
            let change = Change::Value {
                what: what.to_owned(),
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
    let by_name = |all: &'n [N]| -> std::collections::HashMap<String, &'n N> {
        all.iter().map(|one| (name(one), one)).collect()
    };
    let (one, other) = (by_name(first), by_name(second));
    let names: IndexSet<String> = first.iter().chain(second).map(&name).collect();
    let pair = |name: String| {
        let pair = match (one.get(&name), other.get(&name)) {
            (Some(a), Some(b)) => Pair::Both(*a, *b),
            (Some(a), None) => Pair::One(Side::First, *a),
            (None, Some(b)) => Pair::One(Side::Second, *b),
            (None, None) => return None,
        };
        Some((name, pair))
    };
    names.into_iter().filter_map(pair).collect()
}

fn set(found: &mut Found, place: &Place, pair: &Pair<'_, Set>) {
    let empty = Set::default();
    let (one, other) = match *pair {
        Pair::Both(one, other) => {
            let kind = |set: &Set| if set.map { "map" } else { "set" };
            found.value(place, "kind", Some(&kind(one)), Some(&kind(other)));
            let holds = |set: &Set| canonical(&set.holds);
            found.value(place, "holds", Some(&holds(one)), Some(&holds(other)));
            found.value(place, "flags", flags(one).as_ref(), flags(other).as_ref());
            let seconds = |set: &Set| set.timeout.map(|timeout| format!("{timeout}s"));
            let (a, b) = (seconds(one), seconds(other));
            found.value(place, "timeout", a.as_ref(), b.as_ref());
            found.value(place, "size", size(one).as_ref(), size(other).as_ref());
            found.value(
                place,
                "comment",
                one.comment.as_ref(),
                other.comment.as_ref(),
            );
            let properties = |set: &Set| {
                let mut all = set.properties.clone();
                all.sort_unstable();
                (!all.is_empty()).then(|| all.join("; "))
            };
            let (a, b) = (properties(one), properties(other));
            found.value(place, "properties", a.as_ref(), b.as_ref());
            (one, other)
        }
        Pair::One(only, set) => {
            let line = set.line;
            found.add(
                place,
                Change::Whole { only, line },
                owner_of_set(place, set),
            );
            match only {
                Side::First => (set, &empty),
                Side::Second => (&empty, set),
            }
        }
    };
    if one.elements == other.elements {
        return;
    }
    let entries = |set: &Set| -> Vec<Item> {
        let items = set.elements.iter().map(|element| Item {
            key: meaning(element),
            written: element.to_string(),
            line: element.line,
        });
        let mut items: Vec<Item> = items.collect();
        items.sort_by(|a, b| a.key.cmp(&b.key));
        items
    };
    for change in lists::compare(&entries(one), &entries(other)) {
        let owner = match &change {
            Change::Item { item, .. } => owner_of_element(item),
            _ => None,
        };
        let owner = owner.or_else(|| owner_of_set(place, one));
        found.add(place, change, owner);
    }
}

/// Returns the canonical text of an entry, including its comment.
fn meaning(element: &Element) -> String {
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

fn rules(found: &mut Found, place: &Place, pair: &Pair<'_, Chain>, owner: Option<&Owner>) {
    let empty = Chain::default();
    let before = found.0.len();
    let (one, other) = match *pair {
        Pair::Both(one, other) => {
            let of = |chain: &Chain, what: fn(&Hook) -> String| chain.hook.as_ref().map(what);
            let hook: fn(&Hook) -> String = |hook| {
                let Hook {
                    kind,
                    hook,
                    device,
                    priority,
                    ..
                } = hook;
                let all = format!("{kind} {hook} {device}");
                format!("{} priority {priority}", all.trim_end())
            };
            let policy: fn(&Hook) -> String = |hook| hook.policy.clone();
            for (what, of_hook) in [("hook", hook), ("policy", policy)] {
                let (a, b) = (of(one, of_hook), of(other, of_hook));
                found.value(place, what, a.as_ref(), b.as_ref());
            }
            found.value(
                place,
                "comment",
                one.comment.as_ref(),
                other.comment.as_ref(),
            );
            (one, other)
        }
        Pair::One(only, chain) => {
            let line = chain.line;
            found.add(place, Change::Whole { only, line }, None);
            match only {
                Side::First => (chain, &empty),
                Side::Second => (&empty, chain),
            }
        }
    };
    let written =
        |chain: &Chain| -> Vec<String> { chain.rules.iter().map(ToString::to_string).collect() };
    let (a, b) = (written(one), written(other));
    if a != b {
        let items = |chain: &Chain, written: Vec<String>| -> Vec<Item> {
            let rules = chain.rules.iter().zip(written);
            rules
                .map(|(rule, written)| Item {
                    key: format!(
                        "{} \"{}\"",
                        canonical(&rule.text),
                        rule.comment.as_deref().unwrap_or_default()
                    ),
                    written,
                    line: rule.line,
                })
                .collect()
        };
        for change in lists::compare(&items(one, a), &items(other, b)) {
            found.add(place, change, None);
        }
    }
    for difference in &mut found.0[before..] {
        difference.owner = owner.cloned();
    }
}

/// Returns the owner of a chain by its name: a service or, in kube-proxy's table, kube-proxy.
fn owner_of(table: &str, chain: &str) -> Option<Owner> {
    let own = table.ends_with(" kube-proxy");
    let component = own.then(|| Owner::Component("kube-proxy".to_owned()));
    service_of(chain).or(component)
}

/// Returns the service port in a name such as `service-HASH-default/web/tcp/http`.
fn service_of(name: &str) -> Option<Owner> {
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
fn owner_of_element(written: &str) -> Option<Owner> {
    if let Some((_, rest)) = written.split_once(" comment \"")
        && let Some((name, _)) = rest.split_once('"')
        && name.contains('/')
    {
        return Some(Owner::Service(name.to_owned()));
    }
    let (_, chain) = written.split_once(" : goto ")?;
    service_of(chain)
}

fn owner_of_set(place: &Place, set: &Set) -> Option<Owner> {
    match place {
        Place::NftSet { table, .. } => owner_of(table, &set.name),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use svclab_ruleset::nft::parse;

    #[test]
    fn what_is_read_can_be_written_and_read_again() {
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

    fn told(first: &str, second: &str) -> Vec<String> {
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
    fn order_counts_for_rules_only() {
        let first = "set a {\ntype ipv4_addr\nelements = { 10.0.0.1, 10.0.0.2 }\n}\n\
            chain one {\nreturn\n}\nchain two {\nip saddr 10.0.0.1 drop\naccept\n}";
        let second = "chain two {\naccept\nip saddr 10.0.0.1 drop\n}\nchain one {\nreturn\n}\n\
            set a {\ntype ipv4_addr\nelements = { 10.0.0.2,\n10.0.0.1 }\n}";
        assert_eq!(
            told(first, second),
            ["nft ip kube-proxy two: ~ ip saddr 10.0.0.1 drop (kube-proxy)"]
        );
    }

    #[test]
    fn what_differs_is_told_with_whose_it_is() {
        let first = "map m {\ntype inet_service : verdict\nelements = { 80 comment \"ns/web:p\" : drop }\n}\n\
            set s {\ntype ipv4_addr\nflags dynamic\n}\n\
            chain service-ABCDEFGH-ns/web/tcp/p {\ndrop\n}\n\
            chain nat {\ntype nat hook output priority dstnat; policy accept;\n}";
        let second = "map m {\ntype inet_service : verdict\nelements = { 81 : goto local-ABCDEFGH-ns/web/tcp/p }\n}\n\
            set s {\ntype ipv4_addr\nflags dynamic\nsize 65535\ntimeout 3h\n}\n\
            chain nat {\ntype nat hook output priority -99; policy accept;\n}\n\
            chain endpoint-ABCDEFGH-ns/web/tcp/__10.0.0.1/80 {\ndrop\n}";
        insta::assert_snapshot!(told(first, second).join("\n"));
    }
}
