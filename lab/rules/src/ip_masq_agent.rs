//! Computes the chain of ip-masq-agent, which lists the destinations for which a pod's packet keeps
//! its source address.
//!
//! The source is kubernetes-sigs/ip-masq-agent, `cmd/ip-masq-agent/ip-masq-agent.go`. Changes, by
//! the first tag that has them:
//!
//! | tag | change |
//! |---|---|
//! | v0.4.0 | each rule repeats the jump's `! --dst-type LOCAL` |
//! | v2.0.1 | the rules no longer repeat it, and have shorter comments |
//! | v2.10.0 | MASQUERADE has `--random-fully`; the jump's comment contains quotation marks, by mistake |
//! | v2.11.0 | `--random-fully=false` omits the option |
//! | v2.12.2 | the jump's comment is correct again |
//!
//! `--to-ports` (v2.12.0), other chain names and IPv6 are not modelled.

use ipnetwork::Ipv4Network;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use svclab_ruleset::iptables::script::{IptablesScript, Table};

use crate::release::Release;

/// Name of the chain in nat.
pub const CHAIN: &str = "IP-MASQ-AGENT";

/// Maximum number of networks that the agent accepts, not counting link-local.
pub const MAX_NETWORKS: usize = 64;

const LINK_LOCAL: &str = "169.254.0.0/16";
const SHORT_COMMENTS: Release = Release::new(2, 0, 1);
const RANDOM_FULLY: Release = Release::new(2, 10, 0);
const QUOTED_COMMENT_FIXED: Release = Release::new(2, 12, 2);

/// Configuration of ip-masq-agent: its version and its config map.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct IpMasqAgent {
    /// Tag of the agent. Versions later than v2.12.6 write the same rules as v2.12.6.
    #[serde(default = "default_version")]
    pub version: Release,
    /// Destinations for which a packet keeps its source address. Default: the three private
    /// networks of RFC 1918. An empty list masquerades all traffic that is not local to the node.
    #[serde(default = "private_networks", rename = "nonMasqueradeCIDRs")]
    #[schemars(with = "Vec<String>")]
    pub non_masquerade_cidrs: Vec<Ipv4Network>,
    /// Whether to masquerade traffic to link-local destinations too.
    #[serde(default)]
    pub masq_link_local: bool,
}

fn default_version() -> Release {
    Release::new(2, 12, 6)
}

fn private_networks() -> Vec<Ipv4Network> {
    [
        ([10, 0, 0, 0], 8),
        ([172, 16, 0, 0], 12),
        ([192, 168, 0, 0], 16),
    ]
    .into_iter()
    .filter_map(|(address, prefix)| Ipv4Network::new(address.into(), prefix).ok())
    .collect()
}

impl Default for IpMasqAgent {
    fn default() -> Self {
        Self {
            version: default_version(),
            non_masquerade_cidrs: private_networks(),
            masq_link_local: false,
        }
    }
}

/// Config map that the agent rejects. The agent logs the error and does not change the rules.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum IpMasqAgentError {
    /// Config map has more networks than the agent accepts ([`MAX_NETWORKS`]).
    #[error("ip-masq-agent: nonMasqueradeCIDRs has {0} networks, the maximum is {MAX_NETWORKS}")]
    TooMany(usize),
    /// Network has host bits set.
    #[error("ip-masq-agent: nonMasqueradeCIDRs: {0} has host bits set; write {network}/{prefix}",
            network = .0.network(), prefix = .0.prefix())]
    HostBits(Ipv4Network),
}

/// Returns the rules that the agent writes when it starts: the jump at the end of POSTROUTING, and
/// the chain.
///
/// # Errors
///
/// Returns an [`IpMasqAgentError`] for a config map that the agent rejects.
pub fn script(config: &IpMasqAgent) -> Result<IptablesScript, IpMasqAgentError> {
    let networks = &config.non_masquerade_cidrs;
    if networks.len() > MAX_NETWORKS {
        return Err(IpMasqAgentError::TooMany(networks.len()));
    }
    if let Some(network) = networks.iter().find(|cidr| cidr.ip() != cidr.network()) {
        return Err(IpMasqAgentError::HostBits(*network));
    }

    let version = config.version;
    let quote = if (RANDOM_FULLY..QUOTED_COMMENT_FIXED).contains(&version) {
        "\\\""
    } else {
        ""
    };
    let mut script = IptablesScript::new();
    let nat = script.table_mut(Table::Nat);
    nat.declare_chain(CHAIN);
    nat.append(
        "POSTROUTING",
        format!(
            "-m comment --comment \"{quote}ip-masq-agent: ensure nat POSTROUTING \
         directs all non-LOCAL destination traffic to our custom {CHAIN} chain{quote}\" \
         -m addrtype ! --dst-type LOCAL -j {CHAIN}"
        ),
    );
    let (return_matches, masquerade_matches) = if version < SHORT_COMMENTS {
        (
            "-m comment --comment \"ip-masq-agent: cluster-local traffic should not be subject \
             to MASQUERADE\" -m addrtype ! --dst-type LOCAL",
            "-m comment --comment \"ip-masq-agent: outbound traffic should be subject to \
             MASQUERADE (this match must come after cluster-local CIDR matches)\" \
             -m addrtype ! --dst-type LOCAL",
        )
    } else {
        (
            "-m comment --comment \"ip-masq-agent: local traffic is not subject to MASQUERADE\"",
            "-m comment --comment \"ip-masq-agent: outbound traffic is subject to MASQUERADE \
             (must be last in chain)\"",
        )
    };
    let link_local = (!config.masq_link_local).then(|| LINK_LOCAL.to_owned());
    let networks = networks.iter().map(Ipv4Network::to_string);
    for network in link_local.into_iter().chain(networks) {
        nat.append(CHAIN, format!("{return_matches} -d {network} -j RETURN"));
    }
    let random = if version >= RANDOM_FULLY {
        " --random-fully"
    } else {
        ""
    };
    nat.append(CHAIN, format!("{masquerade_matches} -j MASQUERADE{random}"));
    Ok(script)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(json: &str) -> IpMasqAgent {
        serde_json::from_str(json).expect("valid config")
    }

    fn commands(config: &IpMasqAgent) -> Vec<String> {
        let script = script(config).expect("valid config");
        script
            .tables()
            .flat_map(|(_, block)| block.commands.iter().map(ToString::to_string))
            .collect()
    }

    /// Rules of node S0, without the damage in its dump: two networks, no link-local.
    #[test]
    fn script_v2_0_0_repeats_local_match() {
        let commands = commands(&config(
            r#"{"version": "v2.0.0", "masqLinkLocal": true,
                "nonMasqueradeCIDRs": ["172.17.0.0/16", "172.18.0.0/16"]}"#,
        ));
        assert_eq!(
            commands,
            [
                "-A POSTROUTING -m comment --comment \"ip-masq-agent: ensure nat POSTROUTING directs all non-LOCAL destination traffic to our custom IP-MASQ-AGENT chain\" -m addrtype ! --dst-type LOCAL -j IP-MASQ-AGENT",
                "-A IP-MASQ-AGENT -m comment --comment \"ip-masq-agent: cluster-local traffic should not be subject to MASQUERADE\" -m addrtype ! --dst-type LOCAL -d 172.17.0.0/16 -j RETURN",
                "-A IP-MASQ-AGENT -m comment --comment \"ip-masq-agent: cluster-local traffic should not be subject to MASQUERADE\" -m addrtype ! --dst-type LOCAL -d 172.18.0.0/16 -j RETURN",
                "-A IP-MASQ-AGENT -m comment --comment \"ip-masq-agent: outbound traffic should be subject to MASQUERADE (this match must come after cluster-local CIDR matches)\" -m addrtype ! --dst-type LOCAL -j MASQUERADE",
            ]
        );
    }

    #[test]
    fn script_default_config_returns_private_networks() {
        let commands = commands(&config("{}"));
        let returns: Vec<_> = commands
            .iter()
            .filter(|command| command.ends_with("-j RETURN"))
            .filter_map(|command| command.split_whitespace().rev().nth(2))
            .collect();
        assert_eq!(
            returns,
            [
                "169.254.0.0/16",
                "10.0.0.0/8",
                "172.16.0.0/12",
                "192.168.0.0/16"
            ]
        );
        assert_eq!(
            commands.last().map(String::as_str),
            Some(
                "-A IP-MASQ-AGENT -m comment --comment \"ip-masq-agent: outbound traffic is \
                 subject to MASQUERADE (must be last in chain)\" -j MASQUERADE --random-fully"
            )
        );
    }

    #[test]
    fn schema_fields_have_config_map_names() {
        let schema = schemars::schema_for!(IpMasqAgent);
        let properties = schema.get("properties").expect("the schema has properties");
        for (name, kind) in [
            ("nonMasqueradeCIDRs", "array"),
            ("masqLinkLocal", "boolean"),
        ] {
            assert_eq!(properties[name]["type"], kind, "{name}");
        }
        assert_eq!(
            schema.get("additionalProperties"),
            Some(&serde_json::Value::Bool(false))
        );
    }

    #[test]
    fn script_v2_10_to_v2_12_1_quotes_comment() {
        let jump =
            |version| commands(&config(&format!(r#"{{"version": "{version}"}}"#)))[0].clone();
        assert!(!jump("v2.9.3").contains("\\\""));
        assert!(jump("v2.10.0").contains("--comment \"\\\"ip-masq-agent: ensure"));
        assert!(jump("v2.12.1").contains("chain\\\"\""));
        assert!(!jump("v2.12.2").contains("\\\""));
    }

    #[test]
    fn script_empty_list_masquerades_all_traffic() {
        let commands = commands(&config(
            r#"{"nonMasqueradeCIDRs": [], "masqLinkLocal": true}"#,
        ));
        assert_eq!(commands.len(), 2);
        assert!(commands[1].contains("-j MASQUERADE"));
    }

    #[test]
    fn script_invalid_config_map_returns_error() {
        let host_bits = config(r#"{"nonMasqueradeCIDRs": ["10.0.0.1/8"]}"#);
        let error = script(&host_bits).expect_err("host bits");
        assert!(error.to_string().ends_with("write 10.0.0.0/8"), "{error}");
        let many = IpMasqAgent {
            non_masquerade_cidrs: vec![
                "10.0.0.0/8".parse().expect("valid network");
                MAX_NETWORKS + 1
            ],
            ..IpMasqAgent::default()
        };
        assert!(matches!(script(&many), Err(IpMasqAgentError::TooMany(65))));
    }
}
