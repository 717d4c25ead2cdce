//! Tests that `svclab why` finds the cure of faults of many kinds, and that the printed commands
//! make the cure.

use std::path::Path;

use serde_json::Value;
use svclab_test_support::running::normalized;

use crate::support::{
    LAB as ONE_NODE, assert_matches_schema, project, run, stderr, stdout, write_lab,
};

const LAB: &str = include_str!("cures.yaml");

/// Faults of the lab, each with the beginning of the first lasting cure and its command.
const CURES: &[(&str, &str, &str)] = &[
    (
        "dropRule",
        "delete rule 1 of filter FORWARD on node-1",
        "iptables-nft -t filter -D FORWARD -d 10.244.2.10/32 -j DROP",
    ),
    (
        "nftRule",
        "delete rule 1 of inet fw forward on node-1",
        "nft delete rule inet fw forward handle",
    ),
    (
        "nftPolicy",
        "set the policy of inet fw forward on node-1 to accept",
        "nft chain inet fw forward '{ policy accept; }'",
    ),
    (
        "blackhole",
        "delete the route blackhole 10.244.2.10/32 on node-1",
        "ip route del blackhole 10.244.2.10/32",
    ),
    (
        "wrongTable",
        "delete the routing rule priority 500",
        "ip rule del priority 500 from all to 10.244.2.10/32 lookup 77",
    ),
    ("linkDown", "", "ip link set dev flannel.1 up"),
    ("missingRule", "", "iptables-nft -t nat -A KUBE-SEP-"),
    ("missingRoute", "", "ip route add 10.244.2.0/24"),
    (
        "forwarding",
        "set net.ipv4.ip_forward = 1 on node-1",
        "sysctl -w net.ipv4.ip_forward=1",
    ),
    (
        "timeToLive",
        "set net.ipv4.ip_default_ttl = 64 on node-1",
        "sysctl -w net.ipv4.ip_default_ttl=64",
    ),
    (
        "localAddress",
        "delete the address 10.244.2.10/32 from lo on node-1",
        "ip address del 10.244.2.10/32 dev lo",
    ),
    (
        "hardwareAddress",
        "",
        "ip link set dev flannel.1 address 0a:58:",
    ),
    (
        "severalHops",
        "",
        "ip route replace 10.244.2.0/24 via 10.244.2.0 dev flannel.1 onlink",
    ),
    (
        "portRule",
        "delete the routing rule priority 500",
        "ip rule del priority 500 from all ipproto tcp dport 8080 lookup 77",
    ),
    (
        "localRule",
        "",
        "ip rule add priority 0 from all lookup local",
    ),
    (
        "queue",
        "delete the queueing discipline of eth0",
        "tc qdisc del dev eth0 root",
    ),
    (
        "disabledPort",
        "set state forwarding for the bridge port",
        "bridge link set dev vetha7a3e029 state forwarding",
    ),
];

/// Returns the fixes of a probe, each with its descriptions and commands.
fn fixes(case: &Value, probe: &str) -> Vec<(String, Vec<String>)> {
    let failing = case["failing"].as_array().expect("probes");
    let failing = failing.iter().find(|failing| failing["probe"] == probe);
    let fixes = failing.map(|failing| failing["fixes"].as_array().expect("fixes"));
    let texts = |values: &Value, field: &str| -> Vec<String> {
        let values = values.as_array().into_iter().flatten();
        values
            .map(|value| value[field].as_str().expect("a text").to_owned())
            .collect()
    };
    let fixes = fixes.into_iter().flatten().map(|fix| {
        let changes = fix["changes"].as_array().expect("changes");
        let commands = changes
            .iter()
            .flat_map(|change| texts(&change["commands"], "command"));
        (
            texts(&fix["changes"], "description").join(" + "),
            commands.collect(),
        )
    });
    fixes.collect()
}

#[test]
fn why_faults_of_many_kinds_are_cured() {
    let (_directory, path) = write_lab(LAB);
    let output = run(&[
        "why",
        "--kernel=host",
        "--format=json",
        &path.display().to_string(),
    ]);
    let document: Value =
        serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{}", stderr(&output)));
    assert_matches_schema(&document, include_str!("../../schema/why.v1.json"));
    let cases = document["cases"].as_array().expect("cases");
    // Without faults, and with two of them.
    assert_eq!(cases.len(), CURES.len() + 2);
    let mut complaints = Vec::new();
    for (fault, description, command) in CURES {
        let id = format!("lab/fault={fault}");
        let case = cases.iter().find(|case| case["case"] == id.as_str());
        let fixes = fixes(case.expect("the case"), "call");
        let named = fixes.iter().find(|(text, commands)| {
            text.contains(description) && commands.iter().any(|line| line.contains(command))
        });
        match named {
            Some((_, commands)) => complaints.extend(fails_after(&path, fault, commands)),
            None => complaints.push(format!("{fault}: {fixes:#?}")),
        }
    }
    assert!(complaints.is_empty(), "{}", complaints.join("\n"));
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
}

/// Types the commands of a cure after the fault, and returns what fails then.
fn fails_after(lab: &Path, fault: &str, commands: &[String]) -> Option<String> {
    let (mut typed, mut expected) = (String::new(), LAB.to_owned());
    for command in commands {
        // The handle of a rule is known only on the node.
        let command = match command.split_once(" handle HANDLE") {
            Some((deletion, _)) => format!("{deletion} handle 2"),
            None => command.clone(),
        };
        typed.extend([", ", Value::String(command).to_string().as_str()]);
    }
    let lines: Vec<String> = LAB
        .lines()
        .skip_while(|line| *line != format!("      {fault}:"))
        .skip(1)
        .take_while(|line| line.starts_with("      -") || line.starts_with("       "))
        .map(str::to_owned)
        .collect();
    let fault_text = lines.join("\n");
    let cured = if fault_text.contains("commands: [") {
        fault_text.replacen("\"]", &format!("\"{typed}]"), 1)
    } else {
        let items = typed.trim_start_matches(", ");
        format!("{fault_text}\n                  - {items}")
    };
    expected = expected.replacen(&fault_text, &cured, 1);
    expected = expected.replace(
        "    call: any\n    out: any\n",
        "    call: {connected: 1}\n    out: {connected: 1}\n",
    );
    let path = lab.with_file_name(format!("{fault}.yaml"));
    let expected = expected.replacen("{name: lab}", &format!("{{name: {fault}}}"), 1);
    std::fs::write(&path, expected).expect("the lab can be written");
    let case = format!("{}/fault={fault}", path.display());
    let output = run(&["run", "--kernel=host", &case]);
    (output.status.code() != Some(0)).then(|| {
        format!(
            "{fault}: {commands:#?} do not help:\n{}{}",
            stdout(&output),
            stderr(&output)
        )
    })
}

/// Returns the findings of a case.
fn why_document(case: &str) -> Value {
    let output = run(&["why", "--kernel=host", "--format=json", case]);
    serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{}", stderr(&output)))
}

/// The state that a manual command left is kept in a lab with a changed field.
#[test]
fn why_manual_command_and_field_are_fixed_together() {
    let text = ONE_NODE.replacen(
        "leftovers: {iptables: []}",
        "byHand: {commands: [ip route add blackhole 10.244.1.10/32]}",
        1,
    );
    let text = text.replacen("targetPort: 8080", "targetPort: 81", 1);
    let (_directory, path) = write_lab(&text);
    let case = format!("{}/policy=Cluster", path.display());
    let document = why_document(&case);
    let fixes = fixes(&document["cases"][0], "call");
    let expected = "delete the route blackhole 10.244.1.10/32 on node-1 + set targetPort";
    let is_expected = |(text, commands): &(String, Vec<String>)| {
        text.starts_with(expected) && commands == &["ip route del blackhole 10.244.1.10/32"]
    };
    assert!(fixes.iter().any(is_expected), "{fixes:#?}");
}

/// The state of a node does not show a policy of `xfrm`.
#[test]
fn why_command_without_shown_state_is_undone_by_itself() {
    let command = "ip xfrm policy add dst 10.244.2.10/32 dir out action block";
    let undone = format!("undo the manual command `{command}` on node-1");
    let forwarding = "set net.ipv4.ip_forward = 1 on node-1";
    for (others, needed) in [
        ("ip link set lo mtu 1400", vec![undone.as_str()]),
        ("sysctl -w net.ipv4.ip_forward=0", vec![&undone, forwarding]),
    ] {
        let fault = format!(
            "      blocked:\n      - {{patch: Lab, merge: {{spec: {{nodes: {{node-1: {{byHand: \
             {{commands: [\"{command}\", \"{others}\"]}}}}}}}}}}}}\n"
        );
        let text = LAB.replacen("      none: []\n", &format!("      none: []\n{fault}"), 1);
        let text = text.replacen("[dropRule,", "[blocked, dropRule,", 1);
        let (_directory, path) = write_lab(&text);
        let document = why_document(&format!("{}/fault=blocked", path.display()));
        let fixes = fixes(&document["cases"][0], "call");
        let is_expected = |(text, _): &(String, Vec<String>)| {
            text.split(" + ").count() == needed.len()
                && needed.iter().all(|part| text.contains(part))
        };
        assert!(fixes.iter().any(is_expected), "{fixes:#?}");
    }
}

/// The state of a node stays when that of the next one is read.
#[test]
fn why_commands_on_two_nodes_are_undone_by_object() {
    let fault = r#"      twoNodes:
      - patch: Lab
        merge:
          spec:
            nodes:
              node-1: {byHand: {commands: ["ip link set vetha7a3e029 mtu 68"]}}
              node-2: {byHand: {commands: ["sysctl -w net.ipv4.ip_forward=0"]}}
"#;
    let text = LAB.replacen("      none: []\n", &format!("      none: []\n{fault}"), 1);
    let text = text.replacen("[dropRule,", "[twoNodes, dropRule,", 1);
    // Small packets pass the small MTU.
    let text = text.replacen("5432\"}", "5432\", bytes: 2k}", 1);
    let (_directory, path) = write_lab(&text);
    let case = format!("{}/fault=twoNodes", path.display());
    let document = why_document(&case);
    let case = &document["cases"][0];
    assert_eq!(case["unread"], Value::Null);
    for (probe, expected) in [
        ("out", "set the MTU of vetha7a3e029 to 1500 on node-1"),
        ("call", "set net.ipv4.ip_forward = 1 on node-2"),
    ] {
        let fixes = fixes(case, probe);
        let mut descriptions = fixes.iter().map(|(text, _)| text);
        assert!(descriptions.any(|text| text == expected), "{case:#}");
    }
}

/// Runs `why` with a lab of one node, and returns its output without what differs between runs.
fn why_of(text: &str, arguments: &[&str]) -> (Option<i32>, String) {
    let (_directory, path) = write_lab(text);
    let case = format!("{}/policy=Cluster", path.display());
    let output = run(&[&["why", "--kernel=host", &case], arguments].concat());
    // The first confirmed fix, on standard error, depends on the time of trials.
    let printed = match stdout(&output) {
        text if text.is_empty() => stderr(&output),
        text => text,
    };
    (output.status.code(), normalized(&printed))
}

#[test]
fn why_wrong_source_names_flag() {
    let masquerading =
        ONE_NODE.replacen("version: v1.30", "version: v1.30, masqueradeAll: true", 1);
    let (code, text) = why_of(&masquerading, &[]);
    assert_eq!(code, Some(0), "{text}");
    // Masquerading selects a random port.
    let masqueraded = (r"from 10\.244\.1\.1:\d+", "from 10.244.1.1:PORT");
    insta::with_settings!({filters => vec![masqueraded]}, {
        insta::assert_snapshot!(text);
    });
    // The wanted result can also be stated for a lab that expects what is observed.
    let observed = masquerading.replace(", seenSource: pod/default/client", "");
    let (code, text) = why_of(&observed, &[]);
    assert!(
        code == Some(0) && text.contains("no failing probe"),
        "{text}"
    );
    let asked = ["--probe=call", "--seen-source=pod/default/client"];
    let (code, text) = why_of(&observed, &asked);
    let flag = "start kube-proxy without --masquerade-all";
    assert!(code == Some(0) && text.contains(flag), "{text}");
    let (code, text) = why_of(&observed, &["--probe=call", "--seen-source=nobody"]);
    assert_eq!(code, Some(2), "{text}");
    insta::assert_snapshot!(text);
}

/// A pod that is not an endpoint of the service, and a rule that sends the connections to it.
const OTHER_POD: &str = "---
apiVersion: v1
kind: Pod
metadata: {name: other, namespace: default}
spec: {nodeName: node-1, containers: [{name: other, ports: [{containerPort: 8080}]}]}
status: {podIP: 10.244.1.20}
";
const REDIRECT: &str = "iptables-nft -t nat -I PREROUTING 1 -d 10.96.0.10/32 -p tcp -j DNAT --to-destination 10.244.1.20:8080";

#[test]
fn why_wrong_endpoint_names_rule() {
    let by_hand = format!("byHand: {{commands: [\"{REDIRECT}\"]}}");
    let redirected = ONE_NODE.replacen("leftovers: {iptables: []}", &by_hand, 1) + OTHER_POD;
    let (code, text) = why_of(&redirected, &[]);
    assert_eq!(code, Some(0), "{text}");
    insta::assert_snapshot!(text);
}

#[test]
fn why_policy_drop_is_set_to_accept_in_either_backend() {
    for backend in ["nft", "legacy"] {
        let command = format!("iptables-{backend} -P FORWARD DROP");
        let by_hand = format!("byHand: {{commands: [\"{command}\"]}}");
        let lab = ONE_NODE
            .replacen("leftovers: {iptables: []}", &by_hand, 1)
            .replacen(
                "kubeProxy:",
                &format!("iptables: {backend}\n  kubeProxy:"),
                1,
            );
        let (code, text) = why_of(&lab, &[]);
        let cure = format!("node-1# iptables-{backend} -t filter -P FORWARD ACCEPT");
        assert!(code == Some(0) && text.contains(&cure), "{text}");
    }
}

#[test]
fn why_single_case_that_expects_its_failure_is_examined() {
    let axes = ONE_NODE.find("  axes:").expect("axes");
    let objects = ONE_NODE.find("---").expect("objects");
    let lab = format!(
        "{}  expect:\n  - call: {{timeout: 1}}\n{}",
        &ONE_NODE[..axes],
        &ONE_NODE[objects..]
    );
    let rule = "iptables-nft -I FORWARD 1 -d 10.244.1.10/32 -j DROP";
    let by_hand = format!("byHand: {{commands: [\"{rule}\"]}}");
    let lab = lab.replacen("leftovers: {iptables: []}", &by_hand, 1);
    let (_directory, path) = write_lab(lab);
    let output = run(&["why", "--kernel=host", &path.display().to_string()]);
    let text = stdout(&output);
    assert_eq!(output.status.code(), Some(0), "{text}{}", stderr(&output));
    assert!(
        text.contains("node-1# iptables-nft -t filter -D FORWARD -d 10.244.1.10/32 -j DROP"),
        "{text}"
    );
}

/// A pod that the lab expects as endpoint has another label than the service selects.
#[test]
fn why_unselected_endpoint_is_labelled() {
    let lab = project().join("tests/diagnosis/diagnosis.yaml");
    let lab = std::fs::read_to_string(lab).expect("the lab");
    let pod = "{name: web-2, namespace: default, labels: {app: web}}";
    assert!(lab.contains(pod));
    let (_directory, path) = write_lab(lab.replace(pod, &pod.replace("{app: web}", "{app: wed}")));
    let case = format!("{}/mode=iptables,fault=none", path.display());
    let output = run(&["why", "--kernel=host", "--probe=podToService", &case]);
    let text = stdout(&output);
    assert!(
        text.contains("label the pod default/web-2 with app=web"),
        "{text}"
    );
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
}
