//! docker: what dockerd writes in nat for its default bridge.
//!
//! Read in moby/moby v20.10.0, `libnetwork/drivers/bridge/setup_ip_tables.go`
//! and `libnetwork/iptables/iptables.go` (under `vendor/github.com/docker`);
//! v1.13.1 to v28.0.0 write the same nat rules for a bridge without published
//! ports.
//!
//! The filter table is left alone. dockerd's rules there name docker0 on one
//! side or the other, so no pod's packet meets more of them than returns and
//! jumps. What does reach pods is FORWARD's policy: since 1.13 dockerd sets it
//! to DROP, *but only if it was dockerd that switched `net.ipv4.ip_forward` on*
//! (`setup_ip_forwarding.go`; kubernetes/kubernetes#40182). A node
//! of a cluster has forwarding on before dockerd starts, or it has not, and the
//! rules do not tell which. So the policy is the lab's to say, as part of the
//! node, and not a by-product of having docker.

use ipnetwork::Ipv4Network;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use svclab_ruleset::iptables::script::{Script, Table};

/// The name of the default bridge.
pub const BRIDGE: &str = "docker0";

/// How dockerd runs on a node; everything else is at its default, the userland
/// proxy on and masquerading too.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Docker {
    /// `--bip`: the bridge's own address and its network's length.
    #[serde(default = "default_bip")]
    #[schemars(with = "String")]
    pub bip: Ipv4Network,
}

fn default_bip() -> Ipv4Network {
    let address = std::net::Ipv4Addr::new(172, 17, 0, 1);
    // Length 16 is one, so the fallback, a /32, is never taken.
    Ipv4Network::new(address, 16).unwrap_or_else(|_| Ipv4Network::from(address))
}

impl Default for Docker {
    fn default() -> Self {
        Self { bip: default_bip() }
    }
}

/// What dockerd writes when it starts, before any container.
///
/// MASQUERADE is inserted on top of POSTROUTING, the jumps of PREROUTING and
/// OUTPUT are appended: whoever starts first stands first in those two.
#[must_use]
pub fn script(config: &Docker) -> Script {
    let network = format!("{}/{}", config.bip.network(), config.bip.prefix());
    let mut script = Script::new();
    let nat = script.table(Table::Nat);
    nat.chain("DOCKER");
    nat.command(format!(
        "-I POSTROUTING -s {network} ! -o {BRIDGE} -j MASQUERADE"
    ));
    nat.command(format!("-I DOCKER -i {BRIDGE} -j RETURN"));
    nat.command("-A PREROUTING -m addrtype --dst-type LOCAL -j DOCKER");
    // Loopback addresses are left to the userland proxy.
    nat.command("-A OUTPUT ! -d 127.0.0.0/8 -m addrtype --dst-type LOCAL -j DOCKER");
    script
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bridge_of_the_default() {
        let config: Docker = serde_json::from_str("{}").expect("all is optional");
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
    fn masquerades_the_network_of_bip() {
        let config: Docker = serde_json::from_str(r#"{"bip": "11.0.113.1/24"}"#).expect("a bridge");
        assert!(
            script(&config)
                .to_string()
                .contains("-s 11.0.113.0/24 ! -o docker0 -j MASQUERADE")
        );
        assert!(serde_json::from_str::<Docker>(r#"{"bib": "11.0.113.1/24"}"#).is_err());
    }
}
