//! Refuses nodes with texts in place of addresses and networks.

use k8s_openapi::api::core::v1::Node;

use super::{check_address, check_network};
use crate::yaml::tree::Tree;
use svclab_diagnostic::Diagnostic;

/// Types of node addresses that are IP addresses. The others are names.
const IP_ADDRESS_TYPES: [&str; 2] = ["InternalIP", "ExternalIP"];

/// Checks the addresses and podCIDRs of a node (Kubernetes v1.36,
/// `pkg/apis/core/validation/validation.go`, `ValidateNode`; the kubelet parses the addresses).
pub(crate) fn check_node(node: &Node, tree: &Tree) -> Result<(), Diagnostic> {
    if let Some(spec) = &node.spec {
        if let Some(text) = &spec.pod_cidr {
            check_network(tree, crate::path!["spec", "podCIDR"], text)?;
        }
        for (index, text) in spec.pod_cidrs.iter().flatten().enumerate() {
            check_network(tree, crate::path!["spec", "podCIDRs", index], text)?;
        }
    }
    let status = node.status.as_ref();
    let addresses = status.and_then(|status| status.addresses.as_ref());
    for (index, address) in addresses.into_iter().flatten().enumerate() {
        if IP_ADDRESS_TYPES.contains(&address.type_.as_str()) {
            let path = crate::path!["status", "addresses", index, "address"];
            check_address(tree, path, &address.address)?;
        }
    }
    Ok(())
}
