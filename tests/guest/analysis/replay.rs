//! Tests a node in ipvs mode that is collected in a guest and replayed in a guest.

use std::fs::File;
use std::process::{Command, Output, Stdio};

use svclab_test_support::block_on;
use svclab_test_support::guests::{new_guest, shared_cache};
use svclab_test_support::running::Runtime;

use crate::SVCLAB;

/// Programs of collect-node that a guest has only on request.
const PROGRAMS: [&str; 9] = [
    "tar", "awk", "od", "uname", "mktemp", "mkdir", "mv", "rm", "gzip",
];

fn svclab() -> Command {
    let mut command = Command::new(SVCLAB);
    command
        .current_dir(svclab_test_support::root())
        .env("NO_COLOR", "1")
        .env("SVCLAB_KERNEL", "6.12")
        .env("SVCLAB_CACHE", shared_cache().directory());
    command
}

fn success_output(output: Output) -> Vec<u8> {
    let [errors, text] = [&output.stderr, &output.stdout].map(|text| String::from_utf8_lossy(text));
    assert_eq!(output.status.code(), Some(0), "{errors}{text}");
    output.stdout
}

/// Returns the line with the verdict of each connection.
fn verdict_lines(output: Output) -> Vec<String> {
    let text = String::from_utf8(success_output(output)).expect("text");
    let first = |line: &&str| {
        let mut words = line.split(' ');
        words.next().is_some_and(|probe| !probe.is_empty())
            && words.next().is_some_and(|word| word.starts_with('#'))
    };
    text.lines().filter(first).map(str::to_owned).collect()
}

#[test]
fn replay_ipvs_node_gives_same_verdicts() {
    block_on(new_guest("6.12"));
    let directory = tempfile::tempdir().expect("a directory");
    for cidr in ["missing", "right"] {
        let case =
            format!("missing-cluster-cidr/clusterCIDR={cidr},byHand=nothing,apiserver=apart");
        let runtime = Runtime::new(svclab);
        let paths = PROGRAMS.map(|program| format!("/usr/bin/{program}"));
        let mut arguments = vec!["up", "--detach", &case];
        arguments.extend(paths.iter().flat_map(|path| ["--program", path]));
        success_output(runtime.run(&arguments));
        let script = File::open(svclab_test_support::root().join("scripts/collect-node"))
            .expect("the script");
        let collecting = ["exec", "node-1", "--", "sh", "-s", "--", "-o", "-"];
        let tarball = runtime
            .svclab(&collecting)
            .stdin(Stdio::from(script))
            .output();
        let tarball = success_output(tarball.expect("the command starts"));
        success_output(runtime.run(&["down", "--all"]));
        let file = directory.path().join(format!("{cidr}.tar.gz"));
        std::fs::write(&file, tarball).expect("the file can be written");
        let file = file.display().to_string();
        let lab = verdict_lines(runtime.run(&["explain", &case]));
        let replayed = runtime.run(&["replay", &file, "--objects", &case]);
        let report = String::from_utf8_lossy(&replayed.stdout).into_owned();
        assert!(report.contains("virtual servers\n"), "{report}");
        assert_eq!(verdict_lines(replayed), lab);
        // The two cases differ in the result of the node's own connection.
        let expected = if cidr == "right" {
            "connected"
        } else {
            "timeout"
        };
        assert_eq!(lab[0], format!("fromNode #1: {expected}"));
    }
}
