//! What somebody does by hand in a lab that stands, and what is said of a call after
//! each of it: on this host and in guests alike.

use std::fmt::Write as _;

use serde_json::Value;

use super::settled::settled;
use super::standing_labs::Runtime;

/// A case that connects, by way of a tunnel and two nodes.
pub const CONNECTS: &str = "canal-stale-rule/stale=removed,rpFilter=1,underlay=passes";

/// The same with a source that only the reverse path filter minds, which is off.
pub const UNFILTERED: &str = "canal-stale-rule/stale=present,rpFilter=0,underlay=passes";

/// What is done, and how it is undone: lines of a namespace and a command.
struct Deed {
    done: &'static [&'static str],
    undone: &'static [&'static str],
}

/// Rules of each of the programs that write them.
const RULES: [Deed; 4] = [
    Deed {
        done: &["node-2 iptables-nft -I FORWARD -p tcp -m comment --comment by-hand -j DROP"],
        undone: &["node-2 iptables-nft -D FORWARD 1"],
    },
    Deed {
        done: &["node-2 iptables-legacy -I FORWARD -p tcp -m comment --comment by-hand -j DROP"],
        undone: &["node-2 iptables-legacy -D FORWARD 1"],
    },
    Deed {
        // A namespace that had no rules.
        done: &["pod/default/web iptables-legacy -I INPUT -p tcp --dport 8080 -j DROP"],
        undone: &["pod/default/web iptables-legacy -D INPUT 1"],
    },
    Deed {
        done: &[
            "fabric nft add table inet fw",
            "fabric nft add chain inet fw passed { type filter hook forward priority 0; }",
            "fabric nft add rule inet fw passed ip daddr 10.10.2.12 counter drop",
        ],
        undone: &["fabric nft delete table inet fw"],
    },
];

/// Routes, on each part of the way.
const ROUTES: [Deed; 5] = [
    Deed {
        done: &[
            "node-1 ip route del 192.168.66.0/24",
            "node-1 ip route del default",
        ],
        undone: &[
            "node-1 ip route add default via 10.10.1.1",
            "node-1 ip route add 192.168.66.0/24 via 192.168.66.0 dev flannel.1 onlink",
        ],
    },
    Deed {
        // By its default route, back to who has none.
        done: &["node-2 ip route del 192.168.66.10"],
        undone: &["node-2 ip route add 192.168.66.10 dev cali68caf03a5f4"],
    },
    Deed {
        done: &[
            "node-2 ip route del 192.168.66.10",
            "node-2 ip route add unreachable 192.168.66.10",
        ],
        undone: &[
            "node-2 ip route del unreachable 192.168.66.10",
            "node-2 ip route add 192.168.66.10 dev cali68caf03a5f4",
        ],
    },
    Deed {
        done: &["fabric ip route del 10.10.2.0/24"],
        undone: &["fabric ip route add 10.10.2.0/24 dev node-2 src 10.10.2.1"],
    },
    Deed {
        done: &["pod/default/web ip route del default"],
        undone: &["pod/default/web ip route add default via 169.254.1.1 dev eth0"],
    },
];

/// Settings, where no reverse path is filtered.
const SETTINGS: [Deed; 2] = [
    Deed {
        done: &["node-2 sysctl -qw net.ipv4.conf.flannel/1.rp_filter=1"],
        undone: &["node-2 sysctl -qw net.ipv4.conf.flannel/1.rp_filter=0"],
    },
    Deed {
        done: &["node-2 sysctl -qw net.ipv4.ip_forward=0"],
        undone: &["node-2 sysctl -qw net.ipv4.ip_forward=1"],
    },
];

/// A route by which the kernel throws packets away without counting them.
const UNCOUNTED: [Deed; 1] = [Deed {
    done: &[
        "node-2 ip route del 192.168.66.10",
        "node-2 ip route add blackhole 192.168.66.10",
    ],
    undone: &[
        "node-2 ip route del blackhole 192.168.66.10",
        "node-2 ip route add 192.168.66.10 dev cali68caf03a5f4",
    ],
}];

/// What is said of calls while rules stand that drop them.
pub fn rules(runtime: &Runtime) -> String {
    told(runtime, &RULES)
}

/// What is said of calls while routes are missing.
pub fn routes(runtime: &Runtime) -> String {
    told(runtime, &ROUTES)
}

/// What is said of calls while settings forbid them.
pub fn settings(runtime: &Runtime) -> String {
    told(runtime, &SETTINGS)
}

/// What is said of calls that end without a trace that everybody may see.
pub fn uncounted(runtime: &Runtime) -> String {
    told(runtime, &UNCOUNTED)
}

fn told(runtime: &Runtime, deeds: &[Deed]) -> String {
    let mut text = String::new();
    for Deed { done, undone } in deeds {
        assert_eq!(called(runtime, "10s").0, "connected", "before {done:?}");
        for line in *done {
            by_hand(runtime, line);
            let _ = writeln!(text, "# {line}");
        }
        // No retransmission comes within that: each count is of one packet.
        let (verdict, said) = called(runtime, "500ms");
        let _ = write!(text, "{verdict}\n{said}\n\n");
        for line in *undone {
            by_hand(runtime, line);
        }
    }
    settled(&text)
}

fn by_hand(runtime: &Runtime, line: &str) {
    let mut words = line.split(' ');
    let namespace = words.next().expect("a namespace");
    let mut arguments = vec!["exec", namespace, "--"];
    arguments.extend(words);
    let output = runtime.run(&arguments);
    assert_eq!(output.status.code(), Some(0), "{line}: {output:?}");
}

/// The verdict of a call, and what is said of it.
fn called(runtime: &Runtime, patience: &str) -> (String, String) {
    let output = runtime.run(&[
        "probe",
        "node-1",
        "service/default/app:80",
        "--explain",
        "--format=json",
        "--patience",
        patience,
    ]);
    let document: Value = serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|error| panic!("{error}: {output:?}"));
    let connection = &document["cases"][0]["connections"][0];
    let verdict = connection["verdict"].as_str().expect("a verdict");
    let well = verdict == "connected";
    assert_eq!(output.status.code(), Some(i32::from(!well)), "{output:?}");
    let said = connection["conclusion"].as_array().expect("sentences");
    let said: Vec<&str> = said.iter().filter_map(Value::as_str).collect();
    (verdict.to_owned(), said.join("\n"))
}
