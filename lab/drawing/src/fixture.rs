//! Topologies and ways for tests.

use std::net::{IpAddr, Ipv4Addr};

use crate::topology::{Interface, InterfaceKind, LoadBalancer, Node, Place, Router, Topology};
use crate::way::{AddressRewrite, Crossing, Visit, Way, WayEnd};

pub fn veth(name: &str, namespace: &str, peer: &str) -> Interface {
    Interface {
        name: name.to_owned(),
        kind: InterfaceKind::Veth {
            namespace: namespace.to_owned(),
            interface: peer.to_owned(),
        },
        addresses: Vec::new(),
        bridge: None,
        is_down: false,
    }
}

fn with_address(interface: Interface, address: [u8; 4]) -> Interface {
    Interface {
        addresses: vec![IpAddr::from(address)],
        ..interface
    }
}

fn place(namespace: &str, interfaces: Vec<Interface>) -> Place {
    Place {
        namespace: namespace.to_owned(),
        title: namespace.trim_start_matches("pod/").to_owned(),
        interfaces,
    }
}

/// Returns a cluster with a host, a load balancer and nodes with flannel, each with these pods.
pub fn cluster(nodes: u8, pods: u8) -> Topology {
    let node_name = |node: u8| format!("node-{node}");
    let pod_name = |node: u8, pod: u8| format!("pod/default/web-{node}-{pod}");
    let mut fabric = vec![veth("laptop", "laptop", "eth0")];
    let mut all = Vec::new();
    for node in 1..=nodes {
        fabric.push(veth(&node_name(node), &node_name(node), "eth0"));
        let eth0 = with_address(veth("eth0", "fabric", &node_name(node)), [192, 0, 2, node]);
        let own = |name: &str, kind: InterfaceKind| Interface {
            kind,
            ..veth(name, "", "")
        };
        let mut interfaces = vec![
            eth0,
            own("flannel.1", InterfaceKind::Tunnel),
            own("cni0", InterfaceKind::Bridge),
        ];
        let mut inside = Vec::new();
        for pod in 1..=pods {
            let port = format!("veth{pod}");
            interfaces.push(Interface {
                bridge: Some("cni0".to_owned()),
                ..veth(&port, &pod_name(node, pod), "eth0")
            });
            let eth0 = with_address(veth("eth0", &node_name(node), &port), [10, 244, node, pod]);
            inside.push(place(&pod_name(node, pod), vec![eth0]));
        }
        all.push(Node {
            place: place(&node_name(node), interfaces),
            pods: inside,
            host_pods: Vec::new(),
        });
    }
    let laptop = with_address(veth("eth0", "fabric", "laptop"), [203, 0, 113, 9]);
    Topology {
        hosts: vec![place("laptop", vec![laptop])],
        routers: vec![Router {
            place: place("fabric", fabric),
            balancers: vec![LoadBalancer {
                name: "lb".to_owned(),
                addresses: vec![IpAddr::V4(Ipv4Addr::new(198, 51, 100, 7))],
            }],
        }],
        nodes: all,
    }
}

/// Returns a visit that crosses interfaces: `<eth0` in, `>cni0` out, `<~eth0` in inside a tunnel.
pub fn visit(namespace: &str, crossings: &str) -> Visit {
    let crossings = crossings.split_whitespace().map(|text| {
        let (is_out, name) = (text.starts_with('>'), &text[1..]);
        Crossing {
            interface: name.trim_start_matches('~').to_owned(),
            is_out,
            is_encapsulated: name.starts_with('~'),
        }
    });
    Visit {
        namespace: namespace.to_owned(),
        crossings: crossings.collect(),
        rewrites: Vec::new(),
        is_balanced: false,
    }
}

/// Request from the laptop to a pod of another node than the one that it enters, and the reply.
pub fn ways() -> Vec<Way> {
    let translated = Visit {
        rewrites: vec![AddressRewrite {
            is_source: false,
            address: "10.244.2.1:80".parse().expect("an address"),
        }],
        ..visit("node-1", "<eth0 >flannel.1 >~eth0")
    };
    let request = Way {
        is_request: true,
        label: "Request",
        visits: vec![
            visit("laptop", ">eth0"),
            visit("fabric", "<laptop >node-1"),
            translated,
            visit("fabric", "<~node-1 >~node-2"),
            visit("node-2", "<~eth0 <flannel.1 >cni0 >veth1"),
            visit("pod/default/web-2-1", "<eth0"),
        ],
        end: WayEnd::Delivered,
        reason: Vec::new(),
    };
    let reply = Way {
        is_request: false,
        label: "Reply",
        visits: vec![
            visit("pod/default/web-2-1", ">eth0"),
            visit("node-2", "<veth1 <cni0 >eth0"),
            visit("fabric", "<node-2"),
        ],
        end: WayEnd::Stopped,
        reason: vec!["dropped by filter FORWARD rule 1".to_owned()],
    };
    vec![request, reply]
}

/// Returns the same ways with addresses that every place rewrites.
pub fn rewritten() -> Vec<Way> {
    let mut ways = ways();
    for visit in ways.iter_mut().flat_map(|way| &mut way.visits) {
        let address = |is_source: bool, address: &str| AddressRewrite {
            is_source,
            address: address.parse().expect("an address"),
        };
        visit.rewrites = match visit.namespace.as_str() {
            "laptop" | "fabric" => vec![address(false, "198.51.100.17:30080")],
            _ => vec![
                address(true, "[fd00:10:244:1:8d5f:22ff:fe3a:1001]:40004"),
                address(false, "10.244.2.1:80"),
            ],
        };
    }
    ways
}

/// Returns the beginnings of ways with every end, with and without reasons.
pub fn endings(ways: &[Way]) -> Vec<Way> {
    let reason = [
        "dropped by the kernel: IP_RPFILTER",
        "in ip_rcv_finish_core",
    ];
    let reason: Vec<String> = reason.map(str::to_owned).to_vec();
    let ends = [
        (WayEnd::Delivered, Vec::new()),
        (WayEnd::Stopped, reason.clone()),
        (WayEnd::Lost, reason),
        (WayEnd::Unknown, Vec::new()),
    ];
    let beginnings = ways.iter().flat_map(|way| {
        let counts = 1..=way.visits.len();
        counts.map(|count| Way {
            visits: way.visits[..count].to_vec(),
            ..way.clone()
        })
    });
    let all = beginnings.flat_map(|way| {
        ends.clone().map(|(end, reason)| Way {
            end,
            reason,
            ..way.clone()
        })
    });
    all.collect()
}

/// Adds the internet with load balancers between the laptop and the fabric.
pub fn with_internet(mut topology: Topology, balancers: u8) -> Topology {
    let laptop = &mut topology.hosts[0];
    laptop.interfaces = vec![with_address(
        veth("eth0", "internet", "laptop"),
        [203, 0, 113, 9],
    )];
    topology.routers[0].place.interfaces[0] = veth("internet", "internet", "fabric");
    let links = vec![
        veth("laptop", "laptop", "eth0"),
        veth("fabric", "fabric", "internet"),
    ];
    let balancers = (1..=balancers).map(|number| LoadBalancer {
        name: format!("public-{number}"),
        addresses: vec![IpAddr::from([198, 51, 100, number])],
    });
    let internet = Router {
        place: place("internet", links),
        balancers: balancers.collect(),
    };
    topology.routers.insert(0, internet);
    topology
}

/// Returns ways through the internet, where IPVS selects a node.
pub fn through_internet(ways: Vec<Way>) -> Vec<Way> {
    let ways = ways.into_iter().map(|mut way| {
        if way.is_request {
            way.visits[1] = Visit {
                is_balanced: true,
                ..visit("internet", "<laptop >fabric")
            };
            let fabric = visit("fabric", "<internet >node-1");
            way.visits.insert(2, fabric);
        }
        way
    });
    ways.collect()
}
