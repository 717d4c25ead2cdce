//! Tests `svclab replay` with truncated, mixed-up or foreign dumps.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::support::{LAB, run, stderr, stdout};

const RULES: &str = "\
*nat
:PREROUTING ACCEPT [0:0]
:A - [0:0]
-A PREROUTING -j A
-A A -p tcp -m tcp --dport 80 -j ACCEPT
COMMIT
";

const ADDRESSES: &str = "\
1: lo: <LOOPBACK,UP,LOWER_UP> mtu 65536 qdisc noqueue state UNKNOWN
    link/loopback 00:00:00:00:00:00 brd 00:00:00:00:00:00
    inet 127.0.0.1/8 scope host lo
2: eth0: <BROADCAST,MULTICAST,UP,LOWER_UP> mtu 1500 qdisc mq state UP
    link/ether 02:00:00:00:00:11 brd ff:ff:ff:ff:ff:ff
    inet 192.168.50.11/24 scope global eth0
";

/// Names and texts of the files of a directory.
type Files = Vec<(&'static str, String)>;

/// Returns directories that are no complete dump of one node, by defect.
fn damaged_dumps() -> Vec<(&'static str, Files)> {
    let rules = |text: String| vec![("iptables-save", text)];
    let cut = |count: usize| RULES[..RULES.len() - count].to_owned();
    vec![
        ("no-commit", rules(RULES.replace("COMMIT\n", ""))),
        // Cuts off the second digit of port 80.
        ("cut-in-a-line", rules(cut("0 -j ACCEPT\nCOMMIT\n".len()))),
        (
            "cut-in-a-quote",
            rules("*nat\n:A - [0:0]\n-A A -m comment --comment \"of the".to_owned()),
        ),
        ("the-same-twice", rules(RULES.repeat(2))),
        (
            "a-chain-twice",
            rules(RULES.replace(":A - [0:0]\n", ":A - [0:0]\n:A - [0:0]\n")),
        ),
        (
            "sets-for-rules",
            vec![
                ("ipset-save", RULES.to_owned()),
                ("iptables-save", "create A hash:ip family inet\n".to_owned()),
            ],
        ),
        (
            "no-such-set",
            vec![
                (
                    "iptables-save",
                    RULES.replace("-m tcp", "-m set --match-set NOPE dst -m tcp"),
                ),
                ("ipset-save", "create A hash:ip family inet\n".to_owned()),
            ],
        ),
        (
            "one-kind-twice",
            vec![
                ("iptables-nft-save", RULES.to_owned()),
                ("iptables-save", RULES.replace("80", "81")),
            ],
        ),
        (
            "two-nodes",
            vec![
                ("a.iptables-save", RULES.to_owned()),
                ("b.ip-addr", ADDRESSES.to_owned()),
            ],
        ),
        (
            "cut-json",
            vec![("nft", "{\"nftables\": [{\"table\":".to_owned())],
        ),
        ("notes", vec![("notes", "hello\n".to_owned())]),
        ("empty", Vec::new()),
    ]
}

/// Packs entries of a directory into a tarball.
fn pack(directory: &Path, tarball: &Path, entries: &[&str]) -> PathBuf {
    let status = Command::new("tar")
        .arg("-C")
        .arg(directory)
        .arg("-czf")
        .arg(tarball)
        .args(entries)
        .status()
        .expect("tar starts");
    assert!(status.success());
    tarball.to_owned()
}

/// Compares the output for each directory, without and with `--lenient`, with a snapshot.
#[test]
fn replay_damaged_dump_reports_location() {
    let (directory, lab) = crate::support::write_lab(LAB);
    let directory = directory.path();
    let mut dumps: Vec<PathBuf> = Vec::new();
    for (name, files) in damaged_dumps() {
        let dump = directory.join(name);
        fs::create_dir(&dump).expect("a directory");
        for (file, text) in files {
            fs::write(dump.join(file), text).expect("the file can be written");
        }
        dumps.push(dump);
    }
    let both = directory.join("both");
    for (node, file, text) in [("a", "iptables-save", RULES), ("b", "ip-addr", ADDRESSES)] {
        let node = both.join(node);
        fs::create_dir_all(&node).expect("a directory");
        fs::write(node.join(file), text).expect("the file can be written");
    }
    dumps.push(pack(&both, &directory.join("two.tar.gz"), &["a", "b"]));
    let linked = directory.join("linked");
    fs::create_dir(&linked).expect("a directory");
    std::os::unix::fs::symlink("/etc/passwd", linked.join("iptables-save")).expect("a link");
    dumps.push(pack(&linked, &directory.join("link.tar.gz"), &["."]));
    let nothing = directory.join("nothing");
    fs::write(&nothing, "").expect("the file can be written");
    dumps.push(nothing);
    let case = format!("{}/policy=Local", lab.display());
    let call = "pod/default/client->pod/default/web:8080";
    let mut reports: Vec<String> = Vec::new();
    for dump in &dumps {
        let name = dump.display().to_string();
        let arguments = ["replay", &name, "--objects", &case, "--probe", call];
        let strict = run(&arguments);
        assert_eq!(strict.status.code(), Some(2), "{}", stdout(&strict));
        assert_eq!(stdout(&strict), "");
        let lenient = run(&[&arguments[..], &["--lenient"]].concat());
        let text = stdout(&lenient);
        let (account, _) = text.split_once("\n\n").unwrap_or_default();
        let told_of = |line: &&str| {
            let stands = line.contains(" of the lab");
            !stands && *line != "node-1"
        };
        let account: Vec<&str> = account.lines().filter(told_of).collect();
        let code = lenient.status.code().expect("no signal");
        let last = dump.file_name().expect("a name").to_string_lossy();
        let account = account.join("\n");
        reports.push(format!(
            "==== {last}\n{}---- --lenient: {code}\n{account}",
            stderr(&strict)
        ));
    }
    let shown = directory.display().to_string();
    insta::assert_snapshot!(reports.join("\n").replace(&shown, "DIR"));
}

/// CRLF line ends and byte order marks of Windows programs are ignored.
#[test]
fn replay_dump_with_crlf_and_bom_reads_the_same() {
    let (directory, lab) = crate::support::write_lab(LAB);
    let dump = directory.path().join("node-1");
    fs::create_dir(&dump).expect("a directory");
    for (file, text) in [
        ("iptables-save", RULES),
        ("ip-addr", ADDRESSES),
        ("ip-route", "default via 192.168.50.1 dev eth0\n"),
        (
            "ipset-save",
            "create A hash:ip family inet\nadd A 10.0.0.1\n",
        ),
        ("sysctl-a", "net.ipv4.ip_forward = 1\n"),
        (
            "nft",
            "table ip x {\n\tchain c {\n\t\tip daddr 10.0.0.1 accept\n\t}\n}\n",
        ),
    ] {
        let text = format!("\u{feff}{}", text.replace('\n', "\r\n"));
        fs::write(dump.join(file), text).expect("the file can be written");
    }
    let case = format!("{}/policy=Local", lab.display());
    let output = run(&["replay", &dump.display().to_string(), "--objects", &case]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    assert_eq!(stderr(&output), "");
    let text = stdout(&output);
    let (account, _) = text.split_once("\n\n").expect("a replay report");
    insta::assert_snapshot!(account);
}
