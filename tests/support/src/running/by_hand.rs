//! Commands that a user runs by hand in a running lab, and the explanation of a probe after each of
//! them. The tests of this host and of guests share them.

use std::fmt::Write as _;

use serde_json::Value;

use super::{Runtime, normalized};

/// A case that connects, through a tunnel and across two nodes.
pub const CONNECTS: &str = "canal-stale-rule/stale=removed,rpFilter=1,underlay=passes";

/// A similar case with a source that only the reverse path filter rejects, which is off.
pub const UNFILTERED: &str = "canal-stale-rule/stale=present,rpFilter=0,underlay=passes";

/// Commands and the commands that undo them, each as `NAMESPACE COMMAND`.
struct ManualChange {
    apply: &'static [&'static str],
    undo: &'static [&'static str],
}

/// Rules of each program that writes rules.
const RULES: [ManualChange; 4] = [
    ManualChange {
        apply: &["node-2 iptables-nft -I FORWARD -p tcp -m comment --comment by-hand -j DROP"],
        undo: &["node-2 iptables-nft -D FORWARD 1"],
    },
    ManualChange {
        apply: &["node-2 iptables-legacy -I FORWARD -p tcp -m comment --comment by-hand -j DROP"],
        undo: &["node-2 iptables-legacy -D FORWARD 1"],
    },
    ManualChange {
        // A namespace without rules before.
        apply: &["pod/default/web iptables-legacy -I INPUT -p tcp --dport 8080 -j DROP"],
        undo: &["pod/default/web iptables-legacy -D INPUT 1"],
    },
    ManualChange {
        apply: &[
            "fabric nft add table inet fw",
            "fabric nft add chain inet fw passed { type filter hook forward priority 0; }",
            "fabric nft add rule inet fw passed ip daddr 10.10.2.12 counter drop",
        ],
        undo: &["fabric nft delete table inet fw"],
    },
];

/// Routes, at each hop of the packet path.
const ROUTES: [ManualChange; 7] = [
    ManualChange {
        apply: &[
            "node-1 ip route del 192.168.66.0/24",
            "node-1 ip route del default",
        ],
        undo: &[
            "node-1 ip route add default via 10.10.1.1",
            "node-1 ip route add 192.168.66.0/24 via 192.168.66.0 dev flannel.1 onlink",
        ],
    },
    ManualChange {
        // The packet returns through the default route to the router, which has no route to the
        // pod.
        apply: &["node-2 ip route del 192.168.66.10"],
        undo: &["node-2 ip route add 192.168.66.10 dev cali68caf03a5f4"],
    },
    ManualChange {
        apply: &[
            "node-2 ip route del 192.168.66.10",
            "node-2 ip route add unreachable 192.168.66.10",
        ],
        undo: &[
            "node-2 ip route del unreachable 192.168.66.10",
            "node-2 ip route add 192.168.66.10 dev cali68caf03a5f4",
        ],
    },
    ManualChange {
        apply: &["fabric ip route del 10.10.2.0/24"],
        undo: &["fabric ip route add 10.10.2.0/24 dev node-2 src 10.10.2.1"],
    },
    ManualChange {
        // The route to the end of the tunnel.
        apply: &["node-1 ip route add blackhole 10.10.2.0/24"],
        undo: &["node-1 ip route del blackhole 10.10.2.0/24"],
    },
    ManualChange {
        apply: &[
            "fabric ip neigh replace 10.10.2.12 lladdr 02:00:00:00:00:99 dev node-2 nud permanent",
        ],
        undo: &["fabric ip neigh del 10.10.2.12 dev node-2"],
    },
    ManualChange {
        apply: &["pod/default/web ip route del default"],
        undo: &["pod/default/web ip route add default via 169.254.1.1 dev eth0"],
    },
];

/// Sysctls, in a lab without reverse path filtering.
const SETTINGS: [ManualChange; 2] = [
    ManualChange {
        apply: &["node-2 sysctl -qw net.ipv4.conf.flannel/1.rp_filter=1"],
        undo: &["node-2 sysctl -qw net.ipv4.conf.flannel/1.rp_filter=0"],
    },
    ManualChange {
        apply: &["node-2 sysctl -qw net.ipv4.ip_forward=0"],
        undo: &["node-2 sysctl -qw net.ipv4.ip_forward=1"],
    },
];

/// A route whose drops the kernel does not count.
const UNCOUNTED: [ManualChange; 1] = [ManualChange {
    apply: &[
        "node-2 ip route del 192.168.66.10",
        "node-2 ip route add blackhole 192.168.66.10",
    ],
    undo: &[
        "node-2 ip route del blackhole 192.168.66.10",
        "node-2 ip route add 192.168.66.10 dev cali68caf03a5f4",
    ],
}];

/// Returns the explanations of probes while rules drop their packets.
pub fn rules(runtime: &Runtime) -> String {
    explain_after_each(runtime, &RULES)
}

/// Returns the explanations of probes while routes are missing.
pub fn routes(runtime: &Runtime) -> String {
    explain_after_each(runtime, &ROUTES)
}

/// Returns the explanations of probes while sysctls forbid forwarding.
pub fn settings(runtime: &Runtime) -> String {
    explain_after_each(runtime, &SETTINGS)
}

/// Returns the explanations of probes whose packets the kernel drops without a counter.
pub fn uncounted(runtime: &Runtime) -> String {
    explain_after_each(runtime, &UNCOUNTED)
}

fn explain_after_each(runtime: &Runtime, deeds: &[ManualChange]) -> String {
    let mut text = String::new();
    for ManualChange {
        apply: done,
        undo: undone,
    } in deeds
    {
        assert_eq!(
            probe_service(runtime, "10s").0,
            "connected",
            "before {done:?}"
        );
        for line in *done {
            run_in_namespace(runtime, line);
            let _ = writeln!(text, "# {line}");
        }
        // The kernel sends no retransmission within 500 ms, so each counter counts one packet.
        let (verdict, explanation) = probe_service(runtime, "500ms");
        let _ = write!(text, "{verdict}\n{explanation}\n\n");
        for line in *undone {
            run_in_namespace(runtime, line);
        }
    }
    normalized(&text)
}

fn run_in_namespace(runtime: &Runtime, line: &str) {
    let mut words = line.split(' ');
    let namespace = words.next().expect("a namespace");
    let mut arguments = vec!["exec", namespace, "--"];
    arguments.extend(words);
    let output = runtime.run(&arguments);
    assert_eq!(output.status.code(), Some(0), "{line}: {output:?}");
}

/// Runs a probe. Returns its verdict and its explanation.
fn probe_service(runtime: &Runtime, patience: &str) -> (String, String) {
    let output = runtime.run(&[
        "probe",
        "node-1",
        "service/default/app:80",
        "--explain",
        "--format=json",
        "--max-wait",
        patience,
    ]);
    let document: Value = serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|error| panic!("{error}: {output:?}"));
    let connection = &document["cases"][0]["stages"][0]["connections"][0];
    let verdict = connection["verdict"].as_str().expect("a verdict");
    let is_connected = verdict == "connected";
    assert_eq!(
        output.status.code(),
        Some(i32::from(!is_connected)),
        "{output:?}"
    );
    let sentences = connection["conclusion"].as_array().expect("sentences");
    let texts: Vec<&str> = sentences.iter().filter_map(Value::as_str).collect();
    (verdict.to_owned(), texts.join("\n"))
}
