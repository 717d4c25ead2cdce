//! Replays rules, sets, nftables tables and virtual servers of a dumped node.

use std::fmt::Write as _;

use super::account::{Account, counted};
use svclab_dump::NodeDump;
use svclab_model::plan::{Backend, Iptables, Namespace, VirtualServer};
use svclab_ruleset::ipset::saved::Sets;
use svclab_ruleset::iptables;
use svclab_ruleset::ipvs::saved::{Servers, VirtualServer as Dumped};
use svclab_ruleset::ipvs::{RealServer, SchedulerFlags};
use svclab_ruleset::nft::Ruleset;
use svclab_ruleset::text::attributes::Attributes;
use svclab_ruleset::tool::{Backing, Format, Ip};

/// Tables of iptables-nft in nftables.
const IPTABLES: [&str; 5] = ["filter", "nat", "mangle", "raw", "security"];

/// Replaces the rules, sets, tables and virtual servers of the node with those of the dump.
pub fn put(namespace: &mut Namespace, dump: &NodeDump, account: &mut Account) {
    if dump.rules.is_empty() && dump.nft.is_none() {
        account.stands_in("rules as the lab's components write them: none were dumped");
    }
    if !dump.rules.is_empty() {
        iptables(namespace, dump, account);
    }
    match &dump.sets {
        Some(sets) => {
            namespace.ipset = restore(sets);
            let entries: usize = sets.values().map(|set| set.entries.len()).sum();
            let (sets, entries) = (
                counted(sets.len(), "set", "sets"),
                counted(entries, "entry", "entries"),
            );
            if dump.sets.iter().any(|sets| !sets.is_empty()) {
                account.is_real(format!("{sets} with {entries}"));
            }
        }
        None if !namespace.ipset.is_empty() => {
            account
                .stands_in("sets as the lab's components write them: `ipset save` was not dumped");
        }
        None => {}
    }
    if let Some(nft) = &dump.nft {
        let own = own_tables(nft, dump);
        if !own.tables.is_empty() {
            let tables = counted(own.tables.len(), "table", "tables");
            account.is_real(format!("{tables} of nftables"));
        }
        namespace.nft = own.to_string();
    }
    match &dump.servers {
        Some(servers) => {
            let count = counted(servers.len(), "virtual server", "virtual servers");
            account.is_real(count);
            if servers.values().any(|server| server.servers.len() > 1) {
                account.stands_in(
                    "the order of real servers, which `ipvsadm` prints sorted: round robin may begin with another",
                );
            }
            namespace.ipvs = virtual_servers(servers, account);
        }
        None if !namespace.ipvs.is_empty() => account.stands_in(
            "virtual servers as the lab's components write them: `ipvsadm -Sn` was not dumped",
        ),
        None => {}
    }
}

/// Replaces the rules of both backends; the default backend comes first.
fn iptables(namespace: &mut Namespace, dump: &NodeDump, account: &mut Account) {
    let planned = namespace.iptables.take();
    let assumed = planned
        .as_ref()
        .map_or_else(Backend::default, |own| own.backend);
    let mut all = Vec::new();
    for backing in [Backing::Default, Backing::Legacy] {
        let of = |ip: Ip| dump.rules.get(&(ip, backing));
        if of(Ip::V4).is_none() && of(Ip::V6).is_none() {
            continue;
        }
        let named = |word: &str| {
            let files = [Ip::V4, Ip::V6].map(|ip| dump.files.get(&Format::Rules(ip, backing)));
            files.into_iter().flatten().any(|file| file.contains(word))
        };
        let backend = match backing {
            Backing::Legacy => Backend::Legacy,
            Backing::Default if named("-nft-") => Backend::Nft,
            Backing::Default => assumed,
        };
        let mut rules = Iptables {
            backend,
            ..Iptables::default()
        };
        for (ip, text) in [(Ip::V4, &mut rules.v4), (Ip::V6, &mut rules.v6)] {
            if let Some(dumped) = of(ip) {
                *text = dumped.to_string();
                count(dumped, ip, backing, dump, account);
                continue;
            }
            // A family that was not dumped keeps the rules of the plan.
            if let Some(own) = planned.as_ref().filter(|own| own.backend == backend) {
                let own = if ip == Ip::V4 { &own.v4 } else { &own.v6 };
                text.clone_from(own);
            }
        }
        if !rules.v4.is_empty() || !rules.v6.is_empty() {
            all.push(rules);
        }
    }
    let tables = dump.rules.values().flat_map(|dumped| &dumped.tables);
    let mut chains = tables.flat_map(|table| &table.chains);
    if chains.all(|chain| chain.rules.is_empty()) {
        account.is_real("no rules of iptables");
    }
    let mut all = all.into_iter();
    namespace.iptables = all.next();
    namespace.beside = all.next();
    let both = namespace.iptables.iter().chain(&namespace.beside);
    let texts: Vec<&str> = both.flat_map(|rules| [&*rules.v4, &*rules.v6]).collect();
    let mut counters: Vec<String> = texts.iter().flat_map(|text| nfacct(text)).collect();
    counters.sort();
    counters.dedup();
    namespace.accounting = counters;
}

fn count(
    dumped: &iptables::Dump,
    ip: Ip,
    backing: Backing,
    dump: &NodeDump,
    account: &mut Account,
) {
    let chains = dumped.tables.iter().flat_map(|table| &table.chains);
    let rules: usize = chains.map(|chain| chain.rules.len()).sum();
    let file = dump.files.get(&Format::Rules(ip, backing));
    let file = file.and_then(|file| file.rsplit(['/', ':']).next());
    if rules > 0 {
        let rules = counted(rules, "rule", "rules");
        account.is_real(format!("{rules} of {}", file.unwrap_or("iptables")));
    }
}

/// Returns the accounting objects that rules refer to.
fn nfacct(text: &str) -> Vec<String> {
    let words = text.split("--nfacct-name ").skip(1);
    words
        .filter_map(|rest| rest.split_ascii_whitespace().next())
        .map(str::to_owned)
        .collect()
}

/// Returns the tables that do not belong to iptables, whose own dump contains those.
fn own_tables(nft: &Ruleset, dump: &NodeDump) -> Ruleset {
    let kept = |family: &str, name: &str| {
        let ip = match family {
            "ip" => Ip::V4,
            "ip6" => Ip::V6,
            _ => return false,
        };
        IPTABLES.contains(&name) && dump.rules.contains_key(&(ip, Backing::Default))
    };
    let mut own = nft.clone();
    own.tables.retain(|table| !kept(&table.family, &table.name));
    own
}

/// Renders the input of `ipset restore`. All sets come before the entries, because an entry can
/// refer to another set.
fn restore(sets: &Sets) -> String {
    let mut text = String::new();
    for (name, set) in sets {
        let _ = writeln!(text, "create {name} {}{}", set.kind, words(&set.options));
    }
    for (name, set) in sets {
        for (entry, carries) in &set.entries {
            let _ = writeln!(text, "add {name} {entry}{}", words(&carries.options));
        }
    }
    text
}

fn words(attributes: &Attributes) -> String {
    let mut text = String::new();
    for attribute in &attributes.0 {
        let _ = write!(text, " {}", attribute.name);
        if let Some(value) = &attribute.value {
            let _ = write!(text, " {value}");
        }
    }
    text
}

fn virtual_servers(servers: &Servers, account: &mut Account) -> Vec<VirtualServer> {
    let mut made = Vec::new();
    for (takes, dumped) in servers {
        if let Some(lacks) = lacks(dumped) {
            account.left_out(
                format!("{lacks} of the virtual server {takes}"),
                "svclab's virtual servers have none",
                "which real server is chosen may differ",
            );
        }
        let flags = dumped.flags.as_deref().unwrap_or_default();
        made.push(VirtualServer {
            takes: *takes,
            scheduler: dumped.scheduler.to_string(),
            persistence: dumped.persistence,
            flags: SchedulerFlags {
                fallback: flags.contains("-fallback"),
                port: flags.contains("-port"),
            },
            servers: dumped
                .servers
                .iter()
                .map(|(to, server)| RealServer {
                    to: *to,
                    weight: server.weight,
                    forwarding: server.forwarding,
                })
                .collect(),
        });
    }
    made
}

fn lacks(dumped: &Dumped) -> Option<&'static str> {
    let thresholds =
        |servers: &Dumped| servers.servers.values().any(|one| one.thresholds != (0, 0));
    [
        (dumped.netmask.is_some(), "the netmask"),
        (dumped.engine.is_some(), "the persistence engine"),
        (dumped.one_packet, "one-packet scheduling"),
        (thresholds(dumped), "the thresholds"),
    ]
    .into_iter()
    .find_map(|(has, name)| has.then_some(name))
}
