//! Tests the diagnosis of nodes with faults in their neighbours, forwarding entries and bridge
//! ports. Commands on a node of a running lab make the faults.

use std::fmt::Write as _;
use std::path::Path;

use svclab_model::plan::Mac;
use svclab_test_support::running::Runtime;

use super::replay::collect_node;
use crate::support::{run, stderr, stdout, svclab, write_lab};

const LAB: &str = include_str!("link_layer.yaml");

/// Ports of the pods `client` and `echo` on the bridge of node-1.
const PORTS: [&str; 2] = ["vetha7a3e029", "veth4093604f"];

/// Fault of node-1.
struct Fault {
    /// Name of the dump.
    name: &'static str,
    /// Shell command that makes the fault. `PORT1` and `PORT2` are the ports, `ECHO` is the hardware
    /// address of the pod `echo`.
    make: &'static str,
    /// Shell command that removes the fault.
    undo: &'static str,
    /// Probe that fails.
    probe: &'static str,
    /// Text of the replay, if its other text depends on time. The kernel gives up on a neighbour
    /// after 3 seconds, when the probe ends, so that the packet is lost before the end or after it.
    unstable: Option<&'static str>,
}

const FAULTS: [Fault; 10] = [
    Fault {
        name: "tunnel-neighbour",
        make: "ip neigh replace 10.244.2.0 lladdr 0a:58:00:00:00:99 dev flannel.1 nud permanent",
        undo: "ip neigh replace 10.244.2.0 lladdr $(bridge fdb show dev flannel.1 | cut -d' ' -f1) dev flannel.1 nud permanent",
        probe: "toOtherNode",
        unstable: None,
    },
    Fault {
        name: "missing-tunnel-neighbour",
        make: "ip neigh del 10.244.2.0 dev flannel.1",
        undo: "ip neigh replace 10.244.2.0 lladdr $(bridge fdb show dev flannel.1 | cut -d' ' -f1) dev flannel.1 nud permanent",
        probe: "toOtherNode",
        unstable: Some("flannel.1 has no entry for the neighbour 10.244.2.0"),
    },
    Fault {
        name: "pod-neighbour",
        make: "ip neigh replace 10.244.1.10 lladdr 0a:58:00:00:00:99 dev cni0 nud permanent",
        undo: "ip neigh replace 10.244.1.10 lladdr ECHO dev cni0 nud permanent",
        probe: "toItself",
        unstable: None,
    },
    Fault {
        name: "wrong-remote",
        make: "bridge fdb replace $(bridge fdb show dev flannel.1 | cut -d' ' -f1) dev flannel.1 dst 192.168.50.77",
        undo: "bridge fdb replace $(bridge fdb show dev flannel.1 | cut -d' ' -f1) dev flannel.1 dst 192.168.50.12",
        probe: "toOtherNode",
        unstable: Some("192.168.50.77"),
    },
    Fault {
        name: "wrong-port",
        make: "bridge fdb replace ECHO dev PORT1 master static sticky",
        undo: "bridge fdb del ECHO dev PORT1 master",
        probe: "toItself",
        unstable: None,
    },
    Fault {
        name: "isolated",
        make: "bridge link set dev PORT1 isolated on; bridge link set dev PORT2 isolated on",
        undo: "bridge link set dev PORT1 isolated off; bridge link set dev PORT2 isolated off",
        probe: "toPod",
        unstable: None,
    },
    Fault {
        name: "hairpin",
        make: "bridge link set dev PORT2 hairpin off",
        undo: "bridge link set dev PORT2 hairpin on",
        probe: "toItself",
        unstable: None,
    },
    Fault {
        name: "learning",
        make: "bridge link set dev PORT2 learning off flood off; bridge fdb del ECHO dev PORT2 master || true",
        undo: "bridge link set dev PORT2 learning on flood on",
        probe: "toPod",
        unstable: None,
    },
    Fault {
        name: "missing-entry",
        make: "bridge fdb del $(bridge fdb show dev flannel.1 | cut -d' ' -f1) dev flannel.1",
        undo: "bridge fdb add $(ip neigh show dev flannel.1 | cut -d' ' -f3) dev flannel.1 dst 192.168.50.12",
        probe: "toOtherNode",
        unstable: None,
    },
    Fault {
        name: "bridge-down",
        make: "ip link set cni0 down",
        undo: "true",
        probe: "toPod",
        unstable: None,
    },
];

/// Runs a shell command on node-1.
fn on_node(runtime: &Runtime, command: &str) {
    let command = command
        .replace("PORT1", PORTS[0])
        .replace("PORT2", PORTS[1])
        .replace(
            "ECHO",
            &Mac::from_names("pod/default/echo", "eth0").to_string(),
        );
    let output = runtime.run(&["exec", "node-1", "--", "sh", "-ec", &command]);
    assert_eq!(
        output.status.code(),
        Some(0),
        "{command}: {}",
        stderr(&output)
    );
}

/// Collects node-1 into a tarball in the directory. Returns its path.
fn collect(runtime: &Runtime, directory: &Path, name: &str) -> String {
    let bundle = directory.join(format!("{name}.tar.gz"));
    collect_node(runtime, "node-1", &bundle);
    bundle.display().to_string()
}

/// Returns the lines of a text from the first that begins with `begin` up to a blank line.
fn section(text: &str, begin: &str) -> String {
    let lines = text.lines().skip_while(|line| !line.starts_with(begin));
    let lines: Vec<&str> = lines.take_while(|line| !line.trim().is_empty()).collect();
    lines.join("\n")
}

#[test]
fn faults_of_link_layer_are_named() {
    let (directory, lab) = write_lab(LAB);
    let lab = lab.display().to_string();
    let runtime = Runtime::new(svclab);
    runtime.up(&lab);
    let good = collect(&runtime, directory.path(), "good");
    let healthy = run(&["replay", &good, "--objects", &lab]);
    assert_eq!(healthy.status.code(), Some(0), "{}", stderr(&healthy));
    let mut report = section(&stdout(&healthy), "node-1");
    for fault in &FAULTS {
        on_node(&runtime, fault.make);
        let bad = collect(&runtime, directory.path(), fault.name);
        on_node(&runtime, fault.undo);
        let _ = writeln!(report, "\n==== {}", fault.name);
        let diff = run(&["diff", &good, &bad]);
        assert_eq!(
            diff.status.code(),
            Some(1),
            "{}: {}",
            fault.name,
            stderr(&diff)
        );
        report.push_str(&stdout(&diff));
        let replay = run(&["replay", &bad, "--objects", &lab]);
        assert_eq!(replay.status.code(), Some(0), "{}", stderr(&replay));
        let replayed = section(&stdout(&replay), fault.probe);
        match fault.unstable {
            None => {
                let _ = writeln!(report, "{replayed}");
            }
            Some(text) => {
                let words: Vec<&str> = replayed.split_ascii_whitespace().collect();
                assert!(words.join(" ").contains(text), "{}: {replayed}", fault.name);
            }
        }
        let bisect = run(&[
            "bisect",
            "--kernel=host",
            "--case",
            &lab,
            "--node",
            "node-1",
            "--good",
            &good,
            "--bad",
            &bad,
            "--probe",
            fault.probe,
        ]);
        assert_eq!(
            bisect.status.code(),
            Some(0),
            "{}: {}",
            fault.name,
            stderr(&bisect)
        );
        let bisect = stdout(&bisect);
        let found = bisect
            .lines()
            .skip_while(|line| !line.contains("difference"));
        report.extend(
            found
                .take_while(|line| !line.is_empty())
                .map(|line| format!("{line}\n")),
        );
    }
    let shown = directory.path().display().to_string();
    insta::with_settings!({filters => vec![
        (r"\d+ sysctls", "N sysctls"),
        (r"10\.244\.\d+\.\d+:\d{5}", "SOURCE"),
        (r" +\d+  ", "  LINE  "),
    ]}, {
        insta::assert_snapshot!(report.replace(&shown, "DIR"));
    });
}
