//! Defines the state of a node before flanneld starts, including rules of an earlier flanneld.

use ipnetwork::Ipv4Network;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use svclab_ruleset::iptables::chains::Chains;
use svclab_ruleset::iptables::script::IptablesScript;

use super::{Flannel, FlannelError, start_flanneld};
use crate::release::Release;

/// State of a node that flanneld reads when it starts.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct NodeState {
    /// Rules of all components on the node. Only chains that flannel writes to are relevant: rules
    /// of other components in these chains determine the position of flannel's rules.
    pub chains: Chains,
    /// `/run/flannel/subnet.env`, or `None` if the file does not exist. flanneld reads the file
    /// before it writes its own, and derives from it which rules an earlier flanneld wrote.
    ///
    /// `/run` is a tmpfs on most hosts: a reboot removes the file *and* the rules. On a node that
    /// is reused without a reboot, the file remains until an administrator deletes it.
    pub subnet_file: Option<SubnetFile>,
}

/// The two lines of `subnet.env` that a later flanneld reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SubnetFile {
    /// `FLANNEL_NETWORK`: network of all pods.
    pub network: Ipv4Network,
    /// `FLANNEL_SUBNET`: lease of the node. The file contains the first host of the subnet
    /// (192.168.66.1/24); flanneld reads it back as the subnet.
    pub subnet: Ipv4Network,
}

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
    /// Whether MASQUERADE had `--random-fully`; see [`Flannel::random_fully`].
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
