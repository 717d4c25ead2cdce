//! A fake kube-proxy, and a lab that needs none.

pub use svclab_test_support::fake_kube_proxy::*;

use crate::support::LAB;

/// Returns the lab with a probe that needs no rules.
pub fn lab_without_rules() -> String {
    let (service, pod) = (
        "to: \"service/default/web:80\"",
        "to: \"pod/default/web:8080\"",
    );
    assert!(LAB.contains(service));
    LAB.replace(service, pod)
}
