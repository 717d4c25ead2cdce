//! Changes of each kind.

use super::*;
use svclab_model::plan::{CommandLimits, NodeCommand};

pub(super) fn named(name: &str) -> String {
    name.to_owned()
}

fn route(via: Option<&str>, kind: RouteKind) -> Route {
    let dev = if kind.is_unicast() { "eth0" } else { "" };
    Route {
        via: via.map(|via| via.parse().expect("an address")),
        kind,
        table: via.map(|_| 7),
        ..Route::new("10.244.2.0/24".parse().expect("a network"), dev)
    }
}

pub(super) fn differences(change: &ProposedChange) -> Vec<Difference> {
    let difference = |good: Option<&str>, bad: Option<&str>| Difference {
        namespace: named("node-1"),
        kind: Kind::Rule,
        location: named("iptables nat KUBE-SERVICES"),
        good: good.map(named),
        bad: bad.map(named),
        owner: None,
    };
    if !change.rewrites_rules() {
        return Vec::new();
    }
    let (rule, other) = ("-d 10.96.0.1/32 -j KUBE-MARK-MASQ", "-j RETURN");
    vec![
        difference(Some(rule), None),
        difference(None, Some(other)),
        difference(Some(rule), Some(other)),
        difference(Some(rule), Some(rule)),
    ]
}

fn balancer_changes() -> Vec<ProposedChange> {
    vec![
        ProposedChange::UseOwnSource {
            balancer: named("clb"),
        },
        ProposedChange::SkipOwnSource {
            balancer: named("clb"),
        },
        ProposedChange::AddHealthCheck {
            balancer: named("clb"),
        },
        ProposedChange::ForwardToNodePorts {
            balancer: named("clb"),
        },
        ProposedChange::ForwardToPods {
            balancer: named("clb"),
        },
        ProposedChange::RemoveSecurityGroup {
            balancer: named("clb"),
        },
        ProposedChange::AddBackend {
            balancer: named("clb"),
            node: named("node-2"),
        },
        ProposedChange::RemoveBackend {
            balancer: named("clb"),
            node: named("node-1"),
        },
    ]
}

pub(super) fn all_changes() -> Vec<ProposedChange> {
    let mut changes = node_changes();
    changes.extend(balancer_changes());
    changes.extend(network_changes());
    changes.extend(service_changes());
    changes.push(ProposedChange::LabelPod {
        pod: named("default/web-2"),
        labels: [(named("app"), named("web"))].into(),
    });
    changes.push(ProposedChange::ContainerPort {
        pod: named("default/web-2"),
        port: 9090,
        wanted: 8080,
    });
    changes.extend(
        [None, Some(named("10.244.0.0/16"))]
            .map(|networks| ProposedChange::RunKubeProxy { networks }),
    );
    changes
}

fn service_changes() -> Vec<ProposedChange> {
    let fields = [
        ServiceField::NoSourceRanges,
        ServiceField::NoAffinity,
        ServiceField::NoProxyName,
        ServiceField::NoProxiedAddress,
        ServiceField::ProxiedAddress,
        ServiceField::NoExternalAddress {
            address: [203, 0, 113, 9].into(),
        },
        ServiceField::SelectedEndpoints,
        ServiceField::EndpointAddress {
            address: [10, 244, 2, 77].into(),
            wanted: [10, 244, 2, 20].into(),
        },
        ServiceField::Port {
            port: 81,
            wanted: 80,
        },
        ServiceField::NodePort {
            port: 80,
            wanted: 30080,
        },
        ServiceField::TargetPort {
            port: 80,
            wanted: 8080,
        },
        ServiceField::Protocol {
            port: 53,
            wanted: Protocol::Udp,
        },
        ServiceField::Selector {
            labels: BTreeMap::from([(named("app"), named("web"))]),
        },
    ];
    let service = || named("default/web");
    let fields = fields
        .into_iter()
        .map(|field| ProposedChange::ServiceField {
            service: service(),
            field,
        });
    fields.collect()
}

fn network_changes() -> Vec<ProposedChange> {
    let (node, link) = (|| named("node-1"), || named("eth0"));
    vec![
        ProposedChange::LocalPolicy {
            service: named("default/web"),
            field: PolicyField::ExternalTrafficPolicy,
        },
        ProposedChange::KeepSource {
            balancer: named("clb"),
        },
        ProposedChange::MakePodReady {
            pod: named("default/web"),
        },
        ProposedChange::FlannelMasquerade,
        ProposedChange::FlannelNetwork {
            network: "10.244.0.0/16".parse().expect("a network"),
        },
        ProposedChange::AddFabricRoute {
            to: "203.0.113.64/32".parse().expect("a network"),
            via: named("node-1"),
        },
        ProposedChange::MasqueradeFew,
        ProposedChange::BeLiberal,
        ProposedChange::StrictArp,
        ProposedChange::AcceptPolicy {
            namespace: node(),
            backend: Backend::Legacy,
            v6: false,
            table: named("filter"),
            chain: named("FORWARD"),
        },
        ProposedChange::SetLinkUp {
            namespace: node(),
            link: link(),
        },
        ProposedChange::SetMtu {
            namespace: node(),
            link: link(),
            mtu: 1500,
        },
        ProposedChange::SetPort {
            namespace: node(),
            link: named("veth0"),
            setting: named("hairpin"),
            on: true,
        },
        ProposedChange::SetPort {
            namespace: node(),
            link: named("veth0"),
            setting: named("isolated"),
            on: false,
        },
        ProposedChange::DeleteForwarding {
            namespace: node(),
            entry: Box::new(Forwarding {
                dev: named("veth0"),
                mac: "0a:58:00:00:00:01".parse().expect("a hardware address"),
                to: ForwardingTarget::Port,
            }),
        },
        ProposedChange::SetNeighbour {
            namespace: node(),
            neighbour: Box::new(Neighbour {
                address: "192.0.2.1".parse().expect("an address"),
                mac: "0a:58:00:00:00:01".parse().expect("a hardware address"),
                dev: link(),
            }),
        },
        ProposedChange::SetForwarding {
            namespace: node(),
            entry: Box::new(Forwarding {
                dev: named("flannel.1"),
                mac: "0a:58:00:00:00:01".parse().expect("a hardware address"),
                to: ForwardingTarget::Remote("192.0.2.2".parse().expect("an address")),
            }),
        },
        ProposedChange::DeleteAddress {
            namespace: node(),
            link: link(),
            address: "10.244.2.10/32".parse().expect("an address"),
        },
        ProposedChange::EnableRealServers {
            namespace: node(),
            server: "10.96.0.10:80".parse().expect("a socket address"),
        },
        ProposedChange::Restore {
            differences: differences(&ProposedChange::RestartProxy { node: node() }),
        },
        ProposedChange::Restore {
            differences: vec![Difference {
                namespace: node(),
                kind: Kind::Rule,
                location: named("iptables nat KUBE-SVC-A"),
                good: Some(named("-j KUBE-SEP-A")),
                bad: None,
                owner: Some(Owner::Component(named("kube-proxy"))),
            }],
        },
    ]
}

fn disable_vlan_filtering(bridge: &str) -> ProposedChange {
    ProposedChange::DisableVlanFiltering {
        namespace: named("node-1"),
        bridge: named(bridge),
    }
}

fn delete_queue(link: &str, parent: &str) -> ProposedChange {
    ProposedChange::DeleteQueue {
        namespace: named("node-1"),
        link: named(link),
        parent: named(parent),
    }
}

fn undo_command(words: &[&str]) -> ProposedChange {
    let command = NodeCommand {
        namespace: named("node-1"),
        command: words.iter().copied().map(named).collect(),
        input: String::new(),
        limits: CommandLimits::default(),
    };
    ProposedChange::UndoManualCommand {
        command: Box::new(command),
    }
}

pub(super) fn node_changes() -> Vec<ProposedChange> {
    vec![
        ProposedChange::ClusterPolicy {
            service: named("default/web"),
            field: PolicyField::ExternalTrafficPolicy,
        },
        ProposedChange::ClusterPolicy {
            service: named("default/web"),
            field: PolicyField::InternalTrafficPolicy,
        },
        ProposedChange::ClusterCidr {
            networks: named("10.244.0.0/16"),
        },
        ProposedChange::MasqueradeAll,
        ProposedChange::AllowForeignSources,
        undo_command(&["ip", "xfrm", "policy", "flush"]),
        ProposedChange::UndoManualChanges {
            node: named("node-1"),
        },
        ProposedChange::RestartProxy {
            node: named("node-1"),
        },
        ProposedChange::SetSysctl {
            namespaces: vec![named("node-1"), named("node-2")],
            keys: vec![
                named("net.ipv4.conf.all.rp_filter"),
                named("net.ipv4.conf.eth0.rp_filter"),
            ],
            value: named("0"),
        },
        ProposedChange::DeleteRule {
            namespace: named("node-1"),
            backend: Backend::Nft,
            v6: false,
            table: named("nat"),
            chain: named("POSTROUTING"),
            number: 4,
            rule: named("-d 10.244.2.0/24 -j RETURN"),
        },
        ProposedChange::DeleteSetEntry {
            namespace: named("node-1"),
            set: named("KUBE-LOAD-BALANCER-LOCAL"),
            entry: named("192.0.2.1,tcp:80"),
        },
        ProposedChange::DeleteNftRule {
            namespace: named("node-1"),
            table: named("ip kube-proxy"),
            chain: named("filter-forward"),
            number: 2,
            rule: named("ip daddr 192.0.2.1 drop"),
        },
        ProposedChange::NonMasqueradeNetwork {
            network: "10.244.0.0/16".parse().expect("a network"),
        },
        ProposedChange::AllNodePortAddresses,
        ProposedChange::LocalhostNodePorts,
        delete_queue("eth0", "root"),
        delete_queue("cni0", "clsact"),
        disable_vlan_filtering("cni0"),
        ProposedChange::DeleteConnections {
            namespace: named("node-1"),
            protocol: Protocol::Udp,
            destination: "10.96.0.10:53".parse().expect("an address"),
        },
        ProposedChange::SetPort {
            namespace: named("node-1"),
            link: named("veth1"),
            setting: named("state"),
            on: true,
        },
        ProposedChange::MasqueradeNetwork {
            network: "10.0.0.0/8".parse().expect("a network"),
        },
        ProposedChange::DeleteRoute {
            namespace: named("node-1"),
            route: Box::new(route(Some("192.0.2.1"), RouteKind::Unicast)),
        },
        ProposedChange::DeleteRoute {
            namespace: named("node-1"),
            route: Box::new(route(None, RouteKind::Blackhole)),
        },
        ProposedChange::AddRoute {
            namespace: named("node-1"),
            route: Box::new(route(Some("192.0.2.1"), RouteKind::Unicast)),
        },
        ProposedChange::DeleteRoutingRule {
            namespace: named("node-1"),
            rule: Box::new(RoutingRule {
                from: Some("10.244.1.0/24".parse().expect("a network")),
                ..RoutingRule::new(false, 100, RoutingAction::Table(7))
            }),
        },
        ProposedChange::DeleteNftElement {
            namespace: named("node-1"),
            table: named("ip kube-proxy"),
            set: named("no-endpoint-services"),
            key: named("192.0.2.1 . tcp . 80"),
        },
    ]
}
