//! Replays rules, sets, nftables tables and virtual servers of a dumped node.

use super::not_built::chain_order;
use super::not_built::unsaved_chains::{is_plain_table, report_unsaved_chains, saved_table};
use super::report::{ReplayReport, count_noun};
use svclab_dump::NodeDump;
use svclab_model::plan::{Backend, Iptables, Namespace, VirtualServer};
use svclab_ruleset::Family;
use svclab_ruleset::input::Input;
use svclab_ruleset::iptables;
use svclab_ruleset::iptables::script::IptablesScript;
use svclab_ruleset::ipvs::saved::{SavedVirtualServer as Dumped, Servers};
use svclab_ruleset::ipvs::{Persistence, RealServer, SchedulerFlags};
use svclab_ruleset::nft::{Ruleset, Table};
use svclab_ruleset::tool::{DumpedBackend, Format};

/// Replaces the rules, sets, tables and virtual servers of the node with those of the dump.
pub fn replay_rules(namespace: &mut Namespace, dump: &NodeDump, report: &mut ReplayReport) {
    if dump.rules.is_empty() && dump.nft.is_none() {
        report.add_simulated("rules of the lab's components: no rules were dumped");
    }
    if !dump.rules.is_empty() {
        replay_iptables(namespace, dump, report);
    }
    match &dump.sets {
        Some(sets) => {
            namespace.ipset = sets.clone().into();
            let entries: usize = sets.values().map(|set| set.entries.len()).sum();
            let (sets, entries) = (
                count_noun(sets.len(), "set", "sets"),
                count_noun(entries, "entry", "entries"),
            );
            if dump.sets.iter().any(|sets| !sets.is_empty()) {
                report.add_replayed(format!("{sets} with {entries}"));
            }
        }
        None if !namespace.ipset.is_empty() => {
            report.add_simulated("sets of the lab's components: `ipset save` was not dumped");
        }
        None => {}
    }
    if let Some(nft) = &dump.nft {
        let mut native = native_tables(nft, dump, report);
        if !native.tables.is_empty() {
            let tables = count_noun(native.tables.len(), "table", "tables");
            report.add_replayed(format!("{tables} of nftables"));
        }
        namespace.nft_first = chain_order::creates_nft_first(&native, dump, report);
        if namespace.nft_first {
            let tables = &mut native.tables;
            tables.sort_by_key(|table| table.of_iptables().is_some());
        }
        clear_listed_families(namespace, &native, dump);
        namespace.nft = native.into();
    }
    match &dump.servers {
        Some(servers) => {
            let count = count_noun(servers.len(), "virtual server", "virtual servers");
            report.add_replayed(count);
            if servers.values().any(|server| server.servers.len() > 1) {
                report.add_simulated(
                    "order of real servers: `ipvsadm` sorts them, \
                    so round robin may start with another server",
                );
            }
            namespace.ipvs = plan_virtual_servers(servers, report);
        }
        None if !namespace.ipvs.is_empty() => report
            .add_simulated("virtual servers of the lab's components: `ipvsadm -Sn` was not dumped"),
        None => {}
    }
}

/// Replaces the rules of both backends; the default backend comes first.
fn replay_iptables(namespace: &mut Namespace, dump: &NodeDump, report: &mut ReplayReport) {
    let planned = namespace.iptables.take();
    let assumed = planned
        .as_ref()
        .map_or_else(Backend::default, |own| own.backend);
    let mut backends = Vec::new();
    for backing in [DumpedBackend::Default, DumpedBackend::Legacy] {
        let dumped_rules = |ip: Family| dump.rules.get(&(ip, backing));
        if dumped_rules(Family::V4).is_none() && dumped_rules(Family::V6).is_none() {
            continue;
        }
        let has_file_with = |word: &str| {
            let files =
                [Family::V4, Family::V6].map(|ip| dump.files.get(&Format::Rules(ip, backing)));
            files.into_iter().flatten().any(|file| file.contains(word))
        };
        let backend = match backing {
            DumpedBackend::Legacy => Backend::Legacy,
            DumpedBackend::Default if has_file_with("-nft-") => Backend::Nft,
            DumpedBackend::Default => assumed,
        };
        let mut rules = Iptables {
            backend,
            ..Iptables::default()
        };
        for (ip, input) in [(Family::V4, &mut rules.v4), (Family::V6, &mut rules.v6)] {
            if let Some(dumped) = dumped_rules(ip) {
                *input = IptablesScript::from(dumped).into();
                report_rule_count(dumped, ip, backing, dump, report);
                continue;
            }
            // A family that was not dumped keeps the rules of the plan.
            if let Some(own) = planned.as_ref().filter(|own| own.backend == backend) {
                let own = if ip == Family::V4 { &own.v4 } else { &own.v6 };
                input.clone_from(own);
            }
        }
        if !rules.v4.is_empty() || !rules.v6.is_empty() {
            backends.push(rules);
        }
    }
    let tables = dump.rules.values().flat_map(|dumped| &dumped.tables);
    let mut chains = tables.flat_map(|table| &table.chains);
    if chains.all(|chain| chain.rules.is_empty()) {
        report.add_replayed("no iptables rules");
    }
    let mut backends = backends.into_iter();
    namespace.iptables = backends.next();
    namespace.other_iptables = backends.next();
    let loaded = namespace.iptables_rules();
    let texts = loaded.flat_map(|rules| [rules.v4.text(), rules.v6.text()]);
    let mut counters: Vec<String> = texts.flat_map(accounting_names).collect();
    counters.sort();
    counters.dedup();
    namespace.accounting = counters;
}

fn report_rule_count(
    dumped: &iptables::IptablesRules,
    ip: Family,
    backing: DumpedBackend,
    dump: &NodeDump,
    report: &mut ReplayReport,
) {
    let chains = dumped.tables.iter().flat_map(|table| &table.chains);
    let rules: usize = chains.map(|chain| chain.rules.len()).sum();
    let file = dump.files.get(&Format::Rules(ip, backing));
    let file = file.and_then(|file| file.rsplit(['/', ':']).next());
    if rules > 0 {
        let rules = count_noun(rules, "rule", "rules");
        report.add_replayed(format!("{rules} of {}", file.unwrap_or("iptables")));
    }
}

/// Returns the accounting objects that rules refer to.
fn accounting_names(text: &str) -> Vec<String> {
    let words = text.split("--nfacct-name ").skip(1);
    words
        .filter_map(|rest| rest.split_ascii_whitespace().next())
        .map(str::to_owned)
        .collect()
}

/// Returns the tables that the saved rules of iptables do not contain, and reports the chains of
/// the others that they lack.
fn native_tables(nft: &Ruleset, dump: &NodeDump, report: &mut ReplayReport) -> Ruleset {
    let mut is_native = |table: &Table| {
        let family = table.of_iptables().map(|(family, _)| family);
        let rules = family.and_then(|ip| dump.rules.get(&(ip, DumpedBackend::Default)));
        let Some(rules) = rules else {
            return true;
        };
        match saved_table(table, &rules.tables) {
            Some(saved) => {
                report_unsaved_chains(table, saved, report);
                false
            }
            None => !is_plain_table(table),
        }
    };
    let tables = nft.tables.iter().cloned();
    Ruleset {
        tables: tables.filter(|table| is_native(table)).collect(),
    }
}

/// Removes the planned rules of the address families whose tables of iptables-nft are known from
/// nftables only.
fn clear_listed_families(namespace: &mut Namespace, native: &Ruleset, dump: &NodeDump) {
    let listed = native.tables.iter().filter_map(Table::of_iptables);
    for (ip, _) in listed {
        if dump.rules.keys().any(|(dumped, _)| *dumped == ip) {
            continue;
        }
        let inputs = namespace
            .iptables
            .iter_mut()
            .chain(&mut namespace.other_iptables);
        for input in inputs {
            match ip {
                Family::V4 => input.v4 = Input::default(),
                Family::V6 => input.v6 = Input::default(),
            }
        }
    }
}

fn plan_virtual_servers(servers: &Servers, report: &mut ReplayReport) -> Vec<VirtualServer> {
    let mut planned = Vec::new();
    for (takes, dumped) in servers {
        if let Some(feature) = unsupported_feature(dumped) {
            report.add_omitted(
                format!("{feature} of virtual server {takes}"),
                "not supported by svclab",
                "the choice of the real server may differ",
            );
        }
        let flags = dumped.flag_names();
        let has_flag = |ending: &str| flags.iter().any(|flag| flag.ends_with(ending));
        planned.push(VirtualServer {
            key: *takes,
            scheduler: dumped.scheduler.to_string(),
            persistence: dumped.persistence.map(Persistence::seconds),
            flags: SchedulerFlags {
                fallback: has_flag(FALLBACK),
                hash_port: has_flag(HASH_PORT),
            },
            servers: dumped
                .servers
                .iter()
                .map(|(to, server)| RealServer {
                    address: *to,
                    weight: server.weight,
                    method: server.forwarding,
                })
                .collect(),
        });
    }
    planned
}

/// Options of the default kind of tunnel.
const PLAIN_TUNNEL: [&str; 2] = ["--tun-type", "ipip"];

/// Ends of the names of supported flags of schedulers.
const FALLBACK: &str = "-fallback";
const HASH_PORT: &str = "-port";

fn unsupported_feature(dumped: &Dumped) -> Option<&'static str> {
    let is_supported = |flag: &String| flag.ends_with(FALLBACK) || flag.ends_with(HASH_PORT);
    let has_tunnel = |servers: &Dumped| {
        let mut tunnels = servers
            .servers
            .values()
            .filter_map(|one| one.tunnel.as_deref());
        tunnels.any(|tunnel| tunnel.split_ascii_whitespace().ne(PLAIN_TUNNEL))
    };
    let has_thresholds =
        |servers: &Dumped| servers.servers.values().any(|one| one.thresholds != (0, 0));
    [
        (dumped.netmask.is_some(), "netmask"),
        (dumped.engine.is_some(), "persistence engine"),
        (dumped.one_packet, "one-packet scheduling"),
        (has_thresholds(dumped), "thresholds"),
        (has_tunnel(dumped), "tunnel options"),
        (
            !dumped.flag_names().iter().all(is_supported),
            "scheduler flags",
        ),
    ]
    .into_iter()
    .find_map(|(has, name)| has.then_some(name))
}
