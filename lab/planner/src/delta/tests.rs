//! Tests which differences give a delta and which require a rebuild.

use super::*;
use ipnetwork::IpNetwork;
use svclab_model::plan::{Link, LinkKind, Mac, PortSettings, Sysctl};

fn plan() -> Plan {
    let link = |name: &str, addresses: &[&str]| Link {
        name: name.to_owned(),
        kind: LinkKind::Bridge,
        mac: Mac::from_names("node-1", name),
        addresses: addresses
            .iter()
            .map(|address| address.parse().unwrap())
            .collect(),
        bridge: None,
        port: PortSettings::default(),
        down: false,
        mtu: None,
    };
    let setting = |key: &str, value: &str| Sysctl {
        key: key.to_owned(),
        value: value.to_owned(),
        link: key.contains("eth0").then(|| "eth0".to_owned()),
        optional: false,
    };
    Plan {
        namespaces: vec![Namespace {
            name: "node-1".to_owned(),
            links: vec![link("eth0", &["10.0.0.1/24", "10.0.0.2/24", "10.1.0.1/24"])],
            sysctls: vec![
                setting("net.ipv4.conf.all.rp_filter", "0"),
                setting("net.ipv4.conf.eth0.rp_filter", "0"),
                setting("net.ipv4.conf.eth0.proxy_arp", "0"),
            ],
            ipset: Input::from_text(
                "create A hash:ip family inet\nadd A 10.0.0.1\nadd A 10.0.0.2 timeout 3\n",
            ),
            ..Namespace::default()
        }],
        ..Plan::default()
    }
}

fn delta_of(change: impl FnOnce(&mut Plan)) -> Result<Delta, RebuildRequired> {
    let current = plan();
    let mut wanted = current.clone();
    change(&mut wanted);
    diff(&current, &wanted)
}

fn namespace_change(change: impl FnOnce(&mut Namespace)) -> NamespaceDelta {
    let mut delta = delta_of(|plan| change(&mut plan.namespaces[0])).unwrap();
    assert_eq!(delta.namespaces.len(), 1);
    delta.namespaces.remove(0)
}

fn addresses(texts: &[&str]) -> Vec<IpNetwork> {
    texts.iter().map(|text| text.parse().unwrap()).collect()
}

#[test]
fn diff_same_plan_is_empty() {
    assert!(delta_of(|_| {}).unwrap().is_empty());
}

#[test]
fn diff_sets_members_before_rules_destroy_after() {
    let change = namespace_change(|node| {
        node.ipset = Input::from_text("create B hash:net family inet\nadd B 10.0.0.0/8\n");
    });
    let sets = change.sets.unwrap();
    assert_eq!(
        sets.before_rules(),
        "create B hash:net family inet\nadd B 10.0.0.0/8\n"
    );
    assert_eq!(sets.after_rules(), "destroy A\n");
    let change = namespace_change(|node| {
        node.ipset =
            Input::from_text("create A hash:ip family inet\nadd A 10.0.0.1\nadd A 10.0.0.3\n");
    });
    assert_eq!(
        change.sets.unwrap().before_rules(),
        "del A 10.0.0.2\nadd A 10.0.0.3\n"
    );
}

#[test]
fn diff_set_type_changed_requires_rebuild() {
    let reason = |text: &str| {
        let rebuild =
            delta_of(|plan| plan.namespaces[0].ipset = Input::from_text(text)).unwrap_err();
        rebuild.to_string()
    };
    insta::assert_snapshot!(reason("create A hash:ip family inet6\n"), @"the sets of node-1: the type or options of A change");
    insta::assert_snapshot!(reason("flush A\n"), @"cannot parse the rules or sets of node-1: `flush A`: this line is not output of `ipset save`");
}

#[test]
fn diff_sysctl_all_changed_rewrites_all_sysctls() {
    let keys = |change: NamespaceDelta| -> Vec<String> {
        change
            .sysctls
            .into_iter()
            .map(|setting| setting.key)
            .collect()
    };
    let single = namespace_change(|node| "1".clone_into(&mut node.sysctls[1].value));
    assert_eq!(keys(single), ["net.ipv4.conf.eth0.rp_filter"]);
    let rewritten = namespace_change(|node| "1".clone_into(&mut node.sysctls[0].value));
    assert_eq!(keys(rewritten).len(), 3);
}

#[test]
fn diff_sysctl_removed_requires_rebuild() {
    let rebuild = delta_of(|plan| drop(plan.namespaces[0].sysctls.remove(0))).unwrap_err();
    insta::assert_snapshot!(rebuild, @"net.ipv4.conf.all.rp_filter of node-1 is no longer set, and its original value is unknown");
}

#[test]
fn diff_addresses_first_of_subnet_stays_first() {
    let swap = |wanted: &[&str]| {
        let change = namespace_change(|node| node.links[0].addresses = addresses(wanted));
        change.links.into_iter().next().unwrap().addresses
    };
    let secondary_kept = swap(&["10.0.0.1/24", "10.0.0.2/24"]);
    assert_eq!(
        (secondary_kept.remove, secondary_kept.add),
        (addresses(&["10.1.0.1/24"]), vec![])
    );
    let first_removed = swap(&["10.0.0.2/24", "10.1.0.1/24"]);
    assert_eq!(first_removed.remove.len(), 3);
    assert_eq!(
        first_removed.add,
        addresses(&["10.0.0.2/24", "10.1.0.1/24"])
    );
}

#[test]
fn diff_loopback_address_requires_rebuild() {
    let add = |plan: &mut Plan| plan.namespaces[0].loopback = addresses(&["192.0.2.1/32"]);
    let rebuild = delta_of(add).unwrap_err().to_string();
    insta::assert_snapshot!(rebuild, @"the addresses of lo, multipath routes or removed routes of node-1 change");
}

#[test]
fn diff_interface_up_again_restores_neighbours() {
    let mut current = plan();
    current.namespaces[0].neighbours = ["eth0", "eth1"]
        .map(|dev| Neighbour {
            address: "10.0.0.9".parse().unwrap(),
            mac: Mac::from_names("node-2", dev),
            dev: dev.to_owned(),
        })
        .into();
    let mut down = current.clone();
    down.namespaces[0].links[0].down = true;
    let neighbours = |from: &Plan, to: &Plan| {
        let delta = diff(from, to).unwrap();
        delta.namespaces[0].neighbours.clone()
    };
    assert!(neighbours(&current, &down).is_empty());
    let restored = neighbours(&down, &current);
    assert_eq!(restored.add, current.namespaces[0].neighbours[..1]);
}

#[test]
fn diff_last_ipv4_address_removed_restores_neighbours() {
    let mut current = plan();
    current.namespaces[0].neighbours = ["10.0.0.9", "fd00::9"]
        .map(|address| Neighbour {
            address: address.parse().unwrap(),
            mac: Mac::from_names("node-2", "eth0"),
            dev: "eth0".to_owned(),
        })
        .into();
    let added = |wanted: &[&str]| {
        let mut changed = current.clone();
        changed.namespaces[0].links[0].addresses = addresses(wanted);
        let delta = diff(&current, &changed).unwrap();
        delta.namespaces[0].neighbours.add.clone()
    };
    let ipv4 = &current.namespaces[0].neighbours[..1];
    assert_eq!(added(&[]), ipv4);
    assert_eq!(added(&["fd00::1/64"]), ipv4);
    // All are removed, so that the first address of the subnet is the first one.
    assert_eq!(added(&["10.0.0.2/24", "10.1.0.1/24"]), ipv4);
    assert!(added(&["10.0.0.1/24", "10.0.0.2/24"]).is_empty());
}

#[test]
fn diff_bridge_port_settings_change_in_place() {
    let change = namespace_change(|node| node.links[0].port.isolated = true);
    let settings = change.links[0].port.unwrap();
    assert!(settings.isolated && settings.learning);
}

#[test]
fn diff_interface_recreated_requires_rebuild() {
    let reason = |change: fn(&mut Namespace)| {
        delta_of(|plan| change(&mut plan.namespaces[0]))
            .unwrap_err()
            .to_string()
    };
    insta::assert_snapshot!(reason(|node| node.links.clear()), @"the list of interfaces of node-1 changes");
    insta::assert_snapshot!(reason(|node| node.links[0].bridge = Some("br0".to_owned())), @"the creation parameters of interface eth0 of node-1 change");
    insta::assert_snapshot!(reason(|node| "node-2".clone_into(&mut node.name)), @"the list of namespaces changes");
}

#[test]
fn diff_iptables_backend_changed_requires_rebuild() {
    let mut current = plan();
    current.namespaces[0].iptables = Some(Iptables::default());
    let mut wanted = current.clone();
    wanted.namespaces[0].iptables = Some(Iptables {
        backend: Backend::Legacy,
        ..Iptables::default()
    });
    let rebuild = diff(&current, &wanted).unwrap_err();
    insta::assert_snapshot!(rebuild, @"the iptables backend of node-1 changes");
}

#[test]
fn diff_later_nat_chain_requires_rebuild_unless_it_runs_first() {
    let tables = |chain: &str, rules: &str| {
        Input::from_text(format!(
            "table ip kube-proxy {{\n\tchain {chain} {{\n\t\ttype nat hook prerouting priority -100; policy accept;\n{rules}\t}}\n}}\n"
        ))
    };
    let rules = |chain: &str| {
        Some(Iptables {
            v4: Input::from_text(format!("*nat\n-A {chain} -j RETURN\nCOMMIT\n")),
            ..Iptables::default()
        })
    };
    let change = |nft_first: bool, change: fn(&mut Namespace)| {
        let mut current = plan();
        current.namespaces[0].nft = tables("first", "");
        current.namespaces[0].nft_first = nft_first;
        let mut wanted = current.clone();
        change(&mut wanted.namespaces[0]);
        (current, wanted)
    };
    let result = |(current, wanted): (Plan, Plan)| match diff(&current, &wanted) {
        Ok(_) => "in place".to_owned(),
        Err(rebuild) => rebuild.to_string(),
    };
    let add_iptables = |(current, mut wanted): (Plan, Plan), chain: &str| {
        wanted.namespaces[0].iptables = rules(chain);
        (current, wanted)
    };
    let with_both = |(mut current, mut wanted): (Plan, Plan)| {
        current.namespaces[0].iptables = rules("PREROUTING");
        wanted.namespaces[0].iptables = rules("PREROUTING");
        (current, wanted)
    };
    let same = |_: &mut Namespace| {};
    let other_chain = |node: &mut Namespace| {
        let text = node.nft.text().replace("first", "second");
        node.nft = Input::from_text(text);
    };
    let results = [
        result(add_iptables(change(false, same), "PREROUTING")),
        result(add_iptables(change(false, same), "POSTROUTING")),
        result(add_iptables(change(true, same), "PREROUTING")),
        result(with_both(change(false, other_chain))),
        result(with_both(change(true, other_chain))),
        result(with_both(change(false, |node| node.nft_first = true))),
    ];
    insta::assert_snapshot!(results.join("\n"), @r"
    the order of iptables and nftables of node-1 changes
    in place
    in place
    in place
    the order of iptables and nftables of node-1 changes
    the order of iptables and nftables of node-1 changes
    ");
}
