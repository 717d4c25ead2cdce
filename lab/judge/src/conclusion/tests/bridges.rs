//! Tests which bridge or bridge port is at fault.

use super::*;

#[test]
fn bridge_without_port_names_hairpin_or_port() {
    let mut plan = plan();
    let drop = |to: &str| {
        let crossings = vec![crossing("veth-a", false)];
        let end = dropped("NOT_SPECIFIED", "br_forward");
        packet("10.244.0.2:4000", &format!("{to}:80"), crossings, end)
    };
    let (to_itself, to_other) = (drop("10.244.0.2"), drop("10.244.0.3"));
    let (bridge, port) = ("cni0".to_owned(), "veth-a".to_owned());
    assert_eq!(
        kind_and_fault(&plan, &to_itself),
        (
            DropKind::BridgeNoPort,
            Some(Fault::Hairpin {
                bridge: bridge.clone(),
                port: port.clone()
            })
        )
    );
    node(&mut plan).links[3].port.hairpin = true;
    let with_hairpin = Fault::BridgePort {
        bridge: bridge.clone(),
        port,
        down: false,
    };
    assert_eq!(kind_and_fault(&plan, &to_itself).1, Some(with_hairpin));
    node(&mut plan).links[4].down = true;
    let is_down = Fault::BridgePort {
        bridge,
        port: "veth-b".to_owned(),
        down: true,
    };
    assert_eq!(kind_and_fault(&plan, &to_other).1, Some(is_down));
    assert_eq!(kind_and_fault(&plan, &drop("10.244.0.9")).1, None);
}

#[test]
fn bridge_frame_to_its_sender_names_sender() {
    let plan = plan();
    for function in ["br_handle_frame_finish", "br_forward"] {
        let crossings = vec![crossing("veth-a", false)];
        let end = dropped("NOT_SPECIFIED", function);
        let mut flight = packet("10.244.0.2:4000", "10.244.0.3:80", crossings, end);
        flight.header.as_mut().unwrap().destination_mac = Some(mac(31));
        let fault = Fault::ReturnedFrame {
            sender: InterfaceName::new("pod-a", "eth0"),
            address: mac(31),
            without_arp: false,
        };
        assert_eq!(kind_and_fault(&plan, &flight).1, Some(fault));
        // Bridge netfilter translated the destination to the sender.
        flight.hops[0].after.destination = "10.244.0.2:80".parse().unwrap();
        let fault = kind_and_fault(&plan, &flight).1;
        assert!(matches!(fault, Some(Fault::Hairpin { .. })), "{fault:?}");
    }
}

#[test]
fn bridge_port_of_bridge_that_is_down_names_bridge() {
    let mut plan = plan();
    let drop = |reason| {
        let crossings = vec![crossing("veth-a", false)];
        let end = dropped(reason, "br_handle_frame");
        packet("10.244.0.2:4000", "10.244.0.3:80", crossings, end)
    };
    let of_state = drop("BRIDGE_INGRESS_STP_STATE");
    assert_eq!(
        kind_and_fault(&plan, &of_state),
        (DropKind::BridgePortState, None)
    );
    node(&mut plan).links[2].down = true;
    let down = || Fault::Down {
        interface: InterfaceName::new("node-1", "cni0"),
    };
    assert_eq!(kind_and_fault(&plan, &of_state).1, Some(down()));
    assert_eq!(
        kind_and_fault(&plan, &drop("NOT_SPECIFIED")),
        (DropKind::BridgeIngress, Some(down()))
    );
}

#[test]
fn disabled_bridge_port_is_named_at_both_ends() {
    let mut plan = plan();
    let drop = |reason, function| {
        let crossings = vec![crossing("veth-a", false)];
        let end = dropped(reason, function);
        packet("10.244.0.2:4000", "10.244.0.3:80", crossings, end)
    };
    let disabled = |port: &str| Fault::DisabledPort {
        bridge: "cni0".to_owned(),
        port: port.to_owned(),
    };
    node(&mut plan).links[4].port.forwarding = false;
    let egress = drop("NO_TX_TARGET", "br_forward");
    assert_eq!(kind_and_fault(&plan, &egress).1, Some(disabled("veth-b")));
    node(&mut plan).links[3].port.forwarding = false;
    for reason in ["BRIDGE_INGRESS_STP_STATE", "NOT_SPECIFIED"] {
        let ingress = drop(reason, "br_handle_frame");
        assert_eq!(kind_and_fault(&plan, &ingress).1, Some(disabled("veth-a")));
    }
}

#[test]
fn neighbour_that_is_not_behind_bridge_is_named() {
    let mut plan = plan();
    let fault = |plan: &Plan, to: &str| {
        let crossings = vec![crossing("eth0", false)];
        let end = dropped("NEIGH_FAILED", "neigh_invalidate");
        kind_and_fault(plan, &packet("10.0.0.9:4000", to, crossings, end)).1
    };
    let silent = |address: &str| Fault::Neighbour {
        address: address.parse().unwrap(),
        interface: "cni0".to_owned(),
    };
    // A pod behind the bridge, and no host at all.
    for to in ["10.244.0.2", "10.244.0.77"] {
        assert_eq!(fault(&plan, &format!("{to}:80")), Some(silent(to)));
    }
    plan.namespaces[1].links[1].addresses = vec!["10.244.0.77/32".parse().unwrap()];
    let unconnected = Fault::UnconnectedNeighbour {
        address: "10.244.0.77".parse().unwrap(),
        bridge: "cni0".to_owned(),
        owner: InterfaceName::new("router", "node-1b"),
    };
    assert_eq!(fault(&plan, "10.244.0.77:80"), Some(unconnected));
}

#[test]
fn bridge_port_settings_name_their_ports() {
    let mut plan = plan();
    let drop = |function| {
        let crossings = vec![crossing("veth-a", false)];
        let end = dropped("NO_TX_TARGET", function);
        packet("10.244.0.2:4000", "10.244.0.3:80", crossings, end)
    };
    let (bridge, port) = (|| "cni0".to_owned(), || "veth-b".to_owned());
    let fault = |plan: &Plan| kind_and_fault(plan, &drop("br_flood")).1;
    node(&mut plan).links[4].port.isolated = true;
    let unexplained = Fault::BridgePort {
        bridge: bridge(),
        port: port(),
        down: false,
    };
    assert_eq!(fault(&plan), Some(unexplained.clone()));
    node(&mut plan).links[3].port.isolated = true;
    let isolated = Fault::IsolatedPorts {
        bridge: bridge(),
        ingress: "veth-a".to_owned(),
        port: port(),
    };
    assert_eq!(fault(&plan), Some(isolated.clone()));
    let crossings = vec![crossing("veth-a", false)];
    let end = dropped("NOT_SPECIFIED", "br_handle_frame_finish");
    let refused = packet("10.244.0.2:4000", "10.244.0.3:80", crossings, end);
    let at_ingress = |plan: &Plan| kind_and_fault(plan, &refused);
    assert_eq!(at_ingress(&plan), (DropKind::BridgeIngress, Some(isolated)));
    node(&mut plan).links[3].port.isolated = false;
    node(&mut plan).links[4].port.flood = false;
    let mut without_header = drop("br_flood");
    without_header.header = None;
    for (flight, address) in [(drop("br_flood"), Some(mac(1))), (without_header, None)] {
        let unknown = Fault::UnknownHardwareAddress {
            bridge: bridge(),
            port: port(),
            address,
        };
        assert_eq!(kind_and_fault(&plan, &flight).1, Some(unknown));
    }
    let mut unreported = drop("br_flood");
    unreported.end = PathEnd::Unknown;
    let fault_of_end = |plan: &Plan| match cause(plan, &unreported) {
        Cause::Unknown { fault } => fault,
        other => panic!("{other:?}"),
    };
    assert!(matches!(
        fault_of_end(&plan),
        Some(Fault::UnknownHardwareAddress { .. })
    ));
    node(&mut plan).forwarding.push(Forwarding {
        dev: port(),
        mac: mac(1),
        to: ForwardingTarget::Port,
    });
    assert_eq!(fault_of_end(&plan), None);
    assert_eq!(fault(&plan), Some(unexplained));
    assert_eq!(at_ingress(&plan), (DropKind::BridgeIngress, None));
    node(&mut plan).links[3].port.locked = true;
    let locked = Fault::LockedPort {
        bridge: bridge(),
        port: "veth-a".to_owned(),
    };
    assert_eq!(at_ingress(&plan), (DropKind::BridgeIngress, Some(locked)));
}
