//! What this machine can run, for people and for programs.

use std::fmt::Write as _;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::kernel::doctor::{Diagnosis, Finding, Health};

/// The name and version of the JSON format.
pub const SCHEMA: &str = "svclab/doctor/v1";

/// The document that `svclab doctor --format json` prints.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Document {
    /// `svclab/doctor/v1`.
    pub schema: String,
    /// Whether the labs of this release can run here: exit code 0, else 3.
    pub ok: bool,
    /// The one command that loads every module that was found lacking.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub modprobe: Option<String>,
    /// What was found.
    #[serde(flatten)]
    pub diagnosis: Diagnosis,
}

/// For programs: one document, its last line ended.
///
/// # Errors
///
/// None that a diagnosis can cause.
pub fn json(diagnosis: &Diagnosis) -> serde_json::Result<String> {
    let document = Document {
        schema: SCHEMA.to_owned(),
        ok: diagnosis.is_well(),
        modprobe: diagnosis.modprobe(),
        diagnosis: diagnosis.clone(),
    };
    Ok(serde_json::to_string_pretty(&document)? + "\n")
}

/// For people.
#[must_use]
pub fn human(diagnosis: &Diagnosis) -> String {
    let mut text = String::new();
    let who = if diagnosis.root {
        "as root, whose labs are built by a user without privileges"
    } else {
        "without root"
    };
    match &diagnosis.surroundings {
        Some(found) => {
            let _ = writeln!(text, "Linux {}, {who}", found.kernel);
            let width = found.tools.keys().map(String::len).max().unwrap_or(0);
            for (program, version) in &found.tools {
                let _ = writeln!(text, "  {program:width$}  {version}");
            }
        }
        None => {
            let _ = writeln!(text, "No agent came up, {who}");
        }
    }
    let width = diagnosis
        .findings
        .iter()
        .map(|finding| finding.feature.len())
        .max()
        .unwrap_or(0);
    for (needed, title) in [
        (true, "What labs of this release are made of:"),
        (false, "What later releases will use:"),
    ] {
        let _ = write!(text, "\n{title}\n");
        for finding in &diagnosis.findings {
            if finding.needed == needed {
                tell(&mut text, finding, width);
            }
        }
    }
    text.push_str(if diagnosis.is_well() {
        "\nThis machine can run the labs of this release.\n"
    } else {
        "\nThis machine cannot run every lab of this release.\n"
    });
    if let Some(modprobe) = diagnosis.modprobe() {
        let _ = writeln!(text, "To load every module named above: {modprobe}");
    }
    text
}

fn tell(text: &mut String, finding: &Finding, width: usize) {
    let word = match finding.state {
        Health::Works => "yes",
        Health::Lacking | Health::Fails => "no",
        Health::Untried => "?",
    };
    let line = format!("  {:width$}  {word:3}", finding.feature);
    let indent = format!("\n  {:width$}       ", "");
    let reason = finding.reason.replace('\n', &indent);
    let _ = writeln!(text, "{}", format!("{line}  {reason}").trim_end());
    for remedy in finding.remedy.iter().flat_map(|remedy| remedy.lines()) {
        let _ = writeln!(text, "  {:width$}       → {remedy}", "");
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::evidence::Surroundings;

    fn finding(feature: &str, needed: bool, state: Health, reason: &str) -> Finding {
        Finding {
            feature: feature.to_owned(),
            needed,
            state,
            reason: reason.to_owned(),
            remedy: None,
            modules: Vec::new(),
        }
    }

    fn ill() -> Diagnosis {
        Diagnosis {
            root: true,
            surroundings: Some(Surroundings {
                kernel: "6.12.117+deb12-cloud-amd64".to_owned(),
                tools: BTreeMap::from([
                    ("ipset".to_owned(), "ipset v7.17, protocol version: 7".to_owned()),
                    (
                        "iptables-nft-restore".to_owned(),
                        "iptables-restore v1.8.9 (nf_tables)".to_owned(),
                    ),
                ]),
            }),
            findings: vec![
                finding("network namespaces", true, Health::Works, ""),
                Finding {
                    remedy: Some(
                        "run `modprobe vxlan` as root\nrun `apt-get install ipset`, or your distribution's equivalent, as root"
                            .to_owned(),
                    ),
                    modules: vec!["vxlan".to_owned()],
                    ..finding(
                        "vxlan tunnels",
                        true,
                        Health::Lacking,
                        "not loaded: vxlan; not installed: ipset",
                    )
                },
                finding(
                    "IPv6",
                    true,
                    Health::Fails,
                    "ip6tables-nft-restore refused its input in one; it said:\nline 3: RULE_APPEND failed",
                ),
                finding("bridges", true, Health::Untried, "the agent was lost"),
                Finding {
                    modules: vec!["ip_vs".to_owned(), "vxlan".to_owned()],
                    ..finding("IPVS", false, Health::Lacking, "it is not loaded")
                },
            ],
        }
    }

    #[test]
    fn what_is_the_matter_is_told_with_what_helps() {
        insta::assert_snapshot!(human(&ill()));
    }

    #[test]
    fn a_machine_that_is_well_is_told_so() {
        let mut diagnosis = ill();
        diagnosis.root = false;
        diagnosis
            .findings
            .retain(|finding| finding.state == Health::Works);
        diagnosis.findings.push(finding(
            "IPVS",
            false,
            Health::Lacking,
            "this kernel was built without it",
        ));
        insta::assert_snapshot!(human(&diagnosis));
    }

    #[test]
    fn without_an_agent_that_is_what_is_told() {
        let diagnosis = Diagnosis {
            surroundings: None,
            ..ill()
        };
        assert!(human(&diagnosis).starts_with("No agent came up, as root"));
    }

    #[test]
    fn the_document_reads_back() {
        let text = json(&ill()).unwrap();
        insta::assert_snapshot!(text);
        let read: Document = serde_json::from_str(&text).unwrap();
        assert_eq!(read.diagnosis, ill());
        assert!(!read.ok);
    }
}
