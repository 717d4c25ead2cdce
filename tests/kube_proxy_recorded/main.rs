//! What svclab writes for kube-proxy, against what real kube-proxies wrote.
//!
//! `text` compares without a kernel. `kernel` loads the rules with the real
//! `iptables-restore`, both flavours, in a network namespace of its own and
//! reads them back.

mod namespace;
mod recordings;

use std::process::ExitCode;

use libtest_mimic::{Arguments, Failed, Trial};
use svclab::rules::dump::{Dump, Order, compare};
use svclab::rules::kube_proxy::{Family, Rules, Version, chains, rules};
use svclab::rules::script::{Script, Table};

use namespace::Flavour;
use recordings::Recording;

fn main() -> ExitCode {
    // Namespaces need root; anybody can be root in a user namespace.
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

/// What svclab writes for the objects and flags of a recording, after what the
/// recording was made upon.
fn written(recording: &Recording) -> Result<Rules, Failed> {
    let cluster = recordings::cluster(&recording.objects)?;
    let written = rules(&recording.proxy()?, &cluster.objects("node-a"), Family::V4)?;
    let mut script = Script::new();
    if recording.mark_drop_was_there() {
        script.table(Table::Nat).chain(chains::MARK_DROP);
    }
    script.append(written.script);
    Ok(Rules { script, ..written })
}

fn same(expected: &Dump, found: &Dump) -> Result<(), Failed> {
    let differences = compare(expected, found, Order::ServicesInAnyOrder);
    if differences.is_empty() {
        return Ok(());
    }
    let told: Vec<String> = differences.iter().map(ToString::to_string).collect();
    Err(format!(
        "{} differences, - only recorded, + only written:\n{}",
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
    let saved = namespace::load(&written, Family::V4, flavour)?;
    same(&Dump::parse(&recording.text()?)?, &Dump::parse(&saved)?)
}

/// Every version's rules, for a cluster that has a bit of everything, are
/// accepted by the kernel and are what was meant.
fn loads(minor: u8, family: Family, flavour: Flavour) -> Result<(), Failed> {
    let cluster = recordings::cluster("everything")?;
    let proxy = recordings::everything(Version::minor(minor)?)?;
    let written = rules(&proxy, &cluster.objects("node-a"), family)?;
    let mut script = Script::new();
    script.table(Table::Nat).chain(chains::MARK_DROP);
    script.append(written.script);
    let written = Rules { script, ..written };
    let saved = namespace::load(&written, family, flavour)?;
    let differences = compare(
        &Dump::of_script(&written.script)?,
        &Dump::parse(&saved)?,
        Order::Strict,
    );
    if differences.is_empty() {
        return Ok(());
    }
    let told: Vec<String> = differences.iter().map(ToString::to_string).collect();
    Err(told.join("\n").into())
}
