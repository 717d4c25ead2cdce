//! Computes the rules that an earlier flannel left on a node.

use ipnetwork::Ipv4Network;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use svclab_ruleset::iptables::script::IptablesScript;

use super::{Flannel, FlannelError, NodeState, start_flanneld};
use crate::release::Release;

/// Flannel that ran on the node in an earlier cluster and was killed.
///
/// Few versions of flanneld delete their rules when they stop. Up to v0.24.4 the clean-up is
/// deferred to the end of a function that does not return after a signal (`network/iptables.go`,
/// v0.11.0). v0.25.0 to v0.26.7 do clean up on a signal; v0.27.0 and later do not. No version
/// cleans up when it is killed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct EarlierFlannel {
    /// Tag of the earlier flannel.
    pub version: Release,
    /// Network that the earlier flannel was configured with.
    #[schemars(with = "String")]
    pub network: Ipv4Network,
    /// Lease that the node had.
    #[schemars(with = "String")]
    pub lease: Ipv4Network,
    /// Whether MASQUERADE had `--random-fully`; see `randomFully` of `flannel`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub random_fully: Option<bool>,
    /// Whether `/run/flannel/subnet.env` still exists.
    #[serde(default = "yes")]
    pub subnet_file: bool,
}

fn yes() -> bool {
    true
}

impl EarlierFlannel {
    /// Returns the rules that the earlier flannel wrote on a new node, and the state of the node
    /// that a later flannel reads.
    ///
    /// # Errors
    ///
    /// Returns the same errors as [`start_flanneld`].
    pub fn leftover_state(&self) -> Result<(IptablesScript, NodeState), FlannelError> {
        let mut config = Flannel::new(self.version, self.network);
        config.random_fully = self.random_fully;
        let started = start_flanneld(&config, self.lease, &NodeState::default())?;
        let mut state = started.state;
        if !self.subnet_file {
            state.subnet_file = None;
        }
        Ok((started.script, state))
    }
}
