use std::fs;
use std::os::unix::fs::symlink;

use super::*;
use crate::recognise;
use svclab_diagnostic::Rendering;

const RULES: &str = "*nat\n:OUTPUT ACCEPT [0:0]\nCOMMIT\n";
const ADDRESSES: &str = "1: lo: <LOOPBACK,UP> mtu 65536\n    inet 127.0.0.1/8 scope host lo\n";
const SYSCTLS: &str = "fs.file-max = 1\nnet.ipv4.ip_forward = 1\n";

fn read_error(path: &Path, folder: &Path) -> String {
    let error = DumpFiles::read(path).unwrap_err().to_string();
    error.replace(&format!("{}/", folder.display()), "")
}

/// Writes files, given as paths and texts, below a directory.
fn write_files(folder: &Path, files: &[(&str, &str)]) {
    for (name, text) in files {
        let path = folder.join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
}

/// Returns the names of the read files with their formats, and the gaps.
fn describe(path: &Path, folder: &Path) -> String {
    let read = DumpFiles::read(path).unwrap();
    let files = read.files.iter().map(|file| match file.format {
        Some(format) => format!("{}: {format}", file.name),
        None => file.name.clone(),
    });
    let gaps = read.gaps.iter().map(Gap::describe);
    let lines: Vec<String> = files.chain(gaps).collect();
    lines
        .join("\n")
        .replace(&folder.display().to_string(), "DIR")
}

#[test]
fn dump_files_unreadable_returns_error() {
    let folder = tempfile::tempdir().unwrap();
    let write_file = |name: &str, bytes: &[u8]| {
        let path = folder.path().join(name);
        fs::write(&path, bytes).unwrap();
        path
    };
    let mut messages = vec![read_error(&folder.path().join("a"), folder.path())];
    let empty = folder.path().join("empty");
    fs::create_dir(&empty).unwrap();
    messages.push(read_error(&empty, folder.path()));
    for (name, bytes) in [
        ("a.gz", &b"\x1f\x8b\x08"[..]),
        ("a.tar.xz", b"\xfd7zXZ\0"),
        ("a.tar.bz2", b"BZh9"),
        ("nft", b"\x7fELF\x02\x01"),
        ("iptables-save", b"*nat\n\xff\n"),
    ] {
        messages.push(read_error(&write_file(name, bytes), folder.path()));
    }
    let large = write_file("large", b"");
    let file = fs::OpenOptions::new().write(true).open(&large).unwrap();
    file.set_len(u64::try_from(MAX_BYTES).unwrap() + 1).unwrap();
    messages.push(read_error(&large, folder.path()));
    insta::assert_snapshot!(messages.join("\n"));
}

#[test]
fn dump_files_directory_file_and_prefix_are_read() {
    let folder = tempfile::tempdir().unwrap();
    for name in ["a.iptables-save", "a.ip-addr.txt", "notes"] {
        fs::write(folder.path().join(name), "").unwrap();
    }
    let count = |path: &Path| {
        let folder = DumpFiles::read(path).unwrap();
        (folder.files.len(), folder.gaps.len())
    };
    assert_eq!(count(folder.path()), (2, 1));
    assert_eq!(count(&folder.path().join("a")), (2, 0));
    assert_eq!(count(&folder.path().join("notes")), (1, 0));
    fs::write(folder.path().join("b.ip-route"), "").unwrap();
    assert_eq!(count(&folder.path().join("a")), (2, 0));
    insta::assert_snapshot!(
        read_error(folder.path(), folder.path())
            .replace(&folder.path().display().to_string(), "DIR")
    );
}

#[test]
fn dump_files_are_recognised_by_content_at_any_depth() {
    let folder = tempfile::tempdir().unwrap();
    let bundle = folder.path().join("bundle");
    write_files(
        &bundle,
        &[
            ("networking/rules.txt", RULES),
            ("networking/addresses", ADDRESSES),
            (
                "networking/neighbours",
                "10.0.0.1 dev eth0 lladdr 02:00:00:00:00:01 STALE\n",
            ),
            ("networking/notes", "hello\n"),
            ("sysctls/all.txt", SYSCTLS),
            ("logs/kubelet/1.log", "I0101 started\n"),
            ("logs/kubelet/2.log", ""),
            (
                "logs/kube-proxy.log",
                "E0101 cannot restore\n*nat\n:A - [0:0]\nCOMMIT\nE0102\nE0103\nE0104\n",
            ),
            ("logs/one/x", "hello\n"),
            ("other/y", "hello\n"),
            // Looks like output, but is configuration on the disk.
            ("etc/sysctl.d/99.conf", SYSCTLS),
            ("etc/sysconfig/iptables", RULES),
            ("var/lib/iptables/rules-save", RULES),
        ],
    );
    symlink("networking", bundle.join("linked")).unwrap();
    symlink("networking/missing", bundle.join("dangling")).unwrap();
    insta::assert_snapshot!(describe(&bundle, folder.path()));
}

#[test]
fn dump_files_in_archives_of_directory_are_read() {
    let folder = tempfile::tempdir().unwrap();
    let bundle = folder.path().join("bundle");
    write_files(&bundle, &[("ip-addr", ADDRESSES)]);
    let packed = {
        use std::io::Write as _;
        let level = flate2::Compression::fast();
        let mut packed = flate2::write::GzEncoder::new(Vec::new(), level);
        packed.write_all(RULES.as_bytes()).unwrap();
        packed.finish().unwrap()
    };
    fs::write(bundle.join("iptables-save.gz"), &packed).unwrap();
    fs::write(bundle.join("damaged.gz"), &packed[..12]).unwrap();
    insta::assert_snapshot!(describe(&bundle, folder.path()));
}

#[test]
fn dump_files_of_two_directories_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    write_files(
        folder.path(),
        &[
            ("nodes/a/networking/x", RULES),
            ("nodes/b/networking/y", ADDRESSES),
        ],
    );
    let error = read_error(folder.path(), folder.path());
    insta::assert_snapshot!(error.replace(&folder.path().display().to_string(), "DIR"));
}

#[test]
fn dump_files_of_both_backends_are_distinguished() {
    let folder = tempfile::tempdir().unwrap();
    let nft = format!("# Generated by iptables-save v1.8.7 (nf_tables) on Mon\n{RULES}");
    let legacy = format!("# Generated by iptables-save v1.8.7 on Mon\n{RULES}");
    write_files(
        folder.path(),
        &[("both/rules-1", &legacy), ("both/rules-2", &nft)],
    );
    let warned = format!(
        "# Warning: iptables-legacy tables present, use iptables-legacy-save to see them\n{nft}"
    );
    write_files(folder.path(), &[("one/rules", &warned)]);
    let described = [
        describe(&folder.path().join("both"), folder.path()),
        describe(&folder.path().join("one"), folder.path()),
    ];
    insta::assert_snapshot!(described.join("\n"));
}

#[test]
fn dump_files_of_same_format_must_not_contradict() {
    let folder = tempfile::tempdir().unwrap();
    let addresses = |six: &str| format!("{ADDRESSES}{six}");
    let mut reports = Vec::new();
    for (name, files) in [
        ("same", [("a", RULES.to_owned()), ("b", format!("# comment\n{RULES}"))]),
        ("tables", [("a", RULES.to_owned()), ("b", RULES.replace("nat", "filter"))]),
        ("rules", [("a", RULES.to_owned()), ("b", RULES.replace("ACCEPT", "DROP"))]),
        (
            "addresses",
            [
                ("four", addresses("2: eth0: <UP> mtu 1500 qdisc mq\n    inet 10.0.0.1/24 scope global eth0\n")),
                ("six", "1: lo: <LOOPBACK,UP> mtu 65536 state UNKNOWN\n    inet6 ::1/128 scope host\n2: eth0: <UP> mtu 1500 state UP\n    inet6 fd00::1/64 scope global\n".to_owned()),
            ],
        ),
        (
            "other-addresses",
            [
                ("four", addresses("2: eth0: <UP> mtu 1500\n    inet 10.0.0.1/24 scope global eth0\n")),
                ("other", addresses("2: eth0: <UP> mtu 1500\n    inet 10.0.0.2/24 scope global eth0\n")),
            ],
        ),
        (
            "one-line",
            [
                ("long", addresses("2: eth0: <UP> mtu 1400\n    inet 10.0.0.1/24 scope global eth0\n")),
                ("short", "1: lo    inet 127.0.0.1/8 scope host lo\n2: eth0    inet 10.0.0.1/24 scope global eth0\n".to_owned()),
            ],
        ),
        (
            "routes",
            [
                ("iproute", "default via 10.0.0.1 dev eth0\nfd00::/64 dev eth0 metric 1\n".to_owned()),
                ("ipv6route", "fd00::/64 dev eth0 metric 1\n".to_owned()),
            ],
        ),
        (
            "sysctls",
            [
                ("a", SYSCTLS.to_owned()),
                ("b", SYSCTLS.replace("file-max = 1", "file-max = 2")),
            ],
        ),
        (
            "other-sysctls",
            [("a", SYSCTLS.to_owned()), ("b", SYSCTLS.replace("forward = 1", "forward = 0"))],
        ),
    ] {
        let directory = folder.path().join(name);
        for (file, text) in &files {
            write_files(&directory, &[(file, text)]);
        }
        let read = DumpFiles::read(&directory).unwrap().parse();
        let messages: Vec<&str> = read
            .diagnostics
            .iter()
            .map(|diagnostic| diagnostic.message.as_str())
            .collect();
        let dump = &read.dump;
        let addresses = dump.links.iter().flat_map(|links| links.values());
        let tables = dump.rules.values().map(|rules| rules.tables.len());
        reports.push(format!(
            "{name}: {} addresses, {} tables, MTU {}\n{}",
            addresses.map(|link| link.addresses.len()).sum::<usize>(),
            tables.sum::<usize>(),
            dump.links
                .as_ref()
                .and_then(|links| links.get("eth0")?.attributes.get("mtu"))
                .unwrap_or_default(),
            messages.join("\n"),
        ));
    }
    let text = reports.join("\n");
    insta::assert_snapshot!(text.replace(&folder.path().display().to_string(), "DIR"));
}

#[test]
fn listings_of_iptables_are_hints_without_saved_rules() {
    let folder = tempfile::tempdir().unwrap();
    let listed = "Chain FORWARD (policy DROP)\ntarget     prot opt source               destination         \n\
                  DROP       all  --  anywhere             anywhere            \n";
    let files = [
        ("ip-addr", ADDRESSES),
        ("networking/iptables-filter.txt", listed),
        (
            "iptables-S.txt",
            "-P INPUT ACCEPT\n-N KUBE-A\n-A INPUT -j KUBE-A\n",
        ),
        (
            "session",
            "root@a:~# ip6tables -t nat -S KUBE-B\n-N KUBE-B\n-A KUBE-B -j REJECT\n",
        ),
    ];
    write_files(&folder.path().join("listed"), &files);
    write_files(&folder.path().join("saved"), &files);
    write_files(&folder.path().join("saved"), &[("rules", RULES)]);
    let tables = "table ip filter {\n\tchain FORWARD {\n\t}\n}\n";
    write_files(&folder.path().join("nft"), &files);
    write_files(&folder.path().join("nft"), &[("tables", tables)]);
    // AgentBaker at 0133daa, `aks-log-collector.sh`.
    let json = r#"{"nftables": [{"metainfo": {}}, {"table": {"family": "ip", "name": "filter", "handle": 1}}]}"#;
    let metrics = r#"[{"dst":"10.0.0.4","age":12.345,"rtt":812,"source":"10.0.0.5"}]"#;
    write_files(&folder.path().join("json"), &files);
    write_files(
        &folder.path().join("json"),
        &[("tables", json), ("ip_4_tcpmetrics.json", metrics)],
    );
    let described = ["listed", "saved", "nft", "json"]
        .map(|name| describe(&folder.path().join(name), folder.path()));
    insta::assert_snapshot!(described.join("\n\n"));
}

#[test]
fn dump_with_json_equals_dump_with_text() {
    let folder = tempfile::tempdir().unwrap();
    let text = [
        (
            "addresses",
            "1: lo: <LOOPBACK,UP> mtu 65536 qdisc noqueue state UNKNOWN group default qlen 1000\n    link/loopback 00:00:00:00:00:00 brd 00:00:00:00:00:00\n    inet 127.0.0.1/8 scope host lo\n       valid_lft forever preferred_lft forever\n",
        ),
        (
            "routes",
            "default via 10.0.0.1 dev eth0 metric 100\n10.3.0.0/16 \n\tnexthop via 10.0.0.5 dev eth0 weight 1\n\tnexthop via 10.0.0.6 dev eth0 weight 1\n",
        ),
        (
            "routes6",
            "fd00::/64 dev eth0 proto kernel metric 256 pref medium\n",
        ),
        (
            "rules",
            "0:\tfrom all lookup local\n100:\tfrom 10.0.0.0/24 fwmark 0x4000/0x4000 lookup 100\n",
        ),
        (
            "tables",
            "table ip t {\n\tchain c {\n\t\tip saddr 10.0.0.1 tcp dport { 80, 443 } accept comment \"a\"\n\t}\n}\n",
        ),
    ];
    let json = [
        (
            "addresses",
            r#"[{"ifindex":1,"ifname":"lo","flags":["LOOPBACK","UP"],"mtu":65536,"qdisc":"noqueue","operstate":"UNKNOWN","group":"default","txqlen":1000,"link_type":"loopback","address":"00:00:00:00:00:00","broadcast":"00:00:00:00:00:00","addr_info":[{"family":"inet","local":"127.0.0.1","prefixlen":8,"scope":"host","label":"lo","valid_life_time":4294967295,"preferred_life_time":4294967295}]}]"#,
        ),
        (
            "routes",
            r#"[{"dst":"default","gateway":"10.0.0.1","dev":"eth0","metric":100,"flags":[]},{"dst":"10.3.0.0/16","flags":[],"nexthops":[{"gateway":"10.0.0.5","dev":"eth0","weight":1,"flags":[]},{"gateway":"10.0.0.6","dev":"eth0","weight":1,"flags":[]}]}]"#,
        ),
        (
            "routes6",
            r#"[{"dst":"fd00::/64","dev":"eth0","protocol":"kernel","metric":256,"flags":[],"pref":"medium"}]"#,
        ),
        (
            "rules",
            r#"[{"priority":0,"src":"all","table":"local"},{"priority":100,"src":"10.0.0.0","srclen":24,"fwmark":"0x4000","fwmask":"0x4000","table":"100"}]"#,
        ),
        (
            "tables",
            r#"{"nftables": [{"metainfo":{"json_schema_version":1}},{"table":{"family":"ip","name":"t","handle":1}},{"chain":{"family":"ip","table":"t","name":"c","handle":1}},{"rule":{"family":"ip","table":"t","chain":"c","handle":2,"comment":"a","expr":[{"match":{"op":"==","left":{"payload":{"protocol":"ip","field":"saddr"}},"right":"10.0.0.1"}},{"match":{"op":"==","left":{"payload":{"protocol":"tcp","field":"dport"}},"right":{"set":[80,443]}}},{"accept":null}]}}]}"#,
        ),
    ];
    write_files(&folder.path().join("text"), &text);
    write_files(&folder.path().join("json"), &json);
    let [text, json] = ["text", "json"].map(|name| {
        let read = DumpFiles::read(&folder.path().join(name)).unwrap().parse();
        assert!(read.diagnostics.is_empty(), "{:?}", read.diagnostics);
        assert_eq!(read.gaps, []);
        read.dump
    });
    let names: Vec<String> = json.files.values().cloned().collect();
    let formats = |dump: &NodeDump| dump.files.keys().copied().collect::<Vec<_>>();
    assert_eq!(formats(&json), formats(&text));
    assert_eq!(crate::compare(&text, &json), []);
    assert_eq!((json.links, json.nft), (text.links, text.nft));
    insta::assert_snapshot!(
        names
            .join("\n")
            .replace(&folder.path().display().to_string(), "DIR")
    );
}

#[test]
fn json_that_is_not_read_is_reported() {
    let folder = tempfile::tempdir().unwrap();
    let rule = |statement: &str| {
        format!(
            r#"{{"rule":{{"family":"ip","table":"t","chain":"c","expr":[{statement},{{"drop":null}}]}}}}"#
        )
    };
    let tables = format!(
        r#"{{"nftables":[{},{}]}}"#,
        rule(r#"{"counter":null}"#),
        rule(r#"{"teleport":{"to":1}}"#)
    );
    write_files(
        folder.path(),
        &[
            (
                "ip-addr",
                r#"[{"ifindex":1,"ifname":"lo","flags":["UP"],"mtu":1,"operstate":"UP","new":5,"addr_info":[]}]"#,
            ),
            ("ip-route", r#"[{"dst":"default","dev":"eth0","flags":[]"#),
            ("ip-rule", r#"[{"dst":"default","dev":"eth0","flags":[]}]"#),
            ("conntrack-L", r#"[{"entry":1}]"#),
            ("ip-6-rule", "[]"),
            ("nft", &tables),
        ],
    );
    let read = DumpFiles::read(folder.path()).unwrap().parse();
    let reported = read
        .diagnostics
        .iter()
        .map(|diagnostic| diagnostic.render(&read.sources, Rendering::default()));
    let reported = reported.collect::<Vec<_>>().join("\n");
    insta::assert_snapshot!(reported.replace(&folder.path().display().to_string(), "DIR"));
    let chains = read.dump.nft.unwrap().tables.remove(0).chains;
    assert_eq!(chains[0].rules.len(), 1);
}

#[test]
fn dump_files_table_that_is_not_printed_is_gap_without_nft() {
    let folder = tempfile::tempdir().unwrap();
    let saved = format!(
        "# Generated by iptables-nft-save v1.8.9 (nf_tables)\n# Table `filter' contains incompatible \
         base-chains, use 'nft' tool to list them.\n{RULES}"
    );
    write_files(folder.path(), &[("alone/iptables-save", &saved)]);
    let nft = "table ip filter {\n\tchain input {\n\t}\n}\n";
    write_files(
        folder.path(),
        &[("both/iptables-save", &saved), ("both/nft", nft)],
    );
    let described =
        ["alone", "both"].map(|name| describe(&folder.path().join(name), folder.path()));
    insta::assert_snapshot!(described.join("\n"), @r#"
    DIR/alone/iptables-save: iptables-save
    DIR/alone/iptables-save: not complete: "Table `filter' contains incompatible base-chains, use 'nft' tool to list them."; packets pass as if these chains did not exist
    DIR/both/iptables-save: iptables-save
    DIR/both/nft: nft list ruleset
    DIR/both/iptables-save: not complete: "Table `filter' contains incompatible base-chains, use 'nft' tool to list them."
    "#);
    let missing = "nft: nft is not installed\nipvsadm-Sn: IPVS is not loaded in this kernel\n";
    write_files(
        folder.path(),
        &[("lacks/ip-addr", ADDRESSES), ("lacks/missing.txt", missing)],
    );
    insta::assert_snapshot!(describe(&folder.path().join("lacks"), folder.path()), @r"
    DIR/lacks/ip-addr: ip addr
    DIR/lacks/nft: nft is not installed; packets pass as if the node had none of it
    ");
}

#[test]
fn dump_files_of_both_families_are_complete() {
    let folder = tempfile::tempdir().unwrap();
    let four = ("one/ip_-4_addr", ADDRESSES);
    let six = (
        "both/ip_-6_addr",
        "1: lo: <LOOPBACK,UP> mtu 65536\n    inet6 ::1/128 scope host \n",
    );
    write_files(folder.path(), &[four, ("both/ip_-4_addr", ADDRESSES), six]);
    let gaps = ["one", "both"].map(|name| {
        let read = DumpFiles::read(&folder.path().join(name)).unwrap();
        read.gaps.len()
    });
    assert_eq!(gaps, [1, 0]);
}

#[test]
fn dump_files_that_may_be_state_are_not_compared() {
    let folder = tempfile::tempdir().unwrap();
    let counters =
        "Prot LocalAddress:Port                 CPS\nTCP  10.96.0.1:443                       0\n";
    write_files(
        folder.path(),
        &[
            ("ip-addr", ADDRESSES),
            ("ip-nexthop", "id 4 group 2,2/3,3\n"),
            ("ip_nexthop_show", "id 4 group 2,2/3,3\n"),
            ("tc_-j_qdisc", "[{\"kind\":\"noqueue\",\"dev\":\"lo\"}]"),
            ("ipvsadm_-Ln_--stats", counters),
            ("iptables-filter.txt", "Chain INPUT (policy ACCEPT)\n"),
            ("iptables-save", RULES),
            ("README.md", "hello\n"),
            ("kubelet.log", "I0101 started\n"),
            ("logs/other", "hello\n"),
        ],
    );
    let names = || {
        let gaps = DumpFiles::read(folder.path()).unwrap().gaps.into_iter();
        let gaps = gaps.filter(|gap| gap.is_uncompared);
        let names = gaps.map(|gap| recognise::file_name(&gap.name).to_owned());
        names.collect::<Vec<String>>().join(" ")
    };
    assert_eq!(
        names(),
        "tc_-j_qdisc ip-nexthop ip_nexthop_show ipvsadm_-Ln_--stats"
    );
    write_files(
        folder.path(),
        &[("ipvsadm-Sn", "-A -t 10.96.0.1:443 -s rr\n")],
    );
    assert_eq!(names(), "tc_-j_qdisc ip-nexthop ip_nexthop_show");
}

#[test]
fn dump_files_of_windows_and_terminals_are_decoded() {
    let folder = tempfile::tempdir().unwrap();
    let units = "\u{feff}*nat\r\n:A - [0:0]\r\nCOMMIT\r\n".encode_utf16();
    let bytes: Vec<u8> = units.flat_map(u16::to_le_bytes).collect();
    fs::write(folder.path().join("rules.txt"), bytes).unwrap();
    let coloured = ADDRESSES.replace("lo:", "\u{1b}[36mlo: \u{1b}[0m");
    write_files(folder.path(), &[("addresses", &coloured)]);
    let read = DumpFiles::read(folder.path()).unwrap().parse();
    assert!(read.diagnostics.is_empty(), "{:?}", read.diagnostics);
    assert_eq!(read.dump.rules.len(), 1);
    assert!(read.dump.links.unwrap().contains_key("lo"));
}
