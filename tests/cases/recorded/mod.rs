//! Compares what svclab writes for kube-proxy with recordings of real kube-proxies.
//!
//! - `text` compares without a kernel.
//! - `kernel` loads the rules with the real `iptables-restore` of both backends in a new network
//!   namespace and reads them back.
//! - `ipvs` does both for ipvs mode; virtual servers and the addresses of `kube-ipvs0` as text
//!   only.
//! - `nftables` does both for nftables mode.
//! - `mutations` changes every line of every recording, and the comparison must report it.

mod ipvs;
mod mutations;
mod namespace;
mod nftables;

use libtest_mimic::{Failed, Trial};
use svclab_diagnostic::Rendering;
use svclab_dump::compare::iptables::Order;
use svclab_dump::{Difference, File, NodeDump};
use svclab_rules::kube_proxy::{Family, KubeProxy, Rules, Version, chains, rules};
use svclab_ruleset::iptables::IptablesRules;
use svclab_ruleset::iptables::script::{IptablesScript, Table};
use svclab_ruleset::tool::Format;
use svclab_test_support::recordings::{self, Recording};

use namespace::{IptablesBackend, root_trial};

pub use namespace::AS_ROOT;

pub fn trials() -> Vec<Trial> {
    let mut trials = Vec::new();
    for recording in recordings::all_iptables() {
        let name = recording.name();
        let known = recording.clone();
        trials.push(Trial::test(format!("text::{name}"), move || {
            compare_text(&known)
        }));
        for flavour in [IptablesBackend::Nft, IptablesBackend::Legacy] {
            let known = recording.clone();
            let name = format!("kernel::{flavour}::{name}");
            trials.push(root_trial(name, move || compare_in_kernel(&known, flavour)));
        }
    }
    trials.extend(ipvs::trials());
    trials.extend(nftables::trials());
    trials.extend(mutations::trials());
    for name in ["only-local-external-ips", "non-local-external-ips"] {
        let trial = move || compare_golden(name);
        trials.push(root_trial(format!("golden::{name}"), trial));
    }
    for version in 9..=36 {
        for family in [Family::V4, Family::V6] {
            for flavour in [IptablesBackend::Nft, IptablesBackend::Legacy] {
                let name = format!("loads::{flavour}::v1.{version}::{family}");
                let trial = move || check_loads(version, family, flavour);
                trials.push(root_trial(name, trial));
            }
        }
    }
    trials
}

/// Parses the files of a dump, all of which must be valid.
fn parse_dump(files: &[(Format, &str)]) -> Result<NodeDump, Failed> {
    let files = files.iter().map(|(format, text)| File {
        name: format.file_name().to_owned(),
        format: Some(*format),
        text: (*text).to_owned(),
    });
    let read = NodeDump::parse(files.collect());
    if read.has_no_errors() {
        return Ok(read.dump);
    }
    let diagnostics = read.diagnostics.iter();
    let rendered: Vec<String> = diagnostics
        .map(|diagnostic| diagnostic.render(&read.sources, Rendering::default()))
        .collect();
    Err(rendered.join("\n").into())
}

/// Generates the script for the objects and flags of a recording, after the chains that existed
/// before the recording.
fn generate(recording: &Recording) -> Result<Rules, Failed> {
    let cluster = recordings::recorded_cluster(&recording.objects)?;
    let objects = cluster.objects("node-a");
    let written = rules(&recording.proxy()?, &objects, recording.family)?;
    let mut script = IptablesScript::new();
    if recording.had_mark_drop() {
        script
            .table_mut(Table::Nat)
            .declare_chain(chains::MARK_DROP);
    }
    script.append(written.script);
    Ok(Rules { script, ..written })
}

fn assert_same(expected: &IptablesRules, found: &IptablesRules) -> Result<(), Failed> {
    assert_same_in_order(expected, found, Order::ServicesInAnyOrder)
}

fn assert_same_in_order(
    expected: &IptablesRules,
    found: &IptablesRules,
    order: Order,
) -> Result<(), Failed> {
    report_differences(&svclab_dump::compare::iptables::compare(
        expected, found, order,
    ))
}

/// Returns an error with the differences, as `svclab diff` finds them, if there are any.
fn assert_no_differences(differences: &[Difference]) -> Result<(), Failed> {
    report_differences(differences)
}

fn report_differences(differences: &[impl ToString]) -> Result<(), Failed> {
    if differences.is_empty() {
        return Ok(());
    }
    let messages: Vec<String> = differences.iter().map(ToString::to_string).collect();
    Err(format!(
        "{} differences, - only expected, + only found:\n{}",
        messages.len(),
        messages.join("\n")
    )
    .into())
}

fn compare_text(recording: &Recording) -> Result<(), Failed> {
    let found = IptablesRules::from_script(&generate(recording)?.script)?;
    assert_same(&IptablesRules::parse(&recording.text()?)?, &found)
}

fn compare_in_kernel(recording: &Recording, flavour: IptablesBackend) -> Result<(), Failed> {
    let written = generate(recording)?;
    let saved = namespace::load(&written, recording.family, flavour)?;
    let recorded = recording.text()?;
    assert_same(
        &IptablesRules::parse(&recorded)?,
        &IptablesRules::parse(&saved)?,
    )?;
    if flavour == IptablesBackend::Nft {
        // The recordings were made with this backend.
        assert_same_lines(&recorded, &saved)?;
    }
    Ok(())
}

/// Compares the sorted lines of two dumps of the same iptables program, so that the spelling
/// counts, too.
fn assert_same_lines(expected: &str, found: &str) -> Result<(), Failed> {
    let lines = |text: &str| -> Vec<String> {
        let mut lines: Vec<String> = text
            .lines()
            .filter(|line| !line.starts_with('#'))
            .map(|line| match line.split_once(" [") {
                Some((chain, _)) if line.starts_with(':') => chain.to_owned(),
                _ => line.to_owned(),
            })
            .collect();
        lines.sort();
        lines
    };
    let (expected, found) = (lines(expected), lines(found));
    if expected == found {
        return Ok(());
    }
    let only = |these: &[String], those: &[String], sign: char| -> Vec<String> {
        let absent = these.iter().filter(|line| !those.contains(line));
        absent.map(|line| format!("{sign} {line}")).collect()
    };
    let mut messages = only(&expected, &found, '-');
    messages.extend(only(&found, &expected, '+'));
    Err(format!("lines differ:\n{}", messages.join("\n")).into())
}

/// Compares with the restored rules that kube-proxy's own tests expect. These do not contain the
/// chains that kube-proxy creates by other means, nor the jumps to its chains.
fn compare_golden(name: &str) -> Result<(), Failed> {
    let (text, cluster) = recordings::golden(name)?;
    let mut proxy = KubeProxy::new("v1.24".parse()?);
    proxy.cluster_cidr = Some("10.0.0.0/8".parse()?);
    proxy.random_fully = false;
    let written = rules(&proxy, &cluster.objects("test-hostname"), Family::V4)?;

    let restored_chains = |mut dump: IptablesRules| {
        for table in &mut dump.tables {
            table.chains.retain(|chain| {
                let created_apart = [chains::CANARY, chains::MARK_DROP];
                chain.policy.is_none() && !created_apart.contains(&chain.name.as_str())
            });
        }
        dump
    };
    let expected = IptablesRules::parse(&text)?;
    assert_same(
        &expected,
        &restored_chains(IptablesRules::from_script(&written.script)?),
    )?;
    for flavour in [IptablesBackend::Nft, IptablesBackend::Legacy] {
        let theirs = namespace::load_text(&text, Family::V4, flavour)?;
        let ours = namespace::load(&written, Family::V4, flavour)?;
        let (theirs, ours) = (IptablesRules::parse(&theirs)?, IptablesRules::parse(&ours)?);
        assert_same(&restored_chains(theirs), &restored_chains(ours))?;
    }
    Ok(())
}

/// Loads the rules of any version for a cluster with every kind of object, and compares what the
/// kernel reads back.
fn check_loads(minor: u8, family: Family, flavour: IptablesBackend) -> Result<(), Failed> {
    let cluster = recordings::recorded_cluster("everything")?;
    let mut proxy = KubeProxy::new(Version::from_minor(minor)?);
    proxy.cluster_cidr = Some("10.244.0.0/16,fd00:10:244::/56".parse()?);
    proxy.masquerade_bit = 15;
    let written = rules(&proxy, &cluster.objects("node-a"), family)?;
    let mut script = IptablesScript::new();
    script
        .table_mut(Table::Nat)
        .declare_chain(chains::MARK_DROP);
    script.append(written.script);
    let written = Rules { script, ..written };
    let saved = namespace::load(&written, family, flavour)?;
    assert_same_in_order(
        &IptablesRules::from_script(&written.script)?,
        &IptablesRules::parse(&saved)?,
        Order::Strict,
    )
}
