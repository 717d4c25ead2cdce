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
mod recordings;

use std::process::ExitCode;

use libtest_mimic::{Arguments, Failed, Trial};
use svclab_diagnostic::Rendering;
use svclab_dump::compare::iptables::Order;
use svclab_dump::{Difference, File, NodeDump};
use svclab_rules::kube_proxy::{Family, KubeProxy, Rules, Version, chains, rules};
use svclab_ruleset::iptables::Dump;
use svclab_ruleset::iptables::script::{Script, Table};
use svclab_ruleset::tool::Format;

use namespace::Flavour;
use recordings::Recording;

fn main() -> ExitCode {
    // Network namespaces need root; every user can be root in a user namespace.
    if let Err(error) = namespace::become_root() {
        eprintln!("the tests of kind `kernel` need a user namespace: {error}");
    }
    let mut trials = Vec::new();
    for recording in recordings::all() {
        let name = recording.name();
        let known = recording.clone();
        trials.push(Trial::test(format!("text::{name}"), move || text(&known)));
        for flavour in [Flavour::Nft, Flavour::Legacy] {
            let known = recording.clone();
            trials.push(Trial::test(
                format!("kernel::{flavour}::{name}"),
                move || kernel(&known, flavour),
            ));
        }
    }
    trials.extend(ipvs::trials());
    trials.extend(nftables::trials());
    trials.extend(mutations::trials());
    for name in ["only-local-external-ips", "non-local-external-ips"] {
        trials.push(Trial::test(format!("golden::{name}"), move || golden(name)));
    }
    for version in 9..=36 {
        for family in [Family::V4, Family::V6] {
            for flavour in [Flavour::Nft, Flavour::Legacy] {
                let name = format!("loads::{flavour}::v1.{version}::{family}");
                trials.push(Trial::test(name, move || loads(version, family, flavour)));
            }
        }
    }
    libtest_mimic::run(&Arguments::from_args(), trials).exit_code()
}

/// Parses the files of a dump, all of which must be valid.
fn dump(files: &[(Format, &str)]) -> Result<NodeDump, Failed> {
    let files = files.iter().map(|(format, text)| File {
        name: format.file_name().to_owned(),
        format: Some(*format),
        text: (*text).to_owned(),
    });
    let read = NodeDump::read(files.collect());
    if read.is_whole() {
        return Ok(read.dump);
    }
    let told = read.diagnostics.iter();
    let told: Vec<String> = told
        .map(|diagnostic| diagnostic.render(&read.sources, Rendering::default()))
        .collect();
    Err(told.join("\n").into())
}

/// Generates the script for the objects and flags of a recording, after the chains that existed
/// before the recording.
fn written(recording: &Recording) -> Result<Rules, Failed> {
    let cluster = recordings::recorded_cluster(&recording.objects)?;
    let objects = cluster.objects("node-a");
    let written = rules(&recording.proxy()?, &objects, recording.family)?;
    let mut script = Script::new();
    if recording.mark_drop_was_there() {
        script.table(Table::Nat).chain(chains::MARK_DROP);
    }
    script.append(written.script);
    Ok(Rules { script, ..written })
}

fn same(expected: &Dump, found: &Dump) -> Result<(), Failed> {
    same_in_order(expected, found, Order::ServicesInAnyOrder)
}

fn same_in_order(expected: &Dump, found: &Dump, order: Order) -> Result<(), Failed> {
    told(&svclab_dump::compare::iptables::compare(
        expected, found, order,
    ))
}

/// Returns an error with the differences, as `svclab diff` finds them, if there are any.
fn none(differences: &[Difference]) -> Result<(), Failed> {
    told(differences)
}

fn told(differences: &[impl ToString]) -> Result<(), Failed> {
    if differences.is_empty() {
        return Ok(());
    }
    let told: Vec<String> = differences.iter().map(ToString::to_string).collect();
    Err(format!(
        "{} differences, - only expected, + only found:\n{}",
        told.len(),
        told.join("\n")
    )
    .into())
}

fn text(recording: &Recording) -> Result<(), Failed> {
    let found = Dump::of_script(&written(recording)?.script)?;
    same(&Dump::parse(&recording.text()?)?, &found)
}

fn kernel(recording: &Recording, flavour: Flavour) -> Result<(), Failed> {
    let written = written(recording)?;
    let saved = namespace::load(&written, recording.family, flavour)?;
    let recorded = recording.text()?;
    same(&Dump::parse(&recorded)?, &Dump::parse(&saved)?)?;
    if flavour == Flavour::Nft {
        // The recordings were made with this backend.
        same_lines(&recorded, &saved)?;
    }
    Ok(())
}

/// Compares the sorted lines of two dumps of the same iptables program, so that the spelling
/// counts, too.
fn same_lines(expected: &str, found: &str) -> Result<(), Failed> {
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
    let mut told = only(&expected, &found, '-');
    told.extend(only(&found, &expected, '+'));
    Err(format!("lines differ:\n{}", told.join("\n")).into())
}

/// Compares with the restored rules that kube-proxy's own tests expect. These do not contain the
/// chains that kube-proxy creates by other means, nor the jumps to its chains.
fn golden(name: &str) -> Result<(), Failed> {
    let (text, cluster) = recordings::golden(name)?;
    let mut proxy = KubeProxy::new("v1.24".parse()?);
    proxy.cluster_cidr = Some("10.0.0.0/8".parse()?);
    proxy.random_fully = false;
    let written = rules(&proxy, &cluster.objects("test-hostname"), Family::V4)?;

    let restored = |mut dump: Dump| {
        for table in &mut dump.tables {
            table.chains.retain(|chain| {
                let apart = [chains::CANARY, chains::MARK_DROP];
                chain.policy.is_none() && !apart.contains(&chain.name.as_str())
            });
        }
        dump
    };
    let expected = Dump::parse(&text)?;
    same(&expected, &restored(Dump::of_script(&written.script)?))?;
    for flavour in [Flavour::Nft, Flavour::Legacy] {
        let theirs = namespace::load_text(&text, Family::V4, flavour)?;
        let ours = namespace::load(&written, Family::V4, flavour)?;
        let (theirs, ours) = (Dump::parse(&theirs)?, Dump::parse(&ours)?);
        same(&restored(theirs), &restored(ours))?;
    }
    Ok(())
}

/// Loads the rules of any version for a cluster with every kind of object, and compares what the
/// kernel reads back.
fn loads(minor: u8, family: Family, flavour: Flavour) -> Result<(), Failed> {
    let cluster = recordings::recorded_cluster("everything")?;
    let mut proxy = KubeProxy::new(Version::minor(minor)?);
    proxy.cluster_cidr = Some("10.244.0.0/16,fd00:10:244::/56".parse()?);
    proxy.masquerade_bit = 15;
    let written = rules(&proxy, &cluster.objects("node-a"), family)?;
    let mut script = Script::new();
    script.table(Table::Nat).chain(chains::MARK_DROP);
    script.append(written.script);
    let written = Rules { script, ..written };
    let saved = namespace::load(&written, family, flavour)?;
    same_in_order(
        &Dump::of_script(&written.script)?,
        &Dump::parse(&saved)?,
        Order::Strict,
    )
}
