//! What stands on a node before flanneld starts, and how an earlier flanneld
//! came to leave it.

use ipnetwork::Ipv4Network;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use svclab_ruleset::iptables::script::Script;

use super::{Flannel, FlannelError, start};
use crate::chains::Chains;
use crate::version::Version;

/// What flanneld finds when it starts.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Standing {
    /// The node's rules, everybody's. Only the chains flannel writes to matter;
    /// the others' rules in them decide where flannel's come to stand.
    pub chains: Chains,
    /// `/run/flannel/subnet.env`, if it is there. flanneld reads it before it
    /// writes its own, and so learns which rules an earlier one wrote.
    ///
    /// `/run` is a tmpfs on most hosts: a reboot takes the file *and* the rules.
    /// On a node that was reused without one, the file stays as long as nobody
    /// removes it.
    pub subnet_file: Option<SubnetFile>,
}

/// The two lines of `subnet.env` that a later flanneld looks at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SubnetFile {
    /// `FLANNEL_NETWORK`.
    pub network: Ipv4Network,
    /// `FLANNEL_SUBNET`. The file has the first host of the subnet
    /// (192.168.66.1/24); flanneld reads it back as the subnet.
    pub subnet: Ipv4Network,
}

/// A flannel that ran on the node in an earlier cluster and was killed.
///
/// Hardly any flanneld takes its rules away when it stops: up to v0.24.4 the
/// clean-up is deferred to the end of a function that a signal never lets it
/// reach (`network/iptables.go`, v0.11.0). v0.25.0 to v0.26.7 do clean up on a
/// signal; v0.27.0 stopped doing so. None does when it is killed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct EarlierFlannel {
    /// Which flannel it was.
    pub version: Version,
    /// The network it was configured with.
    #[schemars(with = "String")]
    pub network: Ipv4Network,
    /// The lease the node had.
    #[schemars(with = "String")]
    pub lease: Ipv4Network,
    /// As [`Flannel::random_fully`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub random_fully: Option<bool>,
    /// Whether `/run/flannel/subnet.env` is still there.
    #[serde(default = "yes")]
    pub subnet_file: bool,
}

fn yes() -> bool {
    true
}

impl EarlierFlannel {
    /// The rules it wrote on a node that was new then, and what a flannel that
    /// starts now finds of it.
    ///
    /// # Errors
    ///
    /// As [`start`].
    pub fn left_behind(&self) -> Result<(Script, Standing), FlannelError> {
        let mut config = Flannel::new(self.version, self.network);
        config.random_fully = self.random_fully;
        let started = start(&config, self.lease, &Standing::default())?;
        let mut standing = started.standing;
        if !self.subnet_file {
            standing.subnet_file = None;
        }
        Ok((started.script, standing))
    }
}
