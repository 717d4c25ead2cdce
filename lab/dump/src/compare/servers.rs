//! Compares virtual servers and their real servers. Their order is ignored, because `ipvsadm` sorts
//! them.

use std::fmt::Write as _;
use std::net::SocketAddr;

use super::super::difference::{Change, Place, Side};
use super::super::lists::{self, Item};
use super::{Comparison, names, value};
use svclab_ruleset::ipvs::Forwarding;
use svclab_ruleset::ipvs::saved::{RealServer, Servers, VirtualServer};

pub(super) fn compare(to: &mut Comparison<'_>, first: &Servers, second: &Servers) {
    for takes in names(first.keys(), second.keys()) {
        let changes = match (first.get(takes), second.get(takes)) {
            (Some(a), Some(b)) => both(a, b),
            (Some(server), None) => whole(server, Side::First),
            (None, Some(server)) => whole(server, Side::Second),
            (None, None) => continue,
        };
        for change in changes {
            let owner = to.owners().of_server(takes);
            let server = takes.to_string();
            to.differ(Place::Server { server }, change, owner);
        }
    }
}

fn whole(server: &VirtualServer, only: Side) -> Vec<Change> {
    let line = server.line;
    let servers = server.servers.iter().map(|(to, server)| Change::Item {
        only,
        item: written(*to, server),
        line: server.line,
    });
    std::iter::once(Change::Whole { only, line })
        .chain(servers)
        .collect()
}

fn both(first: &VirtualServer, second: &VirtualServer) -> Vec<Change> {
    let persistence = |server: &VirtualServer| server.persistence.map(|p| p.to_string());
    let one_packet = |server: &VirtualServer| if server.one_packet { "yes" } else { "no" };
    let mut changes: Vec<Change> = [
        value("scheduler", Some(&first.scheduler), Some(&second.scheduler)),
        value(
            "scheduler flags",
            flags(first).as_deref(),
            flags(second).as_deref(),
        ),
        value(
            "persistence",
            persistence(first).as_deref(),
            persistence(second).as_deref(),
        ),
        value(
            "netmask",
            first.netmask.as_deref(),
            second.netmask.as_deref(),
        ),
        value(
            "persistence engine",
            first.engine.as_deref(),
            second.engine.as_deref(),
        ),
        value(
            "one packet",
            Some(one_packet(first)),
            Some(one_packet(second)),
        ),
    ]
    .into_iter()
    .flatten()
    .collect();
    changes.extend(lists::compare(&items(first), &items(second)));
    changes
}

/// Returns the flags of a scheduler, sorted, because `ipvsadm` prints them in its own order.
fn flags(server: &VirtualServer) -> Option<String> {
    let mut flags: Vec<&str> = server.flags.as_deref()?.split(',').collect();
    flags.sort_unstable();
    Some(flags.join(","))
}

fn items(server: &VirtualServer) -> Vec<Item> {
    let servers = server.servers.iter();
    let mut items: Vec<Item> = servers
        .map(|(to, server)| Item::plain(written(*to, server), server.line))
        .collect();
    items.sort_by(|a, b| a.key.cmp(&b.key));
    items
}

/// Renders a real server as `ipvsadm` does. A tunnel without a kind is ipip: ipvsadm before 1.30
/// supported no other kind.
fn written(to: SocketAddr, server: &RealServer) -> String {
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
