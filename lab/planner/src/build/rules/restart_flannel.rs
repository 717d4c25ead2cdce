//! Writes the rules of flanneld on a dumped node as after its restart. flanneld adds its rules to
//! those of the node and leaves all others unchanged.

use super::regenerate::{RestartError, find_node};
use crate::cluster::Cluster;
use svclab_model::plan::{Iptables, Plan};
use svclab_rules::flannel::{self, NodeState};
use svclab_ruleset::iptables::chains::Chains;
use svclab_ruleset::iptables::script::IptablesScript;

/// Adds the rules of flanneld with the cluster's flags to a node. Nothing changes without flannel, or
/// on a node without an IPv4 pod network.
///
/// # Errors
///
/// See [`RestartError`].
pub fn restart_flanneld(
    plan: &mut Plan,
    cluster: &Cluster,
    name: &str,
) -> Result<(), RestartError> {
    let (node, namespace) = find_node(plan, cluster, name)?;
    let (Some(config), Some(lease)) = (&cluster.flannel, node.ipv4_pod_cidr()) else {
        return Ok(());
    };
    let rules = namespace.iptables.get_or_insert_with(|| Iptables {
        backend: cluster.backend,
        ..Iptables::default()
    });
    let unreadable = || RestartError::Unreadable(name.to_owned());
    let existing = rules.v4.state().map_err(|_| unreadable())?;
    let chains = Chains::from_script(existing).map_err(|_| unreadable())?;
    let state = NodeState {
        chains,
        ..NodeState::default()
    };
    let started = flannel::start_flanneld(config, lease, &state)?;
    rules.v4 = IptablesScript::from(&started.state.chains).into();
    Ok(())
}
