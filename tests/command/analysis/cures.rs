//! Tests that `svclab why` finds the cure of faults of many kinds, and that the printed commands
//! make the cure.

use std::path::Path;

use serde_json::Value;

use crate::support::{assert_matches_schema, run, stderr, stdout, write_lab};

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
        "delete the routing rule",
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
        "localAddress",
        "delete the address 10.244.2.10/32 from lo on node-1",
        "ip address del 10.244.2.10/32 dev lo",
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
    assert_eq!(cases.len(), CURES.len() + 1);
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
        typed += &format!(", {}", Value::String(command));
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
    expected = expected.replace("    call: any\n    out: any\n", "    call: {connected: 1}\n    out: {connected: 1}\n");
    let path = lab.with_file_name(format!("{fault}.yaml"));
    let expected = expected.replacen("{name: lab}", &format!("{{name: {fault}}}"), 1);
    std::fs::write(&path, expected).expect("the lab can be written");
    let case = format!("{}/fault={fault}", path.display());
    let output = run(&["run", "--kernel=host", &case]);
    (output.status.code() != Some(0)).then(|| {
        format!("{fault}: {commands:#?} do not help:\n{}{}", stdout(&output), stderr(&output))
    })
}
