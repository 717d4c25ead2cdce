//! Computes the rules that a flanneld of a given version writes on a node when it starts, and the
//! rules that remain when it is killed.
//!
//! The source is flannel-io/flannel: `network/iptables.go` and `main.go` up to v0.20.2,
//! `pkg/iptables/iptables.go` from v0.21.0 to v0.24.2, and `pkg/trafficmngr/iptables/iptables.go`
//! from v0.24.3 on. Changes, by the first tag that has them:
//!
//! | tag | change |
//! |---|---|
//! | v0.9.0 | four rules at the end of nat POSTROUTING, checked periodically: if one is missing, flanneld deletes all of its rules and appends them again |
//! | v0.9.1 | two rules in filter FORWARD that accept the network |
//! | v0.11.0 | `--random-fully` if the node's iptables supports it (1.6.2); flanneld deletes the rules of the previous lease when it starts, but only if network *and* lease differ |
//! | v0.16.2 | every rule has a comment, `flanneld masq` or `flanneld forward`; until v0.17.0 one comment is `flannel masq` by mistake, and only with `--random-fully` |
//! | v0.19.0 | one `iptables-restore` instead of single calls: existing rules are moved to the end, on every start |
//! | v0.20.0 | chains of its own, FLANNEL-POSTRTG and FLANNEL-FWD, flushed on start; the jumps are inserted at the top |
//! | v0.20.2 | packets with kube-proxy's mark 0x4000 return before all other rules |
//! | v0.21.0 | other rules in another order: returns for traffic from and to this node's lease first, then traffic from outside |
//! | v0.21.3 | the jumps are appended, no longer inserted |
//! | v0.25.2 | flanneld deletes the rules of the previous lease if network *or* lease differ |
//!
//! v0.25.0 added a second backend, nftables, which is off by default and not modelled. IPv6 rules
//! (from v0.15.0) are not modelled either.

mod leftovers;
mod masquerade;
mod node_state;
mod startup;
mod vxlan;

use ipnetwork::Ipv4Network;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub use leftovers::EarlierFlannel;
pub use node_state::{NodeState, SubnetFile};
pub use startup::{StartResult, start_flanneld};
pub use vxlan::{Lease, OVERHEAD as VXLAN_OVERHEAD, Overlay, Peer, overlay};

use super::release::Release;

/// Oldest supported version.
const OLDEST: Release = Release::new(0, 9, 0);
/// First version that writes `--random-fully`.
const RANDOM_FULLY: Release = Release::new(0, 11, 0);
/// First version whose rules without `--random-fully` end in an empty argument, which iptables
/// rejects. [`PLAIN_WORKS`] is the first fixed version.
const PLAIN_BROKEN: Release = Release::new(0, 21, 0);
/// First version with the fix for [`PLAIN_BROKEN`].
const PLAIN_WORKS: Release = Release::new(0, 21, 4);

/// Configuration of flannel on a node: its flags and its `net-conf.json`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Flannel {
    /// Tag of flannel, v0.9.0 or later. Versions later than v0.28.9 write the same rules as
    /// v0.28.9.
    pub version: Release,
    /// `Network`: network of all pods of the cluster.
    #[schemars(with = "String")]
    pub network: Ipv4Network,
    /// `--ip-masq`: whether flannel writes nat rules. flanneld's own default is `false`, but every
    /// manifest sets it.
    #[serde(default = "yes")]
    pub ip_masq: bool,
    /// `Backend.VNI`: VXLAN network identifier, and the number in the interface name.
    #[serde(default = "default_vni")]
    pub vni: u32,
    /// `Backend.Port`: UDP port of VXLAN. 8472 is the Linux default if flannel requests no port.
    #[serde(default = "default_port")]
    pub port: u16,
    /// Whether MASQUERADE has `--random-fully`. Default: the behaviour of the version on a node
    /// with iptables 1.6.2 or later, so `true` from v0.11.0 on. `false`: the behaviour on a node
    /// with an older iptables, like `CentOS` 7's 1.4.21, or with `--ip-masq-fully-random-disable`
    /// (v0.27.4).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub random_fully: Option<bool>,
}

fn yes() -> bool {
    true
}

fn default_vni() -> u32 {
    1
}

fn default_port() -> u16 {
    8472
}

/// Configuration that no flannel supports.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FlannelError {
    /// Version is older than the oldest supported one.
    #[error("flannel {0} is not supported: use {OLDEST} or later")]
    TooOld(Release),
    /// Lease is not in the network.
    #[error("flannel: lease {lease} is not in network {network}")]
    LeaseOutside {
        /// Lease of the node.
        lease: Ipv4Network,
        /// Network that must contain the lease.
        network: Ipv4Network,
    },
    /// `randomFully: true` with a version that lacks the option.
    #[error("flannel {0} does not support --random-fully: use {RANDOM_FULLY} or later")]
    NoRandomFully(Release),
    /// `randomFully: false` with a version whose rules are then invalid.
    #[error(
        "flannel {0} cannot write its rules without --random-fully: \
         iptables rejects the empty argument in its place (fixed in {PLAIN_WORKS})"
    )]
    NonRandomBroken(Release),
}

impl Flannel {
    /// Creates a configuration with every default.
    #[must_use]
    pub fn new(version: Release, network: Ipv4Network) -> Self {
        Self {
            version,
            network,
            ip_masq: true,
            vni: default_vni(),
            port: default_port(),
            random_fully: None,
        }
    }

    /// Whether MASQUERADE has `--random-fully`.
    fn is_random_fully(&self) -> bool {
        self.random_fully.unwrap_or(self.version >= RANDOM_FULLY)
    }

    /// Checks that a flannel with this configuration can run on the node that has `lease`.
    ///
    /// # Errors
    ///
    /// Returns a [`FlannelError`] for an unsupported version, a lease outside the network, or a
    /// `randomFully` that the version lacks.
    pub fn check(&self, lease: Ipv4Network) -> Result<(), FlannelError> {
        if self.version < OLDEST {
            return Err(FlannelError::TooOld(self.version));
        }
        if !lease.is_subnet_of(self.network) {
            return Err(FlannelError::LeaseOutside {
                lease,
                network: self.network,
            });
        }
        match self.random_fully {
            Some(true) if self.version < RANDOM_FULLY => {
                Err(FlannelError::NoRandomFully(self.version))
            }
            Some(false) if (PLAIN_BROKEN..PLAIN_WORKS).contains(&self.version) => {
                Err(FlannelError::NonRandomBroken(self.version))
            }
            _ => Ok(()),
        }
    }
}

/// Returns a network without host bits, as flannel keeps every CIDR that it reads
/// (`pkg/ip/ipnet.go`, v0.11.0).
fn without_host_bits(network: Ipv4Network) -> Ipv4Network {
    // The prefix comes from a valid network, so it cannot be out of range.
    Ipv4Network::new(network.network(), network.prefix()).unwrap_or(network)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(version: &str) -> Flannel {
        Flannel::new(
            version.parse().expect("valid version"),
            "192.168.64.0/20".parse().expect("valid network"),
        )
    }

    #[test]
    fn flannel_minimal_json_has_defaults() {
        let config: Flannel =
            serde_json::from_str(r#"{"version": "v0.25.1", "network": "10.244.0.0/16"}"#)
                .expect("two fields are sufficient");
        assert!(config.ip_masq && config.is_random_fully());
        assert_eq!((config.vni, config.port), (1, 8472));
        let wrong = r#"{"version": "v0.25.1", "network": "10.244.0.0/16", "ipmasq": true}"#;
        assert!(serde_json::from_str::<Flannel>(wrong).is_err());
    }

    #[test]
    fn flannel_random_fully_depends_on_version() {
        assert!(!config("v0.10.0").is_random_fully());
        assert!(config("v0.11.0").is_random_fully());
    }

    #[test]
    fn check_unsupported_config_returns_error() {
        let lease: Ipv4Network = "192.168.64.0/24".parse().expect("valid lease");
        assert_eq!(config("v0.25.1").check(lease), Ok(()));
        assert!(matches!(
            config("v0.8.0").check(lease),
            Err(FlannelError::TooOld(_))
        ));
        let outside = "10.0.0.0/24".parse().expect("valid lease");
        assert!(matches!(
            config("v0.25.1").check(outside),
            Err(FlannelError::LeaseOutside { .. })
        ));
        let mut early = config("v0.10.0");
        early.random_fully = Some(true);
        assert!(matches!(
            early.check(lease),
            Err(FlannelError::NoRandomFully(_))
        ));
        for (version, is_accepted) in [("v0.20.2", true), ("v0.21.3", false), ("v0.21.4", true)] {
            let mut plain = config(version);
            plain.random_fully = Some(false);
            assert_eq!(plain.check(lease).is_ok(), is_accepted, "{version}");
        }
    }
}
