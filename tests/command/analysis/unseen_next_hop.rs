//! Tests the commands about dumps of a node with a route through an address that nothing shows.

use std::process::Output;

use crate::dump::replay::collect_node;
use crate::running::Labs;
use crate::support::{LAB, run, stderr, stdout};

macro_rules! assert_output_snapshot {
    ($labs:expr, $output:expr) => {
        insta::with_settings!({filters => vec![
            (r"(\d+) trials in \d+\.\d s on \S+;", "$1 trials in N s on KERNEL;"),
            (r"on [0-9.]+[^ \n]*\n", "on KERNEL\n"),
            (r"connected \d+", "connected N"),
            (r"timeout \d+", "timeout N"),
        ]}, {
            insta::assert_snapshot!($labs.render_output(&$output));
        });
    };
}

/// With replies, nothing fails; without, the route is the only cause.
#[test]
fn route_through_unseen_next_hop_is_named_under_assumption() {
    let broken = broken_node(ROUTE);
    let bisected = broken.bisect();
    assert_output_snapshot!(broken.labs, bisected);
    let expected = [
        "assumed: next hop 192.168.50.77 on eth0 of node-1 does not reply",
        "node-1# ip route del 203.0.113.9/32 via 192.168.50.77 dev eth0",
    ];
    // Its explanation depends on whether the neighbour was given up within the wait.
    let text = broken.why();
    assert!(expected.iter().all(|part| text.contains(part)), "{text}");
}

/// With replies, the rule is the only cause; without, its deletion alone does not help.
#[test]
fn route_through_unseen_next_hop_is_named_beside_another_cause() {
    let rule = "-I FORWARD -d 203.0.113.9/32 -p tcp -j DROP";
    let broken = broken_node(&format!("{ROUTE}; iptables {rule}"));
    let bisected = stdout(&broken.bisect());
    let expected = [
        "-d 203.0.113.9/32 -p tcp -j DROP",
        "203.0.113.9/32 via 192.168.50.77",
    ];
    assert!(
        expected.iter().all(|part| bisected.contains(part)),
        "{bisected}"
    );
    let text = broken.why();
    let expected = [
        "assumed: next hop 192.168.50.77 on eth0 of node-1 does not reply",
        "ip route del 203.0.113.9/32 via 192.168.50.77 dev eth0",
        "-D FORWARD -d 203.0.113.9/32 -p tcp -j DROP",
    ];
    assert!(expected.iter().all(|part| text.contains(part)), "{text}");
}

const ROUTE: &str = "ip route add 203.0.113.9/32 via 192.168.50.77";

/// Dumps of a node of a running lab, before and after a change.
struct BrokenNode {
    labs: Labs,
    case: String,
    good: String,
    bad: String,
}

/// Collects the dumps of a node before and after a shell command on it.
fn broken_node(command: &str) -> BrokenNode {
    let text = LAB.replacen("to: \"service/default/web:80\"", "to: \"laptop:80\"", 1);
    let text = text.replace("203.0.113.9/24", "203.0.113.9/24, ports: [80]");
    let text = text.replace("endpoints: [web]", "endpoints: [laptop]");
    let labs = Labs::from_text(&text);
    let case = labs.case("Local");
    labs.runtime.up(&case);
    let collect = |name: &str| {
        let file = labs.directory.path().join(name);
        collect_node(&labs.runtime, "node-1", &file);
        file.display().to_string()
    };
    let good = collect("good.tar.gz");
    let exec = ["exec", "node-1", "--", "sh", "-ec", command];
    let changed = labs.runtime.run(&exec);
    assert_eq!(changed.status.code(), Some(0), "{}", stderr(&changed));
    let bad = collect("bad.tar.gz");
    BrokenNode {
        labs,
        case,
        good,
        bad,
    }
}

impl BrokenNode {
    fn bisect(&self) -> Output {
        let sides = [
            "--case", &self.case, "--good", &self.good, "--bad", &self.bad,
        ];
        let options = ["bisect", "--kernel=host", "--node=node-1"];
        let bisected = run(&[&options[..], &sides[..]].concat());
        assert_eq!(bisected.status.code(), Some(0), "{}", stderr(&bisected));
        bisected
    }

    /// Returns the output of `svclab why` about the dump after the change.
    fn why(&self) -> String {
        let dump = format!("node-1={}", self.bad);
        let fixed = run(&["why", "--kernel=host", "--dump", &dump, &self.case]);
        assert_eq!(fixed.status.code(), Some(0), "{}", stdout(&fixed));
        stdout(&fixed)
    }
}
