//! Selects the neighbours and forwarding entries that programs or people have set. The kernel creates
//! and removes all other entries itself.

use std::borrow::Cow;
use std::net::IpAddr;

use super::NodeDump;
use svclab_ruleset::Mac;
use svclab_ruleset::bridge::fdb::{self, Entry};
use svclab_ruleset::bridge::port::Ports;
use svclab_ruleset::link::{Link, Links};
use svclab_ruleset::neighbour::{Neighbour, State};
use svclab_ruleset::text::Text;

impl NodeDump {
    /// Returns the bridge ports with their settings. `ip -d link` prints all settings of a port,
    /// `bridge link` only with `-d`. `None` if neither printed a port.
    #[must_use]
    pub fn bridge_ports(&self) -> Option<Cow<'_, Ports>> {
        let links = self.kinds.iter().flatten();
        let detailed = links.filter_map(|(name, link)| Some((name, link.bridge_port.as_ref()?)));
        let mut detailed = detailed.peekable();
        match &self.ports {
            ports if detailed.peek().is_some() => {
                let mut ports = ports.clone().unwrap_or_default();
                ports.extend(detailed.map(|(name, port)| (name.clone(), port.clone())));
                Some(Cow::Owned(ports))
            }
            ports => ports.as_ref().map(Cow::Borrowed),
        }
    }

    /// Returns the neighbours that the kernel neither resolves nor creates.
    pub fn static_neighbours(&self) -> impl Iterator<Item = &Neighbour> {
        let neighbours = self.neighbours.iter().flatten();
        neighbours.filter(|neighbour| match neighbour.state {
            State::Permanent => true,
            // The kernel creates such entries for addresses and interfaces without ARP (Linux v6.12,
            // `net/ipv4/arp.c`, `arp_constructor`).
            State::NoArp => {
                let link = self.link(&neighbour.dev);
                let has_flag = |flag| link.is_some_and(|link| has_flag(link, flag));
                let is_unicast = neighbour.mac().is_some_and(|mac| !mac.is_group());
                is_unicast && !has_flag("NOARP") && !has_flag("LOOPBACK")
            }
            _ => false,
        })
    }

    /// Returns the next hops of routes that did not reply to the kernel.
    pub fn failed_next_hops(&self) -> impl Iterator<Item = &Neighbour> {
        let failed = self.neighbours.iter().flatten();
        let failed = failed.filter(|neighbour| neighbour.state.is_unanswered());
        failed.filter(|neighbour| self.is_next_hop(neighbour.address, &neighbour.dev))
    }

    /// Adds a neighbour that did not reply to the kernel.
    pub fn add_failed_neighbour(&mut self, address: IpAddr, interface: &str) {
        let neighbours = self.neighbours.get_or_insert_default();
        neighbours.push(Neighbour {
            address,
            dev: Text::new(interface),
            link_address: None,
            state: State::Failed,
            flags: Vec::new(),
            protocol: None,
            line: 0,
        });
    }

    /// Whether a route of the dump leads through a next hop.
    #[must_use]
    pub fn is_next_hop(&self, address: IpAddr, dev: &str) -> bool {
        let routes = self.routes.values().flatten();
        let mut hops =
            routes.flat_map(|route| std::iter::once(&route.attributes).chain(&route.hops));
        hops.any(|hop| {
            let via = hop
                .get("via")
                .and_then(|via| via.split_ascii_whitespace().last());
            hop.get("dev") == Some(dev) && via.and_then(|via| via.parse().ok()) == Some(address)
        })
    }

    /// Returns the forwarding entries that neither the kernel creates nor frames have taught it:
    /// those of tunnels, and those of bridges for addresses that no interface of the node has.
    pub fn static_forwarding(&self) -> impl Iterator<Item = &Entry> {
        let entries = self.forwarding.iter().flatten();
        entries.filter(|entry| {
            let is_tunnel = entry.remote.is_some() || !entry.tunnel.is_empty();
            let is_bridge = entry.bridge.is_some() && !entry.mac.is_group();
            // Each port and each bridge has such an entry for its own address.
            let is_own = || {
                let mut links = self.links.iter().flat_map(Links::values);
                self.links.is_none() || links.any(|link| link_mac(link) == Some(entry.mac))
            };
            let is_set = is_bridge && (entry.state != fdb::State::Permanent || !is_own());
            entry.is_static() && (is_tunnel || is_set)
        })
    }

    fn link(&self, name: &str) -> Option<&Link> {
        self.links.as_ref()?.get(name)
    }
}

fn has_flag(link: &Link, flag: &str) -> bool {
    link.flags.iter().any(|own| &**own == flag)
}

fn link_mac(link: &Link) -> Option<Mac> {
    link.mac.as_deref()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use svclab_ruleset::tool::Format;

    const LINKS: &str = "\
2: cni0: <BROADCAST,MULTICAST,UP> mtu 1500
    link/ether 0a:58:0a:f4:01:01 brd ff:ff:ff:ff:ff:ff
3: veth1@if3: <BROADCAST,MULTICAST,UP> mtu 1500 master cni0
    link/ether 62:99:22:6e:11:3b brd ff:ff:ff:ff:ff:ff
4: eth0: <BROADCAST,MULTICAST,UP> mtu 1500
    link/ether 02:42:c0:a8:32:0b brd ff:ff:ff:ff:ff:ff
5: kube-ipvs0: <BROADCAST,NOARP> mtu 1500
    link/ether 02:42:c0:a8:32:0c brd ff:ff:ff:ff:ff:ff
";

    #[test]
    fn static_neighbours_omit_entries_of_the_kernel() {
        let dump = NodeDump::from_texts(&[
            ("ip-addr", LINKS),
            (
                "ip-neigh",
                "\
10.0.0.1 dev eth0 lladdr 02:00:00:00:00:01 PERMANENT
10.0.0.2 dev eth0 lladdr 02:00:00:00:00:02 REACHABLE
10.0.0.3 dev eth0 FAILED
10.0.0.4 dev eth0 FAILED
10.0.0.5 dev eth0 lladdr 02:00:00:00:00:05 NOARP
224.0.0.22 dev eth0 lladdr 01:00:5e:00:00:16 NOARP
10.96.0.1 dev kube-ipvs0 lladdr 02:42:c0:a8:32:0c NOARP
",
            ),
            (
                "ip-route",
                "default via 10.0.0.3 dev eth0\n10.4.0.0/16 via 10.0.0.4 dev eth1\n",
            ),
        ]);
        let addresses: Vec<String> = dump
            .static_neighbours()
            .map(|neighbour| neighbour.address.to_string())
            .collect();
        assert_eq!(addresses, ["10.0.0.1", "10.0.0.5"]);
        let failed: Vec<u32> = dump.failed_next_hops().map(|failed| failed.line).collect();
        assert_eq!(failed, [3]);
    }

    #[test]
    fn static_forwarding_omits_entries_of_the_kernel() {
        let dump = NodeDump::from_texts(&[
            ("ip-addr", LINKS),
            (
                "bridge-fdb",
                "\
33:33:00:00:00:01 dev cni0 self permanent
0a:58:0a:f4:01:01 dev cni0 master cni0 permanent
62:99:22:6e:11:3b dev veth1 vlan 1 master cni0 permanent
0a:58:0a:f4:01:11 dev veth1 master cni0
0a:58:0a:f4:01:12 dev veth1 master cni0 static
0a:58:0a:f4:01:13 dev veth1 master cni0 permanent
01:00:5e:00:00:fb dev veth1 master cni0 static
0a:58:0a:f4:01:14 dev eth0 self permanent
7a:b2:01:02:03:04 dev flannel.1 dst 10.0.0.2 self permanent
7a:b2:01:02:03:05 dev flannel.1 dst 10.0.0.2 self
7a:b2:01:02:03:06 dev vxlan7 nhid 5 self extern_learn
",
            ),
        ]);
        let lines: Vec<u32> = dump.static_forwarding().map(|entry| entry.line).collect();
        assert_eq!(lines, [5, 6, 9, 11]);
    }

    #[test]
    fn bridge_ports_come_from_both_programs() {
        let details = "3: veth1@if3: <UP> mtu 1500 master cni0\n    veth\n    bridge_slave state forwarding isolated on\n";
        let ports = "3: veth1@if3: <UP> mtu 1500 master cni0 state forwarding priority 32 cost 2\n\
                     4: veth2@if3: <UP> mtu 1500 master cni0 state blocking priority 32 cost 2\n";
        let both = NodeDump::from_texts(&[("ip-link", details), ("bridge-link", ports)]);
        let found = both.bridge_ports().unwrap();
        assert!(found["veth1"].is_on("isolated"));
        assert_eq!(found["veth2"].setting("state"), "blocking");
        let one = NodeDump::from_texts(&[("ip-link", details)]);
        assert_eq!(one.bridge_ports().unwrap().len(), 1);
        assert!(one.has(Format::BridgePorts));
        assert_eq!(NodeDump::default().bridge_ports(), None);
    }
}
