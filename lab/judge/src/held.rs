//! Compares sets, virtual servers and interfaces, as read from a kernel, with expectations.

use std::collections::BTreeSet;
use std::fmt::Display;
use std::net::SocketAddr;

use super::check::Check;
use super::tables;
use svclab_model::evidence::{Held, HeldLink};
use svclab_ruleset::ipvs::Virtual;
use svclab_scenario::expectation::{LinkExpectation, SetExpectation, VirtualServerExpectation};

/// Flags of an interface with the names and in the order that `ip link` prints. `ip link` does not
/// print `RUNNING` (iproute2 v6.1, `print_link_flags` in `ip/ipaddress.c`).
const FLAGS: [(u32, &str); 16] = [
    (1 << 3, "LOOPBACK"),
    (1 << 1, "BROADCAST"),
    (1 << 4, "POINTOPOINT"),
    (1 << 12, "MULTICAST"),
    (1 << 7, "NOARP"),
    (1 << 9, "ALLMULTI"),
    (1 << 8, "PROMISC"),
    (1 << 10, "MASTER"),
    (1 << 11, "SLAVE"),
    (1 << 2, "DEBUG"),
    (1 << 15, "DYNAMIC"),
    (1 << 14, "AUTOMEDIA"),
    (1 << 13, "PORTSEL"),
    (1 << 0, "UP"),
    (1 << 16, "LOWER_UP"),
    (1 << 17, "DORMANT"),
];

/// Compares a set with its expectation.
pub fn set(expected: &SetExpectation, held: &Held) -> Check {
    let seen = match &expected.table {
        Some(table) => tables::set_of(held, table, &expected.set),
        None => set_of(&held.sets, &expected.set),
    };
    let wanted: BTreeSet<String> = expected.members.iter().cloned().collect();
    let (between, of) = match &expected.table {
        Some(table) => ("; ", format!("{table} ")),
        None => (" ", String::new()),
    };
    let words = |kind: &str, members: &BTreeSet<String>| {
        let members: Vec<&str> = members.iter().map(String::as_str).collect();
        format!("{kind} {{{}}}", members.join(between))
    };
    Check {
        on: expected.on.clone(),
        expected: format!("{of}{} is {}", expected.set, words(&expected.kind, &wanted)),
        observed: seen.as_ref().map_or_else(
            || "there is no such set".to_owned(),
            |(kind, members)| words(kind, members),
        ),
        holds: seen == Some((expected.kind.clone(), wanted)),
    }
}

/// Parses the type and the members of a set from the output of `ipset save`.
fn set_of(saved: &str, set: &str) -> Option<(String, BTreeSet<String>)> {
    let mut found: Option<(String, BTreeSet<String>)> = None;
    for line in saved.lines() {
        let mut words = line.split_ascii_whitespace();
        match (words.next(), words.next(), words.next()) {
            (Some("create"), Some(name), Some(kind)) if name == set => {
                found = Some((kind.to_owned(), BTreeSet::new()));
            }
            (Some("add"), Some(name), Some(member)) if name == set => {
                found.as_mut()?.1.insert(member.to_owned());
            }
            _ => {}
        }
    }
    found
}

/// Compares a virtual server with its expectation.
pub fn virtual_server(expected: &VirtualServerExpectation, held: &Held) -> Check {
    let seen: String = held
        .ipvs
        .iter()
        .filter(|server| address(&server.takes) == Some(expected.server))
        .map(ToString::to_string)
        .collect();
    let seen: BTreeSet<&str> = seen.lines().collect();
    let wanted: BTreeSet<&str> = expected.is.iter().map(String::as_str).collect();
    let words = |lines: &BTreeSet<&str>| {
        if lines.is_empty() {
            "no virtual server".to_owned()
        } else {
            lines
                .iter()
                .map(|line| format!("`{line}`"))
                .collect::<Vec<_>>()
                .join(" ")
        }
    };
    Check {
        on: expected.on.clone(),
        expected: format!("{} is {}", expected.server, words(&wanted)),
        observed: words(&seen),
        holds: seen == wanted,
    }
}

fn address(takes: &Virtual) -> Option<SocketAddr> {
    match takes {
        Virtual::Address { address, port, .. } => Some(SocketAddr::new(*address, *port)),
        Virtual::FwMark { .. } => None,
    }
}

/// Compares an interface with its expectation.
pub fn link(expected: &LinkExpectation, held: &Held) -> Check {
    let seen = held
        .links
        .iter()
        .find(|link| link.name == expected.on.interface);
    let wanted_flags: BTreeSet<&str> = expected.flags.iter().map(String::as_str).collect();
    let wanted: BTreeSet<String> = texts(&expected.addresses);
    let words = |flags: &BTreeSet<&str>, addresses: &BTreeSet<String>| {
        let flags: Vec<&str> = flags.iter().copied().collect();
        format!("<{}> with {}", flags.join(","), braced(addresses))
    };
    let seen = seen.map(|link| (flags(link), texts(&link.addresses)));
    Check {
        on: expected.on.to_string(),
        expected: words(&wanted_flags, &wanted),
        observed: seen.as_ref().map_or_else(
            || "there is no such interface".to_owned(),
            |(flags, addresses)| words(flags, addresses),
        ),
        holds: seen == Some((wanted_flags, wanted)),
    }
}

fn flags(link: &HeldLink) -> BTreeSet<&'static str> {
    let set = FLAGS.iter().filter(|(bit, _)| link.flags & bit != 0);
    set.map(|(_, name)| *name).collect()
}

fn texts(items: &[impl Display]) -> BTreeSet<String> {
    items.iter().map(ToString::to_string).collect()
}

fn braced(items: &BTreeSet<impl Display + Ord>) -> String {
    let items: Vec<String> = items.iter().map(ToString::to_string).collect();
    format!("{{{}}}", items.join(" "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use svclab_model::plan::VirtualServer;
    use svclab_ruleset::ipvs::{Forwarding, RealServer, SchedulerFlags, Transport};

    fn held() -> Held {
        let real = |to: &str| RealServer {
            to: to.parse().unwrap(),
            weight: 1,
            forwarding: Forwarding::Masquerade,
        };
        Held {
            nft: String::new(),
            sets: "create A hash:ip,port family inet hashsize 1024 maxelem 65536\n\
                   add A 10.0.0.1,tcp:80\nadd A 10.0.0.2,tcp:80\n\
                   create B bitmap:port range 0-65535\n"
                .to_owned(),
            ipvs: vec![VirtualServer {
                takes: Virtual::Address {
                    protocol: Transport::Tcp,
                    address: "10.20.0.1".parse().unwrap(),
                    port: 443,
                },
                scheduler: "rr".to_owned(),
                persistence: None,
                flags: SchedulerFlags::default(),
                servers: vec![real("10.0.0.2:6443"), real("10.0.0.1:6443")],
            }],
            links: vec![HeldLink {
                name: "kube-ipvs0".to_owned(),
                flags: 0x82,
                addresses: vec!["10.20.0.1/32".parse().unwrap()],
            }],
        }
    }

    fn of_set(name: &str, kind: &str, members: &[&str]) -> Check {
        let expected = SetExpectation {
            on: "n".to_owned(),
            table: None,
            set: name.to_owned(),
            kind: kind.to_owned(),
            members: members.iter().map(|&member| member.to_owned()).collect(),
        };
        set(&expected, &held())
    }

    #[test]
    fn a_set_is_its_type_and_its_members() {
        let both = ["10.0.0.2,tcp:80", "10.0.0.1,tcp:80"];
        assert!(of_set("A", "hash:ip,port", &both).holds);
        assert!(of_set("B", "bitmap:port", &[]).holds);
        let one = of_set("A", "hash:ip,port", &both[..1]);
        assert!(!one.holds);
        insta::assert_snapshot!(
            format!("{} | {}", one.expected, one.observed),
            @"A is hash:ip,port {10.0.0.2,tcp:80} | hash:ip,port {10.0.0.1,tcp:80 10.0.0.2,tcp:80}"
        );
        assert!(!of_set("A", "hash:ip", &both).holds);
        assert_eq!(of_set("C", "hash:ip", &[]).observed, "there is no such set");
    }

    #[test]
    fn a_virtual_server_is_its_lines() {
        let ask = |server: &str, is: &[&str]| {
            let expected = VirtualServerExpectation {
                on: "n".to_owned(),
                server: server.parse().unwrap(),
                is: is.iter().map(|&line| line.to_owned()).collect(),
            };
            virtual_server(&expected, &held())
        };
        let lines = [
            "-A -t 10.20.0.1:443 -s rr",
            "-a -t 10.20.0.1:443 -r 10.0.0.1:6443 -m -w 1",
            "-a -t 10.20.0.1:443 -r 10.0.0.2:6443 -m -w 1",
        ];
        assert!(ask("10.20.0.1:443", &lines).holds);
        let less = ask("10.20.0.1:443", &lines[..2]);
        assert!(!less.holds);
        assert!(less.observed.contains("10.0.0.2"), "{}", less.observed);
        assert!(ask("10.20.0.1:80", &[]).holds);
        assert_eq!(ask("10.20.0.1:80", &lines).observed, "no virtual server");
    }

    #[test]
    fn an_interface_is_its_flags_and_its_addresses() {
        let ask = |on: &str, flags: &[&str], addresses: &[&str]| {
            let expected = LinkExpectation {
                on: on.parse().unwrap(),
                flags: flags.iter().map(|&flag| flag.to_owned()).collect(),
                addresses: addresses.iter().map(|each| each.parse().unwrap()).collect(),
            };
            link(&expected, &held())
        };
        let own = ["10.20.0.1/32"];
        assert!(ask("n/kube-ipvs0", &["NOARP", "BROADCAST"], &own).holds);
        let up = ask("n/kube-ipvs0", &["NOARP", "BROADCAST", "UP"], &own);
        assert!(!up.holds);
        insta::assert_snapshot!(
            format!("{} | {}", up.expected, up.observed),
            @"<BROADCAST,NOARP,UP> with {10.20.0.1/32} | <BROADCAST,NOARP> with {10.20.0.1/32}"
        );
        assert!(!ask("n/kube-ipvs0", &["NOARP", "BROADCAST"], &[]).holds);
        let none = ask("n/eth0", &[], &[]);
        assert_eq!(none.observed, "there is no such interface");
    }
}
