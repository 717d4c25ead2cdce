//! Tests `svclab replay`: collected nodes, built again.

use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};

use svclab_test_support::ordinary_or_full;
use svclab_test_support::running::Runtime;

use crate::running::Labs;
use crate::support::{LAB, run, stderr, stdout, svclab};

/// Collects a node of a running lab with `scripts/collect-node`.
pub fn collect_node(runtime: &Runtime, node: &str, bundle: &Path) {
    collect_node_with(runtime, node, &["sh"], bundle);
}

/// Collects a node like [`collect_node`], with a program that runs the script.
pub fn collect_node_with(runtime: &Runtime, node: &str, shell: &[&str], bundle: &Path) {
    let script = std::fs::File::open(svclab_test_support::root().join("scripts/collect-node"))
        .expect("the script");
    let exec = ["exec", node, "--"];
    let output = runtime
        .svclab(&[&exec[..], shell, &["-s", "--", "-o", "-"]].concat())
        .stdin(Stdio::from(script))
        .output()
        .expect("the command starts");
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    std::fs::write(bundle, output.stdout).expect("the file can be written");
}

/// Returns the line with the verdict of each connection.
pub fn verdict_lines(output: &Output) -> Vec<String> {
    assert_eq!(output.status.code(), Some(0), "{}", stderr(output));
    verdict_lines_of(output)
}

fn verdict_lines_of(output: &Output) -> Vec<String> {
    let text = stdout(output);
    let lines = text.lines().filter(|line| {
        let mut words = line.split(' ');
        let probe = words.next().unwrap_or_default();
        !probe.is_empty() && words.next().is_some_and(|word| word.starts_with('#'))
    });
    lines.map(str::to_owned).collect()
}

/// Replays the dump of a node of one case in the other case, and in its own.
#[test]
fn replay_collected_node_gives_same_verdicts() {
    let directory = tempfile::tempdir().expect("a directory");
    let case = |stale: &str| format!("canal-stale-rule/stale={stale},rpFilter=1,underlay=passes");
    let dumps: Vec<PathBuf> = ["removed", "present"]
        .map(|stale| {
            let runtime = Runtime::new(svclab);
            runtime.up(&case(stale));
            let file = directory.path().join(format!("{stale}.tar.gz"));
            collect_node(&runtime, "node-1", &file);
            file
        })
        .into();
    // The dump replaces the rules that the lab gives the node.
    for (stale, dump, expected) in [
        ("removed", &dumps[0], "call #1: connected"),
        ("present", &dumps[0], "call #1: connected"),
        ("removed", &dumps[1], "call #1: timeout"),
        ("present", &dumps[1], "call #1: timeout"),
    ] {
        let dump = dump.display().to_string();
        let output = run(&["replay", &dump, "--objects", &case(stale)]);
        assert_eq!(verdict_lines(&output), [expected], "{stale}");
        let report = stdout(&output);
        if expected.ends_with("timeout") {
            let rule = "! -s 192.168.64.0/20 -d 192.168.66.0/24 -j RETURN` returned before";
            let words: Vec<&str> = report.split_whitespace().collect();
            assert!(words.join(" ").contains(rule), "{report}");
        }
    }
}

/// Writes the objects of [`LAB`] without its lab document. Returns the path.
pub fn write_objects(directory: &Path) -> String {
    let (_, objects) = LAB.split_once("---\n").expect("objects");
    let path = directory.join("objects.yaml");
    std::fs::write(&path, objects).expect("the file can be written");
    path.display().to_string()
}

/// Returns a directory with a dump of the lab's node, and the path of the dump.
fn collect_node_of_lab() -> (tempfile::TempDir, String) {
    let labs = Labs::with_running_case();
    let directory = tempfile::tempdir().expect("a directory");
    let dump = directory.path().join("node-1.tar.gz");
    collect_node(&labs.runtime, "node-1", &dump);
    let dump = dump.display().to_string();
    (directory, dump)
}

pub const CALL: &str = "pod/default/client->service/default/web:80";

#[test]
fn replay_dump_with_objects_writes_runnable_lab() {
    let (directory, dump) = collect_node_of_lab();
    let objects = write_objects(directory.path());
    let kept = directory.path().join("kept.yaml").display().to_string();
    let arguments = ["replay", &dump, "--objects", &objects, "--probe", CALL];
    let output = run(&[&arguments[..], &["--write", &kept]].concat());
    assert_eq!(verdict_lines(&output), ["probe-1 #1: connected"]);
    let shown = directory.path().display().to_string();
    let written = std::fs::read_to_string(&kept).expect("a lab");
    let (lab, _) = written.split_once("---\n").expect("objects");
    insta::assert_snapshot!(lab.replace(&shown, "DIR"));
    let output = run(&["run", &kept]);
    assert_eq!(output.status.code(), Some(0), "{}", stdout(&output));
    // The report of replayed and simulated items precedes the packets.
    let output = run(&arguments);
    let printed = stdout(&output);
    let (account, _) = printed.split_once("\n\n").expect("a replay report");
    insta::with_settings!({filters => vec![
        (r"\d+ sysctls", "N sysctls"),
    ]}, {
        insta::assert_snapshot!(account.replace(&shown, "DIR"));
    });
}

#[test]
fn replay_rules_only_replaces_rules_of_node() {
    let labs = Labs::with_running_case();
    let saved = labs.runtime.run(&["exec", "node-1", "--", "iptables-save"]);
    let rules = stdout(&saved);
    // Without the jump from the service to its endpoint, the request leaves the node unchanged. The
    // fabric's router has no route to the cluster IP.
    let jump = rules
        .lines()
        .find(|line| line.starts_with("-A KUBE-SVL-") && line.contains("-j KUBE-SEP-"));
    let broken = rules.replace(jump.expect("a jump"), "");
    let directory = tempfile::tempdir().expect("a directory");
    let case = labs.case("Local");
    for (text, expected) in [
        (&rules, "call #1: connected"),
        (&broken, "call #1: unreachable"),
    ] {
        let file = directory.path().join("iptables-save");
        std::fs::write(&file, text).expect("the file can be written");
        let file = file.display().to_string();
        let output = run(&["replay", &file, "--objects", &case]);
        assert_eq!(verdict_lines(&output), [expected]);
    }
}

/// Rules as S0 prints them, changed after saving, with some rules cut off.
const DAMAGED: &str = "\
*nat
:PREROUTING ACCEPT [0:0]
:OUTPUT ACCEPT [0:0]
:KUBE-LOAD-BALANCER - [0:0]
:IP-MASQ-AGENT - [0:0]
-A OUTPUT -j KUBE-LOAD-BALANCER
-A KUBE-LOAD-BALANCER -m comment --comment \"Kubernetes service load balancer ip\" -j KUBE-LOAD-BALANCER
-A IP-MASQ-AGENT -d 172.17.0.0/16 -j IP-MASQ-AGENT
-A OUTPUT -m addtype --dst-type LOCAL -j ACCEPT
-A OUTPUT -j KUBE-MARK-MASK
:OUTPUT ACCEPT [0:0]
COMMIT
";

#[test]
fn replay_damaged_dump_needs_lenient() {
    let (directory, path) = crate::support::write_lab(LAB);
    let file = directory.path().join("iptables-save");
    std::fs::write(&file, DAMAGED).expect("the file can be written");
    let case = format!("{}/policy=Local", path.display());
    let file = file.display().to_string();
    let shown = directory.path().display().to_string();
    let arguments = ["replay", &file, "--objects", &case, "--probe", CALL];
    let output = run(&arguments);
    assert_eq!(output.status.code(), Some(2), "{}", stdout(&output));
    assert_eq!(stdout(&output), "");
    let refused = stderr(&output).replace(&shown, "DIR");
    let output = run(&[&arguments[..], &["--lenient"]].concat());
    let data = run(&[&arguments[..], &["--lenient", "--format", "json"]].concat());
    let data: serde_json::Value = serde_json::from_str(&stdout(&data)).expect("JSON");
    crate::support::assert_matches_schema(&data, include_str!("../../schema/replay.v1.json"));
    let left = &data["nodes"][0]["omitted"];
    assert_eq!(left.as_array().map(Vec::len), Some(5), "{left}");
    assert_eq!(left[0]["location"]["line"], 7);
    assert_eq!(left[0]["chain"]["paths"][0], "OUTPUT > KUBE-LOAD-BALANCER");
    assert_eq!(
        data["case"]["stages"][0]["connections"][0]["verdict"],
        "unreachable"
    );
    // No rule sends the request to an endpoint.
    assert_eq!(verdict_lines(&output), ["probe-1 #1: unreachable"]);
    let printed = stdout(&output).replace(&shown, "DIR");
    let (account, _) = printed.split_once("\n\n").expect("a replay report");
    insta::assert_snapshot!(format!("{refused}====\n{account}"));
}

/// Makes the node mirror some packets. Replays do not build such filters.
pub const MIRROR: &str = "tc qdisc add dev eth0 clsact; tc filter add dev eth0 egress protocol ip \
                          prio 1 u32 match ip dst 10.255.0.1/32 action mirred egress mirror dev lo";

#[test]
fn replay_unbuilt_parts_give_no_all_clear() {
    let labs = Labs::with_running_case();
    let exec = ["exec", "node-1", "--", "sh", "-ec", MIRROR];
    assert_eq!(labs.runtime.run(&exec).status.code(), Some(0));
    let directory = tempfile::tempdir().expect("a directory");
    let dump = directory.path().join("node-1.tar.gz");
    collect_node(&labs.runtime, "node-1", &dump);
    let objects = write_objects(directory.path());
    let dump = dump.display().to_string();
    let output = run(&["replay", &dump, "--objects", &objects, "--probe", CALL]);
    assert_eq!(output.status.code(), Some(1), "{}", stdout(&output));
    let text = stdout(&output).replace(&directory.path().display().to_string(), "DIR");
    let lines = text
        .lines()
        .filter(|line| line.contains("filter") || line.starts_with("no verdict"));
    insta::assert_snapshot!(lines.collect::<Vec<_>>().join("\n"));
}

#[test]
fn lenient_omitted_table_gives_no_verdict() {
    let (directory, path) = crate::support::write_lab(LAB);
    let file = directory.path().join("iptables-save");
    std::fs::write(&file, "*nat\n:OUTPUT ACCEPT [0:0]\n-A OUTPUT -j ACC").expect("a file");
    let case = format!("{}/policy=Local", path.display());
    let file = file.display().to_string();
    let shown = directory.path().display().to_string();
    let node = format!("node-1={file}");
    let mut texts = Vec::new();
    for arguments in [
        &["replay", &file, "--objects", &case, "--lenient"][..],
        &["why", &case, "--dump", &node, "--lenient"],
    ] {
        let output = run(arguments);
        assert_eq!(output.status.code(), Some(1), "{}", stderr(&output));
        let text = stderr(&output);
        let (_, verdict) = text.split_once("error: no verdict").expect("no verdict");
        texts.push(verdict.replace(&shown, "DIR"));
    }
    insta::assert_snapshot!(texts.join("\n"));
}

#[test]
fn replay_invalid_input_is_refused() {
    let (directory, dump) = collect_node_of_lab();
    let objects = write_objects(directory.path());
    let shown = directory.path().display().to_string();
    let whole = std::fs::read(&dump).expect("a dump");
    let cut = directory.path().join("cut.tar.gz");
    std::fs::write(&cut, &whole[..whole.len() / 2]).expect("the file can be written");
    let cut = cut.display().to_string();
    let wrong_dump = directory.path().join("iptables-save");
    std::fs::write(&wrong_dump, "1: lo: <LOOPBACK> mtu 65536\n").expect("the file can be written");
    let wrong_path = wrong_dump.display().to_string();
    let lab = directory.path().join("lab.yaml");
    std::fs::write(&lab, LAB).expect("the file can be written");
    let lab = lab.display().to_string();
    let named = format!("node-7={dump}");
    let reports: Vec<String> = [
        &["replay", "nowhere.tar.gz"][..],
        &["replay", &cut],
        &["replay", &wrong_path],
        &["replay", &named, "--objects", &objects],
        &["replay", &dump, "--objects", &lab],
        &["replay", &dump, "--objects", &lab, "--write", "x.yaml"],
        &[
            "replay",
            &dump,
            "--objects",
            &objects,
            "--probe",
            "pod/default/client",
        ],
        &[
            "replay",
            &dump,
            "--objects",
            &objects,
            "--probe",
            "pod/default/nobody->node-1:1",
        ],
    ]
    .into_iter()
    .map(|arguments| {
        let output = run(arguments);
        assert_eq!(
            output.status.code(),
            Some(2),
            "{arguments:?}: {}",
            stdout(&output)
        );
        stderr(&output).replace(&shown, "DIR")
    })
    .collect();
    insta::assert_snapshot!(reports.join("====\n"));
}

/// Rules of nftables match packets that legacy rules have rewritten.
#[test]
fn replay_both_iptables_backends_apply_together() {
    let legacy = "*nat\n:OUTPUT ACCEPT [0:0]\n-A OUTPUT -d 10.96.0.10/32 -p tcp -m tcp --dport 80 -j DNAT --to-destination 10.244.1.10:8080\nCOMMIT\n";
    let nft = "*filter\n:OUTPUT ACCEPT [0:0]\n-A OUTPUT -d 10.244.1.10/32 -p tcp -m tcp --dport 8080 -j REJECT --reject-with tcp-reset\nCOMMIT\n";
    let (directory, path) = crate::support::write_lab(LAB);
    let dump = directory.path().join("both");
    std::fs::create_dir(&dump).expect("a directory");
    for (name, text) in [("iptables-legacy-save", legacy), ("iptables-nft-save", nft)] {
        std::fs::write(dump.join(name), text).expect("the file can be written");
    }
    let (dump, case) = (
        dump.display().to_string(),
        format!("{}/policy=Local", path.display()),
    );
    let call = "node-1->service/default/web:80";
    let output = run(&["replay", &dump, "--objects", &case, "--probe", call]);
    assert_eq!(verdict_lines(&output), ["probe-1 #1: refused"]);
    assert!(stdout(&output).contains("filter OUTPUT rule 1 of iptables-nft"));
}

/// Valid dumps with objects that every kernel rejects. The objects are an unknown match, chains
/// that jump to each other, a set of unknown type with the rules that use the set, an nftables
/// rule, and sysctls.
const REJECTED_DUMPS: [(&str, &[(&str, &str)]); 6] = [
    (
        "match",
        &[(
            "iptables-nft-save",
            "*filter\n:FORWARD ACCEPT [0:0]\n:A - [0:0]\n:B - [0:0]\n-A FORWARD -j A\n-A A -m geoip --source-country CN -j DROP\n-A A -p udp -j ACCEPT\n-A B -m geoip --source-country DE -j DROP\nCOMMIT\n",
        )],
    ),
    ("loop", &[("iptables-nft-save", LOOP)]),
    ("legacy-loop", &[("iptables-legacy-save", LOOP)]),
    (
        "set",
        &[
            (
                "ipset-save",
                "create A hash:ip,foo family inet hashsize 1024 maxelem 65536\nadd A 10.0.0.1,5\n",
            ),
            (
                "iptables-save",
                "*nat\n:OUTPUT ACCEPT [0:0]\n-A OUTPUT -m set --match-set A dst -j ACCEPT\nCOMMIT\n",
            ),
        ],
    ),
    (
        "nft",
        &[(
            "nft",
            "table inet x {\n\tchain c {\n\t\ttype filter hook output priority filter; policy accept;\n\t\tfoo bar drop\n\t\tmeta l4proto udp accept\n\t}\n}\n",
        )],
    ),
    (
        "sysctl",
        &[(
            "sysctl-a",
            "net.ipv4.conf.all.rp_filter = 1\nnet.ipv4.ip_forward_nosuch = 1\nnet.ipv4.ip_local_port_range = many\n",
        )],
    ),
];

/// Chains that jump to each other, in the second table of the dump.
const LOOP: &str = "\
*nat
:OUTPUT ACCEPT [0:0]
COMMIT
*filter
:FORWARD ACCEPT [0:0]
:OUTPUT ACCEPT [0:0]
:A - [0:0]
:B - [0:0]
-A FORWARD -j A
-A OUTPUT -j A
-A A -p udp -j ACCEPT
-A A -j B
-A B -p icmp -j ACCEPT
-A B -j A
-A B -j ACCEPT
COMMIT
";

#[test]
fn replay_rejected_objects_need_lenient() {
    let (directory, path) = crate::support::write_lab(LAB);
    let shown = directory.path().display().to_string();
    let case = format!("{}/policy=Local", path.display());
    let call = "pod/default/client->pod/default/web:8080";
    let mut reports = Vec::new();
    for (name, files) in REJECTED_DUMPS {
        let dump = directory.path().join(name);
        std::fs::create_dir(&dump).expect("a directory");
        for (file, text) in files {
            std::fs::write(dump.join(file), text).expect("the file can be written");
        }
        let dump = dump.display().to_string();
        let arguments = ["replay", &dump, "--objects", &case, "--probe", call];
        let output = run(&arguments);
        assert_eq!(output.status.code(), Some(2), "{}", stdout(&output));
        let refused = stderr(&output);
        let output = run(&[&arguments[..], &["--lenient"]].concat());
        // 1 if the omitted objects may affect packets.
        let code = output.status.code().expect("no signal");
        assert_eq!(verdict_lines_of(&output), ["probe-1 #1: connected"]);
        let text = stdout(&output);
        let (account, _) = text.split_once("\n\n").expect("a replay report");
        let left = account.lines().filter(|line| !line.contains("simulated"));
        let left = left.filter(|line| !line.contains(" of the lab"));
        let left: Vec<&str> = left.collect();
        let left = left.join("\n");
        reports.push(format!(
            "==== {name}\n{refused}---- --lenient: {code}\n{left}"
        ));
    }
    insta::assert_snapshot!(reports.join("\n").replace(&shown, "DIR"));
}

/// Objects that are omitted from a dump are also omitted from the lab that stores the replay.
#[test]
fn lab_dump_with_rejected_rule_needs_lenient() {
    let dump = "dump: iptables-save\n      lenient: ";
    let place = "leftovers: {iptables: []}";
    for (lenient, code) in [("true", 0), ("false", 2)] {
        let lab = LAB.replace(place, &format!("{dump}{lenient}"));
        let (directory, path) = crate::support::write_lab(lab);
        let file = directory.path().join("iptables-save");
        let rules = "\
*nat
:PREROUTING ACCEPT [0:0]
-A PREROUTING -m geoip --source-country CN -j ACCEPT
-A PREROUTING -d 10.96.0.10/32 -p tcp -m tcp --dport 80 -j DNAT --to-destination 10.244.1.10:8080
COMMIT
";
        std::fs::write(file, rules).expect("the file can be written");
        let output = run(&["run", &format!("{}/policy=Local", path.display())]);
        let printed = stdout(&output);
        assert_eq!(
            output.status.code(),
            Some(code),
            "{printed}{}",
            stderr(&output)
        );
        if lenient == "false" {
            let refused = "iptables-save:3: `-A PREROUTING -m geoip --source-country CN -j ACCEPT`";
            assert!(printed.contains(refused), "{printed}");
        }
    }
}

/// A node with the AWS VPC CNI. Its secondary interface is reached through a separate routing
/// table, and the kernel's own route for it was deleted. The node also has addresses of `lo`, a
/// multipath route, and a named table.
const MANY_ROUTES: [(&str, &str); 3] = [
    (
        "ip-addr",
        "\
1: lo: <LOOPBACK,UP,LOWER_UP> mtu 65536 qdisc noqueue state UNKNOWN
    inet 127.0.0.1/8 scope host lo
    inet 10.9.9.9/32 scope global lo
2: eth0: <BROADCAST,MULTICAST,UP,LOWER_UP> mtu 1500 qdisc mq state UP
    inet 192.168.50.11/24 brd 192.168.50.255 scope global eth0
3: eth1: <BROADCAST,MULTICAST,UP,LOWER_UP> mtu 1500 qdisc mq state UP
    inet 192.168.51.12/24 brd 192.168.51.255 scope global eth1
",
    ),
    (
        "ip-route",
        "\
default via 192.168.50.1 dev eth0
10.244.1.10 dev eth0 scope link
10.99.0.0/16
	nexthop via 192.168.50.2 dev eth0 weight 1
	nexthop via 192.168.50.3 dev eth0 weight 5
blackhole 10.244.7.0/26 proto bird
192.168.50.0/24 dev eth0 proto kernel scope link src 192.168.50.11 metric 100
default via 192.168.51.1 dev eth1 table 2
192.168.51.1 dev eth1 table 2 scope link
10.98.0.0/16 via 192.168.50.2 dev eth0 table isp
",
    ),
    (
        "ip-rule",
        "\
0:	from all lookup local
512:	from all to 10.244.1.10 lookup main
1024:	from all fwmark 0x80/0x80 lookup main
1536:	from 10.244.1.9 lookup 2
2000:	from 10.9.9.9 lookup isp
32766:	from all lookup main
32767:	from all lookup default
",
    ),
];

#[test]
fn replay_routes_and_rules_match_dump() {
    let lab = LAB.replace("leftovers: {iptables: []}", "dump: node-1");
    let (directory, path) = crate::support::write_lab(lab);
    let dump = directory.path().join("node-1");
    std::fs::create_dir(&dump).expect("a directory");
    for (file, text) in MANY_ROUTES {
        std::fs::write(dump.join(file), text).expect("the file can be written");
    }
    let runtime = Runtime::new(svclab);
    runtime.up(&format!("{}/policy=Local", path.display()));
    let run_ip = |arguments: &[&str]| {
        let output = runtime.run(&[&["exec", "node-1", "--", "ip"], arguments].concat());
        assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
        stdout(&output)
    };
    let routes = run_ip(&["-4", "route", "show", "table", "all"]);
    let is_planned = |line: &&str| !line.contains("table local") && !line.contains("cbr0");
    let routes: Vec<&str> = routes
        .lines()
        .map(str::trim_end)
        .filter(is_planned)
        .collect();
    let addresses = run_ip(&["-4", "-br", "addr", "show", "lo"]);
    let rules = run_ip(&["-4", "rule"]);
    insta::assert_snapshot!(format!("{}\n{rules}{addresses}", routes.join("\n")));
}

/// Collects every node of every case of these labs that the host runs. The replay of all nodes, and
/// of each single node in the lab, gives the expected results. With `SVCLAB_FULL`, runs all cases,
/// else one case of each lab.
#[test]
fn replay_nodes_of_each_lab_gives_expected_results() {
    let host = |case: &str| !case.contains("mode=ipvs");
    for (lab, nodes) in [
        ("canal-stale-rule", &["node-1", "node-2"][..]),
        ("local-ingress", &["node-1", "node-2", "node-3"]),
    ] {
        let cases = case_names(lab);
        let cases: Vec<&String> = cases.iter().filter(|case| host(case)).collect();
        assert!(cases.len() > 20, "{cases:?}");
        let count = ordinary_or_full(1, cases.len());
        for case in cases.into_iter().take(count) {
            check_replay_of_case(case, nodes);
        }
    }
}

/// Returns the full names of the cases of a lab.
fn case_names(lab: &str) -> Vec<String> {
    let output = run(&["plan", lab]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let begins = format!("# {lab}/");
    let text = stdout(&output);
    let heads = text.lines().filter(|line| line.starts_with(&begins));
    let cases = heads.filter_map(|head| head.strip_prefix("# "));
    cases.map(str::to_owned).collect()
}

fn check_replay_of_case(case: &str, nodes: &[&str]) {
    let directory = tempfile::tempdir().expect("a directory");
    let runtime = Runtime::new(svclab);
    runtime.up(case);
    let dump = |node: &&str| {
        let file = directory.path().join(format!("{node}.tar.gz"));
        collect_node(&runtime, node, &file);
        format!("{node}={}", file.display())
    };
    let dumps: Vec<String> = nodes.iter().map(dump).collect();
    let all_dumps: Vec<&str> = dumps.iter().map(String::as_str).collect();
    let each = all_dumps.chunks(1);
    for given in std::iter::once(&all_dumps[..]).chain(each) {
        let arguments = [&["replay"], given, &["--objects", case]].concat();
        let output = run(&arguments);
        assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
        let printed = stdout(&output);
        let head = printed.lines().find(|line| line.starts_with(case));
        let head = head.unwrap_or_else(|| panic!("{printed}"));
        assert!(head.contains("  as expected, on "), "{given:?}\n{printed}");
    }
}
