//! Computes the nat rules that dockerd writes for its default bridge.
//!
//! The source is moby/moby v20.10.0, `libnetwork/drivers/bridge/setup_ip_tables.go` and
//! `libnetwork/iptables/iptables.go` (under `vendor/github.com/docker`). v1.13.1 to v28.0.0 write
//! the same nat rules for a bridge without published ports.
//!
//! The filter table is not modelled. dockerd's rules in it match docker0 as input or output
//! interface, so a pod's packet traverses only jumps and returns. Only the policy of FORWARD
//! affects pods. Since 1.13, dockerd sets the policy to DROP, *but only if dockerd itself enabled
//! `net.ipv4.ip_forward`* (`setup_ip_forwarding.go`; kubernetes/kubernetes#40182). Whether a
//! cluster node has forwarding enabled before dockerd starts does not follow from the rules.
//! Therefore the lab sets the policy as part of the node; docker does not change it.

use ipnetwork::Ipv4Network;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use svclab_ruleset::iptables::script::{IptablesScript, Table};

/// Name of the default bridge.
pub const BRIDGE: &str = "docker0";

/// Configuration of dockerd on a node. All other settings have their defaults, including the
/// userland proxy and masquerading.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Docker {
    /// `--bip`: address of the bridge, with the prefix length of its network.
    #[serde(default = "default_bip")]
    #[schemars(with = "String")]
    pub bip: Ipv4Network,
}

fn default_bip() -> Ipv4Network {
    let address = std::net::Ipv4Addr::new(172, 17, 0, 1);
    // Length 16 is valid, so the fallback to a /32 is never used.
    Ipv4Network::new(address, 16).unwrap_or_else(|_| Ipv4Network::from(address))
}

impl Default for Docker {
    fn default() -> Self {
        Self { bip: default_bip() }
    }
}

/// Returns the rules that dockerd writes when it starts, before any container.
///
/// dockerd inserts MASQUERADE at the top of POSTROUTING and appends the jumps of PREROUTING and
/// OUTPUT. In those two chains, the component that starts first has the first rule.
#[must_use]
pub fn script(config: &Docker) -> IptablesScript {
    let network = format!("{}/{}", config.bip.network(), config.bip.prefix());
    let mut script = IptablesScript::new();
    let nat = script.table_mut(Table::Nat);
    nat.declare_chain("DOCKER");
    nat.insert(
        "POSTROUTING",
        format!("-s {network} ! -o {BRIDGE} -j MASQUERADE"),
    );
    nat.insert("DOCKER", format!("-i {BRIDGE} -j RETURN"));
    nat.append("PREROUTING", "-m addrtype --dst-type LOCAL -j DOCKER");
    // The userland proxy handles loopback addresses.
    nat.append(
        "OUTPUT",
        "! -d 127.0.0.0/8 -m addrtype --dst-type LOCAL -j DOCKER",
    );
    script
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn script_default_config_uses_docker0() {
        let config: Docker = serde_json::from_str("{}").expect("all fields are optional");
        assert_eq!(config, Docker::default());
        assert_eq!(
            script(&config).to_string(),
            "*nat\n\
             :DOCKER - [0:0]\n\
             -I POSTROUTING -s 172.17.0.0/16 ! -o docker0 -j MASQUERADE\n\
             -I DOCKER -i docker0 -j RETURN\n\
             -A PREROUTING -m addrtype --dst-type LOCAL -j DOCKER\n\
             -A OUTPUT ! -d 127.0.0.0/8 -m addrtype --dst-type LOCAL -j DOCKER\n\
             COMMIT\n"
        );
    }

    #[test]
    fn script_custom_bip_masquerades_its_network() {
        let config: Docker =
            serde_json::from_str(r#"{"bip": "11.0.113.1/24"}"#).expect("valid bridge address");
        assert!(
            script(&config)
                .to_string()
                .contains("-s 11.0.113.0/24 ! -o docker0 -j MASQUERADE")
        );
        assert!(serde_json::from_str::<Docker>(r#"{"bib": "11.0.113.1/24"}"#).is_err());
    }
}
