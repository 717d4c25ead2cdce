//! Renders the features that this machine supports, for people and programs.

use std::fmt::Write as _;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use svclab_runner::kernel::doctor::{Diagnosis, GuestDiagnosis, Health};
use svclab_runner::kernel::guest::Kvm;

/// Name and version of the JSON format.
pub const SCHEMA: &str = "svclab/doctor/v1";

/// Output of `svclab doctor --format json`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Document {
    /// Always `svclab/doctor/v1`.
    pub schema: String,
    /// Whether every lab can run on the host or in a guest. The exit code is then 0, otherwise 3.
    pub ok: bool,
    /// Command that loads all kernel modules that the host lacks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub modprobe: Option<String>,
    /// Results of the checks.
    #[serde(flatten)]
    pub diagnosis: Diagnosis,
}

/// Builds the JSON document.
#[must_use]
pub fn document(diagnosis: &Diagnosis) -> Document {
    Document {
        schema: SCHEMA.to_owned(),
        ok: diagnosis.is_well(),
        modprobe: diagnosis.modprobe(),
        diagnosis: diagnosis.clone(),
    }
}

/// Renders the diagnosis as text.
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
    tell_of_guests(&mut text, &diagnosis.guest);
    let longest = diagnosis
        .findings
        .iter()
        .map(|finding| finding.feature.len());
    let width = longest.max().unwrap_or(0);
    let _ = writeln!(text, "\n  {:width$}  host  guest", "");
    for finding in &diagnosis.findings {
        let (host, guest) = (word(finding.host.state), word(finding.guest.state));
        let _ = writeln!(text, "  {:width$}  {host:4}  {guest}", finding.feature);
        for (way, name) in [(&finding.host, "host"), (&finding.guest, "guest")] {
            // A missing guest is reported above.
            if !(way.reason.is_empty() || name == "guest" && diagnosis.guest.kernel.is_none()) {
                tell(&mut text, name, &way.reason, way.remedy.as_deref());
            }
        }
    }
    text.push_str(if diagnosis.is_well() {
        "\nThis machine can run every lab.\n"
    } else {
        "\nThis machine cannot run every lab: some things above have neither way.\n"
    });
    if let Some(modprobe) = diagnosis.modprobe() {
        let _ = writeln!(
            text,
            "To load every module that this host lacks, as root: {modprobe}"
        );
    }
    text
}

fn tell_of_guests(text: &mut String, guest: &GuestDiagnosis) {
    let qemu = guest.qemu.as_deref();
    let qemu = qemu.map_or_else(String::new, |version| format!(" by QEMU {version}"));
    let kvm = match guest.kvm {
        Some(Kvm::Works) => ", with KVM",
        Some(Kvm::Fails) => ", without KVM, which was tried and does not work here",
        Some(Kvm::Absent) => ", without KVM: there is no /dev/kvm",
        Some(Kvm::Forbidden) => ", without KVM: this user may not open /dev/kvm",
        Some(Kvm::Untried) => ", KVM not tried yet",
        None => "",
    };
    if let Some(kernel) = &guest.kernel {
        let _ = writeln!(text, "Guest: Linux {kernel}{qemu}{kvm}");
    } else {
        let has = qemu.replacen(" by ", ", though there is ", 1);
        let _ = writeln!(text, "Guest: none{has}");
    }
    if !guest.qemu_lacks.is_empty() {
        let _ = writeln!(
            text,
            "    QEMU runs as a user without privileges, but this machine refuses it: {}",
            guest.qemu_lacks
        );
    }
    if !guest.reason.is_empty() {
        tell(text, "", &guest.reason, guest.remedy.as_deref());
    }
    if guest.kvm == Some(Kvm::Forbidden) {
        let remedy = "add this user to the group of /dev/kvm (`usermod -aG kvm USER`), and guests are faster";
        let _ = writeln!(text, "    → {remedy}");
    }
}

const fn word(state: Health) -> &'static str {
    match state {
        Health::Works => "yes",
        Health::Lacking | Health::Fails => "no",
        Health::Untried => "?",
    }
}

fn tell(text: &mut String, name: &str, reason: &str, remedy: Option<&str>) {
    let mut lines = reason.lines();
    let first = lines.next().unwrap_or_default();
    let label = if name.is_empty() {
        String::new()
    } else {
        format!("{name}: ")
    };
    let _ = writeln!(text, "    {label}{first}");
    for line in lines {
        let _ = writeln!(text, "    {:1$}{line}", "", label.len());
    }
    for remedy in remedy.iter().flat_map(|remedy| remedy.lines()) {
        let _ = writeln!(text, "    → {remedy}");
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use svclab_model::evidence::Surroundings;
    use svclab_runner::kernel::doctor::{Finding, Way};

    fn way(state: Health, reason: &str) -> Way {
        Way {
            state,
            reason: reason.to_owned(),
            remedy: None,
            modules: Vec::new(),
        }
    }

    fn finding(feature: &str, host: Way, guest: Way) -> Finding {
        Finding {
            feature: feature.to_owned(),
            needed: true,
            host,
            guest,
        }
    }

    fn works() -> Way {
        way(Health::Works, "")
    }

    fn surroundings() -> Surroundings {
        Surroundings {
            kernel: "6.18.44".to_owned(),
            tools: BTreeMap::from([
                (
                    "ipset".to_owned(),
                    "ipset v7.17, protocol version: 7".to_owned(),
                ),
                (
                    "iptables-nft-restore".to_owned(),
                    "iptables-restore v1.8.9 (nf_tables)".to_owned(),
                ),
            ]),
        }
    }

    fn ill() -> Diagnosis {
        let untried = || way(Health::Untried, "there is no guest");
        Diagnosis {
            root: true,
            surroundings: Some(surroundings()),
            guest: GuestDiagnosis {
                reason: "a guest kernel needs qemu-system-x86_64, which is not installed"
                    .to_owned(),
                remedy: Some("run `apt-get install qemu-system-x86` as root".to_owned()),
                ..GuestDiagnosis::default()
            },
            findings: vec![
                finding("network namespaces", works(), untried()),
                finding(
                    "vxlan tunnels",
                    Way {
                        remedy: Some(
                            "run `modprobe vxlan` as root\nrun `apt-get install ipset`, or your distribution's equivalent, as root"
                                .to_owned(),
                        ),
                        modules: vec!["vxlan".to_owned()],
                        ..way(
                            Health::Lacking,
                            "not loaded: vxlan; not installed: ipset",
                        )
                    },
                    untried(),
                ),
                finding(
                    "IPv6",
                    way(
                        Health::Fails,
                        "ip6tables-nft-restore refused its input in one; it said:\nline 3: RULE_APPEND failed",
                    ),
                    untried(),
                ),
                finding("bridges", way(Health::Untried, "the agent was lost"), untried()),
                finding(
                    "IPVS",
                    Way {
                        modules: vec!["ip_vs".to_owned(), "vxlan".to_owned()],
                        ..way(Health::Lacking, "not loaded: ip_vs; svclab runs without root")
                    },
                    untried(),
                ),
                Finding {
                    needed: false,
                    ..finding(
                        "drops and their reasons",
                        Way {
                            remedy: Some("run svclab as root".to_owned()),
                            ..way(Health::Lacking, "the kernel does not let svclab trace them")
                        },
                        untried(),
                    )
                },
            ],
        }
    }

    fn well() -> Diagnosis {
        Diagnosis {
            root: false,
            surroundings: Some(surroundings()),
            guest: GuestDiagnosis {
                qemu: Some("7.2.22".to_owned()),
                kvm: Some(Kvm::Forbidden),
                kernel: Some("6.12.117+deb12-cloud-amd64".to_owned()),
                ..GuestDiagnosis::default()
            },
            findings: vec![
                finding("network namespaces", works(), works()),
                finding(
                    "IPVS",
                    way(Health::Lacking, "not of this kernel: ip_vs"),
                    works(),
                ),
                finding("bridges", works(), way(Health::Fails, "the guest is full")),
                Finding {
                    needed: false,
                    ..finding(
                        "drops and their reasons",
                        way(Health::Lacking, "the kernel does not let svclab trace them"),
                        way(Health::Fails, "this kernel gives no reasons"),
                    )
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
        insta::assert_snapshot!(human(&well()));
    }

    #[test]
    fn what_is_known_of_kvm_and_kernels_is_told() {
        let mut told = String::new();
        for kvm in [Kvm::Works, Kvm::Fails, Kvm::Absent, Kvm::Untried] {
            let mut diagnosis = well();
            diagnosis.guest.kvm = Some(kvm);
            tell_of_guests(&mut told, &diagnosis.guest);
        }
        let unfetched = GuestDiagnosis {
            qemu: Some("7.2.22".to_owned()),
            reason: "there is no guest kernel 6.12: it has not been fetched yet".to_owned(),
            remedy: Some("run `svclab kernel fetch --boot`".to_owned()),
            ..GuestDiagnosis::default()
        };
        tell_of_guests(&mut told, &unfetched);
        insta::assert_snapshot!(told);
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
        let text = serde_json::to_string_pretty(&document(&ill())).unwrap();
        insta::assert_snapshot!(text);
        let read: Document = serde_json::from_str(&text).unwrap();
        assert_eq!(read.diagnosis, ill());
        assert!(!read.ok);
    }
}
