//! Runs a lab as tests of a Rust project. The program `svclab-agent` builds the labs. Install it on
//! the machine (`cargo install --path svclab`) or name it in the variable `SVCLAB_AGENT`. To test
//! your own kube-proxy instead of generated rules, add `.kube_proxy("bin/kube-proxy")` before
//! `.run()`.

use svclab::evidence::Verdict;
use svclab::{Lab, LabError};

const LAB: &str = include_str!("../../labs/node-port.yaml");

#[tokio::test]
async fn a_node_port_is_as_the_lab_expects() -> Result<(), LabError> {
    let ran = Lab::from_yaml(LAB)?.run().await?;
    assert!(ran.passed(), "{ran}");
    Ok(())
}

#[tokio::test]
async fn a_node_port_of_another_node_hides_who_calls() -> Result<(), LabError> {
    let lab = Lab::from_yaml(LAB)?.case("policy=Cluster")?.watched();
    let ran = lab.run().await?;
    let case = "node-port/policy=Cluster";
    let evidence = ran.evidence(case).expect("the case came to a verdict");
    assert!(!evidence.attempts.is_empty());
    for attempt in &evidence.attempts {
        let why = ran.explanation(case).unwrap_or_default();
        assert_eq!(attempt.verdict, Verdict::Connected, "{why}");
        assert_eq!(attempt.endpoint.as_deref(), Some("pod/default/web"));
        let source = attempt.seen_source.expect("who answered saw a source");
        assert_eq!(source.ip().to_string(), "192.168.1.11", "{why}");
    }
    // The evidence contains every packet, and the rules that it matched.
    assert!(!evidence.packets.is_empty());
    assert!(
        evidence
            .met
            .iter()
            .any(|met| met.chain == "KUBE-POSTROUTING")
    );
    Ok(())
}

#[tokio::test]
async fn a_lab_that_is_wrong_says_where() {
    let wrong = LAB.replace("connections: 4}", "conections: 4}");
    let error = Lab::from_yaml(wrong).expect_err("a field that there is not");
    let told = error.to_string();
    assert!(told.contains("did you mean `connections`"), "{told}");
}
