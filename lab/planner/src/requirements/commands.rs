//! Lists the modules that commands of nodes (`byHand`) request: queueing disciplines, filters and
//! actions of `tc`, types of interfaces, `xfrm`, sets and virtual servers.
//!
//! Without a module, these programs only print that the kernel does not know a name. Words that are
//! not understood require nothing; the program rejects them.

use super::{Requirements, quote_line};
use crate::command_words::{file_name, is_short_for, split_iproute};
use svclab_model::plan::NodeCommand;

/// Queueing disciplines. Their modules have the prefix `sch_`. The first-in-first-out disciplines are
/// part of every kernel with `tc` (Linux v6.12, `net/sched/Makefile`).
const DISCIPLINES: [&str; 21] = [
    "cake", "cbs", "choke", "codel", "drr", "ets", "fq", "fq_codel", "fq_pie", "hfsc", "htb",
    "ingress", "multiq", "netem", "pie", "plug", "prio", "qfq", "red", "sfq", "tbf",
];

/// Filters of `tc`. Their modules have the prefix `cls_`.
const FILTERS: [&str; 8] = [
    "basic", "bpf", "cgroup", "flow", "flower", "fw", "matchall", "u32",
];

/// Actions of `tc`. Their modules have the prefix `act_`.
const ACTIONS: [&str; 7] = [
    "gact", "mirred", "nat", "pedit", "police", "skbedit", "vlan",
];

/// Other names of the action `gact` (iproute2 v6.1.0, `tc/m_gact.c`).
const GACT: [&str; 7] = [
    "continue",
    "drop",
    "ok",
    "pass",
    "pipe",
    "reclassify",
    "shot",
];

/// Modules of interface types.
const LINK_TYPES: [(&str, &str); 17] = [
    ("bond", "bonding"),
    ("bridge", "bridge"),
    ("dummy", "dummy"),
    ("geneve", "geneve"),
    ("gre", "ip_gre"),
    ("gretap", "ip_gre"),
    ("ifb", "ifb"),
    ("ip6tnl", "ip6_tunnel"),
    ("ipip", "ipip"),
    ("ipvlan", "ipvlan"),
    ("macvlan", "macvlan"),
    ("sit", "sit"),
    ("veth", "veth"),
    ("vlan", "8021q"),
    ("vrf", "vrf"),
    ("vxlan", "vxlan"),
    ("wireguard", "wireguard"),
];

/// Words of `tc` that a value follows.
const TC_KEYS: [&str; 9] = [
    "dev", "parent", "handle", "protocol", "prio", "pref", "chain", "block", "classid",
];

/// Adds the modules that a command requests.
pub(super) fn add_requirements(needs: &mut Requirements, command: &NodeCommand) {
    let words: Vec<&str> = command.command.iter().map(String::as_str).collect();
    let Some((program, words)) = words.split_first() else {
        return;
    };
    let modules = match file_name(program) {
        "tc" => of_tc(words),
        "ip" => of_ip(words),
        "ipset" => of_ipset(words),
        "ipvsadm" => of_ipvsadm(words),
        _ => Vec::new(),
    };
    for module in modules {
        let line = command.to_string();
        needs.add_module(&module, &command.namespace, || quote_line("command", &line));
    }
}

/// Returns the module of a known name of `tc`.
fn tc_module(prefix: &str, known: &[&str], name: &str) -> Option<String> {
    let name = match name {
        "clsact" => "ingress",
        name if prefix == "act" && GACT.contains(&name) => "gact",
        name => name,
    };
    known.contains(&name).then(|| format!("{prefix}_{name}"))
}

fn of_tc(words: &[&str]) -> Vec<String> {
    let Some((object, verb, words)) = split_iproute(words) else {
        return Vec::new();
    };
    let adds = ["add", "replace", "change", "link"];
    if !adds.iter().any(|full| is_short_for(verb, full)) {
        return Vec::new();
    }
    let (prefix, known): (&str, &[&str]) = if is_short_for(object, "qdisc") {
        ("sch", &DISCIPLINES)
    } else if is_short_for(object, "filter") {
        ("cls", &FILTERS)
    } else {
        return Vec::new();
    };
    let mut modules = Vec::new();
    let mut words = words.into_iter();
    while let Some(word) = words.next() {
        if TC_KEYS.contains(&word) {
            words.next();
        } else if word == "action" {
            modules.extend(
                words
                    .next()
                    .and_then(|name| tc_module("act", &ACTIONS, name)),
            );
        } else if modules.is_empty() {
            modules.extend(tc_module(prefix, known, word));
        }
    }
    modules
}

fn of_ip(words: &[&str]) -> Vec<String> {
    let Some((object, verb, words)) = split_iproute(words) else {
        return Vec::new();
    };
    if is_short_for(object, "xfrm") {
        // The kernel requests the type of a state by number, which is an alias (Linux v6.12,
        // `net/xfrm/xfrm_state.c`, `xfrm_get_type`).
        let esp = words.contains(&"esp").then(|| "esp4".to_owned());
        return std::iter::once("xfrm_user".to_owned()).chain(esp).collect();
    }
    if !is_short_for(verb, "add") {
        return Vec::new();
    }
    let key = if is_short_for(object, "link") {
        "type"
    } else if object.len() > 1 && is_short_for(object, "tunnel") {
        "mode"
    } else {
        return Vec::new();
    };
    let mut words = words.into_iter().skip_while(|word| *word != key).skip(1);
    let kind = words.next();
    let mut types = LINK_TYPES.iter();
    let found = types.find(|(name, _)| Some(*name) == kind);
    found
        .map(|(_, module)| (*module).to_owned())
        .into_iter()
        .collect()
}

fn of_ipset(words: &[&str]) -> Vec<String> {
    let is_option = |word: &&&str| matches!(**word, "-exist" | "-!" | "-quiet" | "-q");
    let mut words = words
        .iter()
        .filter(|word| !is_option(word))
        .skip_while(|word| !matches!(**word, "create" | "-N" | "--create" | "n"));
    match (words.next(), words.next(), words.next()) {
        (Some(_), Some(_), Some(kind)) => vec!["ip_set".to_owned(), format!("ip_set_{kind}")],
        _ => Vec::new(),
    }
}

fn of_ipvsadm(words: &[&str]) -> Vec<String> {
    // The default is `wlc` (ipvsadm v1.31, `DEF_SCHED`).
    let adds_server = words
        .iter()
        .any(|word| matches!(*word, "-A" | "--add-service"));
    let mut named = words
        .iter()
        .skip_while(|word| !matches!(**word, "-s" | "--scheduler"))
        .skip(1);
    let scheduler = named.next().copied().unwrap_or("wlc");
    let scheduler = adds_server.then(|| format!("ip_vs_{scheduler}"));
    std::iter::once("ip_vs".to_owned())
        .chain(scheduler)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use svclab_model::plan::CommandLimits;

    fn modules(line: &str) -> String {
        let mut needs = Requirements::default();
        let command = NodeCommand {
            namespace: "node-1".to_owned(),
            command: line.split(' ').map(str::to_owned).collect(),
            input: String::new(),
            limits: CommandLimits::default(),
        };
        add_requirements(&mut needs, &command);
        let names: Vec<&str> = needs.modules().map(|(name, _)| name).collect();
        names.join(", ")
    }

    #[test]
    fn modules_of_commands_are_those_of_added_objects() {
        let by = |line: &str, names: &[&str]| {
            assert_eq!(modules(line), names.join(", "), "{line}");
        };
        by("tc qdisc add dev eth0 root netem loss 100%", &["sch_netem"]);
        by(
            "/sbin/tc -force q r dev fq root tbf rate 8bit",
            &["sch_tbf"],
        );
        by("tc qdisc add dev eth0 clsact", &["sch_ingress"]);
        by(
            "tc filter add dev eth0 ingress pref 1 matchall action drop",
            &["cls_matchall", "act_gact"],
        );
        by("tc qdisc del dev eth0 root netem", &[]);
        by("tc qdisc add dev eth0 root pfifo", &[]);
        by("ip link add name vrf type vrf table 10", &["vrf"]);
        by("ip -n other l a d type dummy", &["dummy"]);
        by("ip link set d type vrf", &[]);
        by("ip tunnel add t mode ipip remote 10.0.0.1", &["ipip"]);
        by("ip xfrm policy add dir out action block", &["xfrm_user"]);
        by(
            "ipset create -exist s hash:ip,port",
            &["ip_set", "ip_set_hash:ip,port"],
        );
        by("ipvsadm -A -t 10.0.0.1:80 -s rr", &["ip_vs", "ip_vs_rr"]);
        by("ipvsadm -d -t 10.0.0.1:80 -r 10.0.0.2", &["ip_vs"]);
        by("sh -c tc", &[]);
        by("tc", &[]);
    }
}
