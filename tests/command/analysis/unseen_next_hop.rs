//! Tests the commands about dumps of a node with a route through an address that nothing shows.

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
    let route = "ip route add 203.0.113.9/32 via 192.168.50.77";
    let exec = ["exec", "node-1", "--", "sh", "-ec", route];
    let changed = labs.runtime.run(&exec);
    assert_eq!(changed.status.code(), Some(0), "{}", stderr(&changed));
    let bad = collect("bad.tar.gz");
    let sides = [
        "--case",
        &case,
        "--node=node-1",
        "--good",
        &good,
        "--bad",
        &bad,
    ];
    let bisected = run(&[&["bisect", "--kernel=host"], &sides[..]].concat());
    assert_eq!(bisected.status.code(), Some(0), "{}", stderr(&bisected));
    assert_output_snapshot!(labs, bisected);
    let dump = format!("node-1={bad}");
    let fixed = run(&["why", "--kernel=host", "--dump", &dump, &case]);
    assert_eq!(fixed.status.code(), Some(0), "{}", stdout(&fixed));
    let text = stdout(&fixed);
    // Its explanation depends on whether the neighbour was given up within the wait.
    let expected = [
        "assumed: next hop 192.168.50.77 on eth0 of node-1 does not reply",
        "node-1# ip route del 203.0.113.9/32 via 192.168.50.77 dev eth0",
    ];
    assert!(expected.iter().all(|part| text.contains(part)), "{text}");
}
