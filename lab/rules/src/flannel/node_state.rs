//! Defines the state of a node before flanneld starts.

use ipnetwork::Ipv4Network;

use svclab_ruleset::iptables::chains::Chains;

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
