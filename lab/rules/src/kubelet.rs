//! Computes the rules that the kubelet writes on a node: rules that drop marked packets, and rules
//! that protect 127.0.0.0/8.
//!
//! Follows `syncNetworkUtil` and `syncIPTablesRules` of kubernetes/kubernetes
//! `pkg/kubelet/kubelet_network_linux.go` (v1.14.0, v1.20 to v1.36).
//!
//! The kubelet starts before kube-proxy. Both write the masquerading rules and, from v1.27, the
//! localnet rule. kube-proxy writes them last, so this module omits them.

use super::kube_proxy::Version;
use super::kube_proxy::history::{KUBELET_CANARY, KUBELET_DROPS, KUBELET_HINT, KUBELET_LOCALNET};
use super::kube_proxy::{Family, chains};
use svclab_ruleset::iptables::script::{IptablesScript, Table};

/// Default bit of the packet mark that requests a drop (`--iptables-drop-bit` of the kubelet).
pub const DROP_BIT: u8 = 15;

/// Returns the rules that a kubelet of `version` writes in `family`. They must be loaded before
/// kube-proxy's rules: [`IptablesScript::append`] adds kube-proxy's script to this one.
///
/// `drop_bit` is 0 to 31 and must differ from kube-proxy's masquerade bit.
#[must_use]
pub fn rules(version: Version, family: Family, drop_bit: u8) -> IptablesScript {
    let mut script = IptablesScript::new();
    if version.has(&KUBELET_CANARY) {
        for table in [Table::Mangle, Table::Nat, Table::Filter] {
            script.table_mut(table).declare_chain("KUBE-KUBELET-CANARY");
        }
    }
    if version.has(&KUBELET_HINT) {
        script
            .table_mut(Table::Mangle)
            .declare_chain("KUBE-IPTABLES-HINT");
    }
    if version.has(&KUBELET_DROPS) {
        let mark = 1_u32.checked_shl(u32::from(drop_bit)).unwrap_or(0);
        let nat = script.table_mut(Table::Nat);
        nat.declare_chain(chains::MARK_DROP);
        nat.append(chains::MARK_DROP, format!("-j MARK --or-mark {mark:#010x}"));

        let firewall = chains::FIREWALL;
        let filter = script.table_mut(Table::Filter);
        filter.declare_chain(firewall);
        filter.append(
            firewall,
            format!(
                "-m comment --comment \"kubernetes firewall for dropping marked packets\" \
                 -m mark --mark {mark:#010x}/{mark:#010x} -j DROP"
            ),
        );
        if version.has(&KUBELET_LOCALNET) && family == Family::V4 {
            filter.append(
                firewall,
                "-m comment --comment \"block incoming localnet connections\" \
                 -d 127.0.0.0/8 ! -s 127.0.0.0/8 \
                 -m conntrack ! --ctstate RELATED,ESTABLISHED,DNAT -j DROP",
            );
        }
        for from in ["OUTPUT", "INPUT"] {
            filter.insert(from, format!("-j {firewall}"));
        }
    }
    script
}

#[cfg(test)]
mod tests {
    use super::*;
    use svclab_ruleset::iptables::{IptablesRules, Rule};

    fn rule_texts(version: &str, family: Family, table: Table, chain: &str) -> Vec<String> {
        let script = rules(version.parse().unwrap(), family, DROP_BIT);
        let dump = IptablesRules::from_script(&script).unwrap();
        let chain = dump.chain(table, chain);
        chain.map_or_else(Vec::new, |c| {
            c.rules.iter().map(Rule::canonical_text).collect()
        })
    }

    #[test]
    fn rules_up_to_1_26_drop_marked_packets() {
        for version in ["v1.14", "v1.20.2", "v1.26"] {
            assert_eq!(
                rule_texts(version, Family::V4, Table::Nat, "KUBE-MARK-DROP"),
                ["-j MARK --set-xmark 0x8000/0x8000"]
            );
            assert_eq!(
                rule_texts(version, Family::V6, Table::Filter, "INPUT"),
                ["-j KUBE-FIREWALL"]
            );
        }
        assert!(rule_texts("v1.27", Family::V4, Table::Nat, "KUBE-MARK-DROP").is_empty());
    }

    #[test]
    fn rules_localnet_guard_from_patch_release_ipv4_only() {
        let count =
            |version, family| rule_texts(version, family, Table::Filter, "KUBE-FIREWALL").len();
        assert_eq!(count("v1.18.3", Family::V4), 1);
        assert_eq!(count("v1.18.4", Family::V4), 2);
        assert_eq!(count("v1.20", Family::V4), 2);
        assert_eq!(count("v1.20", Family::V6), 1);
    }
}
