//! Compares the generated state of ipvs mode with recordings of real kube-proxies: rules, sets,
//! virtual servers and the addresses of `kube-ipvs0`.

use std::fmt::Write as _;

use libtest_mimic::{Failed, Trial};
use svclab_dump::compare::iptables::Order;
use svclab_dump::{NodeDump, compare};
use svclab_rules::kube_proxy::ipvs::{DUMMY, IPVS_OUT_FILTER};
use svclab_rules::kube_proxy::{Family, IpvsRules, KubeProxy, Mode, Version, chains, ipvs_rules};
use svclab_ruleset::iptables::IptablesRules;
use svclab_ruleset::iptables::script::{IptablesScript, Table};
use svclab_ruleset::tool::Format;
use svclab_test_support::recordings::{self, IpvsRecording};

use super::namespace::{self, IptablesBackend, root_trial};
use super::{
    assert_no_differences, assert_same, assert_same_in_order, assert_same_lines, parse_dump,
};

/// Prefix of the sets of the other IP family. Its proxier was still running when the dumps were
/// recorded, so some of its sets exist, empty.
const OTHER_FAMILY: &str = "KUBE-6-";

/// Comparison of one part of a recording.
type Comparison = fn(&IpvsRecording) -> Result<(), Failed>;

pub fn trials() -> Vec<Trial> {
    let mut trials = Vec::new();
    for recording in recordings::all_ipvs() {
        let name = recording.name();
        let parts: [(&str, Comparison); 4] = [
            ("rules", compare_rules),
            ("sets", compare_sets),
            ("servers", compare_servers),
            ("addresses", compare_addresses),
        ];
        for (part, compare) in parts {
            let known = recording.clone();
            trials.push(Trial::test(format!("ipvs::{part}::{name}"), move || {
                compare(&known)
            }));
        }
        for flavour in [IptablesBackend::Nft, IptablesBackend::Legacy] {
            let known = recording.clone();
            let name = format!("ipvs::kernel::{flavour}::{name}");
            trials.push(root_trial(name, move || compare_in_kernel(&known, flavour)));
        }
    }
    for minor in 9..=36 {
        for family in [Family::V4, Family::V6] {
            for flavour in [IptablesBackend::Nft, IptablesBackend::Legacy] {
                let name = format!("ipvs::loads::{flavour}::v1.{minor}::{family}");
                let trial = move || check_loads(minor, family, flavour);
                trials.push(root_trial(name, trial));
            }
        }
    }
    trials
}

fn generate(recording: &IpvsRecording, family: Family) -> Result<IpvsRules, Failed> {
    let cluster = recordings::recorded_cluster(&recording.objects)?;
    let objects = cluster.objects("node-a");
    Ok(ipvs_rules(&recording.proxy()?, &objects, family)?)
}

fn compare_rules(recording: &IpvsRecording) -> Result<(), Failed> {
    let found = IptablesRules::from_script(&generate(recording, Family::V4)?.script)?;
    assert_same(
        &IptablesRules::parse(&recording.text("iptables-save")?)?,
        &found,
    )
}

fn compare_sets(recording: &IpvsRecording) -> Result<(), Failed> {
    let sets_of = |family| Ok::<_, Failed>(generate(recording, family)?.sets.to_string());
    let (four, six) = (
        parse_dump(&[(SETS, &sets_of(Family::V4)?)])?,
        parse_dump(&[(SETS, &sets_of(Family::V6)?)])?,
    );
    let recorded = recording.text("ipset-save")?;
    // The recorded sets of the other family are in their initial state, which is empty.
    let mut ours = four.sets.unwrap_or_default();
    let recorded = parse_dump(&[(SETS, &recorded)])?;
    for (name, set) in six.sets.unwrap_or_default() {
        let is_recorded = recorded
            .sets
            .as_ref()
            .is_some_and(|sets| sets.contains_key(&name));
        if name.starts_with(OTHER_FAMILY) && is_recorded {
            ours.insert(name, set);
        }
    }
    let ours = NodeDump {
        sets: Some(ours),
        ..NodeDump::default()
    };
    assert_no_differences(&compare(&recorded, &ours))
}

fn compare_servers(recording: &IpvsRecording) -> Result<(), Failed> {
    let found: String = generate(recording, Family::V4)?
        .servers
        .iter()
        .map(ToString::to_string)
        .collect();
    let recorded = recording.text("ipvsadm-Sn")?;
    assert_same_dumps(&[(SERVERS, &recorded)], &[(SERVERS, &found)])
}

fn compare_addresses(recording: &IpvsRecording) -> Result<(), Failed> {
    let written = generate(recording, Family::V4)?;
    let mut recorded = parse_dump(&[(Format::Links, &recording.text("ip-addr")?)])?;
    let links = recorded.links.as_mut().ok_or("no interfaces")?;
    links.retain(|name, _| name == DUMMY);
    let mut found = format!(
        "9: {DUMMY}: <BROADCAST,NOARP> mtu 1500 qdisc noop state DOWN group default\n    \
         link/ether 02:00:00:00:00:01 brd ff:ff:ff:ff:ff:ff\n"
    );
    for address in &written.bound {
        let broadcast = if written.broadcast {
            format!(" brd {address}")
        } else {
            String::new()
        };
        let _ = write!(
            found,
            "    inet {address}/32{broadcast} scope global {DUMMY}\n       \
             valid_lft forever preferred_lft forever\n"
        );
    }
    assert_no_differences(&compare(
        &recorded,
        &parse_dump(&[(Format::Links, &found)])?,
    ))
}

/// Compares rules and sets as a kernel reads them back. Omits rules that match on a packet's
/// virtual server: loading one would load IPVS.
fn compare_in_kernel(recording: &IpvsRecording, flavour: IptablesBackend) -> Result<(), Failed> {
    let written = generate(recording, Family::V4)?;
    let script = without_ipvs(&written.script.to_string());
    let (rules, sets) =
        namespace::load_sets(&script, &written.sets.to_string(), Family::V4, flavour)?;
    let recorded = without_ipvs(&recording.text("iptables-save")?);
    assert_same(
        &IptablesRules::parse(&recorded)?,
        &IptablesRules::parse(&rules)?,
    )?;
    if flavour == IptablesBackend::Nft {
        // The recordings were made with this backend.
        assert_same_lines(&recorded, &rules)?;
    }
    assert_same_dumps(&[(SETS, &written.sets.to_string())], &[(SETS, &sets)])
}

/// Loads the rules of any version for a cluster with every kind of object, and compares what the
/// kernel reads back.
fn check_loads(minor: u8, family: Family, flavour: IptablesBackend) -> Result<(), Failed> {
    let cluster = recordings::recorded_cluster("everything")?;
    let mut proxy = KubeProxy::new(Version::from_minor(minor)?);
    proxy.mode = Mode::Ipvs;
    proxy.cluster_cidr = Some("10.244.0.0/16,fd00:10:244::/56".parse()?);
    let written = ipvs_rules(&proxy, &cluster.objects("node-a"), family)?;
    let mut script = IptablesScript::new();
    script
        .table_mut(Table::Nat)
        .declare_chain(chains::MARK_DROP);
    for (table, block) in written.script.tables() {
        let target_table = script.table_mut(table);
        for chain in &block.chains {
            if !target_table.chains.contains(chain) {
                target_table.declare_chain(chain);
            }
        }
        for command in &block.commands {
            if !without_ipvs(&command.to_string()).is_empty() {
                target_table.push(command.clone());
            }
        }
    }
    let (rules, sets) = namespace::load_sets(
        &script.to_string(),
        &written.sets.to_string(),
        family,
        flavour,
    )?;
    assert_same_in_order(
        &IptablesRules::from_script(&script)?,
        &IptablesRules::parse(&rules)?,
        Order::Strict,
    )?;
    assert_same_dumps(&[(SETS, &written.sets.to_string())], &[(SETS, &sets)])
}

fn without_ipvs(text: &str) -> String {
    let rule_prefix = format!("-A {IPVS_OUT_FILTER} ");
    let mut kept = String::new();
    for line in text.lines().filter(|line| !line.starts_with(&rule_prefix)) {
        kept.push_str(line);
        kept.push('\n');
    }
    kept
}

const SETS: Format = Format::Sets;
const SERVERS: Format = Format::VirtualServers;

/// Asserts that both dumps have the same meaning.
fn assert_same_dumps(recorded: &[(Format, &str)], found: &[(Format, &str)]) -> Result<(), Failed> {
    assert_no_differences(&compare(&parse_dump(recorded)?, &parse_dump(found)?))
}
