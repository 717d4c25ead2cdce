//! ipvs mode, against what real kube-proxies left: rules, sets, virtual servers
//! and the addresses of `kube-ipvs0`.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Debug;

use libtest_mimic::{Failed, Trial};
use svclab::dump::iptables::{Dump, Order};
use svclab::rules::ipset::IpsetScript;
use svclab::rules::kube_proxy::ipvs::{DUMMY, IPVS_OUT_FILTER};
use svclab::rules::kube_proxy::{Family, IpvsRules, KubeProxy, Mode, Version, chains, ipvs_rules};
use svclab::rules::script::{Script, Table};

use crate::namespace::{self, Flavour};
use crate::recordings::{self, IpvsRecording};
use crate::{same, same_in_order, same_lines};

/// The sets of the other IP family, whose proxier was still at work when the
/// dumps were taken: some of them are there, empty.
const OTHER_FAMILY: &str = "KUBE-6-";

/// Compares one part of a recording.
type Part = fn(&IpvsRecording) -> Result<(), Failed>;

pub fn trials() -> Vec<Trial> {
    let mut trials = Vec::new();
    for recording in recordings::all_ipvs() {
        let name = recording.name();
        let parts: [(&str, Part); 4] = [
            ("rules", rules),
            ("sets", sets),
            ("servers", servers),
            ("addresses", addresses),
        ];
        for (part, compare) in parts {
            let known = recording.clone();
            trials.push(Trial::test(format!("ipvs::{part}::{name}"), move || {
                compare(&known)
            }));
        }
        for flavour in [Flavour::Nft, Flavour::Legacy] {
            let known = recording.clone();
            trials.push(Trial::test(
                format!("ipvs::kernel::{flavour}::{name}"),
                move || kernel(&known, flavour),
            ));
        }
    }
    for minor in 9..=36 {
        for family in [Family::V4, Family::V6] {
            for flavour in [Flavour::Nft, Flavour::Legacy] {
                let name = format!("ipvs::loads::{flavour}::v1.{minor}::{family}");
                trials.push(Trial::test(name, move || loads(minor, family, flavour)));
            }
        }
    }
    trials
}

fn written(recording: &IpvsRecording, family: Family) -> Result<IpvsRules, Failed> {
    let cluster = recordings::recorded_cluster(&recording.objects)?;
    let objects = cluster.objects("node-a");
    Ok(ipvs_rules(&recording.proxy()?, &objects, family)?)
}

fn rules(recording: &IpvsRecording) -> Result<(), Failed> {
    let found = Dump::of_script(&written(recording, Family::V4)?.script)?;
    same(&Dump::parse(&recording.text("iptables-save")?)?, &found)
}

fn sets(recording: &IpvsRecording) -> Result<(), Failed> {
    let recorded = read_sets(&recording.text("ipset-save")?)?;
    let (other, own) = recorded
        .into_iter()
        .partition::<Sets, _>(|(name, _)| name.starts_with(OTHER_FAMILY));
    equal(&own, &sets_of(&written(recording, Family::V4)?.sets)?)?;
    let six = sets_of(&written(recording, Family::V6)?.sets)?;
    for (name, set) in &other {
        equal(&Some(set), &six.get(name))?;
    }
    Ok(())
}

fn servers(recording: &IpvsRecording) -> Result<(), Failed> {
    let found: String = written(recording, Family::V4)?
        .servers
        .iter()
        .map(ToString::to_string)
        .collect();
    equal(&lines(&recording.text("ipvsadm-Sn")?)?, &lines(&found)?)
}

fn addresses(recording: &IpvsRecording) -> Result<(), Failed> {
    let written = written(recording, Family::V4)?;
    let text = recording.text("ip-addr")?;
    let mut recorded = text
        .lines()
        .skip_while(|line| !line.contains(&format!(" {DUMMY}:")));
    let first = recorded.next().ok_or("the recording lacks the interface")?;
    let down = first.contains("<BROADCAST,NOARP>") && first.contains("state DOWN");
    equal(&true, &down)?;
    let recorded: BTreeSet<String> = recorded
        .take_while(|line| line.starts_with(' '))
        .map(str::trim)
        .filter(|line| line.starts_with("inet"))
        .map(str::to_owned)
        .collect();
    let found: BTreeSet<String> = written
        .bound
        .iter()
        .map(|address| {
            let broadcast = if written.broadcast {
                format!(" brd {address}")
            } else {
                String::new()
            };
            format!("inet {address}/32{broadcast} scope global {DUMMY}")
        })
        .collect();
    equal(&recorded, &found)
}

/// Rules and sets as a kernel has them. Rules that ask IPVS for a packet's
/// virtual server are left out: loading one would load IPVS.
fn kernel(recording: &IpvsRecording, flavour: Flavour) -> Result<(), Failed> {
    let written = written(recording, Family::V4)?;
    let script = without_ipvs(&written.script.to_string());
    let (rules, sets) =
        namespace::load_sets(&script, &written.sets.to_string(), Family::V4, flavour)?;
    let recorded = without_ipvs(&recording.text("iptables-save")?);
    same(&Dump::parse(&recorded)?, &Dump::parse(&rules)?)?;
    if flavour == Flavour::Nft {
        // They were recorded with this flavour.
        same_lines(&recorded, &rules)?;
    }
    equal(&sets_of(&written.sets)?, &read_sets(&sets)?)
}

/// What any version writes for a cluster that has a bit of everything is
/// accepted by the kernel, and it reads back what was meant.
fn loads(minor: u8, family: Family, flavour: Flavour) -> Result<(), Failed> {
    let cluster = recordings::recorded_cluster("everything")?;
    let mut proxy = KubeProxy::new(Version::minor(minor)?);
    proxy.mode = Mode::Ipvs;
    proxy.cluster_cidr = Some("10.244.0.0/16,fd00:10:244::/56".parse()?);
    let written = ipvs_rules(&proxy, &cluster.objects("node-a"), family)?;
    let mut script = Script::new();
    script.table(Table::Nat).chain(chains::MARK_DROP);
    for (table, block) in written.script.tables() {
        let here = script.table(table);
        for chain in &block.chains {
            if !here.chains.contains(chain) {
                here.chain(chain);
            }
        }
        for command in &block.commands {
            if !without_ipvs(command).is_empty() {
                here.command(command);
            }
        }
    }
    let (rules, sets) = namespace::load_sets(
        &script.to_string(),
        &written.sets.to_string(),
        family,
        flavour,
    )?;
    same_in_order(
        &Dump::of_script(&script)?,
        &Dump::parse(&rules)?,
        Order::Strict,
    )?;
    equal(&sets_of(&written.sets)?, &read_sets(&sets)?)
}

fn without_ipvs(text: &str) -> String {
    let about = format!("-A {IPVS_OUT_FILTER} ");
    let mut kept = String::new();
    for line in text.lines().filter(|line| !line.starts_with(&about)) {
        kept.push_str(line);
        kept.push('\n');
    }
    kept
}

/// By name: what a set was created as, and its entries.
type Sets = BTreeMap<String, (Vec<String>, BTreeSet<String>)>;

fn sets_of(script: &IpsetScript) -> Result<Sets, Failed> {
    read_sets(&script.to_string())
}

/// Reads `create` and `add` lines. A hash's random start and the number of
/// entries to a bucket, which new versions of the tool print, say nothing.
fn read_sets(text: &str) -> Result<Sets, Failed> {
    let mut sets = Sets::new();
    for line in text.lines() {
        let words: Vec<&str> = line.split(' ').filter(|word| !word.is_empty()).collect();
        match words[..] {
            ["create", name, ref rest @ ..] => {
                let mut kind = Vec::new();
                let mut rest = rest.iter();
                while let Some(word) = rest.next() {
                    if ["initval", "bucketsize"].contains(word) {
                        rest.next();
                    } else {
                        kind.push((*word).to_owned());
                    }
                }
                let fresh = sets.insert(name.to_owned(), (kind, BTreeSet::new()));
                if fresh.is_some() {
                    return Err(format!("{name} is created twice").into());
                }
            }
            ["add", name, entry] => {
                let set = sets.get_mut(name).ok_or("an entry of no set")?;
                if !set.1.insert(entry.to_owned()) {
                    return Err(format!("{line}: twice").into());
                }
            }
            _ => return Err(format!("`{line}` is neither create nor add").into()),
        }
    }
    Ok(sets)
}

/// The lines of a text, each of which must be there once.
fn lines(text: &str) -> Result<BTreeSet<&str>, Failed> {
    let mut lines = BTreeSet::new();
    for line in text.lines() {
        if !lines.insert(line.trim_end()) {
            return Err(format!("`{line}`: twice").into());
        }
    }
    Ok(lines)
}

fn equal<T: PartialEq + Debug>(recorded: &T, found: &T) -> Result<(), Failed> {
    if recorded == found {
        return Ok(());
    }
    Err(format!("recorded {recorded:#?}\nfound {found:#?}").into())
}
