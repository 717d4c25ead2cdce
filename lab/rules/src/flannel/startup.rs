//! Models one start of flanneld: computes the iptables calls and the resulting rules from the rules
//! that exist before.

use ipnetwork::Ipv4Network;

use svclab_ruleset::iptables::chains::Chains;
use svclab_ruleset::iptables::command::Command;
use svclab_ruleset::iptables::script::{IptablesScript, Table};

use super::masquerade::{
    FlannelRule, OWN_CHAINS, OWN_FORWARD, OWN_POSTROUTING, forward, masquerade,
};
use super::{Flannel, FlannelError, NodeState, SubnetFile, without_host_bits};
use crate::release::Release;

/// First version that deletes the rules of an earlier lease if network and lease both differ.
const DELETES_OLD_RULES_IF_BOTH_DIFFER: Release = Release::new(0, 11, 0);
/// First version that deletes the rules of an earlier lease if either differs (commit 2092b830).
const DELETES_OLD_RULES_IF_EITHER_DIFFERS: Release = Release::new(0, 25, 2);
/// First version that writes all rules with one `iptables-restore`.
const USES_IPTABLES_RESTORE: Release = Release::new(0, 19, 0);

/// Result of a start of flanneld.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StartResult {
    /// Commands that flanneld passes to iptables, relative to the existing rules.
    pub script: IptablesScript,
    /// State of the node after the start: all existing chains with flanneld's changes, and
    /// flanneld's subnet file. A later flannel reads this state.
    pub state: NodeState,
}

/// Starts flanneld on a node with `lease` and the state `before`.
///
/// A start has up to three steps, first for nat:
///
/// 1. If the subnet file contains another network and lease, flanneld deletes their rules. It uses
///    the spelling of *its own* version, so rules that another version spelled differently remain.
///    v0.11.0 to v0.25.1 do this only if network and lease both changed: a node that returned to
///    its old network with another lease keeps the old rules. v0.25.2 does it if either changed.
/// 2. From v0.20.0 on, flanneld creates or flushes its own chain.
/// 3. Up to v0.18.1: if all its rules exist, flanneld does nothing; otherwise it deletes the
///    existing ones and appends all. From v0.19.0 on: it deletes each existing rule and writes each
///    rule, in one transaction.
///
/// Then steps 2 and 3 follow for the filter rules. Every few seconds flanneld checks its rules, and
/// repeats step 3 if one is missing. This has no effect unless another program deletes a rule.
///
/// Rules of other components remain in place. Surplus rules of an earlier flannel remain too,
/// because flannel does not search for them.
///
/// # Errors
///
/// Returns the same errors as [`Flannel::check`].
pub fn start_flanneld(
    config: &Flannel,
    lease: Ipv4Network,
    before: &NodeState,
) -> Result<StartResult, FlannelError> {
    config.check(lease)?;
    let mut model = StartModel {
        chains: before.chains.clone(),
        script: IptablesScript::new(),
    };
    if config.ip_masq {
        model.delete_old_lease_rules(config, lease, before.subnet_file);
        if config.version >= OWN_CHAINS {
            model.clear_chain(Table::Nat, OWN_POSTROUTING);
        }
        let rules = masquerade(config, Some((config.network, lease)));
        model.write_rules(config.version, &rules);
    }
    let rules = forward(config);
    if config.version >= OWN_CHAINS {
        model.clear_chain(Table::Filter, OWN_FORWARD);
    }
    model.write_rules(config.version, &rules);
    Ok(StartResult {
        script: model.script,
        state: NodeState {
            chains: model.chains,
            subnet_file: Some(SubnetFile {
                network: without_host_bits(config.network),
                subnet: without_host_bits(lease),
            }),
        },
    })
}

/// Chains of the node as they change, and the commands that changed them.
struct StartModel {
    chains: Chains,
    script: IptablesScript,
}

impl StartModel {
    fn delete_old_lease_rules(
        &mut self,
        config: &Flannel,
        lease: Ipv4Network,
        earlier: Option<SubnetFile>,
    ) {
        let networks = earlier.map(|file| {
            (
                without_host_bits(file.network),
                without_host_bits(file.subnet),
            )
        });
        let (other_network, other_lease) = match networks {
            Some((network, subnet)) => (
                network != without_host_bits(config.network),
                subnet != without_host_bits(lease),
            ),
            // Upstream reads a missing file as 0.0.0.0/0, which differs from both.
            None => (true, true),
        };
        let is_deleting = if config.version >= DELETES_OLD_RULES_IF_EITHER_DIFFERS {
            other_network || other_lease
        } else {
            config.version >= DELETES_OLD_RULES_IF_BOTH_DIFFER && other_network && other_lease
        };
        if is_deleting {
            for rule in masquerade(config, networks) {
                // Flushing the chain, next, removes the rules in it.
                if rule.chain != OWN_POSTROUTING && self.has_rule(&rule) {
                    self.delete(&rule);
                }
            }
        }
    }

    fn write_rules(&mut self, version: Release, rules: &[FlannelRule]) {
        let existing: Vec<bool> = rules.iter().map(|rule| self.has_rule(rule)).collect();
        if version >= USES_IPTABLES_RESTORE {
            // Which rules exist is determined before the first change. Then each rule is moved, one
            // after the other.
            for (rule, exists) in rules.iter().zip(existing) {
                if exists {
                    self.delete(rule);
                }
                self.write(rule);
            }
        } else if existing.contains(&false) {
            for rule in rules {
                if self.has_rule(rule) {
                    self.delete(rule);
                }
            }
            for rule in rules {
                // A duplicate rule is written once: AppendUnique.
                if !self.has_rule(rule) {
                    self.write(rule);
                }
            }
        }
    }

    fn clear_chain(&mut self, table: Table, chain: &str) {
        self.script.table_mut(table).declare_chain(chain);
        // Declaring a chain flushes it too, but scripts of several components can be merged into
        // one script that declares all chains first.
        if !self.chains.rules(table, chain).is_empty() {
            self.script.table_mut(table).push(Command::flush(chain));
        }
        self.chains.clear(table, chain);
    }

    fn has_rule(&self, rule: &FlannelRule) -> bool {
        self.chains.has_rule(rule.table, rule.chain, &rule.text)
    }

    fn delete(&mut self, rule: &FlannelRule) {
        self.chains.delete(rule.table, rule.chain, &rule.text);
        self.push(rule, Command::delete);
    }

    fn write(&mut self, rule: &FlannelRule) {
        if rule.is_inserted {
            self.chains.insert(rule.table, rule.chain, &rule.text);
            self.push(rule, Command::insert);
        } else {
            self.chains.append(rule.table, rule.chain, &rule.text);
            self.push(rule, Command::append);
        }
    }

    fn push(&mut self, rule: &FlannelRule, command: fn(&'static str, String) -> Command) {
        let command = command(rule.chain, rule.text.clone());
        self.script.table_mut(rule.table).push(command);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::flannel::EarlierFlannel;

    const SURPLUS: &str = "! -s 192.168.64.0/20 -d 192.168.66.0/24 -j RETURN";
    const EXPECTED_RULES: [&str; 4] = [
        "-s 192.168.64.0/20 -d 192.168.64.0/20 -j RETURN",
        "-s 192.168.64.0/20 ! -d 224.0.0.0/4 -j MASQUERADE",
        "! -s 192.168.64.0/20 -d 192.168.64.0/24 -j RETURN",
        "! -s 192.168.64.0/20 -d 192.168.64.0/20 -j MASQUERADE",
    ];

    fn net(text: &str) -> Ipv4Network {
        text.parse().expect("valid network")
    }

    fn flannel(version: &str, network: &str, random_fully: Option<bool>) -> Flannel {
        let mut config = Flannel::new(version.parse().expect("valid version"), net(network));
        config.random_fully = random_fully;
        config
    }

    fn earlier(version: &str, network: &str, lease: &str, plain: bool) -> EarlierFlannel {
        EarlierFlannel {
            version: version.parse().expect("valid version"),
            network: net(network),
            lease: net(lease),
            random_fully: plain.then_some(false),
            subnet_file: true,
        }
    }

    /// Starts `version` in 192.168.64.0/20 with 192.168.64.0/24 after another flannel. Checks that
    /// the script has the same result as the model.
    fn postrouting_after(version: &str, earlier: &EarlierFlannel) -> Vec<String> {
        let (script, before) = earlier.leftover_state().expect("supported version");
        let plain = earlier.random_fully;
        let config = flannel(version, "192.168.64.0/20", plain);
        let started =
            start_flanneld(&config, net("192.168.64.0/24"), &before).expect("valid configuration");

        let mut one_by_one = Chains::new();
        one_by_one.load(&script).expect("valid script");
        one_by_one.load(&started.script).expect("valid script");
        assert_eq!(
            one_by_one, started.state.chains,
            "scripts loaded separately"
        );

        let mut merged_script = script;
        merged_script.append(started.script);
        let mut merged = Chains::new();
        merged.load(&merged_script).expect("valid script");
        for (table, chain) in [
            (Table::Nat, "POSTROUTING"),
            (Table::Nat, OWN_POSTROUTING),
            (Table::Filter, "FORWARD"),
            (Table::Filter, OWN_FORWARD),
        ] {
            assert_eq!(
                merged.rules(table, chain),
                started.state.chains.rules(table, chain),
                "scripts merged before loading"
            );
        }
        let chain = started.state.chains.rules(Table::Nat, "POSTROUTING");
        chain.to_vec()
    }

    /// Node S2: the same network, another lease.
    #[test]
    fn start_reused_node_keeps_old_return_first() {
        let earlier = earlier("v0.11.0", "192.168.64.0/20", "192.168.66.0/24", true);
        let mut surplus = vec![SURPLUS.to_owned()];
        surplus.extend(EXPECTED_RULES.map(str::to_owned));
        for version in ["v0.9.1", "v0.10.0", "v0.11.0", "v0.12.0", "v0.16.1"] {
            assert_eq!(postrouting_after(version, &earlier), surplus, "{version}");
        }
    }

    #[test]
    fn start_v0_11_deletes_old_rules_only_if_both_differ() {
        let both = earlier("v0.11.0", "10.10.0.0/16", "10.10.3.0/24", true);
        assert_eq!(postrouting_after("v0.11.0", &both), EXPECTED_RULES);
        // Before v0.11.0 no rules were deleted: the four old rules remain in front.
        assert_eq!(postrouting_after("v0.10.0", &both).len(), 8);
        // A change of the network alone is not sufficient.
        let network = earlier("v0.11.0", "192.168.0.0/16", "192.168.64.0/24", true);
        assert_eq!(postrouting_after("v0.11.0", &network).len(), 8);
    }

    #[test]
    fn start_without_subnet_file_keeps_old_rules() {
        let mut both = earlier("v0.11.0", "10.10.0.0/16", "10.10.3.0/24", true);
        both.subnet_file = false;
        assert_eq!(postrouting_after("v0.11.0", &both).len(), 8);
    }

    /// From v0.20.0 on every start flushes the chain. The comparison that v0.25.2 fixed no longer
    /// mattered for the rules in it.
    #[test]
    fn start_own_chain_has_no_surplus_rules() {
        for version in ["v0.20.0", "v0.21.2", "v0.24.4", "v0.25.1", "v0.25.2"] {
            let before = earlier(version, "192.168.64.0/20", "192.168.66.0/24", false);
            let (_, standing) = before.leftover_state().expect("supported version");
            let config = flannel(version, "192.168.64.0/20", None);
            let after = start_flanneld(&config, net("192.168.64.0/24"), &standing)
                .expect("valid configuration");
            let fresh = start_flanneld(&config, net("192.168.64.0/24"), &NodeState::default())
                .expect("valid configuration");
            for chain in ["POSTROUTING", OWN_POSTROUTING] {
                assert_eq!(
                    after.state.chains.rules(Table::Nat, chain),
                    fresh.state.chains.rules(Table::Nat, chain),
                    "{version}"
                );
            }
            assert_eq!(postrouting_after(version, &before).len(), 1, "{version}");
        }
    }

    /// A newer flannel spells its rules differently, so it does not find the old rules, with or
    /// without the fixed comparison.
    #[test]
    fn start_upgrade_keeps_rules_in_other_spelling() {
        let before = earlier("v0.11.0", "10.10.0.0/16", "10.10.3.0/24", false);
        for version in ["v0.16.2", "v0.19.2", "v0.25.1", "v0.25.2"] {
            let chain = postrouting_after(version, &before);
            assert!(
                chain
                    .iter()
                    .any(|rule| rule == "! -s 10.10.0.0/16 -d 10.10.3.0/24 -j RETURN"),
                "{version}: {chain:#?}"
            );
        }
    }

    #[test]
    fn start_twice_has_no_effect() {
        for version in [
            "v0.9.0", "v0.11.0", "v0.16.3", "v0.19.2", "v0.20.0", "v0.28.9",
        ] {
            let config = flannel(version, "192.168.64.0/20", None);
            let lease = net("192.168.64.0/24");
            let first =
                start_flanneld(&config, lease, &NodeState::default()).expect("valid configuration");
            let second = start_flanneld(&config, lease, &first.state).expect("valid configuration");
            assert_eq!(first.state, second.state, "{version}");
            assert!(
                version != "v0.11.0" || second.script.is_empty(),
                "a complete rule set is not rewritten"
            );
        }
    }

    /// v0.19.0 moves its rules behind rules that other components appended.
    #[test]
    fn start_again_from_v0_19_moves_rules_to_end() {
        let lease = net("192.168.64.0/24");
        let first_of = |version| {
            let config = flannel(version, "192.168.64.0/20", None);
            let first =
                start_flanneld(&config, lease, &NodeState::default()).expect("valid configuration");
            let mut standing = first.state;
            standing
                .chains
                .append(Table::Nat, "POSTROUTING", "-j SOMEBODY");
            let second = start_flanneld(&config, lease, &standing).expect("valid configuration");
            second.state.chains.rules(Table::Nat, "POSTROUTING")[0].clone()
        };
        assert_ne!(first_of("v0.17.0"), "-j SOMEBODY");
        assert_eq!(first_of("v0.19.0"), "-j SOMEBODY");
    }

    #[test]
    fn start_without_ip_masq_writes_only_filter_rules() {
        let mut config = flannel("v0.25.1", "192.168.64.0/20", None);
        config.ip_masq = false;
        let started = start_flanneld(&config, net("192.168.64.0/24"), &NodeState::default())
            .expect("valid configuration");
        assert!(
            started
                .script
                .tables()
                .all(|(table, _)| table == Table::Filter)
        );
        assert!(!started.script.is_empty());
    }
}
