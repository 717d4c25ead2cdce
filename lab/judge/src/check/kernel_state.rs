//! Compares sets, virtual servers and interfaces, as read from a kernel, with expectations.

use std::collections::BTreeSet;
use std::net::SocketAddr;

use crate::check::{Check, LinkContent, SetContent, nft_tables};
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
pub(crate) fn check_set(expected: &SetExpectation, state: &KernelState) -> Check {
    Check::Set {
        observed: match &expected.table {
            Some(table) => nft_tables::find_set(state, table, &expected.set),
            None => parse_set(&state.sets, &expected.set),
        },
        expected: expected.clone(),
    }
}

/// Parses the type and the members of a set from the output of `ipset save`.
fn parse_set(saved: &str, set: &str) -> Option<SetContent> {
    let mut found: Option<SetContent> = None;
    for line in saved.lines() {
        let mut words = line.split_ascii_whitespace();
        match (words.next(), words.next(), words.next()) {
            (Some("create"), Some(name), Some(kind)) if name == set => {
                found = Some(SetContent {
                    kind: kind.to_owned(),
                    members: BTreeSet::new(),
                });
            }
            (Some("add"), Some(name), Some(member)) if name == set => {
                found.as_mut()?.members.insert(member.to_owned());
            }
            _ => {}
        }
    }
    found
}

/// Compares a virtual server with its expectation.
pub(crate) fn check_virtual_server(
    expected: &VirtualServerExpectation,
    state: &KernelState,
) -> Check {
    let servers = state.ipvs.iter();
    let text: String = servers
        .filter(|server| server_address(&server.key) == Some(expected.server))
        .map(ToString::to_string)
        .collect();
    Check::VirtualServer {
        expected: expected.clone(),
        lines: text.lines().map(str::to_owned).collect(),
    }
}

fn server_address(key: &VirtualServerKey) -> Option<SocketAddr> {
    match key {
        VirtualServerKey::Address { address, port, .. } => Some(SocketAddr::new(*address, *port)),
        VirtualServerKey::FwMark { .. } => None,
    }
}

/// Compares an interface with its expectation.
pub(crate) fn check_link(expected: &LinkExpectation, state: &KernelState) -> Check {
    let mut links = state.links.iter();
    let link = links.find(|link| link.name == expected.on.interface);
    Check::Link {
        expected: expected.clone(),
        observed: link.map(|link| LinkContent {
            flags: link_flags(link),
            addresses: link.addresses.iter().copied().collect(),
        }),
    }
}

fn link_flags(link: &LinkState) -> BTreeSet<String> {
    let set = LINK_FLAGS.iter().filter(|(bit, _)| link.flags & bit != 0);
    set.map(|(_, name)| (*name).to_owned()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use svclab_model::plan::VirtualServer;
    use svclab_ruleset::Protocol;
    use svclab_ruleset::ipvs::{Forwarding, RealServer, SchedulerFlags};

    fn kernel_state() -> KernelState {
        let real = |to: &str| RealServer {
            address: to.parse().unwrap(),
            weight: 1,
            method: Forwarding::Masquerade,
        };
        KernelState {
            sets: "create A hash:ip,port family inet hashsize 1024 maxelem 65536\n\
                   add A 10.0.0.1,tcp:80\nadd A 10.0.0.2,tcp:80\n\
                   create B bitmap:port range 0-65535\n"
                .to_owned(),
            ipvs: vec![VirtualServer {
                key: VirtualServerKey::Address {
                    protocol: Protocol::Tcp,
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
                ..LinkState::default()
            }],
            ..KernelState::default()
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
        assert!(set_check("A", "hash:ip,port", &both).holds());
        assert!(set_check("B", "bitmap:port", &[]).holds());
        assert!(!set_check("A", "hash:ip,port", &both[..1]).holds());
        assert!(!set_check("A", "hash:ip", &both).holds());
        let missing = set_check("C", "hash:ip", &[]);
        assert!(!missing.holds());
        assert!(matches!(missing, Check::Set { observed: None, .. }));
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
        assert!(check("10.20.0.1:443", &lines).holds());
        assert!(!check("10.20.0.1:443", &lines[..2]).holds());
        assert!(check("10.20.0.1:80", &[]).holds());
        assert!(!check("10.20.0.1:80", &lines).holds());
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
        assert!(check("n/kube-ipvs0", &["NOARP", "BROADCAST"], &addresses).holds());
        assert!(!check("n/kube-ipvs0", &["NOARP", "BROADCAST", "UP"], &addresses).holds());
        assert!(!check("n/kube-ipvs0", &["NOARP", "BROADCAST"], &[]).holds());
        let missing = check("n/eth0", &[], &[]);
        assert!(!missing.holds());
        assert!(matches!(missing, Check::Link { observed: None, .. }));
    }
}
