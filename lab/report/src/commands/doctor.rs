//! Renders the features that this machine supports, for people and programs.

use std::fmt::Write as _;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use svclab_runner::kernel::doctor::{CheckStatus, Diagnosis, GuestDiagnosis};
use svclab_runner::kernel::guest::Kvm;

/// Name and version of the JSON format.
pub const SCHEMA: &str = "svclab/doctor/v1";

/// Output of `svclab doctor --format json`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DoctorDocument {
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
pub fn document(diagnosis: &Diagnosis) -> DoctorDocument {
    DoctorDocument {
        schema: SCHEMA.to_owned(),
        ok: diagnosis.can_run_all_labs(),
        modprobe: diagnosis.modprobe(),
        diagnosis: diagnosis.clone(),
    }
}

/// Renders the diagnosis as text.
#[must_use]
pub fn render_text(diagnosis: &Diagnosis) -> String {
    let mut text = String::new();
    let privilege = if diagnosis.root {
        "as root; an unprivileged user builds the labs"
    } else {
        "without root"
    };
    match &diagnosis.environment {
        Some(found) => {
            let _ = writeln!(text, "Linux {}, {privilege}", found.kernel);
            let width = found.tools.keys().map(String::len).max().unwrap_or(0);
            for (program, version) in &found.tools {
                let _ = writeln!(text, "  {program:width$}  {version}");
            }
        }
        None => {
            let _ = writeln!(text, "The agent did not start, {privilege}");
        }
    }
    push_guest(&mut text, &diagnosis.guest);
    let longest = diagnosis
        .findings
        .iter()
        .map(|finding| finding.feature.len());
    let width = longest.max().unwrap_or(0);
    let _ = writeln!(text, "\n  {:width$}  host  guest", "");
    for finding in &diagnosis.findings {
        let (host, guest) = (
            state_word(finding.host.status),
            state_word(finding.guest.status),
        );
        let _ = writeln!(text, "  {:width$}  {host:4}  {guest}", finding.feature);
        for (availability, name) in [(&finding.host, "host"), (&finding.guest, "guest")] {
            // A missing guest is reported above.
            if !(availability.reason.is_empty()
                || name == "guest" && diagnosis.guest.kernel.is_none())
            {
                push_reason(
                    &mut text,
                    name,
                    &availability.reason,
                    availability.remedy.as_deref(),
                );
            }
        }
    }
    text.push_str(if diagnosis.can_run_all_labs() {
        "\nThis machine can run every lab.\n"
    } else if diagnosis.guest.kernel.is_none() && diagnosis.guest.qemu.is_some() {
        "\nSome features above do not work on the host, and no guest was downloaded yet. The first \
         lab that needs a guest downloads one, as `svclab kernel fetch --boot` does.\n"
    } else {
        "\nThis machine cannot run every lab: some features above work neither on the host nor in \
         a guest.\n"
    });
    if let Some(modprobe) = diagnosis.modprobe() {
        let _ = writeln!(
            text,
            "To load all modules that the host lacks, run as root: {modprobe}"
        );
    }
    text
}

fn push_guest(text: &mut String, guest: &GuestDiagnosis) {
    let qemu = guest.qemu.as_deref();
    let qemu = qemu.map_or_else(String::new, |version| format!(" in QEMU {version}"));
    let kvm = match guest.kvm {
        Some(Kvm::Works) => ", with KVM",
        Some(Kvm::Fails) => ", without KVM: it was tried and does not work",
        Some(Kvm::Absent) => ", without KVM: /dev/kvm does not exist",
        Some(Kvm::Forbidden) => ", without KVM: no permission to open /dev/kvm",
        Some(Kvm::Untried) => ", KVM not tried yet",
        None => "",
    };
    if let Some(kernel) = &guest.kernel {
        let _ = writeln!(text, "Guest: Linux {kernel}{qemu}{kvm}");
    } else {
        let has = qemu.replacen(" in ", ", but this machine has ", 1);
        let _ = writeln!(text, "Guest: none{has}");
    }
    if !guest.qemu_unsupported.is_empty() {
        let _ = writeln!(
            text,
            "    QEMU runs as an unprivileged user, but this machine does not allow: {}",
            guest.qemu_unsupported
        );
    }
    if !guest.reason.is_empty() {
        push_reason(text, "", &guest.reason, guest.remedy.as_deref());
    }
    if guest.kvm == Some(Kvm::Forbidden) {
        let remedy =
            "for faster guests, add this user to the group of /dev/kvm: `usermod -aG kvm USER`";
        let _ = writeln!(text, "    → {remedy}");
    }
}

const fn state_word(state: CheckStatus) -> &'static str {
    match state {
        CheckStatus::Works => "yes",
        CheckStatus::Lacking | CheckStatus::Fails => "no",
        CheckStatus::Untried => "?",
    }
}

fn push_reason(text: &mut String, name: &str, reason: &str, remedy: Option<&str>) {
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
    use svclab_model::evidence::Environment;
    use svclab_runner::kernel::doctor::{Availability, Finding};

    fn availability(state: CheckStatus, reason: &str) -> Availability {
        Availability {
            status: state,
            reason: reason.to_owned(),
            remedy: None,
            modules: Vec::new(),
        }
    }

    fn finding(feature: &str, host: Availability, guest: Availability) -> Finding {
        Finding {
            feature: feature.to_owned(),
            needed: true,
            host,
            guest,
        }
    }

    fn works() -> Availability {
        availability(CheckStatus::Works, "")
    }

    fn surroundings() -> Environment {
        Environment {
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

    fn broken_diagnosis() -> Diagnosis {
        let untried = || availability(CheckStatus::Untried, "no guest kernel");
        Diagnosis {
            root: true,
            environment: Some(surroundings()),
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
                    Availability {
                        remedy: Some(
                            "run `modprobe vxlan` as root\nrun `apt-get install ipset`, or your distribution's equivalent, as root"
                                .to_owned(),
                        ),
                        modules: vec!["vxlan".to_owned()],
                        ..availability(
                            CheckStatus::Lacking,
                            "not loaded: vxlan; not installed: ipset",
                        )
                    },
                    untried(),
                ),
                finding(
                    "IPv6",
                    availability(
                        CheckStatus::Fails,
                        "ip6tables-nft-restore rejected its input in one:\nline 3: RULE_APPEND failed",
                    ),
                    untried(),
                ),
                finding("bridges", availability(CheckStatus::Untried, "the agent was lost"), untried()),
                finding(
                    "IPVS",
                    Availability {
                        modules: vec!["ip_vs".to_owned(), "vxlan".to_owned()],
                        ..availability(CheckStatus::Lacking, "not loaded: ip_vs; svclab runs without root")
                    },
                    untried(),
                ),
                Finding {
                    needed: false,
                    ..finding(
                        "drops and their reasons",
                        Availability {
                            remedy: Some("run svclab as root".to_owned()),
                            ..availability(CheckStatus::Lacking, "the kernel does not allow svclab to trace drops")
                        },
                        untried(),
                    )
                },
            ],
        }
    }

    fn healthy_diagnosis() -> Diagnosis {
        Diagnosis {
            root: false,
            environment: Some(surroundings()),
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
                    availability(CheckStatus::Lacking, "kernel module not available: ip_vs"),
                    works(),
                ),
                finding(
                    "bridges",
                    works(),
                    availability(CheckStatus::Fails, "the guest is full"),
                ),
                Finding {
                    needed: false,
                    ..finding(
                        "drops and their reasons",
                        availability(
                            CheckStatus::Lacking,
                            "the kernel does not allow svclab to trace drops",
                        ),
                        availability(CheckStatus::Fails, "this kernel reports no drop reasons"),
                    )
                },
            ],
        }
    }

    #[test]
    fn render_text_problems_have_help() {
        insta::assert_snapshot!(render_text(&broken_diagnosis()));
    }

    #[test]
    fn render_text_healthy_machine_matches_snapshot() {
        insta::assert_snapshot!(render_text(&healthy_diagnosis()));
    }

    #[test]
    fn render_text_guest_not_downloaded_is_no_defect() {
        let mut diagnosis = healthy_diagnosis();
        diagnosis.guest = GuestDiagnosis {
            qemu: Some("7.2.22".to_owned()),
            reason: "no guest kernel 6.12: not fetched yet".to_owned(),
            remedy: Some("run `svclab kernel fetch --boot`".to_owned()),
            ..GuestDiagnosis::default()
        };
        for finding in &mut diagnosis.findings {
            finding.guest = availability(CheckStatus::Untried, "no guest kernel");
        }
        insta::assert_snapshot!(render_text(&diagnosis));
    }

    #[test]
    fn push_guest_each_kvm_state_is_rendered() {
        let mut text = String::new();
        for kvm in [Kvm::Works, Kvm::Fails, Kvm::Absent, Kvm::Untried] {
            let mut diagnosis = healthy_diagnosis();
            diagnosis.guest.kvm = Some(kvm);
            push_guest(&mut text, &diagnosis.guest);
        }
        let unfetched = GuestDiagnosis {
            qemu: Some("7.2.22".to_owned()),
            reason: "no guest kernel 6.12: not fetched yet".to_owned(),
            remedy: Some("run `svclab kernel fetch --boot`".to_owned()),
            ..GuestDiagnosis::default()
        };
        push_guest(&mut text, &unfetched);
        insta::assert_snapshot!(text);
    }

    #[test]
    fn render_text_without_agent_reports_it() {
        let diagnosis = Diagnosis {
            environment: None,
            ..broken_diagnosis()
        };
        assert!(render_text(&diagnosis).starts_with("The agent did not start, as root"));
    }

    #[test]
    fn document_json_roundtrip_is_equal() {
        let text = serde_json::to_string_pretty(&document(&broken_diagnosis())).unwrap();
        insta::assert_snapshot!(text);
        let read: DoctorDocument = serde_json::from_str(&text).unwrap();
        assert_eq!(read.diagnosis, broken_diagnosis());
        assert!(!read.ok);
    }
}
