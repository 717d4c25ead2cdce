//! Changes interfaces, routes, neighbours and forwarding entries of a running lab. The kernel then has
//! the same state as in a lab that was built in this state.

use std::collections::BTreeSet;

use svclab_model::plan::{
    Forwarding, ForwardingTarget, Link, LinkKind, Mac, Namespace, Neighbour, Plan, PortSettings,
    Route, RouteKind, RouteSettings,
};
use svclab_planner::delta::diff;
use svclab_runner::kernel::{KernelError, Session};
use svclab_test_support::programs::with_agent;

/// Changes of the node. Each makes a state of its own.
const STATES: [fn(&mut Namespace); 12] = [
    |_| {},
    |node| node.links[1].addresses.clear(),
    // Without any address of IPv4, the kernel removes routes and neighbours of IPv4.
    |node| {
        node.links[0].addresses = addresses(&["fd00::1/64"]);
        node.routes.retain(|route| route.dev != "eth0");
        node.neighbours.push(neighbour("fd00::9", "eth0"));
    },
    // Another first address of the subnet.
    |node| node.links[0].addresses = addresses(&["10.0.0.2/24", "10.0.0.1/24"]),
    |node| node.links[0].addresses = addresses(&["10.0.0.2/24"]),
    // The kernel removes routes and neighbours of an interface that is down.
    |node| {
        node.links[0].down = true;
        node.routes.retain(|route| route.dev != "eth0");
        node.neighbours.retain(|neighbour| neighbour.dev != "eth0");
    },
    |node| {
        node.links[1].down = true;
        node.routes.retain(|route| route.dev != "flannel.1");
        node.neighbours.retain(|own| own.dev != "flannel.1");
    },
    // Too small for the tunnel.
    |node| node.links[0].mtu = Some(1400),
    |node| {
        node.routes[1].kind = RouteKind::Blackhole;
        node.routes[1].via = None;
        node.routes[1].dev.clear();
        node.routes[1].onlink = false;
    },
    |node| {
        node.routes[1].metric = Some(7);
        node.routes[1].settings = RouteSettings {
            tos: Some(0x10),
            mtu: Some(1400),
            mtu_locked: true,
            advertised_mss: Some(1200),
            hop_limit: Some(3),
            ..RouteSettings::default()
        };
        node.routes.push(Route {
            table: Some(200),
            ..node.routes[1].clone()
        });
    },
    |node| {
        node.neighbours[1].mac = Mac::from_names("node-3", "flannel.1");
        node.forwarding.clear();
    },
    |node| {
        node.routes.clear();
        node.neighbours.clear();
        node.forwarding.clear();
    },
];

/// Lists the state of a network.
const LISTS: &str = "\
ip -o link
ip -o addr
ip -4 route show table all
ip -6 route show table all
ip neigh show nud permanent
bridge fdb show dev flannel.1
";

#[test]
fn change_of_network_gives_network_built_anew() {
    with_agent(async |agent| {
        let mut wanted = Vec::new();
        for state in STATES {
            let mut session = agent.build(plan(state)).await?;
            wanted.push(list(&mut session).await?);
            session.remove().await?;
        }
        let mut current = plan(STATES[0]);
        let mut session = agent.build_changeable(current.clone()).await?;
        for first in 0..STATES.len() {
            // Each pair of states is a change in both directions.
            for second in first + 1..STATES.len() {
                for index in [first, second] {
                    let next = plan(STATES[index]);
                    let delta = diff(&current, &next).expect("a change of the running lab");
                    session.change(delta).await?;
                    let listed = list(&mut session).await?;
                    assert_eq!(listed, wanted[index], "{first} to {second}");
                    current = next;
                }
            }
        }
        session.remove().await
    })
    .expect("every state is possible");
}

/// Returns the lines of all lists, without what changes with time: the kernel checks whether addresses
/// of IPv6 are unique, and only then adds routes of those that it made.
async fn list(session: &mut Session) -> Result<BTreeSet<String>, KernelError> {
    let listed = session.run("node-1", "sh", &["-ec", LISTS], "").await?;
    assert!(listed.success, "{}", listed.stderr);
    let lines = listed.stdout.lines();
    let stable = lines.filter(|line| !line.contains("fe80::"));
    let stable = stable.map(|line| {
        let words = line.split_ascii_whitespace();
        // An interface that never was up has another queue than one that was.
        let words = words.filter(|word| !["tentative", "noop", "noqueue"].contains(word));
        words.collect::<Vec<_>>().join(" ")
    });
    Ok(stable.collect())
}

/// Returns a node with a tunnel to another node, in a state.
fn plan(change: fn(&mut Namespace)) -> Plan {
    let remote = Mac::from_names("node-2", "flannel.1");
    let mut node = Namespace {
        name: "node-1".to_owned(),
        links: vec![
            link("node-1", "eth0", "fabric", &["10.0.0.1/24", "10.0.0.2/24"]),
            Link {
                kind: LinkKind::Vxlan {
                    vni: 1,
                    port: 8472,
                    dev: "eth0".to_owned(),
                    local: "10.0.0.1".parse().expect("an address"),
                },
                mtu: Some(1450),
                ..link("node-1", "flannel.1", "", &["10.1.0.0/32"])
            },
        ],
        routes: vec![
            route("0.0.0.0/0", "10.0.0.254", "eth0"),
            route("10.1.1.0/24", "10.1.1.0", "flannel.1"),
        ],
        neighbours: vec![
            neighbour("10.0.0.254", "eth0"),
            Neighbour {
                mac: remote,
                ..neighbour("10.1.1.0", "flannel.1")
            },
        ],
        forwarding: vec![Forwarding {
            dev: "flannel.1".to_owned(),
            mac: remote,
            to: ForwardingTarget::Remote("10.0.0.9".parse().expect("an address")),
        }],
        ..Namespace::default()
    };
    node.links[0].mtu = Some(1500);
    change(&mut node);
    let fabric = Namespace {
        name: "fabric".to_owned(),
        links: vec![link("fabric", "eth0", "node-1", &["10.0.0.254/24"])],
        ..Namespace::default()
    };
    Plan {
        namespaces: vec![node, fabric],
        ..Plan::default()
    }
}

fn link(namespace: &str, name: &str, other: &str, own: &[&str]) -> Link {
    Link {
        name: name.to_owned(),
        kind: LinkKind::Veth {
            namespace: other.to_owned(),
            peer: "eth0".to_owned(),
        },
        mac: Mac::from_names(namespace, name),
        addresses: addresses(own),
        bridge: None,
        port: PortSettings::default(),
        down: false,
        mtu: None,
    }
}

fn addresses(texts: &[&str]) -> Vec<ipnetwork::IpNetwork> {
    let parsed = texts.iter().map(|text| text.parse());
    parsed.collect::<Result<_, _>>().expect("addresses")
}

fn route(to: &str, via: &str, dev: &str) -> Route {
    Route {
        via: Some(via.parse().expect("an address")),
        onlink: true,
        ..Route::new(to.parse().expect("a network"), dev)
    }
}

fn neighbour(address: &str, dev: &str) -> Neighbour {
    Neighbour {
        address: address.parse().expect("an address"),
        mac: Mac::from_names("fabric", "eth0"),
        dev: dev.to_owned(),
    }
}
