//! Tests labs with harmful commands together with harmless labs.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use svclab_test_support::programs::svclab;

/// Returns a lab with one probe, whose first node runs commands.
fn lab(name: &str, commands: &str, rest: &str) -> String {
    format!(
        r#"apiVersion: svclab/v1
kind: Lab
metadata: {{name: {name}}}
spec:
  about: A node calls a node port of another node after manual commands.
  kubeProxy: {{version: v1.30, mode: iptables, clusterCIDR: 10.244.0.0/16}}
  nodes:
    node-1: {{byHand: {commands}}}
  probes:
    call: {{from: node-1, to: "node-2:30080"}}
{rest}
---
{{apiVersion: v1, kind: Node, metadata: {{name: node-1}}, spec: {{podCIDR: 10.244.1.0/24}},
 status: {{addresses: [{{type: InternalIP, address: 192.168.1.11}}]}}}}
---
{{apiVersion: v1, kind: Node, metadata: {{name: node-2}}, spec: {{podCIDR: 10.244.2.0/24}},
 status: {{addresses: [{{type: InternalIP, address: 192.168.2.12}}]}}}}
---
{{apiVersion: v1, kind: Pod, metadata: {{name: web, namespace: default, labels: {{app: web}}}},
 spec: {{nodeName: node-2, containers: [{{name: web, ports: [{{containerPort: 8080}}]}}]}},
 status: {{podIP: 10.244.2.10}}}}
---
{{apiVersion: v1, kind: Service, metadata: {{name: web, namespace: default}},
 spec: {{type: NodePort, clusterIP: 10.96.0.10, selector: {{app: web}},
 ports: [{{port: 80, targetPort: 8080, nodePort: 30080}}]}}}}
"#
    )
}

const EXPECT_CONNECTED: &str = "  expect:\n  - call: {connected: 1}";

/// Command that copies every descriptor of every visible process, writes a forged agent event to
/// each copy, and stops the process: `pidfd_open`, `pidfd_getfd`, `ptrace`.
const HOSTILE_COMMAND: &str = r#"perl -e 'for $p (1..300) { next if $p == $$; $f = syscall(434, $p, 0); next if $f < 0; for $d (0..64) { $g = syscall(438, $f, $d, 0); next if $g < 0; open($o, ">&=", $g) or next; for $l (0..9) { $j = "{\"say\":\"gone\",\"lab\":$l}"; syswrite($o, pack("N", length $j) . $j); } } syscall(101, 16, $p, 0, 0); }'"#;

fn run(directory: &Path, labs: &[(&str, String)]) -> Output {
    run_labs(directory, labs, "2")
}

/// Runs labs with this number of parallel cases.
fn run_labs(directory: &Path, labs: &[(&str, String)], jobs: &str) -> Output {
    let mut command = Command::new(svclab());
    command
        .arg("run")
        .args(["--kernel", "host", "--jobs", jobs]);
    for (name, text) in labs {
        let file = directory.join(name).with_extension("yaml");
        fs::write(&file, text).expect("a file");
        command.arg(file);
    }
    command
        .env("NO_COLOR", "1")
        .output()
        .expect("svclab starts")
}

fn output_text(output: &Output) -> String {
    let (out, err) = (&output.stdout, &output.stderr);
    String::from_utf8_lossy(out).into_owned() + &String::from_utf8_lossy(err)
}

/// A lab that must fail fails, whatever another lab does.
pub fn honest_lab_fails_beside_a_hostile_one() {
    let directory = tempfile::tempdir().expect("a directory");
    let hostile = serde_json::to_string(HOSTILE_COMMAND).expect("text");
    let hostile = lab(
        "hostile",
        &format!("{{commands: [{hostile}]}}"),
        EXPECT_CONNECTED,
    );
    let honest = lab("honest", "{}", "  expect:\n  - call: {refused: 1}");
    let output = run(
        directory.path(),
        &[("hostile", hostile), ("honest", honest)],
    );
    let text = output_text(&output);
    assert!(text.contains("PASS hostile"), "{text}");
    assert!(text.contains("FAIL honest"), "{text}");
    assert_eq!(output.status.code(), Some(1), "{text}");
}

/// Command that prints a forged server reply with an unused source address to each connecting
/// client.
const FORGING_COMMAND: &str = r#"perl -MIO::Socket::INET -e '$s = IO::Socket::INET->new(LocalPort => 9999, Listen => 9) or die; exit if fork; open STDOUT, ">/dev/null"; open STDERR, ">/dev/null"; while ($c = $s->accept) { sysread($c, $b, 1); syswrite($c, "pod/default/web 9.9.9.9:1\n"); close $c }'"#;

/// The answer of a `byHand` command does not count as an answer of a server.
pub fn command_answer_does_not_count_as_server_answer() {
    let directory = tempfile::tempdir().expect("a directory");
    let forges = serde_json::to_string(FORGING_COMMAND).expect("text");
    let by_hand = format!(
        "{{commands: [{forges}], iptables: [\"*nat\", \"-I OUTPUT -p tcp -d 192.168.2.12 --dport \
         30080 -j REDIRECT --to-ports 9999\"]}}"
    );
    let expect = "  expect:\n  - call: {connected: 1, endpoints: [web], seenSource: 9.9.9.9}";
    let output = run(
        directory.path(),
        &[("forged", lab("forged", &by_hand, expect))],
    );
    let text = output_text(&output);
    assert!(text.contains("FAIL forged"), "{text}");
    assert!(text.contains("seen      reset 1"), "{text}");
    assert_eq!(output.status.code(), Some(1), "{text}");
}

/// A later case of the same lab file uses the same agent and finds a file that a command left
/// behind. Cases of other lab files do not.
pub fn labs_of_different_files_share_no_agent() {
    let directory = tempfile::tempdir().expect("a directory");
    let patch_with_command = |command: &str| {
        let command = serde_json::to_string(command).expect("text");
        format!(
            "{{merge: {{spec: {{nodes: {{node-1: {{byHand: {{commands: [{command}]}}}}}}}}}}, patch: Lab}}"
        )
    };
    let leaves = patch_with_command("touch /tmp/left-behind");
    let sees = patch_with_command("test -e /tmp/left-behind");
    let axes = format!(
        "  axes:\n    does:\n      leaves: [{leaves}]\n      sees: [{sees}]\n{EXPECT_CONNECTED}"
    );
    let first = lab("one", "{}", &axes);
    let second = lab(
        "other",
        "{commands: [test -e /tmp/left-behind]}",
        EXPECT_CONNECTED,
    );
    let text = run_labs(directory.path(), &[("one", first), ("other", second)], "1");
    let said = output_text(&text);
    for words in ["PASS one/does=leaves", "PASS one/does=sees", "ERROR other"] {
        assert!(said.contains(words), "{words}\n{said}");
    }
}

/// A command that exceeds its limits is an error of its case, but not of other cases of the same
/// agent.
pub fn commands_beyond_their_limits_are_errors() {
    let directory = tempfile::tempdir().expect("a directory");
    let case = |name: &str, command: &str| {
        let command = serde_json::to_string(command).expect("text");
        format!(
            "      {name}: [{{patch: Lab, merge: {{spec: {{nodes: {{node-1: {{byHand: \
             {{commands: [{command}], timeLimit: 3s, processLimit: 40}}}}}}}}}}}}]\n"
        )
    };
    let axes = [
        case("sleeps", "sleep 1000"),
        case("prints", "yes"),
        case("forks", "sh -c 'b() { b | b & }; b; sleep 1000'"),
        case(
            "detaches",
            "sh -c 'for i in $(seq 60); do sleep 1000 & done'",
        ),
        case("ends", "sh -c 'sleep 1000 & echo done'"),
    ];
    let rest = format!("  axes:\n    does:\n{}{EXPECT_CONNECTED}", axes.concat());
    let text = lab("limits", "{}", &rest);
    let output = run(directory.path(), &[("limits", text)]);
    let printed = output_text(&output);
    for words in [
        "`sleep 1000` ran for longer than its time limit of 3s on node-1",
        "`yes` printed more than its output limit of 1048576 bytes on node-1",
        "b; sleep 1000'` had more processes and threads at once than its limit of 40 on node-1",
        "done'` had more processes and threads at once than its limit of 40 on node-1",
        "raise `spec.nodes.node-1.byHand.timeLimit`, or change the command",
        "raise `spec.nodes.node-1.byHand.outputLimit`, or change the command",
        "raise `spec.nodes.node-1.byHand.processLimit`, or change the command",
        "PASS limits/does=ends",
        "1 passed, 0 failed, 4 errors",
    ] {
        assert!(printed.contains(words), "{words}\n{printed}");
    }
    assert_eq!(output.status.code(), Some(2), "{printed}");
}

pub fn limits_out_of_bounds_are_refused() {
    let directory = tempfile::tempdir().expect("a directory");
    for (field, value, bounds) in [
        ("timeLimit", "11m", "use more than 0 s and at most 10 min"),
        ("outputLimit", "0", "use 1 to 67108864 bytes"),
        ("processLimit", "4097", "use 1 to 4096 processes"),
    ] {
        let text = lab("bounds", &format!("{{{field}: {value}}}"), EXPECT_CONNECTED);
        let output = run(directory.path(), &[("bounds", text)]);
        let message = output_text(&output);
        assert!(
            message.contains(&format!("`{field}` is out of bounds")),
            "{message}"
        );
        assert!(message.contains(bounds), "{message}");
        assert_eq!(output.status.code(), Some(2), "{message}");
    }
}
