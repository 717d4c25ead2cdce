//! The kubelet's share of a node's rules: dropping what kube-proxy marked.
//!
//! kubernetes `pkg/kubelet/kubelet_network_linux.go`, `syncNetworkUtil`, at
//! v1.14.0 and v1.20.0. It also makes `KUBE-MARK-MASQ` and `KUBE-POSTROUTING`,
//! with the same rules as kube-proxy; they are written once, by the latter.
//!
//! `KUBE-FIREWALL` is met on INPUT and OUTPUT only. A packet that was marked on
//! its way *through* the node, such as a pod's to a load balancer without local
//! endpoints, is not dropped by it.

use super::kube_proxy::Family;
use super::kube_proxy::version::{Change, Version};
use super::script::{Script, Table};

/// The kubelet keeps `KUBE-MARK-DROP` and the rule that drops what it marks.
/// From v1.27 the gate `IPTablesOwnershipCleanup` is on (KEP-3178) and what is
/// left of `KUBE-FIREWALL` is the same rule that kube-proxy writes.
const OWNS_DROP: Change = Change::until(26);

/// Packets from elsewhere to 127.0.0.0/8 are dropped (#91569, in v1.19.0 and the
/// patch releases v1.18.4, v1.17.7 and v1.16.11).
const BLOCKS_LOCALNET: Change = Change::between(16, 26);

/// What the kubelet of that version, which is its kube-proxy's, writes.
#[must_use]
pub fn script(version: Version, family: Family) -> Script {
    let mut script = Script::new();
    if !version.has(&OWNS_DROP) {
        return script;
    }
    let nat = script.table(Table::Nat);
    nat.chain("KUBE-MARK-DROP");
    nat.command("-A KUBE-MARK-DROP -j MARK --set-xmark 0x8000/0x8000");
    let filter = script.table(Table::Filter);
    filter.chain("KUBE-FIREWALL");
    filter.command(
        "-A KUBE-FIREWALL -m comment --comment \"kubernetes firewall for dropping marked packets\" \
         -m mark --mark 0x8000/0x8000 -j DROP",
    );
    if version.has(&BLOCKS_LOCALNET) && family == Family::V4 {
        filter.command(
            "-A KUBE-FIREWALL ! -s 127.0.0.0/8 -d 127.0.0.0/8 -m comment --comment \"block incoming localnet connections\" \
             -m conntrack ! --ctstate RELATED,ESTABLISHED,DNAT -j DROP",
        );
    }
    filter.command("-I OUTPUT -j KUBE-FIREWALL");
    filter.command("-I INPUT -j KUBE-FIREWALL");
    script
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_ends_on_the_node_is_dropped() {
        let text = script("v1.20".parse().unwrap(), Family::V4).to_string();
        assert!(
            text.contains("-I INPUT -j KUBE-FIREWALL")
                && text.contains("-I OUTPUT -j KUBE-FIREWALL")
        );
        assert!(!text.contains("FORWARD"));
    }

    #[test]
    fn later_kubelets_leave_it_to_kube_proxy() {
        assert!(script("v1.27".parse().unwrap(), Family::V4).is_empty());
        assert!(
            !script("v1.14".parse().unwrap(), Family::V4)
                .to_string()
                .contains("localnet")
        );
    }
}
