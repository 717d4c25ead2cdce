//! Computes the nat rules and the ipsets that calico's Felix writes on a node with canal.
//!
//! Canal uses flannel for routing and Felix for policy. Felix still manages masquerading, with its
//! own list of pools. This module computes the nat chains and the two sets that they match. The
//! filter, raw and mangle chains that implement policy are out of scope: labs are about services,
//! and an allow-all policy changes no packet.
//!
//! The sources are projectcalico/felix (`rules/static.go`, `rules/nat.go`, `iptables/rules.go`,
//! `ipsets/ipset_defs.go`, `dataplane/linux/masq_mgr.go`) up to v3.21.1 and projectcalico/calico
//! (`felix/…`) from v3.22.0 to v3.32.0. Changes, by the first tag that has them:
//!
//! | tag | change |
//! |---|---|
//! | 2.1.0 | the oldest supported tag; sets are named `cali4-…` |
//! | 3.1.0 | sets are named `cali40…`: a version of the set format follows the family, and `-` was version 0 (commit 947079509) |
//! | v3.2.4 | MASQUERADE has `--random-fully` if iptables (1.6.2) and the kernel (3.14) support it |
//!
//! Therefore `cali4-masq-ipam-pools` in an old dump is not a misprint of `cali40masq-ipam-pools`.
//! The hash in the rule's comment confirms this: it covers the set name, and
//! `cali:Wd76s91357Uv7N3v` is the hash with the older name.
//!
//! Not modelled, because canal does not use them: Felix's own tunnels (IPIP, VXLAN, Wireguard),
//! `natPortRange`, `natOutgoingAddress`, floating addresses, `chainInsertMode: Append`, eBPF.

mod rule_hash;

use ipnetwork::Ipv4Network;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub use rule_hash::rule_hashes;

use svclab_ruleset::Family;
use svclab_ruleset::ipset::{IpsetError, IpsetScript, Set, SetType};
use svclab_ruleset::iptables::chains::Chains;
use svclab_ruleset::iptables::command::Command;
use svclab_ruleset::iptables::script::{IptablesScript, Table};

use crate::release::Release;

const OLDEST: Release = Release::new(2, 1, 0);
const NUMBERED_SETS: Release = Release::new(3, 1, 0);
const RANDOM_FULLY: Release = Release::new(3, 2, 4);

/// Built-in chains of nat from which Felix jumps to its own chains.
const HOOKED_CHAINS: [&str; 3] = ["PREROUTING", "POSTROUTING", "OUTPUT"];

/// Maximum number of entries of a set (`MaxIpsetSize` in Felix).
const MAX_IPSET_SIZE: u32 = 1_048_576;

/// Configuration of Felix on a node, with its pools.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Calico {
    /// Tag of Felix, or of Calico, which contains the Felix of the same number; v2.1.0 or later.
    /// Versions later than v3.32.0 write the same rules as v3.32.0.
    pub version: Release,
    /// `natOutgoing` of the pools. Canal enables it for its pool.
    #[serde(default = "yes")]
    pub nat_outgoing: bool,
    /// Networks of the pools. With canal this should be flannel's network, but no component ensures
    /// that.
    #[schemars(with = "Vec<String>")]
    pub pools: Vec<Ipv4Network>,
    /// Whether MASQUERADE has `--random-fully`. Default: the behaviour of the version on a node
    /// with iptables 1.6.2 or later. `false`: the behaviour on a node with an older iptables.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub random_fully: Option<bool>,
}

fn yes() -> bool {
    true
}

/// Configuration that no Felix supports.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CalicoError {
    /// Version is older than the oldest supported one.
    #[error("calico {0} is not supported: use {OLDEST} or later")]
    TooOld(Release),
    /// `randomFully: true` with a version that lacks the option.
    #[error("calico {0} does not support --random-fully: use {RANDOM_FULLY} or later")]
    NoRandomFully(Release),
    /// Set is invalid.
    #[error("calico: {0}")]
    Set(#[from] IpsetError),
}

impl Calico {
    /// Creates the configuration of a Felix that masquerades traffic of `pools`.
    #[must_use]
    pub fn new(version: Release, pools: Vec<Ipv4Network>) -> Self {
        Self {
            version,
            nat_outgoing: true,
            pools,
            random_fully: None,
        }
    }

    /// Returns the name that Felix gives to the IPv4 set with this identity.
    fn set_name(&self, identity: &str) -> String {
        let token = if self.version < NUMBERED_SETS {
            '-'
        } else {
            '0'
        };
        format!("cali4{token}{identity}")
    }

    /// Returns the name of the set of all pools. The masquerading rule matches destinations outside
    /// this set.
    #[must_use]
    pub fn all_pools_set(&self) -> String {
        self.set_name("all-ipam-pools")
    }

    /// Returns the name of the set of pools whose packets are masqueraded.
    #[must_use]
    pub fn masqueraded_pools_set(&self) -> String {
        self.set_name("masq-ipam-pools")
    }

    /// # Errors
    ///
    /// Returns a [`CalicoError`] for an unsupported version, or for `randomFully` that the version
    /// lacks.
    fn check(&self) -> Result<(), CalicoError> {
        if self.version < OLDEST {
            Err(CalicoError::TooOld(self.version))
        } else if self.random_fully == Some(true) && self.version < RANDOM_FULLY {
            Err(CalicoError::NoRandomFully(self.version))
        } else {
            Ok(())
        }
    }
}

/// Returns the two sets. Felix creates them even if no traffic is masqueraded.
///
/// # Errors
///
/// Returns a [`CalicoError`] for an unsupported version, or for `randomFully` that the version
/// lacks.
pub fn ipsets(config: &Calico) -> Result<IpsetScript, CalicoError> {
    config.check()?;
    let mut all_pools = Set::new(SetType::HashNet, Family::V4).with_maxelem(MAX_IPSET_SIZE);
    let mut masqueraded = all_pools.clone();
    for pool in &config.pools {
        let pool = format!("{}/{}", pool.network(), pool.prefix());
        all_pools.add(pool.clone());
        if config.nat_outgoing {
            masqueraded.add(pool);
        }
    }
    let mut script = IpsetScript::new();
    script.add_set(config.all_pools_set(), all_pools)?;
    script.add_set(config.masqueraded_pools_set(), masqueraded)?;
    Ok(script)
}

/// Returns the nat rules that Felix writes when it starts. Felix inserts its jumps at the top;
/// [`refresh`] computes how it keeps them there.
///
/// # Errors
///
/// Returns a [`CalicoError`] for an unsupported version, or for `randomFully` that the version
/// lacks.
pub fn script(config: &Calico) -> Result<IptablesScript, CalicoError> {
    config.check()?;
    let random = if config
        .random_fully
        .unwrap_or(config.version >= RANDOM_FULLY)
    {
        " --random-fully"
    } else {
        ""
    };
    let outgoing = if config.nat_outgoing && !config.pools.is_empty() {
        vec![format!(
            "-m set --match-set {} src -m set ! --match-set {} dst --jump MASQUERADE{random}",
            config.masqueraded_pools_set(),
            config.all_pools_set(),
        )]
    } else {
        Vec::new()
    };
    let jump = |chain: &str| format!("--jump {chain}");

    let mut script = IptablesScript::new();
    let nat = script.table_mut(Table::Nat);
    for (chain, rules) in [
        // There are no floating addresses: Kubernetes has none for pods.
        ("cali-fip-dnat", vec![]),
        ("cali-fip-snat", vec![]),
        ("cali-PREROUTING", vec![jump("cali-fip-dnat")]),
        (
            "cali-POSTROUTING",
            vec![jump("cali-fip-snat"), jump("cali-nat-outgoing")],
        ),
        ("cali-OUTPUT", vec![jump("cali-fip-dnat")]),
        ("cali-nat-outgoing", outgoing),
    ] {
        nat.declare_chain(chain);
        for rule in with_hashes(chain, &rules) {
            nat.append(chain, rule);
        }
    }
    for chain in HOOKED_CHAINS {
        nat.insert(chain, hook_rule(chain));
    }
    Ok(script)
}

/// Returns the nat rules that Felix writes at a refresh, every `iptablesRefreshInterval` (90 s by
/// default, 60 s in canal's manifest). In each chain in which Felix's jump is not the first rule,
/// Felix moves the jump to the top.
///
/// A component that inserts its rule before the jump, such as a kube-proxy that starts later, is
/// therefore second after at most that interval (`iptables/table.go`, 2.1.0 to v3.21.1).
#[must_use]
pub fn refresh(current: &Chains) -> IptablesScript {
    let mut script = IptablesScript::new();
    for chain in HOOKED_CHAINS {
        let jump = hook_rule(chain);
        let rules = current.rules(Table::Nat, chain);
        let own_jumps = rules.iter().filter(|rule| **rule == jump).count();
        if own_jumps != 1 || rules.first() != Some(&jump) {
            let nat = script.table_mut(Table::Nat);
            for _ in 0..own_jumps {
                nat.push(Command::delete(chain, &jump));
            }
            nat.insert(chain, &jump);
        }
    }
    script
}

/// Returns Felix's jump from a built-in chain.
fn hook_rule(chain: &str) -> String {
    with_hashes(chain, &[format!("--jump cali-{chain}")]).concat()
}

/// Returns the rules of a chain, each with a comment that contains its hash.
fn with_hashes(chain: &str, rules: &[String]) -> Vec<String> {
    rules
        .iter()
        .zip(rule_hashes(chain, rules))
        .map(|(rule, hash)| format!("-m comment --comment \"cali:{hash}\" {rule}"))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn calico(version: &str) -> Calico {
        Calico::new(
            version.parse().expect("valid version"),
            vec!["192.168.64.0/20".parse().expect("valid network")],
        )
    }

    fn commands(config: &Calico) -> Vec<String> {
        let script = script(config).expect("supported version");
        script
            .tables()
            .flat_map(|(_, block)| block.commands.iter().map(ToString::to_string))
            .collect()
    }

    /// Both rules of node S2, with the same hashes and names.
    #[test]
    fn script_old_felix_matches_write_up_rules() {
        for version in ["v2.1.0", "v2.6.8", "v3.0.12"] {
            let commands = commands(&calico(version));
            for rule in [
                "-I POSTROUTING -m comment --comment \"cali:O3lYWMrLQYEMJtB5\" --jump cali-POSTROUTING",
                "-A cali-nat-outgoing -m comment --comment \"cali:Wd76s91357Uv7N3v\" -m set --match-set cali4-masq-ipam-pools src -m set ! --match-set cali4-all-ipam-pools dst --jump MASQUERADE",
            ] {
                assert!(
                    commands.iter().any(|command| command == rule),
                    "{version}: {rule}"
                );
            }
        }
    }

    #[test]
    fn ipsets_from_3_1_have_numbered_names() {
        assert_eq!(calico("v3.0.12").all_pools_set(), "cali4-all-ipam-pools");
        assert_eq!(calico("v3.1.0").all_pools_set(), "cali40all-ipam-pools");
        assert_eq!(
            ipsets(&calico("v3.32.0")).expect("valid sets").to_string(),
            "create cali40all-ipam-pools hash:net family inet maxelem 1048576\n\
             create cali40masq-ipam-pools hash:net family inet maxelem 1048576\n\
             add cali40all-ipam-pools 192.168.64.0/20\n\
             add cali40masq-ipam-pools 192.168.64.0/20\n"
        );
    }

    #[test]
    fn script_v3_8_hash_matches_recorded_dumps() {
        let outgoing = |config: &Calico| {
            commands(config)
                .into_iter()
                .find(|command| command.starts_with("-A cali-nat-outgoing"))
        };
        let later = outgoing(&calico("v3.8.0")).expect("rule with the chain");
        // Dumps of clusters with a recent Calico contain this hash.
        assert!(later.contains("cali:flqWnvo8yq4ULQLa"), "{later}");
        assert!(later.ends_with("--jump MASQUERADE --random-fully"));
        let mut plain = calico("v3.8.0");
        plain.random_fully = Some(false);
        let plain = outgoing(&plain).expect("rule with the chain");
        assert!(plain.contains("cali:Dw4T8UWPnCLxRJiI"), "{plain}");
    }

    #[test]
    fn script_without_nat_outgoing_has_empty_chain() {
        let mut config = calico("v3.8.0");
        config.nat_outgoing = false;
        assert!(
            !commands(&config)
                .iter()
                .any(|command| command.starts_with("-A cali-nat-outgoing"))
        );
        let sets = ipsets(&config).expect("valid sets");
        let entries = |name: String| sets.get(&name).map(|set| set.entries().count());
        assert_eq!(entries(config.all_pools_set()), Some(1));
        assert_eq!(entries(config.masqueraded_pools_set()), Some(0));
    }

    #[test]
    fn refresh_displaced_jump_moves_to_top() {
        let mut chains = Chains::new();
        let start = script(&calico("v3.8.0")).expect("supported version");
        chains.load(&start).expect("valid script");
        assert!(refresh(&chains).is_empty(), "all jumps are at the top");

        chains.insert(Table::Nat, "POSTROUTING", "-j KUBE-POSTROUTING");
        let again = refresh(&chains);
        assert_eq!(
            again
                .to_string()
                .lines()
                .filter(|line| line.contains("OUTPUT"))
                .count(),
            0,
            "a jump at the top is not refreshed"
        );
        chains.load(&again).expect("valid script");
        let rules = chains.rules(Table::Nat, "POSTROUTING");
        assert_eq!(rules.len(), 2);
        assert!(rules[0].contains("cali:O3lYWMrLQYEMJtB5"));
        assert!(
            refresh(&chains).is_empty(),
            "the first refresh restores all jumps"
        );
    }

    #[test]
    fn script_unsupported_config_returns_error() {
        assert!(matches!(
            script(&calico("v1.4.0")),
            Err(CalicoError::TooOld(_))
        ));
        let mut early = calico("v3.2.3");
        early.random_fully = Some(true);
        assert!(matches!(script(&early), Err(CalicoError::NoRandomFully(_))));
        let wrong = r#"{"version": "v3.8.0", "pools": [], "natoutgoing": true}"#;
        assert!(serde_json::from_str::<Calico>(wrong).is_err());
    }
}
