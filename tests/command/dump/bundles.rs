//! Tests `svclab diff`, `replay`, `bisect` and `why --dump` with bundles in the layouts of foreign
//! collectors. `tests/bundles/README.md` states the sources of the layouts.

use std::fmt::Write as _;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use crate::running::Labs;
use crate::support::{LAB, project, run, stderr, stdout};

/// Layout of a collector, with the program that packs its files.
struct Layout {
    name: &'static str,
    /// Shell command that packs the files of the current directory to standard output.
    pack: &'static str,
    /// Ending of the name of the bundle.
    ending: &'static str,
    /// Version and mode of kube-proxy in the lab.
    kube_proxy: &'static str,
    /// Exit code of the replay of a healthy node: 1 if the bundle has state that is not replayed.
    healthy: i32,
}

const TARBALL: Layout = Layout {
    name: "",
    pack: "tar cz *",
    ending: ".tar.gz",
    kube_proxy: IPTABLES,
    healthy: 0,
};
const EKS: Layout = Layout {
    name: "eks",
    pack: "tar cz .",
    ..TARBALL
};
const RANCHER: Layout = Layout {
    name: "rancher",
    ..TARBALL
};
const SOS: Layout = Layout {
    name: "sos",
    pack: "ln -s sos_commands/networking/ip_-o_addr sos*/ip_addr; tar cJ *",
    ending: ".tar.xz",
    ..TARBALL
};
const NETWORK_TOOLS: Layout = Layout {
    name: "network-tools",
    pack: "zip -qr - *",
    ending: ".zip",
    ..TARBALL
};
/// The rules are in the JSON of nft only, which has no extensions of iptables.
const AKS: Layout = Layout {
    name: "aks",
    pack: "zip -qDr - *",
    ending: ".zip",
    kube_proxy: "version: v1.31, mode: nftables",
    ..TARBALL
};
const ANTREA: Layout = Layout {
    name: "antrea",
    ..TARBALL
};
const CALICO: Layout = Layout {
    name: "calico",
    ..TARBALL
};
const CILIUM: Layout = Layout {
    name: "cilium",
    pack: "tar c *",
    ending: ".tar",
    ..TARBALL
};
const TROUBLESHOOT: Layout = Layout {
    name: "troubleshoot",
    // The bundle has interfaces without addresses.
    healthy: 1,
    ..TARBALL
};
const KUBECTL_DEBUG: Layout = Layout {
    name: "kubectl-debug",
    pack: "cat session.txt",
    ending: ".txt",
    ..TARBALL
};

/// kube-proxy in [`LAB`].
const IPTABLES: &str = "version: v1.30";

/// Runs a shell script on node-1 and returns its standard output.
fn shell(labs: &Labs, script: &str) -> Vec<u8> {
    let mut child = labs
        .runtime
        .svclab(&["exec", "node-1", "--", "sh", "-s"])
        .stdin(Stdio::piped())
        .spawn()
        .expect("the command starts");
    let mut stdin = child.stdin.take().expect("a pipe");
    stdin.write_all(script.as_bytes()).expect("the shell reads");
    drop(stdin);
    let output = child.wait_with_output().expect("the command ends");
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    output.stdout
}

impl Layout {
    /// Collects node-1 in this layout.
    fn collect(&self, labs: &Labs, bundle: &Path) {
        let layout = std::fs::read_to_string(project().join("tests/bundles").join(self.name));
        let layout = layout.expect("a layout");
        let mut script = "cd $(mktemp -d)\n".to_owned();
        for line in layout.lines() {
            let (path, command) = line.split_once('\t').expect("a path and a command");
            let _ = writeln!(
                script,
                "mkdir -p $(dirname '{path}')\n{{ {command}\n}} >'{path}' 2>&1"
            );
        }
        // Programs of this machine pack the files, so that the node needs none of them.
        script.push_str("tar c .\n");
        let files = shell(labs, &script);
        let directory = tempfile::tempdir().expect("a directory");
        let mut unpack = Command::new("tar")
            .args(["x", "-C"])
            .arg(directory.path())
            .stdin(Stdio::piped())
            .spawn()
            .expect("tar starts");
        let mut stdin = unpack.stdin.take().expect("a pipe");
        stdin.write_all(&files).expect("tar reads");
        drop(stdin);
        assert!(unpack.wait().expect("tar ends").success());
        let packed = Command::new("sh")
            .args(["-c", self.pack])
            .current_dir(directory.path())
            .output()
            .expect("sh starts");
        assert!(packed.status.success(), "{}", stderr(&packed));
        std::fs::write(bundle, packed.stdout).expect("the bundle can be written");
    }
}

/// Bundles of a node before and after a fault.
struct Bundles {
    labs: Labs,
    directory: tempfile::TempDir,
    good: PathBuf,
    bad: PathBuf,
}

/// Rule that drops the requests to the endpoint of the lab.
const FAULT: &str = "iptables -t filter -I FORWARD -d 10.244.1.9 -j DROP";

impl Bundles {
    fn collect(layout: &Layout) -> Self {
        let labs = Labs::from_text(&LAB.replace(IPTABLES, layout.kube_proxy));
        labs.runtime.up(&labs.case("Local"));
        let directory = tempfile::tempdir().expect("a directory");
        let [good, bad] =
            ["good", "bad"].map(|name| directory.path().join(format!("{name}{}", layout.ending)));
        layout.collect(&labs, &good);
        shell(&labs, FAULT);
        layout.collect(&labs, &bad);
        Self {
            labs,
            directory,
            good,
            bad,
        }
    }

    /// Returns the names of both bundles, with a suffix.
    fn names(&self, part: &str) -> [String; 2] {
        [&self.good, &self.bad].map(|path| format!("{}{part}", path.display()))
    }

    fn render(&self, output: &Output) -> String {
        let text = format!("{}{}", stderr(output), stdout(output));
        text.replace(&self.directory.path().display().to_string(), "DIR")
    }
}

/// Compares the bundles, replays both, and searches for the fault. `part` is the part of the bundle
/// with the files of the node.
fn find_fault(layout: &Layout, part: &str) -> String {
    let bundles = Bundles::collect(layout);
    let [good, bad] = bundles.names(part);
    let case = bundles.labs.case("Local");
    let diff = run(&["diff", &good, &bad]);
    assert_eq!(diff.status.code(), Some(1), "{}", stderr(&diff));
    for (dump, verdict, code) in [(&good, "connected", layout.healthy), (&bad, "timeout", 0)] {
        let named = format!("node-1={dump}");
        let replay = run(&["replay", &named, "--objects", &case]);
        let text = stdout(&replay);
        assert_eq!(
            replay.status.code(),
            Some(code),
            "{}{text}",
            stderr(&replay)
        );
        let line = format!("call #1: {verdict}");
        assert!(text.lines().any(|own| own == line), "{text}");
    }
    let bisect = run(&[
        "bisect", "--good", &good, "--bad", &bad, "--case", &case, "--node", "node-1",
    ]);
    assert_eq!(bisect.status.code(), Some(0), "{}", bundles.render(&bisect));
    let answer = stdout(&bisect);
    assert!(answer.contains("10.244.1.9"), "{answer}");
    bundles.render(&diff)
}

#[test]
fn eks_bundle_shows_fault() {
    insta::assert_snapshot!(find_fault(&EKS, ""));
}

#[test]
fn rancher_bundle_shows_fault() {
    insta::assert_snapshot!(find_fault(&RANCHER, ""));
}

#[test]
fn sos_bundle_shows_fault() {
    insta::assert_snapshot!(find_fault(&SOS, ""));
}

#[test]
fn network_tools_bundle_shows_fault() {
    let part = ":must-gather.local.1/quay-io-network-tools/openshift-sdn-cluster-and-node-info/nodes/node-1";
    insta::assert_snapshot!(find_fault(&NETWORK_TOOLS, part));
}

#[test]
fn aks_bundle_shows_fault() {
    insta::assert_snapshot!(find_fault(&AKS, ""));
}

#[test]
fn antrea_bundle_shows_fault() {
    insta::assert_snapshot!(find_fault(&ANTREA, ""));
}

#[test]
fn calico_bundle_shows_fault() {
    insta::assert_snapshot!(find_fault(&CALICO, ""));
}

#[test]
fn cilium_bundle_shows_fault() {
    insta::assert_snapshot!(find_fault(&CILIUM, ""));
}

#[test]
fn troubleshoot_bundle_shows_fault() {
    insta::assert_snapshot!(find_fault(&TROUBLESHOOT, ""));
}

#[test]
fn kubectl_debug_session_shows_fault() {
    insta::assert_snapshot!(find_fault(&KUBECTL_DEBUG, ""));
}
