//! Tests `svclab redact` together with `scripts/collect-node --redact-key`.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use svclab_scenario::redact::{NameKind, RedactionKey};

use super::collect::{Bundle, SCRIPT};
use super::replay::{collect_node_with, verdict_lines};
use crate::running::Labs;
use crate::support::{LAB, project, run, stderr, stdout};

/// Key of these tests, with bytes that no text contains.
const KEY: &[u8] = b"tests\0only\xff\nkey of 28 bytes.\n";

fn key() -> RedactionKey {
    RedactionKey::new(KEY).expect("a key")
}

/// Addresses and networks, each with the text that the script prints for it.
const ADDRESSES: [&str; 24] = [
    "10.96.0.10",
    "10.96.0.0/12",
    "10.244.1.9/24",
    "10.244.0.0/16",
    "172.16.0.1",
    "172.31.255.255",
    "192.168.50.11",
    "100.64.0.1",
    "203.0.113.9",
    "1.2.3.4",
    "126.255.0.1",
    "127.0.0.1/8",
    "169.254.169.254",
    "224.0.0.251",
    "255.255.255.255",
    "0.0.0.0/0",
    "fd00:10:244::9",
    "fd00:10:244::",
    "fd00:10:96::/112",
    "2001:db8:1:2:3:4:5:6/64",
    "fe80::a:b:c:d",
    "fc00::1",
    "::/0",
    "ff02::1",
];

/// Runs the functions of the script on a file, with the names of a node.
fn redact_by_script(shell: &[&str], directory: &Path, name: &str, hosts: &str) -> String {
    let (functions, _) = SCRIPT.split_once("\nmain() {").expect("the main function");
    let script = format!(
        "{functions}\nhost_names() {{ printf '%s ' {hosts}; }}\nwork=$1 found=$1/found key=$1/given\n\
         read_key && redact && cat \"$found/{name}\""
    );
    let output = Command::new(shell[0])
        .args(&shell[1..])
        .args(["-c", &script, "sh"])
        .arg(directory)
        .env("LC_ALL", "C")
        .output()
        .expect("the shell starts");
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    stdout(&output)
}

/// Creates the directory of a run of the script, with one file to redact.
fn script_directory(name: &str, text: &str) -> tempfile::TempDir {
    let directory = tempfile::tempdir().expect("a directory");
    fs::create_dir(directory.path().join("found")).expect("a directory");
    fs::write(directory.path().join("found").join(name), text).expect("written");
    fs::write(directory.path().join("given"), KEY).expect("written");
    directory
}

#[test]
fn redact_equals_collect_node() {
    let addresses: Vec<String> = ADDRESSES.map(|text| format!("via {text} dev eth0")).into();
    let expected: Vec<String> = ADDRESSES
        .map(|text| key().redact_address(text).expect("an address"))
        .map(|text| format!("via {text} dev eth0"))
        .into();
    let rules = "-A A -m comment --comment \"acme/cart:http cluster IP\" -j B\n\
                 -A A -m comment --comment acme/cart -j C\n\
                 # of Acme-1 and acme-1.acme.example\n";
    let (namespace, service, node, whole) = (
        key().rename(NameKind::Namespace, "acme"),
        key().rename(NameKind::Name, "cart"),
        key().rename(NameKind::Node, "acme-1"),
        key().rename(NameKind::Node, "acme-1.acme.example"),
    );
    let renamed_rules = format!(
        "-A A -m comment --comment \"{namespace}/{service}:http cluster IP\" -j B\n\
         -A A -m comment --comment {namespace}/{service} -j C\n\
         # of {node} and {whole}\n"
    );
    for shell in [&["dash"][..], &["busybox", "sh"], &["bash", "--posix"]] {
        let directory = script_directory("ip-route", &addresses.join("\n"));
        let turned = redact_by_script(shell, directory.path(), "ip-route", "acme-1");
        assert_eq!(turned.lines().collect::<Vec<_>>(), expected, "{shell:?}");
        let directory = script_directory("iptables-save", rules);
        let hosts = "Acme-1 acme-1.acme.example";
        let renamed = redact_by_script(shell, directory.path(), "iptables-save", hosts);
        assert_eq!(renamed, renamed_rules, "{shell:?}");
    }
}

/// Lines of files whose format needs its own treatment.
const FORMATS: [(&str, &str); 6] = [
    (
        "nft",
        "  chain service-ABCDEFGH-acme/cart/tcp/http__10.244.1.9/8080 # handle 1\n\
         \x20 counter goto endpoint-ABCDEFGH-acme/cart/tcp/http__fd00.10.244..9/8080 comment \"acme/cart\"\n",
    ),
    (
        "ip-neigh",
        "10.244.1.9 dev eth0 lladdr 52:54:00:12:34:56 STALE\n",
    ),
    (
        "bridge-fdb",
        "33:33:00:00:00:01 dev eth0\n52:54:00:12:34:56 dst 10.244.1.9\n",
    ),
    (
        "proc-ip_vs",
        "TCP  0A60000A:01BB rr\n  -> 0AF40109:1F90 Masq 1 0 0\n",
    ),
    (
        "tc-filter",
        "filter protocol ip pref 1 u32 fh 800::800\n  match 0af40109/ffffffff at 16\n",
    ),
    (
        "kube-proxy-config",
        "server: https://api.acme.example:6443\nclusterCIDR: 10.244.0.0/16\n",
    ),
];

#[test]
fn collect_node_key_redacts_every_format() {
    let redact = |shell: &[&str]| {
        FORMATS.map(|(name, text)| {
            let directory = script_directory(name, text);
            let text = redact_by_script(shell, directory.path(), name, "acme-1");
            format!("{name}\n{text}")
        })
    };
    let outputs = redact(&["dash"]);
    assert_eq!(redact(&["busybox", "sh"]), outputs);
    insta::assert_snapshot!(outputs.join("\n"));
}

/// A lab with two nodes whose names and addresses must not remain.
fn private_lab() -> String {
    let text = LAB
        .replace("default", "acme-shop")
        .replace("web", "acme-cart")
        .replace("node-1", "acme-node-1")
        .replace("client", "acme-payer");
    text + "\
---
apiVersion: v1
kind: Node
metadata: {name: acme-node-2, annotations: {owner: acme}}
spec: {podCIDR: 10.244.2.0/24}
status: {addresses: [{type: InternalIP, address: 192.168.51.12}]}
---
apiVersion: v1
kind: Pod
metadata: {name: acme-cart-2, namespace: acme-shop, labels: {app: acme-cart}}
spec: {nodeName: acme-node-2, containers: [{name: acme-cart, image: acme.example/cart, ports: [{containerPort: 8080}]}]}
status: {podIP: 10.244.2.10}
"
}

/// Texts of the lab that must not remain.
const SECRETS: [&str; 5] = ["acme", "10.244.1.", "10.244.2.", "10.96.0.10", "192.168.5"];

/// Collects both nodes without and with the key. Returns the paths of the dumps.
fn collect_nodes(labs: &Labs, directory: &Path, is_redacted: bool) -> Vec<PathBuf> {
    let shell = if is_redacted {
        // The key is written in the namespace of the node, as a user copies it to a node.
        "file=$(mktemp) && printf 'tests\\0only\\377\\nkey of 28 bytes.\\n' >$file && \
         exec sh \"$@\" --redact-key $file"
    } else {
        "exec sh \"$@\""
    };
    let nodes = ["acme-node-1", "acme-node-2"];
    nodes
        .map(|node| {
            let path = directory.join(format!("{node}-{is_redacted}.tar.gz"));
            collect_node_with(&labs.runtime, node, &["sh", "-c", shell, "sh"], &path);
            path
        })
        .into()
}

fn path_text(path: &Path) -> String {
    path.display().to_string()
}

/// Replays dumps with objects. Returns the verdicts of a served port and of a port without server.
fn replay(
    dumps: &[PathBuf],
    objects: &str,
    rename: impl Fn(NameKind, &str) -> String,
) -> Vec<String> {
    let namespace = rename(NameKind::Namespace, "acme-shop");
    let name = |name| rename(NameKind::Name, name);
    let from = format!("pod/{namespace}/{}", name("acme-payer"));
    let served = format!("{from}->service/{namespace}/{}:80", name("acme-cart"));
    let closed = format!("{from}->pod/{namespace}/{}:9", name("acme-cart-2"));
    let dumps: Vec<String> = dumps.iter().map(|path| path_text(path)).collect();
    let mut arguments = vec!["replay"];
    arguments.extend(dumps.iter().map(String::as_str));
    arguments.extend(["--objects", objects, "--probe", &served, "--probe", &closed]);
    verdict_lines(&run(&arguments))
}

/// Returns the exit code of `svclab diff` and the number of differences.
fn diff(dumps: &[PathBuf]) -> (Option<i32>, Option<String>) {
    let output = run(&["diff", &path_text(&dumps[0]), &path_text(&dumps[1])]);
    let last = stdout(&output).lines().last().map(str::to_owned);
    (output.status.code(), last)
}

#[test]
fn redacted_nodes_and_objects_give_same_verdicts() {
    let text = private_lab();
    let labs = Labs::from_text(&text);
    labs.runtime.up(&labs.case("Cluster"));
    let directory = tempfile::tempdir().expect("a directory");
    let plain = collect_nodes(&labs, directory.path(), false);
    let redacted = collect_nodes(&labs, directory.path(), true);
    let (_, objects) = text.split_once("---\n").expect("objects");
    let objects_path = path_text(&directory.path().join("objects.yaml"));
    fs::write(&objects_path, objects).expect("written");
    let key_path = path_text(&directory.path().join("redact.key"));
    fs::write(&key_path, KEY).expect("written");
    let into = path_text(&directory.path().join("redacted"));
    let output = run(&["redact", "--key", &key_path, "-o", &into, &objects_path]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let redacted_objects = format!("{into}/objects.redacted.yaml");
    assert_eq!(
        stderr(&output),
        format!("wrote {redacted_objects}: 6 objects\n")
    );

    let mut texts = vec![fs::read_to_string(&redacted_objects).expect("objects")];
    for dump in &redacted {
        let bundle = Bundle::unpack(&fs::read(dump).expect("a tarball"));
        texts.extend(bundle.texts().into_values());
    }
    for text in &texts {
        for secret in SECRETS {
            assert!(!text.contains(secret), "{secret}: {text}");
        }
    }
    let verdicts = replay(&plain, &objects_path, |_, name| name.to_owned());
    assert_eq!(verdicts.len(), 2);
    assert_ne!(
        verdicts[0].split(": ").last(),
        verdicts[1].split(": ").last()
    );
    let renamed = replay(&redacted, &redacted_objects, |kind, name| {
        key().rename(kind, name)
    });
    assert_eq!(renamed, verdicts);
    assert_eq!(diff(&redacted), diff(&plain));
}

/// Renders the output and the exit code, without the directory.
fn render(output: &Output, directory: &Path) -> String {
    let text = format!("{}{}", stdout(output), stderr(output));
    let text = text.replace(&path_text(directory), "DIR");
    format!(
        "{}\nexit code {:?}\n",
        text.trim_end(),
        output.status.code()
    )
}

#[test]
fn redact_invalid_input_writes_nothing() {
    let directory = tempfile::tempdir().expect("a directory");
    let file = |name: &str, bytes: &[u8]| {
        let path = directory.path().join(name);
        fs::create_dir_all(path.parent().expect("a directory")).expect("a directory");
        fs::write(&path, bytes).expect("written");
        path_text(&path)
    };
    let key = file("redact.key", KEY);
    let empty = file("empty.key", b"");
    let (lab, objects) = LAB.split_once("---\n").expect("objects");
    let good = file("good.yaml", objects.as_bytes());
    let same_name = file("other/good.yaml", objects.as_bytes());
    let lab = file("lab.yaml", lab.as_bytes());
    let rules = file("iptables-save", b"*nat\nCOMMIT\n");
    let tarball = file("node.tar.gz", b"\x1f\x8b\x08\0\0\0\0\0\0\xff");
    let into = path_text(&directory.path().join("into"));
    let missing = path_text(&directory.path().join("missing"));
    let folder = path_text(&directory.path().join("other"));
    let redact = |arguments: &[&str]| {
        let output = run(&[&["redact", "-o", &into][..], arguments].concat());
        render(&output, directory.path())
    };
    let outputs = [
        redact(&[]),
        redact(&[&good]),
        redact(&["--key", &missing, &good]),
        redact(&["--key", &empty, &good]),
        redact(&["--key", &folder, &good]),
        redact(&["--key", &key, &missing]),
        redact(&["--key", &key, &good, &folder]),
        redact(&["--key", &key, &good, &tarball]),
        redact(&["--key", &key, &rules]),
        redact(&["--key", &key, &lab]),
        redact(&["--key", &key, &good, &same_name]),
    ];
    assert!(!Path::new(&into).exists());
    insta::assert_snapshot!(outputs.join("\n"));
}

#[test]
fn redact_replaces_only_its_own_files() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = |name: &str| directory.path().join(name);
    let (_, objects) = LAB.split_once("---\n").expect("objects");
    fs::write(path("a.yaml"), objects).expect("written");
    fs::write(path("a.redacted.yaml"), objects).expect("written");
    fs::write(path("redact.key"), KEY).expect("written");
    let redact = |into: &Path, files: &[&str]| {
        let mut command = crate::support::svclab();
        command.current_dir(directory.path());
        command
            .args(["redact", "--key", "redact.key", "-o"])
            .arg(into);
        let output = command.args(files).output().expect("the command starts");
        render(&output, directory.path())
    };
    let here = Path::new(".");
    let input = redact(here, &["a.yaml", "a.redacted.yaml"]);
    assert_eq!(
        fs::read_to_string(path("a.redacted.yaml")).ok().as_deref(),
        Some(objects)
    );
    let replaced = redact(here, &["a.yaml"]);
    assert_ne!(
        fs::read_to_string(path("a.redacted.yaml")).ok().as_deref(),
        Some(objects)
    );
    std::os::unix::fs::symlink("b.yaml", path("c.redacted.yaml")).expect("a link");
    fs::write(path("c.yaml"), objects).expect("written");
    let link = redact(here, &["c.yaml"]);
    fs::create_dir(path("real")).expect("a directory");
    std::os::unix::fs::symlink("real", path("linked")).expect("a link");
    let linked = redact(&path("linked"), &["a.yaml"]);
    let secret = "apiVersion: v1\nkind: Secret\nmetadata: {name: x}\n---\n";
    fs::write(path("lab.yaml"), [secret, LAB].concat()).expect("written");
    let lab = redact(here, &["--verbose", "lab.yaml"]);
    let names: Vec<_> = fs::read_dir(path("real")).expect("a directory").collect();
    assert!(names.is_empty() && !path("b.yaml").exists());
    insta::assert_snapshot!([input, replaced, link, linked, lab].join("\n"));
}

#[test]
fn collect_node_invalid_key_collects_nothing() {
    let directory = tempfile::tempdir().expect("a directory");
    fs::write(directory.path().join("empty"), "").expect("written");
    fs::write(directory.path().join("short"), "123456789012345").expect("written");
    let outputs = ["missing", "empty", "short", "."].map(|key| {
        let mut command = Command::new(project().join("scripts/collect-node"));
        command.current_dir(directory.path());
        let output = command.args(["--redact-key", key]).output();
        render(&output.expect("the script starts"), directory.path())
    });
    assert_eq!(
        fs::read_dir(directory.path()).expect("a directory").count(),
        2
    );
    insta::assert_snapshot!(outputs.join("\n"));
}
