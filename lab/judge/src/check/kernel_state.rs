//! Compares sets, virtual servers and interfaces, as read from a kernel, with expectations.

use std::collections::BTreeSet;
use std::fmt::Display;
use std::net::SocketAddr;

use crate::check::Check;
use crate::check::nft_tables;
use svclab_model::evidence::{KernelState, LinkState};
use svclab_ruleset::ipvs::VirtualServerKey;
use svclab_scenario::expectation::{LinkExpectation, SetExpectation, VirtualServerExpectation};

/// Flags of an interface with the names and in the order that `ip link` prints. `ip link` does not
/// print `RUNNING` (iproute2 v6.1, `print_link_flags` in `ip/ipaddress.c`).
const LINK_FLAGS: [(u32, &str); 16] = [
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
pub fn check_set(expected: &SetExpectation, held: &KernelState) -> Check {
    let observed = match &expected.table {
        Some(table) => nft_tables::find_set(held, table, &expected.set),
        None => parse_set(&held.sets, &expected.set),
    };
    let expected_members: BTreeSet<String> = expected.members.iter().cloned().collect();
    let (separator, table_prefix) = match &expected.table {
        Some(table) => ("; ", format!("{table} ")),
        None => (" ", String::new()),
    };
    let render = |kind: &str, members: &BTreeSet<String>| {
        let members: Vec<&str> = members.iter().map(String::as_str).collect();
        format!("{kind} {{{}}}", members.join(separator))
    };
    Check {
        target: expected.on.clone(),
        expected: format!(
            "{table_prefix}{} is {}",
            expected.set,
            render(&expected.kind, &expected_members)
        ),
        observed: observed.as_ref().map_or_else(
            || "no such set".to_owned(),
            |(kind, members)| render(kind, members),
        ),
        holds: observed == Some((expected.kind.clone(), expected_members)),
    }
}

/// Parses the type and the members of a set from the output of `ipset save`.
fn parse_set(saved: &str, set: &str) -> Option<(String, BTreeSet<String>)> {
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
pub fn check_virtual_server(expected: &VirtualServerExpectation, held: &KernelState) -> Check {
    let observed: String = held
        .ipvs
        .iter()
        .filter(|server| server_address(&server.key) == Some(expected.server))
        .map(ToString::to_string)
        .collect();
    let observed_lines: BTreeSet<&str> = observed.lines().collect();
    let expected_lines: BTreeSet<&str> = expected.is.iter().map(String::as_str).collect();
    let render = |lines: &BTreeSet<&str>| {
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
        target: expected.on.clone(),
        expected: format!("{} is {}", expected.server, render(&expected_lines)),
        observed: render(&observed_lines),
        holds: observed_lines == expected_lines,
    }
}

fn server_address(key: &VirtualServerKey) -> Option<SocketAddr> {
    match key {
        VirtualServerKey::Address { address, port, .. } => Some(SocketAddr::new(*address, *port)),
        VirtualServerKey::FwMark { .. } => None,
    }
}

/// Compares an interface with its expectation.
pub fn check_link(expected: &LinkExpectation, held: &KernelState) -> Check {
    let observed = held
        .links
        .iter()
        .find(|link| link.name == expected.on.interface);
    let wanted_flags: BTreeSet<&str> = expected.flags.iter().map(String::as_str).collect();
    let expected_addresses: BTreeSet<String> = to_strings(&expected.addresses);
    let render = |flags: &BTreeSet<&str>, addresses: &BTreeSet<String>| {
        let flags: Vec<&str> = flags.iter().copied().collect();
        format!("<{}> with {}", flags.join(","), format_set(addresses))
    };
    let observed = observed.map(|link| (link_flags(link), to_strings(&link.addresses)));
    Check {
        target: expected.on.to_string(),
        expected: render(&wanted_flags, &expected_addresses),
        observed: observed.as_ref().map_or_else(
            || "no such interface".to_owned(),
            |(flags, addresses)| render(flags, addresses),
        ),
        holds: observed == Some((wanted_flags, expected_addresses)),
    }
}

fn link_flags(link: &LinkState) -> BTreeSet<&'static str> {
    let set = LINK_FLAGS.iter().filter(|(bit, _)| link.flags & bit != 0);
    set.map(|(_, name)| *name).collect()
}

fn to_strings(items: &[impl Display]) -> BTreeSet<String> {
    items.iter().map(ToString::to_string).collect()
}

fn format_set(items: &BTreeSet<impl Display + Ord>) -> String {
    let items: Vec<String> = items.iter().map(ToString::to_string).collect();
    format!("{{{}}}", items.join(" "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use svclab_model::plan::VirtualServer;
    use svclab_ruleset::ipvs::{Forwarding, RealServer, SchedulerFlags, Transport};

    fn kernel_state() -> KernelState {
        let real = |to: &str| RealServer {
            address: to.parse().unwrap(),
            weight: 1,
            method: Forwarding::Masquerade,
        };
        KernelState {
            nft: String::new(),
            sets: "create A hash:ip,port family inet hashsize 1024 maxelem 65536\n\
                   add A 10.0.0.1,tcp:80\nadd A 10.0.0.2,tcp:80\n\
                   create B bitmap:port range 0-65535\n"
                .to_owned(),
            ipvs: vec![VirtualServer {
                key: VirtualServerKey::Address {
                    protocol: Transport::Tcp,
                    address: "10.20.0.1".parse().unwrap(),
                    port: 443,
                },
                scheduler: "rr".to_owned(),
                persistence: None,
                flags: SchedulerFlags::default(),
                servers: vec![real("10.0.0.2:6443"), real("10.0.0.1:6443")],
            }],
            links: vec![LinkState {
                name: "kube-ipvs0".to_owned(),
                flags: 0x82,
                addresses: vec!["10.20.0.1/32".parse().unwrap()],
            }],
        }
    }

    fn set_check(name: &str, kind: &str, members: &[&str]) -> Check {
        let expected = SetExpectation {
            on: "n".to_owned(),
            table: None,
            set: name.to_owned(),
            kind: kind.to_owned(),
            members: members.iter().map(|&member| member.to_owned()).collect(),
        };
        check_set(&expected, &kernel_state())
    }

    #[test]
    fn check_set_compares_type_and_members() {
        let both = ["10.0.0.2,tcp:80", "10.0.0.1,tcp:80"];
        assert!(set_check("A", "hash:ip,port", &both).holds);
        assert!(set_check("B", "bitmap:port", &[]).holds);
        let check = set_check("A", "hash:ip,port", &both[..1]);
        assert!(!check.holds);
        insta::assert_snapshot!(
            format!("{} | {}", check.expected, check.observed),
            @"A is hash:ip,port {10.0.0.2,tcp:80} | hash:ip,port {10.0.0.1,tcp:80 10.0.0.2,tcp:80}"
        );
        assert!(!set_check("A", "hash:ip", &both).holds);
        assert_eq!(set_check("C", "hash:ip", &[]).observed, "no such set");
    }

    #[test]
    fn check_virtual_server_compares_lines() {
        let check = |server: &str, is: &[&str]| {
            let expected = VirtualServerExpectation {
                on: "n".to_owned(),
                server: server.parse().unwrap(),
                is: is.iter().map(|&line| line.to_owned()).collect(),
            };
            check_virtual_server(&expected, &kernel_state())
        };
        let lines = [
            "-A -t 10.20.0.1:443 -s rr",
            "-a -t 10.20.0.1:443 -r 10.0.0.1:6443 -m -w 1",
            "-a -t 10.20.0.1:443 -r 10.0.0.2:6443 -m -w 1",
        ];
        assert!(check("10.20.0.1:443", &lines).holds);
        let partial = check("10.20.0.1:443", &lines[..2]);
        assert!(!partial.holds);
        assert!(
            partial.observed.contains("10.0.0.2"),
            "{}",
            partial.observed
        );
        assert!(check("10.20.0.1:80", &[]).holds);
        assert_eq!(check("10.20.0.1:80", &lines).observed, "no virtual server");
    }

    #[test]
    fn check_link_compares_flags_and_addresses() {
        let check = |on: &str, flags: &[&str], addresses: &[&str]| {
            let expected = LinkExpectation {
                on: on.parse().unwrap(),
                flags: flags.iter().map(|&flag| flag.to_owned()).collect(),
                addresses: addresses.iter().map(|each| each.parse().unwrap()).collect(),
            };
            check_link(&expected, &kernel_state())
        };
        let addresses = ["10.20.0.1/32"];
        assert!(check("n/kube-ipvs0", &["NOARP", "BROADCAST"], &addresses).holds);
        let up = check("n/kube-ipvs0", &["NOARP", "BROADCAST", "UP"], &addresses);
        assert!(!up.holds);
        insta::assert_snapshot!(
            format!("{} | {}", up.expected, up.observed),
            @"<BROADCAST,NOARP,UP> with {10.20.0.1/32} | <BROADCAST,NOARP> with {10.20.0.1/32}"
        );
        assert!(!check("n/kube-ipvs0", &["NOARP", "BROADCAST"], &[]).holds);
        let missing = check("n/eth0", &[], &[]);
        assert_eq!(missing.observed, "no such interface");
    }
}
