//! Tests which object is at fault for packets in a tunnel: routes, neighbours and links between the
//! tunnel's ends.

use super::*;
use svclab_journey::journey::TunnelPacket;
use svclab_model::evidence::AddressPair;

const REMOTE: &str = "10.7.0.2";

/// A packet to a pod of another node, in a tunnel packet of 110 bytes.
fn carried(crossings: Vec<svclab_journey::journey::Crossing>, end: PathEnd) -> PacketPath {
    let mut flight = packet("10.244.0.2:4000", "10.244.1.9:80", crossings, end);
    let addresses = AddressPair {
        source: "10.0.0.1:40000".parse().unwrap(),
        destination: format!("{REMOTE}:8472").parse().unwrap(),
    };
    flight.hops[0].tunnel = Some(addresses);
    flight.tunnel = Some(TunnelPacket {
        addresses,
        header: PacketHeader {
            ttl: 64,
            length: 110,
            dont_fragment: false,
            destination_mac: Some(mac(21)),
        },
    });
    flight
}

/// The node as the sender: the packet has the address of its next hop and the tunnel end.
fn sending_plan() -> Plan {
    let mut plan = plan();
    node(&mut plan).neighbours.push(Neighbour {
        address: "10.244.1.0".parse().unwrap(),
        mac: mac(99),
        dev: "flannel.1".to_owned(),
    });
    node(&mut plan).forwarding.push(Forwarding {
        dev: "flannel.1".to_owned(),
        mac: mac(99),
        to: ForwardingTarget::Remote(REMOTE.parse().unwrap()),
    });
    plan
}

#[test]
fn forwarded_tunnel_packet_is_looked_up_by_its_own_addresses() {
    let mut plan = plan();
    let mut crossing = crossing("eth0", false);
    crossing.encapsulated = true;
    let flight = carried(vec![crossing], dropped("NOT_SPECIFIED", "ip_error"));
    let refusal = route("10.7.0.0/16", RouteKind::Prohibit, None);
    node(&mut plan).routes.push(refusal);
    let (kind, lookup) = route_decision(&plan, &flight);
    assert_eq!(kind, DropKind::RouteRefused);
    assert_eq!(lookup.address, REMOTE.parse::<std::net::IpAddr>().unwrap());
}

#[test]
fn gateway_to_tunnel_end_is_named_only_if_unresolved() {
    let mut plan = sending_plan();
    let crossings = vec![crossing("cni0", false), crossing("flannel.1", true)];
    let flight = carried(crossings, dropped("NEIGH_FAILED", "neigh_invalidate"));
    let gateway = Fault::Neighbour {
        address: "10.0.0.254".parse().unwrap(),
        interface: "eth0".to_owned(),
    };
    assert_eq!(
        kind_and_fault(&plan, &flight),
        (DropKind::NeighbourFailed, Some(gateway))
    );
    // The end is on the link.
    node(&mut plan).routes[0] = route("10.7.0.0/16 dev eth0", RouteKind::Unicast, None);
    let end = Fault::VxlanRemote {
        interface: "flannel.1".to_owned(),
        neighbour: "10.244.1.0".parse().unwrap(),
        address: mac(99),
        remote: REMOTE.parse().unwrap(),
    };
    assert_eq!(
        kind_and_fault(&plan, &flight),
        (DropKind::NeighbourFailed, Some(end))
    );
}

/// The kernel reports the inner packet.
#[test]
fn missing_route_to_tunnel_end_is_named() {
    let mut plan = sending_plan();
    node(&mut plan).routes.remove(0);
    let sent = |end| {
        let crossings = vec![crossing("cni0", false), crossing("flannel.1", true)];
        packet("10.244.0.2:4000", "10.244.1.9:80", crossings, end)
    };
    for function in ["vxlan_xmit_one", "some_function"] {
        let flight = sent(dropped("IP_OUTNOROUTES", function));
        let (kind, lookup) = route_decision(&plan, &flight);
        assert_eq!(kind, DropKind::NoRoute);
        assert_eq!(lookup.address, REMOTE.parse::<std::net::IpAddr>().unwrap());
    }
    let Cause::NotReceived {
        fault: Some(Fault::Route { lookup }),
        ..
    } = cause(&plan, &sent(PathEnd::NotReceived))
    else {
        panic!("no route is named");
    };
    assert_eq!(lookup.address, REMOTE.parse::<std::net::IpAddr>().unwrap());
}

#[test]
fn link_below_tunnel_is_compared_with_length_of_tunnel_packet() {
    let mut plan = sending_plan();
    plan.namespaces[1].links[0].mtu = Some(100);
    let mut sent = crossing("eth0", true);
    sent.encapsulated = true;
    let flight = carried(vec![crossing("cni0", false), sent], PathEnd::NotReceived);
    let fault = Fault::Mtu {
        namespace: "router".to_owned(),
        interface: "node-1".to_owned(),
        mtu: 100,
        length: 110,
    };
    let Cause::NotReceived { fault: named, .. } = cause(&plan, &flight) else {
        panic!("the packet was received");
    };
    assert_eq!(named, Some(fault));
}
