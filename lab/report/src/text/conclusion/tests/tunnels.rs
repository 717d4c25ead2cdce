//! Tests sentences about packets that were lost in a tunnel.

use super::*;

#[test]
fn facts_losses_in_tunnels_name_its_ends() {
    let in_tunnel = |cause| {
        let mut fact = lost(Some("eth0"), cause);
        if let Fact::Lost { tunnel, .. } = &mut fact {
            *tunnel = Some(Box::new(TunnelEnds {
                source: named("192.168.1.11:0", Some("node-1")),
                destination: named("192.168.2.12:0", None),
            }));
        }
        fact
    };
    let table = vec![254];
    let lookup = lookup(RouteDecision::None { tables: table }, None);
    let route = Some(Fault::Route { lookup });
    insta::assert_snapshot!(render([
        in_tunnel(Cause::Rule {
            rule: rule(),
            marked_by: None,
            unmatched: Vec::new(),
            sent_by: None,
        }),
        in_tunnel(Cause::Kernel {
            kind: DropKind::NoRoute,
            fault: route.clone(),
            reason: "IP_INNOROUTES".to_owned(),
            function: None,
            sysctls: Vec::new(),
        }),
        in_tunnel(Cause::Counter {
            kind: DropKind::NoRoute,
            fault: route,
            counter: "IpExtInNoRoutes".to_owned(),
            increase: 1,
            lost: 1,
            sysctls: Vec::new(),
        }),
        in_tunnel(Cause::NotReceived {
            interface: Some("eth0".to_owned()),
            fault: None
        }),
        in_tunnel(Cause::Waiting {
            neighbour: "192.168.1.1".parse().unwrap(),
            fault: None
        }),
        in_tunnel(Cause::Unknown { fault: None }),
    ]));
}
