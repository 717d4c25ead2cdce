//! Tests which next hops and routing rules of a dump exist in the lab.

use super::*;
use svclab_model::plan::RoutingRule;

#[test]
fn next_hop_that_did_not_reply_has_no_neighbour() {
    let replay = |neighbour: &str| {
        let mut plan = plan_with_node();
        let dump = parse_files(&[
            ("ip-4-route", "default via 10.0.0.77 dev eth0\n"),
            ("ip-neigh", neighbour),
        ]);
        let report = replace(&mut plan, "node-1", &dump);
        let node = plan.namespace("node-1").unwrap();
        let mut neighbours = node.neighbours.iter();
        let is_next_hop = neighbours.any(|one| one.address.to_string() == "10.0.0.77");
        let is_assumed = report
            .omitted
            .iter()
            .any(|item| item.description.contains("10.0.0.77"));
        (is_next_hop, is_assumed)
    };
    assert_eq!(replay("10.0.0.77 dev eth0 INCOMPLETE\n"), (false, false));
    assert_eq!(replay("10.0.0.77 dev eth0 FAILED\n"), (false, false));
    let known = "10.0.0.77 dev eth0 lladdr 02:00:00:00:00:07 REACHABLE\n";
    assert_eq!(replay(known), (true, false));
    let other = "10.0.0.9 dev eth0 lladdr 02:00:00:00:00:09 STALE\n";
    assert_eq!(replay(other), (true, true));
}

#[test]
fn next_hop_without_route_to_it_is_on_link() {
    let mut plan = plan_with_node();
    let routes = "default via 10.9.9.9 dev eth0\n10.3.0.0/16 via 10.8.0.1 dev eth0\n\
                  10.8.0.0/16 dev eth0 scope link\n10.4.0.0/16 via 10.0.0.254 dev eth0\n";
    let dump = parse_files(&[("ip-4-route", routes)]);
    let _ = replace(&mut plan, "node-1", &dump);
    let node = plan.namespace("node-1").unwrap();
    let on_link = node.routes.iter().filter(|route| route.onlink);
    let on_link: Vec<String> = on_link.map(|route| route.to.to_string()).collect();
    assert_eq!(on_link, ["0.0.0.0/0"]);
}

#[test]
fn missing_routing_rules_of_the_kernel_are_removed() {
    let replay = |rules: &str| {
        let dump = parse_files(&[
            ("ip-rule", rules),
            ("ip-6-rule", "0:\tfrom all lookup local\n"),
        ]);
        let mut plan = plan_with_node();
        let report = replace(&mut plan, "node-1", &dump);
        let node = plan.namespace("node-1").unwrap();
        let text = |rules: &[RoutingRule]| -> Vec<String> {
            rules.iter().map(ToString::to_string).collect()
        };
        let omitted = report.omitted.iter().map(|item| item.description.clone());
        (
            text(&node.routing_rules),
            text(&node.removed_routing_rules),
            omitted.collect::<Vec<_>>(),
        )
    };
    let kernels = "32766:\tfrom all lookup main\n32767:\tfrom all lookup default\n";
    let main = "priority 32766 from all lookup main";
    // Cilium moves the rule for local addresses.
    let (added, removed, omitted) = replay(&format!("100:\tfrom all lookup local\n{kernels}"));
    assert_eq!(added, ["priority 100 from all lookup local"]);
    assert_eq!(removed, ["priority 0 from all lookup local", main]);
    assert!(omitted.is_empty());
    let (added, removed, _) = replay(&format!("0:\tfrom all lookup local\n{kernels}"));
    assert_eq!((added, removed), (Vec::new(), vec![main.to_owned()]));
    // Output of `ip rule list lookup 100`.
    let (added, removed, omitted) = replay("100:\tfrom all lookup 100\n");
    assert_eq!((added.len(), removed), (1, vec![main.to_owned()]));
    assert_eq!(omitted.len(), 3);
    insta::assert_snapshot!(omitted[0], @"the missing IPv4 routing rule `priority 0 from all lookup local`");
}

#[test]
fn restricted_rule_at_priority_of_the_kernel_is_built() {
    let replay = |rule: &str| {
        let rules = format!("0:\tfrom all lookup local\n{rule}32767:\tfrom all lookup default\n");
        let mut plan = plan_with_node();
        let _ = replace(&mut plan, "node-1", &parse_files(&[("ip-rule", &rules)]));
        let node = plan.namespace("node-1").unwrap();
        let removed = &node.removed_routing_rules;
        (node.routing_rules.len(), removed.len())
    };
    assert_eq!(replay("32766:\tfrom all lookup main\n"), (0, 0));
    for rule in [
        "32766:\tfrom all fwmark 0x1 lookup main\n",
        "32766:\tnot from all fwmark 0xca6c lookup main\n",
        "32766:\tfrom all lookup main suppress_prefixlength 0\n",
    ] {
        assert_eq!(replay(rule), (1, 1), "{rule}");
    }
}

#[test]
fn local_route_of_a_program_is_built() {
    let routes = "local default dev lo table 2004 proto kernel scope host\n\
                  local 10.0.0.1 dev ens5 table 10 proto kernel scope host src 10.0.0.1\n";
    let files = FILES
        .into_iter()
        .filter(|(name, _)| *name == "ip-addr")
        .chain([("ip-4-route", routes)]);
    let mut plan = plan_with_node();
    replace(
        &mut plan,
        "node-1",
        &parse_files(&files.collect::<Vec<_>>()),
    );
    let node = plan.namespace("node-1").unwrap();
    let local = node
        .routes
        .iter()
        .filter(|route| route.kind == RouteKind::Local);
    let local: Vec<_> = local
        .map(|route| (route.to.to_string(), route.table))
        .collect();
    assert_eq!(local, [("0.0.0.0/0".to_owned(), Some(2004))]);
}
