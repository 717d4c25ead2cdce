//! Compares virtual servers and their real servers. Their order is ignored, because `ipvsadm` sorts
//! them. A property that the source of one side does not print is not compared.

use std::fmt::Write as _;
use std::net::SocketAddr;

use super::super::difference::{DumpChange, DumpLocation, Side};
use super::super::lists::{self, ListItem};
use super::{Comparison, union_of_names, value_change};
use svclab_ruleset::ipvs::saved::{SavedRealServer, SavedVirtualServer, ServerSource, Servers};
use svclab_ruleset::ipvs::{Forwarding, VirtualServerKey};

pub(super) fn compare(comparison: &mut Comparison<'_>, first: &Servers, second: &Servers) {
    for key in union_of_names(first.keys(), second.keys()) {
        let changes = match (first.get(key), second.get(key)) {
            (Some(a), Some(b)) => server_changes(a, b, is_v6(key)),
            (Some(server), None) => whole_server_changes(server, Side::First),
            (None, Some(server)) => whole_server_changes(server, Side::Second),
            (None, None) => continue,
        };
        for change in changes {
            let owner = comparison.owners().server_owner(key);
            let server = key.to_string();
            comparison.add_difference(DumpLocation::Server { server }, change, owner);
        }
    }
}

fn is_v6(key: &VirtualServerKey) -> bool {
    matches!(key, VirtualServerKey::Address { address, .. } if address.is_ipv6())
}

fn whole_server_changes(server: &SavedVirtualServer, only: Side) -> Vec<DumpChange> {
    let line = server.line;
    let servers = server.servers.iter().map(|(to, server)| DumpChange::Item {
        only,
        item: render_server(*to, server, true),
        line: server.line,
    });
    std::iter::once(DumpChange::Whole { only, line })
        .chain(servers)
        .collect()
}

/// Returns the differences of two virtual servers of the same key. `is_v6` is whether their key is
/// an address of IPv6.
fn server_changes(
    first: &SavedVirtualServer,
    second: &SavedVirtualServer,
    is_v6: bool,
) -> Vec<DumpChange> {
    let persistence = |server: &SavedVirtualServer| server.persistence.map(|p| p.to_string());
    let one_packet = |server: &SavedVirtualServer| if server.one_packet { "yes" } else { "no" };
    let mut changes = vec![value_change(
        "scheduler",
        Some(&first.scheduler),
        Some(&second.scheduler),
    )];
    let has_equal_persistence = match (first.persistence, second.persistence) {
        (Some(first), Some(second)) => first.may_equal(second),
        (first, second) => first == second,
    };
    if !has_equal_persistence {
        changes.push(value_change(
            "persistence",
            persistence(first).as_deref(),
            persistence(second).as_deref(),
        ));
    }
    changes.push(value_change(
        "netmask",
        first.netmask.as_deref(),
        second.netmask.as_deref(),
    ));
    let source = first.source.min(second.source);
    if source > ServerSource::Proc {
        changes.extend([
            value_change(
                "scheduler flags",
                flags(first).as_deref(),
                flags(second).as_deref(),
            ),
            value_change(
                "persistence engine",
                first.engine.as_deref(),
                second.engine.as_deref(),
            ),
        ]);
    }
    if source > ServerSource::Proc || !is_v6 {
        changes.push(value_change(
            "one-packet scheduling",
            Some(one_packet(first)),
            Some(one_packet(second)),
        ));
    }
    let mut changes: Vec<DumpChange> = changes.into_iter().flatten().collect();
    let items = |server| server_items(server, source == ServerSource::Saved);
    changes.extend(lists::compare(&items(first), &items(second)));
    changes
}

/// Returns the flags of a scheduler. `None` without flags.
fn flags(server: &SavedVirtualServer) -> Option<String> {
    let names = server.flag_names();
    (!names.is_empty()).then(|| names.join(","))
}

fn server_items(server: &SavedVirtualServer, has_details: bool) -> Vec<ListItem> {
    let servers = server.servers.iter();
    let mut items: Vec<ListItem> = servers
        .map(|(to, server)| {
            ListItem::from_text(render_server(*to, server, has_details), server.line)
        })
        .collect();
    items.sort_by(|a, b| a.key.cmp(&b.key));
    items
}

/// Renders a real server as `ipvsadm` does. A tunnel without a kind is ipip: ipvsadm before 1.30
/// supported no other kind. `has_details` is whether to render tunnels and thresholds, which only
/// `ipvsadm -Sn` prints.
fn render_server(to: SocketAddr, server: &SavedRealServer, has_details: bool) -> String {
    let forwarding = match server.forwarding {
        Forwarding::Masquerade => "-m",
        Forwarding::Route => "-g",
        Forwarding::Tunnel => "-i",
    };
    let mut text = format!("-r {to} {forwarding} -w {}", server.weight);
    if !has_details {
        return text;
    }
    let tunnel = server.tunnel.as_deref().unwrap_or("--tun-type ipip");
    if server.forwarding == Forwarding::Tunnel {
        text.push(' ');
        text.push_str(
            &tunnel
                .split_ascii_whitespace()
                .collect::<Vec<_>>()
                .join(" "),
        );
    }
    let (upper, lower) = server.thresholds;
    if upper != 0 || lower != 0 {
        let _ = write!(text, " -x {upper} -y {lower}");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::super::super::node::NodeDump;
    use super::super::compare;

    const SAVED: &str = "-A -t 10.96.0.1:443 -s mh -p 10800 -b mh-port --pe sip\n\
        -a -t 10.96.0.1:443 -r 192.168.50.11:6443 -i -w 1 -x 9 -y 5 --tun-type gre --tun-csum\n";
    const LISTED: &str = "Prot LocalAddress:Port Scheduler Flags\n\
        TCP  10.96.0.1:443 mh (mh-port) persistent 10800 pe sip\n  -> 192.168.50.11:6443 Tunnel 1 0 0\n";
    const PROC: &str = "Prot LocalAddress:Port Scheduler Flags\n\
        TCP  0A600001:01BB mh  persistent 10800000 FFFFFFFF\n\
        \x20 -> C0A8320B:192B      Tunnel  1      3          0         \n";

    fn describe(files: [&[&str]; 2]) -> Vec<String> {
        let dumps = files.map(|texts| {
            let names = ["a.ipvsadm-Sn", "b.ipvsadm-Sn"];
            let files: Vec<_> = names.into_iter().zip(texts.iter().copied()).collect();
            NodeDump::from_texts(&files)
        });
        let differences = compare(&dumps[0], &dumps[1]);
        differences.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn compare_servers_of_all_sources_are_equal() {
        for first in [SAVED, LISTED, PROC] {
            for second in [SAVED, LISTED, PROC] {
                assert_eq!(describe([&[first], &[second]]), [""; 0]);
            }
        }
        let both: &[&str] = &[PROC, SAVED];
        assert_eq!(describe([both, &[SAVED]]), [""; 0]);
    }

    #[test]
    fn compare_servers_of_proc_reports_differences() {
        for (from, to) in [
            ("0A600001:01BB", "0A600001:01BC"),
            ("C0A8320B:192B", "C0A8320C:192B"),
            ("Tunnel", "Route"),
            (" 1      3", " 2      3"),
            (" mh ", " sh "),
            ("10800000", "10900000"),
            ("FFFFFFFF", "FFFFFF00"),
            (" mh ", " mh ops"),
        ] {
            let changed = PROC.replace(from, to);
            assert_ne!(changed, PROC);
            for other in [SAVED, LISTED, PROC] {
                assert_ne!(describe([&[other], &[&changed]]), [""; 0], "{to}");
            }
        }
        let counted = PROC.replace("3          0", "7          9");
        assert_eq!(describe([&[PROC], &[&counted]]), [""; 0]);
    }
}
