//! Compares the state that a kube-proxy has written with the state that svclab generates.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::{Debug, Display};
use std::net::IpAddr;

use libtest_mimic::Failed;
use svclab_dump::compare::iptables::{Order, compare};
use svclab_rules::kube_proxy::ipvs::DUMMY;
use svclab_rules::kube_proxy::{Family, KubeProxy, Mode, Objects, ipvs_rules, rules};
use svclab_ruleset::iptables::IptablesRules;
use svclab_ruleset::iptables::script::IptablesScript;

use crate::bench::ADDRESS;
use crate::cluster::{Cluster, NODE};
use crate::marker;

/// State that a kube-proxy has written, as programs print it. All fields but the rules are used in
/// ipvs mode only.
#[derive(Debug, Default)]
pub struct Texts {
    /// Output of `iptables-save`.
    pub rules: String,
    /// Output of `ipset save`.
    pub sets: String,
    /// Output of `ipvsadm -S -n`.
    pub servers: String,
    /// Output of `ip addr`.
    pub addresses: String,
}

/// Compares `texts` with the generated state of a cluster. Returns the differences; `None` if
/// equal.
pub fn compare_all(
    proxy: &KubeProxy,
    cluster: &Cluster,
    texts: &Texts,
) -> Result<Option<String>, Failed> {
    compare_lines(proxy, cluster, texts, |_| true)
}

/// Compares without the lines of a marker that ipvs mode has outside of rules.
pub fn compare_without_marker(
    proxy: &KubeProxy,
    cluster: &Cluster,
    texts: &Texts,
) -> Result<Option<String>, Failed> {
    compare_lines(proxy, cluster, texts, |line| !marker::is_marker_line(line))
}

fn compare_lines(
    proxy: &KubeProxy,
    cluster: &Cluster,
    texts: &Texts,
    is_compared: impl Fn(&str) -> bool,
) -> Result<Option<String>, Failed> {
    let interface_addresses: Vec<IpAddr> = vec!["127.0.0.1".parse()?, ADDRESS.parse()?];
    let cluster = cluster.to_generator();
    // kube-proxy reads the same addresses of the node's interfaces from the kernel.
    let objects = Objects {
        interface_addresses: &interface_addresses,
        ..cluster.objects(NODE)
    };
    let mut messages = Vec::new();
    if proxy.mode == Mode::Iptables {
        let generated = rules(proxy, &objects, Family::V4)?;
        compare_rules(&texts.rules, &generated.script, &mut messages)?;
        return Ok((!messages.is_empty()).then(|| messages.join("\n")));
    }
    let generated = ipvs_rules(proxy, &objects, Family::V4)?;
    compare_rules(&texts.rules, &generated.script, &mut messages)?;
    let counting = |text: &str| -> String {
        let lines: Vec<&str> = text.lines().filter(|line| is_compared(line)).collect();
        lines.join("\n")
    };
    let sets = |text: &str| parse_sets(&counting(text));
    compare_maps(
        &sets(&texts.sets)?,
        &sets(&generated.sets.to_string())?,
        &mut messages,
    );
    let servers = |text: &str| lines(&counting(text));
    let generated_servers: String = generated.servers.iter().map(ToString::to_string).collect();
    compare_sets(
        &servers(&texts.servers),
        &servers(&generated_servers),
        &mut messages,
    );
    let bound = generated.bound.iter().map(ToString::to_string);
    compare_sets(
        &parse_dummy_addresses(&counting(&texts.addresses))?,
        &bound.filter(|address| is_compared(address)).collect(),
        &mut messages,
    );
    Ok((!messages.is_empty()).then(|| messages.join("\n")))
}

fn compare_rules(
    written: &str,
    generated: &IptablesScript,
    messages: &mut Vec<String>,
) -> Result<(), Failed> {
    let (written, generated) = (
        IptablesRules::parse(written)?,
        IptablesRules::from_script(generated)?,
    );
    let differences = compare(&written, &generated, Order::ServicesInAnyOrder);
    messages.extend(differences.iter().map(ToString::to_string));
    Ok(())
}

fn compare_sets<T: Ord + Display>(
    written: &BTreeSet<T>,
    generated: &BTreeSet<T>,
    told: &mut Vec<String>,
) {
    let only = |first: &BTreeSet<T>, second: &BTreeSet<T>, sign: char| -> Vec<String> {
        let lines = first.difference(second);
        lines.map(|line| format!("{sign} {line}")).collect()
    };
    told.extend(only(written, generated, '-'));
    told.extend(only(generated, written, '+'));
}

fn compare_maps<T: PartialEq + Debug>(
    written: &BTreeMap<String, T>,
    generated: &BTreeMap<String, T>,
    told: &mut Vec<String>,
) {
    let names: BTreeSet<_> = written.keys().chain(generated.keys()).collect();
    for name in names {
        let (in_written, in_generated) = (written.get(name), generated.get(name));
        if in_written != in_generated {
            told.push(format!(
                "- set {name}: {in_written:?}\n+ set {name}: {in_generated:?}"
            ));
        }
    }
}

/// Creation arguments and entries of each set.
type Sets = BTreeMap<String, (Vec<String>, BTreeSet<String>)>;

/// Parses the output of `ipset save`. Ignores the hash's random start and bucket size, which newer
/// versions of the tool print.
fn parse_sets(text: &str) -> Result<Sets, Failed> {
    let mut sets = Sets::new();
    for line in text.lines() {
        let words: Vec<&str> = line.split_whitespace().collect();
        match words[..] {
            ["create", name, ref kind @ ..] => {
                let noise = |at: usize| {
                    let noise = ["initval", "bucketsize"];
                    noise.contains(&kind[at]) || (at > 0 && noise.contains(&kind[at - 1]))
                };
                let kind = (0..kind.len()).filter(|at| !noise(*at));
                let kind = kind.map(|at| words[at + 2].to_owned()).collect();
                sets.insert(name.to_owned(), (kind, BTreeSet::new()));
            }
            ["add", name, entry] => {
                let set = sets.get_mut(name).ok_or("an entry without a set")?;
                set.1.insert(entry.to_owned());
            }
            _ => return Err(format!("`{line}` is neither create nor add").into()),
        }
    }
    Ok(sets)
}

fn lines(text: &str) -> BTreeSet<String> {
    text.lines()
        .map(|line| line.trim_end().to_owned())
        .collect()
}

/// Returns the addresses of the dummy interface.
fn parse_dummy_addresses(text: &str) -> Result<BTreeSet<String>, Failed> {
    let mut lines = text
        .lines()
        .skip_while(|line| !line.contains(&format!(" {DUMMY}:")));
    // kube-proxy creates the interface during its first sync.
    let Some(first) = lines.next() else {
        return Ok(BTreeSet::new());
    };
    if !(first.contains("<BROADCAST,NOARP>") && first.contains("state DOWN")) {
        return Err(
            format!("{DUMMY} does not have the state that kube-proxy sets: {first}").into(),
        );
    }
    let of_link = lines.take_while(|line| line.starts_with(' '));
    let addresses = of_link.filter_map(|line| line.trim().strip_prefix("inet "));
    addresses
        .map(|line| {
            let address = line.split('/').next().unwrap_or_default();
            let expected = format!("{address}/32 scope global {DUMMY}");
            if line.trim() == expected {
                Ok(address.to_owned())
            } else {
                Err(format!("`{line}` is no address that kube-proxy binds").into())
            }
        })
        .collect()
}
