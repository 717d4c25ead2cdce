//! Converts the output of the kernel and its tools to the lines that a certificate compares.

use serde_json::{Map, Value};

/// Parses `ip -j -d link`. Keeps the configuration of each interface, without carrier, timers and
/// counters.
///
/// # Errors
///
/// When `json` is not the output of `ip`.
pub fn links(json: &str) -> Result<Vec<String>, String> {
    const KEPT_KEYS: [&str; 9] = [
        "ifindex",
        "ifname",
        "link",
        "link_index",
        "link_netnsid",
        "mtu",
        "master",
        "address",
        "group",
    ];
    map_objects(json, |object| {
        let mut kept = Map::new();
        for key in KEPT_KEYS {
            if let Some(value) = object.get(key) {
                kept.insert(key.to_owned(), value.clone());
            }
        }
        let is_up = object
            .get("flags")
            .and_then(Value::as_array)
            .is_some_and(|flags| flags.iter().any(|flag| flag == "UP"));
        kept.insert("up".to_owned(), is_up.into());
        if let Some(kind) = object
            .get("linkinfo")
            .and_then(|info| info.get("info_kind"))
        {
            kept.insert("kind".to_owned(), kind.clone());
        }
        Some(kept)
    })
}

/// Parses `ip -j addr`. Keeps the addresses without an expiry time.
///
/// # Errors
///
/// When `json` is not the output of `ip`.
pub fn addresses(json: &str) -> Result<Vec<String>, String> {
    const DROPPED_KEYS: [&str; 4] = [
        "valid_life_time",
        "preferred_life_time",
        // Duplicate address detection changes these flags by itself.
        "tentative",
        "optimistic",
    ];
    let mut addresses = Vec::new();
    for interface in parse_objects(json)? {
        let dev = interface.get("ifname").cloned().unwrap_or_default();
        for address in interface
            .get("addr_info")
            .and_then(Value::as_array)
            .into_iter()
            .flatten()
        {
            let Some(address) = address.as_object() else {
                continue;
            };
            // A lease of another program, or an address that the kernel generates itself.
            if ["dynamic", "temporary"]
                .iter()
                .any(|word| address.get(*word) == Some(&Value::Bool(true)))
            {
                continue;
            }
            let mut kept = Map::from_iter([("dev".to_owned(), dev.clone())]);
            kept.extend(without_keys(address, &DROPPED_KEYS));
            addresses.push(Value::Object(kept).to_string());
        }
    }
    Ok(addresses)
}

/// Parses `ip -j route show table all`. Keeps the routes that the kernel did not derive from
/// addresses, did not learn, and will not delete by itself.
///
/// # Errors
///
/// When `json` is not the output of `ip`.
pub fn routes(json: &str) -> Result<Vec<String>, String> {
    map_objects(json, |object| {
        let is_derived = ["kernel", "ra", "redirect"]
            .iter()
            .any(|word| object.get("protocol").and_then(Value::as_str) == Some(word));
        let expires = object.contains_key("expires") || object.contains_key("cache");
        // The flags state whether the next hop is reachable at the moment.
        (!is_derived && !expires).then(|| without_keys(object, &["flags"]))
    })
}

/// Parses `ip -j rule`.
///
/// # Errors
///
/// When `json` is not the output of `ip`.
pub fn rules(json: &str) -> Result<Vec<String>, String> {
    map_objects(json, |object| Some(object.clone()))
}

/// Parses `ip -j neigh show nud permanent` or `ip -j neigh show proxy`.
///
/// # Errors
///
/// When `json` is not the output of `ip`.
pub fn neighbours(json: &str) -> Result<Vec<String>, String> {
    map_objects(json, |object| Some(object.clone()))
}

/// Parses `nft -j -s list ruleset`, without counters and without the members of sets that packets
/// fill or that time out.
///
/// # Errors
///
/// When `json` is not the output of `nft`.
pub fn nftables(json: &str) -> Result<Vec<String>, String> {
    let document: Value = serde_json::from_str(json).map_err(|error| error.to_string())?;
    let Some(objects) = document.get("nftables").and_then(Value::as_array) else {
        return Err("`nft` does not print a rule set".to_owned());
    };
    Ok(objects
        .iter()
        .filter(|object| object.get("metainfo").is_none())
        .map(|object| without_volatile(object).to_string())
        .collect())
}

/// Removes the parts of an nftables object that change by themselves.
fn without_volatile(value: &Value) -> Value {
    match value {
        Value::Object(object) => {
            let flags = object.get("flags").and_then(Value::as_array);
            let is_volatile = flags.is_some_and(|flags| {
                flags
                    .iter()
                    .any(|flag| flag == "dynamic" || flag == "timeout")
            });
            let kept = object.iter().filter(|(key, _)| {
                let volatile = ["packets", "bytes", "expires", "used", "last"];
                !(volatile.contains(&key.as_str()) || is_volatile && *key == "elem")
            });
            Value::Object(
                kept.map(|(key, value)| (key.clone(), without_volatile(value)))
                    .collect(),
            )
        }
        Value::Array(items) => Value::Array(items.iter().map(without_volatile).collect()),
        other => other.clone(),
    }
}

/// Parses `iptables-save`, without times and counters.
#[must_use]
pub fn iptables(text: &str) -> Vec<String> {
    text.lines()
        .filter(|line| !line.starts_with('#') && !line.is_empty())
        .map(|line| match line.split_once(" [") {
            Some((chain, _)) if line.starts_with(':') => chain.to_owned(),
            _ => line.to_owned(),
        })
        .collect()
}

/// Parses `ipset save`, without the members of sets with a timeout. Lines are sorted, because the
/// members of a set have no order.
#[must_use]
pub fn ipset(text: &str) -> Vec<String> {
    let timed_sets: Vec<&str> = text
        .lines()
        .filter(|line| line.starts_with("create ") && line.contains(" timeout "))
        .filter_map(|line| line.split(' ').nth(1))
        .collect();
    let mut lines: Vec<String> = text
        .lines()
        .filter(|line| {
            let mut words = line.split(' ');
            words.next() != Some("add") || words.next().is_none_or(|set| !timed_sets.contains(&set))
        })
        .map(str::to_owned)
        .collect();
    lines.sort();
    lines
}

/// Parses `/proc/net/ip_vs`, without connection counts.
#[must_use]
pub fn ipvs(text: &str) -> Vec<String> {
    let mut service = "";
    let mut lines = Vec::new();
    for line in text.lines().skip(3) {
        let line = line.trim();
        if let Some(server) = line.strip_prefix("-> ") {
            let words: Vec<&str> = server.split_whitespace().take(3).collect();
            lines.push(format!("{service} -> {}", words.join(" ")));
        } else {
            service = line;
            lines.push(line.to_owned());
        }
    }
    lines.sort();
    lines
}

/// Whether a path below `/proc/sys` is a setting. Some files there count, return random values or
/// are changed by the kernel itself.
#[must_use]
pub fn is_sysctl(path: &str) -> bool {
    const VOLATILE: [&str; 17] = [
        "fs/aio-nr",
        "fs/dentry-state",
        "fs/file-nr",
        "fs/inode-nr",
        "fs/inode-state",
        "fs/quota/",
        "kernel/hung_task_detect_count",
        "kernel/ns_last_pid",
        "kernel/perf_cpu_time_max_percent",
        "kernel/perf_event_max_sample_rate",
        "kernel/pty/nr",
        "kernel/random/",
        "net/ipv4/route/flush",
        "net/ipv6/route/flush",
        "net/netfilter/nf_conntrack_count",
        "sunrpc/",
        "vm/stat_refresh",
    ];
    !VOLATILE.iter().any(|moving| path.starts_with(moving)) && !path.ends_with("/stable_secret")
}

/// Parses `/proc/modules`. Returns the sorted module names.
#[must_use]
pub fn modules(text: &str) -> Vec<String> {
    let mut names: Vec<String> = text
        .lines()
        .filter_map(|line| line.split(' ').next())
        .map(str::to_owned)
        .collect();
    names.sort();
    names
}

/// Parses `/proc/self/mountinfo`, without the numbers of mounts, parents and peer groups, which
/// differ each time.
#[must_use]
pub fn mounts(text: &str) -> Vec<String> {
    text.lines()
        .map(|line| {
            let (mount, system) = line.split_once(" - ").unwrap_or((line, ""));
            let kept: Vec<&str> = mount.split(' ').skip(3).take(3).collect();
            format!("{} {system}", kept.join(" "))
        })
        .collect()
}

fn parse_objects(json: &str) -> Result<Vec<Map<String, Value>>, String> {
    // Older versions of `ip` print nothing for an empty list.
    if json.trim().is_empty() {
        return Ok(Vec::new());
    }
    serde_json::from_str(json).map_err(|error| format!("`ip` does not print JSON: {error}"))
}

fn map_objects(
    json: &str,
    keep: impl Fn(&Map<String, Value>) -> Option<Map<String, Value>>,
) -> Result<Vec<String>, String> {
    Ok(parse_objects(json)?
        .iter()
        // `ip` prints an empty object for each entry that it filters out.
        .filter(|object| !object.is_empty())
        .filter_map(keep)
        .map(|kept| Value::Object(kept).to_string())
        .collect())
}

fn without_keys(object: &Map<String, Value>, dropped: &[&str]) -> Map<String, Value> {
    let kept = object
        .iter()
        .filter(|(key, _)| !dropped.contains(&key.as_str()));
    kept.map(|(key, value)| (key.clone(), value.clone()))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Asserts that `parse` returns equal values for the first two texts, and another value for the
    /// third.
    fn assert_same_and_other<T: PartialEq + std::fmt::Debug>(
        parse: impl Fn(&str) -> T,
        [first, same, other]: [&str; 3],
    ) {
        assert_eq!(parse(first), parse(same), "{first}\n{same}");
        assert_ne!(parse(first), parse(other), "{first}\n{other}");
    }

    #[test]
    fn links_carrier_change_is_ignored() {
        assert_same_and_other(
            |json| links(json).unwrap(),
            [
                r#"[{"ifindex":2,"ifname":"eth0","flags":["UP","LOWER_UP"],"operstate":"UP","mtu":1500}]"#,
                r#"[{"ifindex":2,"ifname":"eth0","flags":["NO-CARRIER","UP"],"operstate":"DOWN","mtu":1500}]"#,
                r#"[{"ifindex":2,"ifname":"eth0","flags":["LOWER_UP"],"operstate":"UP","mtu":1500}]"#,
            ],
        );
        let kind =
            r#"[{"ifname":"v","linkinfo":{"info_kind":"bridge","info_data":{"gc_timer":1}}}]"#;
        assert_eq!(
            links(kind).unwrap(),
            [r#"{"ifname":"v","up":false,"kind":"bridge"}"#]
        );
    }

    #[test]
    fn addresses_leases_are_ignored() {
        assert_same_and_other(
            |json| addresses(json).unwrap(),
            [
                r#"[{"ifname":"eth0","addr_info":[{"local":"10.0.0.1","valid_life_time":1}]}]"#,
                r#"[{"ifname":"eth0","addr_info":[{"local":"10.0.0.1","valid_life_time":2},{"local":"10.0.0.9","dynamic":true}]}]"#,
                r#"[{"ifname":"eth0","addr_info":[{"local":"10.0.0.2","valid_life_time":1}]}]"#,
            ],
        );
    }

    #[test]
    fn routes_learned_or_expiring_are_ignored() {
        assert_same_and_other(
            |json| routes(json).unwrap(),
            [
                r#"[{"dst":"default","gateway":"10.0.0.1","flags":[]}]"#,
                r#"[{},{"dst":"default","gateway":"10.0.0.1","flags":["linkdown"]},{"dst":"a","protocol":"kernel"},{"dst":"b","expires":7}]"#,
                r#"[{"dst":"default","gateway":"10.0.0.2","flags":[]}]"#,
            ],
        );
        assert_eq!(routes("").unwrap(), Vec::<String>::new());
        assert!(routes("Object \"route\" is unknown").is_err());
    }

    #[test]
    fn nftables_counters_and_timed_members_are_ignored() {
        let nft = |packets: u32, member: &str, verdict: &str| {
            format!(
                r#"{{"nftables":[{{"metainfo":{{}}}},
                {{"set":{{"name":"s","flags":["timeout"],"elem":["{member}"]}}}},
                {{"rule":{{"expr":[{{"counter":{{"packets":{packets},"bytes":9}}}},{{"{verdict}":null}}]}}}}]}}"#
            )
        };
        assert_same_and_other(
            |json| nftables(json).unwrap(),
            [
                &nft(1, "a", "drop"),
                &nft(2, "b", "drop"),
                &nft(1, "a", "accept"),
            ],
        );
        let fixed = |member: &str| format!(r#"{{"nftables":[{{"set":{{"elem":["{member}"]}}}}]}}"#);
        assert_ne!(
            nftables(&fixed("a")).unwrap(),
            nftables(&fixed("b")).unwrap()
        );
        assert!(nftables("{}").is_err());
    }

    #[test]
    fn iptables_times_and_counters_are_ignored() {
        assert_same_and_other(
            iptables,
            [
                "# Generated at noon\n*nat\n:INPUT ACCEPT [1:2]\n-A INPUT -j DROP\nCOMMIT\n",
                "# Generated later\n*nat\n:INPUT ACCEPT [3:4]\n-A INPUT -j DROP\nCOMMIT\n",
                "*nat\n:INPUT DROP [1:2]\n-A INPUT -j DROP\nCOMMIT\n",
            ],
        );
    }

    #[test]
    fn ipset_timed_members_are_ignored() {
        assert_same_and_other(
            ipset,
            [
                "create a hash:ip\nadd a 10.0.0.1\nadd a 10.0.0.2\ncreate t hash:ip timeout 9\nadd t 10.0.0.3 timeout 2\n",
                "create a hash:ip\nadd a 10.0.0.2\nadd a 10.0.0.1\ncreate t hash:ip timeout 9\n",
                "create a hash:ip\nadd a 10.0.0.1\ncreate t hash:ip timeout 9\n",
            ],
        );
    }

    #[test]
    fn ipvs_connection_counts_are_ignored() {
        let table = |weight: u32, active: u32| {
            format!(
                "IP Virtual Server version 1.2.1 (size=4096)\n\
                 Prot LocalAddress:Port Scheduler Flags\n\
                 \x20 -> RemoteAddress:Port Forward Weight ActiveConn InActConn\n\
                 TCP  0A000001:0050 rr  \n\
                 \x20 -> C0A80001:1F90      Masq    {weight}      {active}          7         \n"
            )
        };
        assert_same_and_other(ipvs, [&table(1, 0), &table(1, 5), &table(2, 0)]);
        assert_eq!(
            ipvs(&table(1, 0)),
            [
                "TCP  0A000001:0050 rr",
                "TCP  0A000001:0050 rr -> C0A80001:1F90 Masq 1"
            ]
        );
    }

    #[test]
    fn is_sysctl_volatile_file_is_false() {
        for setting in [
            "net/ipv4/ip_forward",
            "kernel/core_pattern",
            "vm/swappiness",
        ] {
            assert!(is_sysctl(setting), "{setting}");
        }
        for moving in [
            "kernel/random/uuid",
            "net/netfilter/nf_conntrack_count",
            "net/ipv6/conf/eth0/stable_secret",
        ] {
            assert!(!is_sysctl(moving), "{moving}");
        }
    }

    #[test]
    fn modules_and_mounts_numbers_are_ignored() {
        assert_same_and_other(
            modules,
            [
                "nf_nat 45056 2 a,b, Live 0x0\nip_set 1 0 - Live 0x0\n",
                "ip_set 1 5 - Live 0x1\nnf_nat 45056 0 - Live 0x0\n",
                "nf_nat 45056 2 a,b, Live 0x0\n",
            ],
        );
        assert_same_and_other(
            mounts,
            [
                "36 35 98:0 / /mnt rw,noatime shared:1 - ext3 /dev/root rw\n",
                "99 7 98:0 / /mnt rw,noatime master:2 - ext3 /dev/root rw\n",
                "36 35 98:0 / /mnt ro,noatime shared:1 - ext3 /dev/root rw\n",
            ],
        );
    }
}
