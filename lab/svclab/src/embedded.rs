//! The labs of `topologies/`, as part of the program.

use svclab_runner::run::EmbeddedLab;

macro_rules! embed {
    ($($name:literal),+ $(,)?) => {
        [$(EmbeddedLab {
            name: $name,
            text: include_str!(concat!("../../../topologies/", $name, ".yaml")),
        }),+]
    };
}

/// All labs of `topologies/`, sorted by name, except the lab of the benchmarks.
pub(crate) static EMBEDDED_LABS: [EmbeddedLab; 13] = embed![
    "canal-stale-rule",
    "clb-hairpin",
    "conformance/cluster-ip",
    "conformance/dual-stack",
    "conformance/external-ip",
    "conformance/load-balancer",
    "conformance/node-port",
    "conformance/security-group",
    "conformance/session-affinity",
    "local-ingress",
    "missing-cluster-cidr",
    "service-changes",
    "service-paths",
];

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::path::Path;

    use super::EMBEDDED_LABS;
    use svclab_runner::run::{LabDirectory, prepare, select_labs};

    #[test]
    fn embedded_labs_are_those_of_topologies() {
        let topologies = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../topologies");
        let mut files = BTreeSet::new();
        for group in ["", "conformance/"] {
            for entry in std::fs::read_dir(topologies.join(group)).unwrap() {
                let name = entry.unwrap().file_name().into_string().unwrap();
                if let Some(lab) = name.strip_suffix(".yaml") {
                    files.insert(format!("{group}{lab}"));
                }
            }
        }
        let embedded: Vec<&str> = EMBEDDED_LABS.iter().map(|lab| lab.name).collect();
        assert_eq!(embedded, files.iter().collect::<Vec<_>>());
    }

    /// An embedded lab has no directory, so it cannot name files.
    #[test]
    fn embedded_labs_can_be_prepared() {
        let embedded = LabDirectory::Embedded(&EMBEDDED_LABS);
        let mut labs = select_labs(&[], embedded).unwrap();
        labs.extend(select_labs(&["conformance".to_owned()], embedded).unwrap());
        assert_eq!(labs.len(), EMBEDDED_LABS.len());
        for lab in &labs {
            for case in lab.scenario.cases() {
                let prepared = prepare(lab, case, std::time::Duration::from_secs(1));
                assert!(prepared.is_ok(), "{}: {:?}", case.id, prepared.err());
            }
        }
    }
}
