//! Faults in interfaces: neighbours, forwarding databases, ports of bridges, addresses, tunnels.

use super::{Kind, kind};
use crate::draw::{Draw, Drawn, commands};
use crate::fault::Culprit;
use crate::mode::Mode;
use crate::state::NodeState;

const AREA: &str = "links";
const TUNNEL: &str = "flannel.1";

pub(super) const KINDS: [Kind; 34] = [
    kind("neighbour-wrong-pod", AREA, Mode::ALL, wrong_pod_neighbour),
    kind(
        "neighbour-wrong-tunnel",
        AREA,
        Mode::ALL,
        wrong_tunnel_neighbour,
    ),
    kind(
        "neighbour-wrong-gateway",
        AREA,
        Mode::ALL,
        wrong_gateway_neighbour,
    ),
    kind(
        "neighbour-missing-tunnel",
        AREA,
        Mode::ALL,
        missing_neighbour,
    ),
    kind("fdb-missing", AREA, Mode::ALL, missing_fdb),
    kind("fdb-wrong-remote", AREA, Mode::ALL, wrong_fdb),
    kind("fdb-wrong-port", AREA, Mode::ALL, wrong_port_fdb),
    kind("bridge-port-isolated", AREA, Mode::ALL, |draw| {
        bridge_port(draw, "isolated on", &["isolated"])
    }),
    kind("bridge-port-without-hairpin", AREA, Mode::ALL, |draw| {
        bridge_port(draw, "hairpin off", &["hairpin"])
    }),
    kind("bridge-port-no-learning", AREA, Mode::ALL, |draw| {
        bridge_port(draw, "learning off flood off", &["learning", "flood"])
    }),
    kind("bridge-port-disabled", AREA, Mode::ALL, |draw| {
        bridge_port(draw, "state 0", &["state", "disabled"])
    }),
    kind("bridge-port-locked", AREA, Mode::ALL, |draw| {
        bridge_port(draw, "locked on", &["locked"])
    }),
    kind("bridge-port-detached", AREA, Mode::ALL, detached),
    kind("link-down-pod", AREA, Mode::ALL, down_pod),
    kind("link-down-bridge", AREA, Mode::ALL, |draw| {
        down(draw, "cni0")
    }),
    kind("link-down-tunnel", AREA, Mode::ALL, |draw| {
        down(draw, TUNNEL)
    }),
    kind("link-down-uplink", AREA, Mode::ALL, |draw| {
        down(draw, "eth0")
    }),
    kind("link-mtu-pod", AREA, Mode::ALL, mtu_pod),
    kind("link-mtu-tunnel", AREA, Mode::ALL, |draw| mtu(draw, TUNNEL)),
    kind("link-mtu-uplink", AREA, Mode::ALL, |draw| mtu(draw, "eth0")),
    kind(
        "link-wrong-hardware-address",
        AREA,
        Mode::ALL,
        hardware_address,
    ),
    kind("address-missing-tunnel", AREA, Mode::ALL, |draw| {
        missing_address(draw, TUNNEL)
    }),
    kind("address-missing-bridge", AREA, Mode::ALL, |draw| {
        missing_address(draw, "cni0")
    }),
    kind("address-extra-loopback", AREA, Mode::ALL, extra_address),
    kind(
        "address-extra-service",
        AREA,
        Mode::ALL,
        extra_service_address,
    ),
    kind("tunnel-wrong-vni", AREA, Mode::ALL, |draw| {
        tunnel(draw, "id 77", "dstport 8472", &["id 77", "77", "vni"])
    }),
    kind("tunnel-wrong-port", AREA, Mode::ALL, |draw| {
        tunnel(draw, "id 1", "dstport 4789", &["4789", "dstport", "port"])
    }),
    kind("tunnel-wrong-local", AREA, Mode::ALL, wrong_local),
    kind("tunnel-missing", AREA, Mode::ALL, missing_tunnel),
    kind("tunnel-ipip", AREA, Mode::ALL, ipip),
    kind("bridge-vlan-filtering", AREA, Mode::ALL, vlan_filtering),
    kind("pod-route-missing", AREA, Mode::ALL, |_| in_pod()),
    kind("pod-mtu", AREA, Mode::ALL, |_| in_pod()),
    kind("pod-neighbour-wrong", AREA, Mode::ALL, |_| in_pod()),
];

/// Locally administered hardware address that no interface has.
const NOBODY: &str = "0a:58:00:00:00:99";

fn pick_neighbour(
    draw: &mut Draw<'_>,
    node: &NodeState,
    device: &str,
) -> Result<(String, String, String), String> {
    let all = node
        .neighbours()
        .into_iter()
        .filter(|(_, on, _)| on == device);
    draw.pick(all.collect(), &format!("neighbour on {device}"))
}

fn wrong_neighbour(draw: &mut Draw<'_>, node: &NodeState, device: &str) -> Drawn {
    let (address, device, _) = pick_neighbour(draw, node, device)?;
    let command = format!("ip neigh replace {address} lladdr {NOBODY} dev {device} nud permanent");
    let culprit = Culprit::neighbour(&node.name, &address, &device).or_exact([NOBODY]);
    Ok(commands(&node.name, &[command], vec![culprit]))
}

fn wrong_pod_neighbour(draw: &mut Draw<'_>) -> Drawn {
    let node = draw.node()?;
    wrong_neighbour(draw, node, "cni0")
}

fn wrong_tunnel_neighbour(draw: &mut Draw<'_>) -> Drawn {
    let node = draw.node()?;
    wrong_neighbour(draw, node, TUNNEL)
}

fn wrong_gateway_neighbour(draw: &mut Draw<'_>) -> Drawn {
    let node = draw.node()?;
    wrong_neighbour(draw, node, "eth0")
}

fn missing_neighbour(draw: &mut Draw<'_>) -> Drawn {
    let node = draw.node()?;
    let (address, device, _) = pick_neighbour(draw, node, TUNNEL)?;
    let command = format!("ip neigh del {address} dev {device}");
    Ok(commands(
        &node.name,
        &[command],
        vec![Culprit::neighbour(&node.name, &address, &device)],
    ))
}

fn pick_fdb(draw: &mut Draw<'_>, node: &NodeState) -> Result<(String, String), String> {
    draw.pick(
        node.tunnel_entries(TUNNEL),
        "entry in the tunnel's forwarding database",
    )
}

fn missing_fdb(draw: &mut Draw<'_>) -> Drawn {
    let node = draw.node()?;
    let (hardware, remote) = pick_fdb(draw, node)?;
    let command = format!("bridge fdb del {hardware} dev {TUNNEL}");
    Ok(commands(
        &node.name,
        &[command],
        vec![Culprit::fdb(&node.name, TUNNEL, &[&hardware, &remote])],
    ))
}

fn wrong_fdb(draw: &mut Draw<'_>) -> Drawn {
    let node = draw.node()?;
    let (hardware, _) = pick_fdb(draw, node)?;
    let remote = format!("192.168.9.{}", 2 + draw.random.below(200));
    let command = format!("bridge fdb replace {hardware} dev {TUNNEL} dst {remote}");
    Ok(commands(
        &node.name,
        &[command],
        vec![Culprit::fdb(&node.name, TUNNEL, &[&hardware, &remote])],
    ))
}

fn wrong_port_fdb(draw: &mut Draw<'_>) -> Drawn {
    let node = draw.client_node()?;
    let (_, _, hardware) = pick_neighbour(draw, node, "cni0")?;
    let port = draw.pick(node.bridge_ports(), "port of a bridge")?;
    let command = format!("bridge fdb replace {hardware} dev {port} master static");
    Ok(commands(
        &node.name,
        &[command],
        vec![Culprit::fdb(&node.name, &port, &[&hardware])],
    ))
}

fn bridge_port(draw: &mut Draw<'_>, setting: &str, names: &[&str]) -> Drawn {
    let node = draw.client_node()?;
    let ports = node.bridge_ports();
    let port = draw.pick(ports.clone(), "port of a bridge")?;
    let mut all = vec![format!("bridge link set dev {port} {setting}")];
    let mut culprits = vec![Culprit::link(&node.name, &port, names)];
    if setting.starts_with("isolated") {
        // Only packets between two isolated ports are dropped.
        let other = draw.pick(ports, "port of a bridge")?;
        all.push(format!("bridge link set dev {other} {setting}"));
        culprits.push(Culprit::link(&node.name, &other, names));
    }
    Ok(commands(&node.name, &all, culprits))
}

fn detached(draw: &mut Draw<'_>) -> Drawn {
    let node = draw.client_node()?;
    let port = draw.pick(node.bridge_ports(), "port of a bridge")?;
    let culprit = Culprit::link(&node.name, &port, &["master", "bridge", "nomaster"]);
    Ok(commands(
        &node.name,
        &[format!("ip link set {port} nomaster")],
        vec![culprit],
    ))
}

fn down_pod(draw: &mut Draw<'_>) -> Drawn {
    let node = draw.client_node()?;
    let port = draw.pick(node.bridge_ports(), "port of a bridge")?;
    let culprit = Culprit::link(&node.name, &port, &["down", "up", "state"]);
    Ok(commands(
        &node.name,
        &[format!("ip link set {port} down")],
        vec![culprit],
    ))
}

fn down(draw: &mut Draw<'_>, device: &str) -> Drawn {
    let node = draw.node()?;
    let culprit = Culprit::link(&node.name, device, &["down", "up", "state"]);
    Ok(commands(
        &node.name,
        &[format!("ip link set {device} down")],
        vec![culprit],
    ))
}

fn mtu_pod(draw: &mut Draw<'_>) -> Drawn {
    let node = draw.client_node()?;
    let port = draw.pick(node.bridge_ports(), "port of a bridge")?;
    let culprit = Culprit::link(&node.name, &port, &["mtu"]);
    Ok(commands(
        &node.name,
        &[format!("ip link set {port} mtu 68")],
        vec![culprit],
    ))
}

fn mtu(draw: &mut Draw<'_>, device: &str) -> Drawn {
    let node = draw.node()?;
    let culprit = Culprit::link(&node.name, device, &["mtu"]);
    Ok(commands(
        &node.name,
        &[format!("ip link set {device} mtu 68")],
        vec![culprit],
    ))
}

fn hardware_address(draw: &mut Draw<'_>) -> Drawn {
    let node = draw.node()?;
    let device = draw.pick_text(&[TUNNEL, "eth0"]);
    let command = format!("ip link set {device} address 0a:58:00:00:00:98");
    let culprit = Culprit::link(
        &node.name,
        device,
        &["hardware address", "0a:58:00:00:00:98"],
    );
    let fault = commands(&node.name, &[command], vec![culprit]);
    // A dump does not show which address the neighbours of the node expect. Those of a tunnel take it
    // from the objects.
    Ok(if device == TUNNEL {
        fault
    } else {
        fault.only_in_comparison()
    })
}

fn missing_address(draw: &mut Draw<'_>, device: &str) -> Drawn {
    let node = draw.client_node()?;
    let addresses = node.addresses().into_iter().filter(|(_, on)| on == device);
    let address = draw
        .pick(addresses.collect(), &format!("address of {device}"))?
        .0;
    let bare = address.split('/').next().unwrap_or(&address);
    let culprit = Culprit::address(&node.name, bare, device).or_near([device]);
    Ok(commands(
        &node.name,
        &[format!("ip addr del {address} dev {device}")],
        vec![culprit],
    ))
}

fn extra_address(draw: &mut Draw<'_>) -> Drawn {
    let node = draw.client_node()?;
    let endpoint = draw.endpoint(node)?;
    let culprit = Culprit::address(&node.name, &endpoint, "lo");
    Ok(commands(
        &node.name,
        &[format!("ip addr add {endpoint}/32 dev lo")],
        vec![culprit],
    ))
}

fn extra_service_address(draw: &mut Draw<'_>) -> Drawn {
    let node = draw.node()?;
    let (pod, _, _) = pick_neighbour(draw, node, "cni0")?;
    let culprit = Culprit::address(&node.name, &pod, "eth0");
    Ok(commands(
        &node.name,
        &[format!("ip addr add {pod}/32 dev eth0")],
        vec![culprit],
    ))
}

/// Replaces the tunnel by one with another property, and restores its addresses, neighbours and
/// routes.
fn rebuild(node: &NodeState, peer: &NodeState, properties: &str, names: &[&str]) -> Drawn {
    let mut all = vec![
        format!("ip link del {TUNNEL}"),
        format!("ip link add {TUNNEL} type vxlan {properties} dev eth0 nolearning"),
    ];
    let own = peer
        .neighbours()
        .into_iter()
        .find(|(_, device, _)| device == TUNNEL);
    let (_, _, hardware) = own.ok_or("the other node does not know the tunnel")?;
    all.push(format!("ip link set {TUNNEL} address {hardware} mtu 1450"));
    for (address, _) in node
        .addresses()
        .into_iter()
        .filter(|(_, device)| device == TUNNEL)
    {
        all.push(format!("ip addr add {address} dev {TUNNEL}"));
    }
    all.push(format!("ip link set {TUNNEL} up"));
    for (address, device, hardware) in node.neighbours() {
        if device == TUNNEL {
            all.push(format!(
                "ip neigh add {address} lladdr {hardware} dev {TUNNEL} nud permanent"
            ));
        }
    }
    for (hardware, remote) in node.tunnel_entries(TUNNEL) {
        all.push(format!(
            "bridge fdb append {hardware} dev {TUNNEL} dst {remote}"
        ));
    }
    for route in node
        .routes()
        .iter()
        .filter(|route| route.rest.contains(TUNNEL))
    {
        all.push(format!("ip route add {} {}", route.destination, route.rest));
    }
    let mut fault = commands(
        &node.name,
        &all,
        vec![Culprit::link(&node.name, TUNNEL, names)],
    );
    fault.summary = format!("{}: {TUNNEL} has {properties}", node.name);
    Ok(fault)
}

/// Returns the address of the node's uplink.
fn uplink_address(node: &NodeState) -> Result<String, String> {
    let address = node
        .addresses()
        .into_iter()
        .find(|(_, device)| device == "eth0");
    let (address, _) = address.ok_or("the node has no address on eth0")?;
    Ok(address.split('/').next().unwrap_or(&address).to_owned())
}

fn tunnel(draw: &mut Draw<'_>, id: &str, port: &str, names: &[&str]) -> Drawn {
    let node = draw.node()?;
    let peer = draw
        .state
        .other_node(&node.name)
        .ok_or("the lab has one node")?;
    let local = uplink_address(node)?;
    rebuild(node, peer, &format!("{id} {port} local {local}"), names)
}

fn wrong_local(draw: &mut Draw<'_>) -> Drawn {
    let node = draw.node()?;
    let peer = draw
        .state
        .other_node(&node.name)
        .ok_or("the lab has one node")?;
    rebuild(
        node,
        peer,
        "id 1 dstport 8472 local 192.168.9.9",
        &["local", "192.168.9.9"],
    )
}

fn missing_tunnel(draw: &mut Draw<'_>) -> Drawn {
    let node = draw.node()?;
    let culprit = Culprit::link(&node.name, TUNNEL, &["missing", "link", "interface"]);
    Ok(commands(
        &node.name,
        &[format!("ip link del {TUNNEL}")],
        vec![culprit],
    ))
}

/// Sends packets to the other node's pods into a tunnel that its node does not have.
fn ipip(draw: &mut Draw<'_>) -> Drawn {
    let node = draw.client_node()?;
    let peer = draw
        .state
        .other_node(&node.name)
        .ok_or("the lab has one node")?;
    let (local, remote) = (uplink_address(node)?, uplink_address(peer)?);
    let endpoint = draw.endpoint(node)?;
    let all = [
        format!("ip link add tunl9 type ipip local {local} remote {remote}"),
        "ip link set tunl9 up".to_owned(),
        format!("ip route add {endpoint}/32 dev tunl9"),
    ];
    let culprits = vec![
        Culprit::route(&node.name, &endpoint),
        Culprit::link(&node.name, "tunl9", &["ipip", "tunnel"]),
    ];
    Ok(commands(&node.name, &all, culprits))
}

fn vlan_filtering(draw: &mut Draw<'_>) -> Drawn {
    let node = draw.client_node()?;
    let port = draw.pick(node.bridge_ports(), "port of a bridge")?;
    let all = [
        "ip link set cni0 type bridge vlan_filtering 1".to_owned(),
        format!("bridge vlan del dev {port} vid 1"),
    ];
    let culprits = vec![
        Culprit::link(&node.name, "cni0", &["vlan_filtering", "vlan"]),
        Culprit::link(&node.name, &port, &["vlan"]),
    ];
    Ok(commands(&node.name, &all, culprits))
}

fn in_pod() -> Drawn {
    Err("a lab has commands of nodes (`byHand`), not of pods".to_owned())
}
