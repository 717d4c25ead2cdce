//! Compares virtual servers and their real servers. Their order is ignored, because `ipvsadm` sorts
//! them.

use std::fmt::Write as _;
use std::net::SocketAddr;

use super::super::difference::{DumpChange, DumpLocation, Side};
use super::super::lists::{self, ListItem};
use super::{Comparison, union_of_names, value_change};
use svclab_ruleset::ipvs::Forwarding;
use svclab_ruleset::ipvs::saved::{SavedRealServer, SavedVirtualServer, Servers};

pub(super) fn compare(comparison: &mut Comparison<'_>, first: &Servers, second: &Servers) {
    for key in union_of_names(first.keys(), second.keys()) {
        let changes = match (first.get(key), second.get(key)) {
            (Some(a), Some(b)) => server_changes(a, b),
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

fn whole_server_changes(server: &SavedVirtualServer, only: Side) -> Vec<DumpChange> {
    let line = server.line;
    let servers = server.servers.iter().map(|(to, server)| DumpChange::Item {
        only,
        item: render_server(*to, server),
        line: server.line,
    });
    std::iter::once(DumpChange::Whole { only, line })
        .chain(servers)
        .collect()
}

fn server_changes(first: &SavedVirtualServer, second: &SavedVirtualServer) -> Vec<DumpChange> {
    let persistence = |server: &SavedVirtualServer| server.persistence.map(|p| p.to_string());
    let one_packet = |server: &SavedVirtualServer| if server.one_packet { "yes" } else { "no" };
    let mut changes: Vec<DumpChange> = [
        value_change("scheduler", Some(&first.scheduler), Some(&second.scheduler)),
        value_change(
            "scheduler flags",
            flags(first).as_deref(),
            flags(second).as_deref(),
        ),
        value_change(
            "persistence",
            persistence(first).as_deref(),
            persistence(second).as_deref(),
        ),
        value_change(
            "netmask",
            first.netmask.as_deref(),
            second.netmask.as_deref(),
        ),
        value_change(
            "persistence engine",
            first.engine.as_deref(),
            second.engine.as_deref(),
        ),
        value_change(
            "one-packet scheduling",
            Some(one_packet(first)),
            Some(one_packet(second)),
        ),
    ]
    .into_iter()
    .flatten()
    .collect();
    changes.extend(lists::compare(&server_items(first), &server_items(second)));
    changes
}

/// Returns the flags of a scheduler. `None` without flags.
fn flags(server: &SavedVirtualServer) -> Option<String> {
    let names = server.flag_names();
    (!names.is_empty()).then(|| names.join(","))
}

fn server_items(server: &SavedVirtualServer) -> Vec<ListItem> {
    let servers = server.servers.iter();
    let mut items: Vec<ListItem> = servers
        .map(|(to, server)| ListItem::from_text(render_server(*to, server), server.line))
        .collect();
    items.sort_by(|a, b| a.key.cmp(&b.key));
    items
}

/// Renders a real server as `ipvsadm` does. A tunnel without a kind is ipip: ipvsadm before 1.30
/// supported no other kind.
fn render_server(to: SocketAddr, server: &SavedRealServer) -> String {
    let forwarding = match server.forwarding {
        Forwarding::Masquerade => "-m",
        Forwarding::Route => "-g",
        Forwarding::Tunnel => "-i",
    };
    let mut text = format!("-r {to} {forwarding} -w {}", server.weight);
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
