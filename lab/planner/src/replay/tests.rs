//! Tests the replacement of a node in a plan by a dump.

mod fixture;
mod listed;
mod routes;

use super::*;
use fixture::{FILES, dump, parse_files, plan_with_node, replace};
use svclab_dump::node::File;
use svclab_model::plan::{
    Backend, Iptables, Link, LinkKind, Mac, Namespace, Neighbour, PortSettings, Route, RouteKind,
    RoutingAction, Sysctl,
};
use svclab_ruleset::input::Input;

#[test]
fn replace_node_dump_replaces_planned_node() {
    let mut plan = plan_with_node();
    let report = replace(&mut plan, "node-1", &dump());
    let node = plan.namespace("node-1").unwrap();
    let link = |name: &str| node.links.iter().find(|link| link.name == name).unwrap();
    // Veth pairs keep their peers, with the names of the dump.
    assert!(link("ens5").is_veth_to("fabric"));
    assert_eq!(link("ens5").mtu, Some(9001));
    assert!(link("caliabc").is_veth_to("pod/default/web"));
    let fabric = plan.namespace("fabric").unwrap();
    assert_eq!(fabric.links[0].mtu, Some(9001));
    let peer = |link: &Link| match &link.kind {
        LinkKind::Veth { peer, .. } => peer.clone(),
        _ => String::new(),
    };
    assert_eq!(peer(&fabric.links[0]), "ens5");
    assert_eq!(
        peer(&plan.namespace("pod/default/web").unwrap().links[0]),
        "caliabc"
    );
    assert_eq!(
        (&link("kube-ipvs0").kind, link("kube-ipvs0").down),
        (&LinkKind::Dummy, true)
    );
    // Unknown peers are simulated at the other end.
    assert_eq!(
        plan.namespace("beyond/node-1/calidef").unwrap().links[0].addresses,
        ["10.1.0.6/32".parse().unwrap()]
    );
    assert!(link("ens6").is_veth_to("beyond/node-1/ens6"));
    let names: Vec<&str> = node.links.iter().map(|link| link.name.as_str()).collect();
    assert_eq!(names, ["ens5", "caliabc", "ens6", "kube-ipvs0", "calidef"]);
    // Routes with next hops follow the routes to these next hops.
    let routes: Vec<(String, u32, RouteKind)> = node
        .routes
        .iter()
        .map(|route| (route.to.to_string(), route.table.unwrap_or(254), route.kind))
        .collect();
    let expected = [
        ("10.0.0.0/24", 254, RouteKind::Unicast),
        ("10.1.0.5/32", 254, RouteKind::Unicast),
        ("10.1.0.6/32", 254, RouteKind::Unicast),
        ("10.1.0.0/26", 254, RouteKind::Blackhole),
        ("0.0.0.0/0", 254, RouteKind::Unicast),
        ("0.0.0.0/0", 200, RouteKind::Unicast),
        // Only the node resolves this name, so any number is valid.
        ("10.7.0.0/16", (1 << 20) + 4, RouteKind::Unicast),
    ];
    assert_eq!(
        routes,
        expected.map(|(to, table, kind)| (to.to_owned(), table, kind))
    );
    let neighbour_mac = |dev: &str, address: &str| {
        let address: std::net::IpAddr = address.parse().unwrap();
        let mut neighbours = node.neighbours.iter();
        neighbours
            .find(|one| one.dev == dev && one.address == address)
            .map(|one| one.mac)
    };
    assert_eq!(
        neighbour_mac("ens5", "10.0.0.254"),
        Some(Mac::from_names("fabric", "node-1"))
    );
    assert_eq!(
        neighbour_mac("ens6", "10.5.0.254"),
        Some(Mac::from_names("beyond/node-1/ens6", "eth0"))
    );
    assert_eq!(
        neighbour_mac("caliabc", "10.1.0.5"),
        Some(Mac::from_names("pod/default/web", "eth0"))
    );
    assert_eq!(node.routing_rules.len(), 1);
    assert_eq!(node.routing_rules[0].action, RoutingAction::Table(200));
    // Rules of both backends, and the sets they refer to.
    assert_eq!(
        node.iptables.as_ref().map(|rules| rules.backend),
        Some(Backend::Nft)
    );
    let beside = node.other_iptables.as_ref().unwrap();
    assert_eq!(beside.backend, Backend::Legacy);
    let (rules, sets) = (beside.v4.text(), node.ipset.text());
    assert!(rules.contains("--match-set KUBE-CLUSTER-IP dst,dst"));
    assert!(sets.contains("add KUBE-CLUSTER-IP 10.96.0.10,tcp:80\n"));
    assert_eq!(
        node.ipvs[0].to_string(),
        "-A -t 10.96.0.10:80 -s rr -p 10800\n-a -t 10.96.0.10:80 -r 10.1.0.5:8080 -m -w 1\n"
    );
    let settings: Vec<(&str, &str)> = node
        .sysctls
        .iter()
        .map(|setting| (setting.key.as_str(), setting.value.as_str()))
        .collect();
    assert_eq!(
        settings,
        [
            ("net.ipv4.conf.ens5.rp_filter", "1"),
            ("net.ipv4.conf.all.rp_filter", "2")
        ]
    );
    insta::assert_snapshot!(report);
}

#[test]
fn replace_node_multipath_and_removed_routes_are_kept() {
    let mut plan = plan_with_node();
    let _ = replace(&mut plan, "node-1", &dump());
    let node = plan.namespace("node-1").unwrap();
    let multipath_routes: Vec<String> = node
        .multipath_routes
        .iter()
        .map(ToString::to_string)
        .collect();
    assert_eq!(
        multipath_routes,
        [
            "10.2.0.0/16 nexthop via 10.0.0.2 dev ens5 weight 1 nexthop via 10.0.0.3 dev ens5 weight 1"
        ]
    );
    // The route that the kernel would add with an address exists only with a metric, or not at all.
    let removed_routes = [("10.0.0.0/24", "ens5"), ("10.5.0.0/24", "ens6")];
    let unrouted = removed_routes.map(|(to, dev)| (to.parse().unwrap(), dev.to_owned()));
    assert_eq!(node.removed_routes, unrouted);
    assert_eq!(node.loopback, ["10.9.9.9/32".parse().unwrap()]);
}

#[test]
fn replace_node_missing_output_keeps_planned_state() {
    let mut plan = plan_with_node();
    let rules = File {
        name: "iptables-save".to_owned(),
        format: None,
        text: "*nat\n:PREROUTING ACCEPT [0:0]\nCOMMIT\n".to_owned(),
    };
    let dump = NodeDump::parse(vec![rules]).dump;
    let report = replace(&mut plan, "node-1", &dump);
    let mut expected = plan_with_node();
    let v4 = "*nat\n:PREROUTING ACCEPT [0:0]\nCOMMIT\n";
    expected.namespaces[1].iptables.as_mut().unwrap().v4 = Input::from_text(v4);
    assert_eq!(plan, expected);
    insta::assert_snapshot!(report);
}

#[test]
fn replace_node_unknown_node_changes_nothing() {
    let mut plan = plan_with_node();
    let report = replace(&mut plan, "node-9", &dump());
    assert_eq!(plan, plan_with_node());
    assert_eq!(report.replayed, Vec::<String>::new());
}

#[test]
fn replace_node_reports_kube_proxy_flags() {
    let mut files: Vec<File> = ["ip-addr", "ip-route"]
        .iter()
        .filter_map(|wanted| FILES.iter().find(|(name, _)| name == wanted))
        .map(|(name, text)| ((*name).to_owned(), (*text).to_owned()))
        .chain([
            (
                "kube-proxy-cmdline".to_owned(),
                "/usr/local/bin/kube-proxy\n--config=/etc/kube-proxy/config.conf\n".to_owned(),
            ),
            (
                "kube-proxy-config".to_owned(),
                "kind: KubeProxyConfiguration\nmode: iptables\nclusterCIDR: 10.1.0.0/16\n"
                    .to_owned(),
            ),
        ])
        .map(|(name, text)| File {
            format: svclab_ruleset::tool::Format::from_file_name(&name),
            name,
            text,
        })
        .collect();
    let parsed = NodeDump::parse(files.clone());
    assert!(parsed.diagnostics.is_empty(), "{:?}", parsed.diagnostics);
    let mut plan = plan_with_node();
    let report = replace(&mut plan, "node-1", &parsed.dump);
    let expected = "kube-proxy was configured with --proxy-mode=iptables \
        --cluster-cidr=10.1.0.0/16: its rules come from the dump";
    assert!(
        report.replayed.iter().any(|real| real == expected),
        "{report}"
    );
    let lab_of_dump = |dump: &NodeDump| {
        let dumped = DumpedNode {
            node: "node-1",
            path: "node-1.tar.gz",
            dump,
            lenient: false,
        };
        write_lab("replay", &[dumped], &[], &[]).unwrap()
    };
    let line = "  kubeProxy: {version: v1.30, mode: \"iptables\", clusterCIDR: \"10.1.0.0/16\"}\n";
    assert!(
        lab_of_dump(&parsed.dump).contains(line),
        "{}",
        lab_of_dump(&parsed.dump)
    );
    // Values that a lab does not support are left out.
    files[3].text = "mode: userspace\nclusterCIDR: all\n".to_owned();
    let parsed = NodeDump::parse(files);
    assert!(!lab_of_dump(&parsed.dump).contains("kubeProxy"));
}
