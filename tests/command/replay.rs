//! `svclab replay`: nodes that were collected, built again.

use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};

use crate::standing::Labs;
use crate::standing_labs::Runtime;
use crate::support::{LAB, run, stderr, stdout, svclab};

/// What `scripts/collect-node` collects in a node of a lab that stands.
pub fn collected(runtime: &Runtime, node: &str, into: &Path) {
    let script = std::fs::File::open("scripts/collect-node").expect("the script");
    let output = runtime
        .svclab(&["exec", node, "--", "sh", "-s", "--", "-o", "-"])
        .stdin(Stdio::from(script))
        .output()
        .expect("the command starts");
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    std::fs::write(into, output.stdout).expect("it can be written");
}

/// What became of each call, in the words that are told first of each.
fn verdicts(output: &Output) -> Vec<String> {
    assert_eq!(output.status.code(), Some(0), "{}", stderr(output));
    let text = stdout(output);
    let lines = text.lines().filter(|line| {
        let mut words = line.split(' ');
        let probe = words.next().unwrap_or_default();
        !probe.is_empty() && words.next().is_some_and(|word| word.starts_with('#'))
    });
    lines.map(str::to_owned).collect()
}

/// The dump of a case's node takes its place in another case, and in its own.
#[test]
fn a_node_behaves_as_the_one_it_was_collected_in() {
    let directory = tempfile::tempdir().expect("a directory");
    let case = |stale: &str| format!("canal-stale-rule/stale={stale},rpFilter=1,underlay=passes");
    let dumps: Vec<PathBuf> = ["removed", "present"]
        .map(|stale| {
            let runtime = Runtime::of(svclab);
            runtime.up(&case(stale));
            let file = directory.path().join(format!("{stale}.tar.gz"));
            collected(&runtime, "node-1", &file);
            file
        })
        .into();
    // What the lab says of the node's rules means nothing any more.
    for (stale, dump, expected) in [
        ("removed", &dumps[0], "call #1: connected"),
        ("present", &dumps[0], "call #1: connected"),
        ("removed", &dumps[1], "call #1: timeout"),
        ("present", &dumps[1], "call #1: timeout"),
    ] {
        let dump = dump.display().to_string();
        let output = run(&["replay", &dump, "--objects", &case(stale)]);
        assert_eq!(verdicts(&output), [expected], "{stale}");
        let told = stdout(&output);
        if expected.ends_with("timeout") {
            let rule = "-s\n    192.168.64.0/20 -d 192.168.66.0/24 -j RETURN`";
            assert!(told.contains(rule), "{told}");
        }
    }
}

/// The objects of [`LAB`], without its lab.
pub fn objects(directory: &Path) -> String {
    let (_, objects) = LAB.split_once("---\n").expect("objects");
    let path = directory.join("objects.yaml");
    std::fs::write(&path, objects).expect("it can be written");
    path.display().to_string()
}

/// A user's directory with a dump of the lab's node.
fn collected_one() -> (tempfile::TempDir, String) {
    let labs = Labs::one();
    let directory = tempfile::tempdir().expect("a directory");
    let dump = directory.path().join("node-1.tar.gz");
    collected(&labs.runtime, "node-1", &dump);
    let dump = dump.display().to_string();
    (directory, dump)
}

pub const CALL: &str = "pod/default/client->service/default/web:80";

#[test]
fn a_dump_and_objects_make_a_lab_to_keep() {
    let (directory, dump) = collected_one();
    let objects = objects(directory.path());
    let kept = directory.path().join("kept.yaml").display().to_string();
    let arguments = ["replay", &dump, "--objects", &objects, "--probe", CALL];
    let output = run(&[&arguments[..], &["--write", &kept]].concat());
    assert_eq!(verdicts(&output), ["probe-1 #1: connected"]);
    let shown = directory.path().display().to_string();
    let written = std::fs::read_to_string(&kept).expect("a lab");
    let (lab, _) = written.split_once("---\n").expect("objects behind it");
    insta::assert_snapshot!(lab.replace(&shown, "DIR"));
    let output = run(&["run", &kept]);
    assert_eq!(output.status.code(), Some(0), "{}", stdout(&output));
    // What is real and what is not is told before the packets.
    let output = run(&arguments);
    let told = stdout(&output);
    let (account, _) = told.split_once("\n\n").expect("an account");
    insta::with_settings!({filters => vec![
        (r"\d+ kernel settings", "N kernel settings"),
    ]}, {
        insta::assert_snapshot!(account);
    });
}

#[test]
fn rules_alone_are_laid_over_a_lab() {
    let labs = Labs::one();
    let saved = labs.runtime.run(&["exec", "node-1", "--", "iptables-save"]);
    let rules = stdout(&saved);
    // Without the way from the service to its endpoint the call leaves the node as it is,
    // and the fabric's router knows no cluster IP.
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
        std::fs::write(&file, text).expect("it can be written");
        let file = file.display().to_string();
        let output = run(&["replay", &file, "--objects", &case]);
        assert_eq!(verdicts(&output), [expected]);
    }
}

/// Rules as S0 prints them, changed after they were saved, and some that were cut off.
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
fn damaged_dumps_are_built_only_if_the_user_says_so() {
    let (directory, path) = crate::support::lab(LAB);
    let file = directory.path().join("iptables-save");
    std::fs::write(&file, DAMAGED).expect("it can be written");
    let case = format!("{}/policy=Local", path.display());
    let file = file.display().to_string();
    let shown = directory.path().display().to_string();
    let arguments = ["replay", &file, "--objects", &case, "--probe", CALL];
    let output = run(&arguments);
    assert_eq!(output.status.code(), Some(2), "{}", stdout(&output));
    assert_eq!(stdout(&output), "");
    let refused = stderr(&output).replace(&shown, "DIR");
    let output = run(&[&arguments[..], &["--lenient"]].concat());
    // Nothing sends the call on to an endpoint.
    assert_eq!(verdicts(&output), ["probe-1 #1: unreachable"]);
    let told = stdout(&output).replace(&shown, "DIR");
    let (account, _) = told.split_once("\n\n").expect("an account");
    insta::assert_snapshot!(format!("{refused}====\n{account}"));
}

#[test]
fn what_cannot_be_replayed_is_told() {
    let (directory, dump) = collected_one();
    let objects = objects(directory.path());
    let shown = directory.path().display().to_string();
    let whole = std::fs::read(&dump).expect("a dump");
    let cut = directory.path().join("cut.tar.gz");
    std::fs::write(&cut, &whole[..whole.len() / 2]).expect("it can be written");
    let cut = cut.display().to_string();
    let other = directory.path().join("iptables-save");
    std::fs::write(&other, "1: lo: <LOOPBACK> mtu 65536\n").expect("it can be written");
    let other = other.display().to_string();
    let lab = directory.path().join("lab.yaml");
    std::fs::write(&lab, LAB).expect("it can be written");
    let lab = lab.display().to_string();
    let named = format!("node-7={dump}");
    let told: Vec<String> = [
        &["replay", "nowhere.tar.gz"][..],
        &["replay", &cut],
        &["replay", &other],
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
    insta::assert_snapshot!(told.join("====\n"));
}

/// What legacy rules rewrite is looked at by rules of nftables.
#[test]
fn rules_of_both_iptables_act_together() {
    let legacy = "*nat\n:OUTPUT ACCEPT [0:0]\n-A OUTPUT -d 10.96.0.10/32 -p tcp -m tcp --dport 80 -j DNAT --to-destination 10.244.1.10:8080\nCOMMIT\n";
    let nft = "*filter\n:OUTPUT ACCEPT [0:0]\n-A OUTPUT -d 10.244.1.10/32 -p tcp -m tcp --dport 8080 -j REJECT --reject-with tcp-reset\nCOMMIT\n";
    let (directory, path) = crate::support::lab(LAB);
    let dump = directory.path().join("both");
    std::fs::create_dir(&dump).expect("a directory");
    for (name, text) in [("iptables-legacy-save", legacy), ("iptables-nft-save", nft)] {
        std::fs::write(dump.join(name), text).expect("it can be written");
    }
    let (dump, case) = (
        dump.display().to_string(),
        format!("{}/policy=Local", path.display()),
    );
    let call = "node-1->service/default/web:80";
    let output = run(&["replay", &dump, "--objects", &case, "--probe", call]);
    assert_eq!(verdicts(&output), ["probe-1 #1: refused"]);
    assert!(stdout(&output).contains("filter OUTPUT rule 1 of iptables-nft"));
}

#[test]
fn what_the_kernel_refuses_is_told() {
    let rules =
        "*nat\n:OUTPUT ACCEPT [0:0]\n-A OUTPUT -m set --match-set NOPE dst -j ACCEPT\nCOMMIT\n";
    let (directory, path) = crate::support::lab(LAB);
    let file = directory.path().join("iptables-save");
    std::fs::write(&file, rules).expect("it can be written");
    let case = format!("{}/policy=Local", path.display());
    let output = run(&["replay", &file.display().to_string(), "--objects", &case]);
    assert_eq!(output.status.code(), Some(2), "{}", stdout(&output));
    let told = stderr(&output);
    assert!(
        told.contains(
            "refused a line in node-1:\n    -A OUTPUT -m set --match-set NOPE dst -j ACCEPT"
        ),
        "{told}"
    );
}
