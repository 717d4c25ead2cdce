//! Runs a lab as tests of a Rust project. The program `svclab-agent` builds the labs. Install it on
//! the machine (`cargo install --path svclab/lab/svclab`) or name it in the variable
//! `SVCLAB_AGENT`. To test your own kube-proxy instead of generated rules, add
//! `.with_kube_proxy("bin/kube-proxy")` before `.run()`.

use svclab::evidence::Verdict;
use svclab::{Lab, LabError};

const LAB: &str = include_str!("../../labs/node-port.yaml");

#[tokio::test]
async fn node_port_all_cases_meet_expectations() -> Result<(), LabError> {
    let ran = Lab::from_yaml(LAB)?.run().await?;
    assert!(ran.passed(), "{ran}");
    Ok(())
}

#[tokio::test]
async fn node_port_of_other_node_masquerades_source() -> Result<(), LabError> {
    let lab = Lab::from_yaml(LAB)?
        .select_case("policy=Cluster")?
        .with_full_evidence();
    let ran = lab.run().await?;
    let case = "node-port/policy=Cluster";
    let evidence = ran.evidence(case).expect("the case has evidence");
    // The lab has no steps, so the case has one stage.
    let stage = &evidence.stages[0];
    assert!(!stage.attempts.is_empty());
    for attempt in &stage.attempts {
        let why = ran.explanation(case).unwrap_or_default();
        assert_eq!(attempt.verdict, Verdict::Connected, "{why}");
        assert_eq!(attempt.endpoint.as_deref(), Some("pod/default/web"));
        let source = attempt
            .seen_source
            .expect("the endpoint recorded the source");
        assert_eq!(source.ip().to_string(), "192.168.1.11", "{why}");
    }
    // The evidence contains every packet, and the rules that it matched.
    assert!(!stage.packets.is_empty());
    assert!(
        stage
            .trace
            .iter()
            .any(|met| met.chain == "KUBE-POSTROUTING")
    );
    Ok(())
}

#[tokio::test]
async fn lab_with_unknown_field_returns_error() {
    let invalid = LAB.replace("connections: 4}", "conections: 4}");
    let error = Lab::from_yaml(invalid).expect_err("the lab has an unknown field");
    let message = error.to_string();
    assert!(message.contains("did you mean `connections`"), "{message}");
}
