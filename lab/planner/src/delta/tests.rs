//! Tests which differences give a delta and which require a rebuild.

use super::*;
use ipnetwork::IpNetwork;
use svclab_model::plan::{Link, LinkKind, Mac, Sysctl};

fn plan() -> Plan {
    let link = |name: &str, addresses: &[&str]| Link {
        name: name.to_owned(),
        kind: LinkKind::Bridge,
        mac: Mac::of("node-1", name),
        addresses: addresses
            .iter()
            .map(|address| address.parse().unwrap())
            .collect(),
        bridge: None,
        hairpin: false,
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
            ipset: "create A hash:ip family inet\nadd A 10.0.0.1\nadd A 10.0.0.2 timeout 3\n"
                .to_owned(),
            ..Namespace::default()
        }],
        ..Plan::default()
    }
}

fn delta(change: impl FnOnce(&mut Plan)) -> Result<Delta, Rebuild> {
    let there = plan();
    let mut wanted = there.clone();
    change(&mut wanted);
    between(&there, &wanted)
}

fn change(change: impl FnOnce(&mut Namespace)) -> Change {
    let mut delta = delta(|plan| change(&mut plan.namespaces[0])).unwrap();
    assert_eq!(delta.namespaces.len(), 1);
    delta.namespaces.remove(0)
}

fn addresses(texts: &[&str]) -> Vec<IpNetwork> {
    texts.iter().map(|text| text.parse().unwrap()).collect()
}

#[test]
fn nothing_is_nothing() {
    assert!(delta(|_| {}).unwrap().is_empty());
}

#[test]
fn a_set_s_members_come_and_go_before_the_rules_and_a_set_goes_after_them() {
    let made = change(|node| {
        node.ipset = "create B hash:net family inet\nadd B 10.0.0.0/8\n".to_owned();
    });
    let sets = made.sets.unwrap();
    assert_eq!(
        sets.before,
        "create B hash:net family inet\nadd B 10.0.0.0/8\n"
    );
    assert_eq!(sets.after, "destroy A\n");
    let made = change(|node| {
        node.ipset = "create A hash:ip family inet\nadd A 10.0.0.1\nadd A 10.0.0.3\n".to_owned();
    });
    assert_eq!(
        made.sets.unwrap().before,
        "del A 10.0.0.2\nadd A 10.0.0.3\n"
    );
}

#[test]
fn a_set_of_another_type_is_built_anew() {
    let because = |text: &str| {
        let rebuild = delta(|plan| text.clone_into(&mut plan.namespaces[0].ipset)).unwrap_err();
        rebuild.to_string()
    };
    insta::assert_snapshot!(because("create A hash:ip family inet6\n"), @"the sets of node-1: A is made otherwise");
    insta::assert_snapshot!(because("flush A\n"), @"the sets of node-1: `flush A` is neither `create` nor `add`");
}

#[test]
fn a_setting_that_reaches_others_has_all_written_again() {
    let keys = |made: Change| -> Vec<String> {
        made.sysctls
            .into_iter()
            .map(|setting| setting.key)
            .collect()
    };
    let own = change(|node| "1".clone_into(&mut node.sysctls[1].value));
    assert_eq!(keys(own), ["net.ipv4.conf.eth0.rp_filter"]);
    let all = change(|node| "1".clone_into(&mut node.sysctls[0].value));
    assert_eq!(keys(all).len(), 3);
}

#[test]
fn what_was_there_before_a_setting_is_not_known() {
    let rebuild = delta(|plan| drop(plan.namespaces[0].sysctls.remove(0))).unwrap_err();
    insta::assert_snapshot!(rebuild, @"net.ipv4.conf.all.rp_filter of node-1 goes back to what it was");
}

#[test]
fn the_first_address_of_a_subnet_stays_the_first() {
    let swap = |wanted: &[&str]| {
        let made = change(|node| node.links[0].addresses = addresses(wanted));
        made.links.into_iter().next().unwrap().addresses
    };
    let alone = swap(&["10.0.0.1/24", "10.0.0.2/24"]);
    assert_eq!(
        (alone.remove, alone.add),
        (addresses(&["10.1.0.1/24"]), vec![])
    );
    let first = swap(&["10.0.0.2/24", "10.1.0.1/24"]);
    assert_eq!(first.remove.len(), 3);
    assert_eq!(first.add, addresses(&["10.0.0.2/24", "10.1.0.1/24"]));
}

#[test]
fn an_interface_that_is_made_otherwise_is_built_anew() {
    let because = |change: fn(&mut Namespace)| {
        delta(|plan| change(&mut plan.namespaces[0]))
            .unwrap_err()
            .to_string()
    };
    insta::assert_snapshot!(because(|node| node.links.clear()), @"node-1 gets other interfaces");
    insta::assert_snapshot!(because(|node| node.links[0].hairpin = true), @"the interface eth0 of node-1 is made otherwise");
    insta::assert_snapshot!(because(|node| "node-2".clone_into(&mut node.name)), @"it has other namespaces");
}

#[test]
fn rules_of_another_iptables_are_built_anew() {
    let mut there = plan();
    there.namespaces[0].iptables = Some(Iptables::default());
    let mut wanted = there.clone();
    wanted.namespaces[0].iptables = Some(Iptables {
        backend: Backend::Legacy,
        ..Iptables::default()
    });
    let rebuild = between(&there, &wanted).unwrap_err();
    insta::assert_snapshot!(rebuild, @"the rules of node-1 are loaded by another iptables");
}
