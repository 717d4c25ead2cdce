//! Computes the rules of one version of flannel, in flannel's order.

use ipnetwork::Ipv4Network;

use svclab_ruleset::iptables::script::Table;

use super::{Flannel, without_host_bits};
use crate::release::Release;

/// Chain of the nat rules from v0.20.0 on.
pub(super) const OWN_POSTROUTING: &str = "FLANNEL-POSTRTG";
/// Chain of the filter rules from v0.20.0 on.
pub(super) const OWN_FORWARD: &str = "FLANNEL-FWD";

const COMMENTS: Release = Release::new(0, 16, 2);
const COMMENT_FIXED: Release = Release::new(0, 17, 0);
const FORWARD_RULES: Release = Release::new(0, 9, 1);
pub(super) const OWN_CHAINS: Release = Release::new(0, 20, 0);
const RETURNS_MARKED: Release = Release::new(0, 20, 2);
const REORDERED: Release = Release::new(0, 21, 0);
const JUMPS_APPENDED: Release = Release::new(0, 21, 3);

/// Rule that flannel checks, deletes and writes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct FlannelRule {
    pub table: Table,
    pub chain: &'static str,
    /// Text after the chain name.
    pub text: String,
    /// Whether the rule is inserted at the top of the chain instead of appended.
    pub is_inserted: bool,
}

impl FlannelRule {
    fn new(table: Table, chain: &'static str, text: String) -> Self {
        Self {
            table,
            chain,
            text,
            is_inserted: false,
        }
    }
}

/// Pod network and the lease of one node. `None` if flannel has no subnet file and so no data about
/// an earlier run.
pub(super) type NetworkAndLease = Option<(Ipv4Network, Ipv4Network)>;

/// Returns the nat rules of a flannel with this network and lease.
///
/// Without them, the result contains only the rules that match no network. In this case upstream
/// writes either an empty network (v0.21.0 to v0.24.4) or 0.0.0.0/0, and no node has rules of this
/// form.
pub(super) fn masquerade(config: &Flannel, networks: NetworkAndLease) -> Vec<FlannelRule> {
    let version = config.version;
    let mut rules = Vec::new();
    if version >= OWN_CHAINS {
        rules.push(FlannelRule {
            is_inserted: version < JUMPS_APPENDED,
            ..FlannelRule::new(
                Table::Nat,
                "POSTROUTING",
                format!("-m comment --comment \"flanneld masq\" -j {OWN_POSTROUTING}"),
            )
        });
    }
    let chain = if version >= OWN_CHAINS {
        OWN_POSTROUTING
    } else {
        "POSTROUTING"
    };
    let comment = if version >= COMMENTS {
        " -m comment --comment \"flanneld masq\""
    } else {
        ""
    };
    if version >= RETURNS_MARKED {
        rules.push(FlannelRule::new(
            Table::Nat,
            chain,
            format!("-m mark --mark 0x4000/0x4000{comment} -j RETURN"),
        ));
    }
    let Some((network, lease)) =
        networks.map(|(network, lease)| (without_host_bits(network), without_host_bits(lease)))
    else {
        return rules;
    };

    let random = if config.is_random_fully() {
        " --random-fully"
    } else {
        ""
    };
    // One comment was mistyped, and only in the branch that writes --random-fully
    // (network/iptables.go, v0.16.2 and v0.16.3).
    let mistyped_comment = if !random.is_empty() && (COMMENTS..COMMENT_FIXED).contains(&version) {
        " -m comment --comment \"flannel masq\""
    } else {
        comment
    };
    let leaving = format!("-s {network} ! -d 224.0.0.0/4{mistyped_comment} -j MASQUERADE{random}");
    let to_own_lease = format!("! -s {network} -d {lease}{comment} -j RETURN");
    let entering = format!("! -s {network} -d {network}{comment} -j MASQUERADE{random}");
    let texts = if version >= REORDERED {
        vec![
            format!("-s {lease} -d {network}{comment} -j RETURN"),
            format!("-s {network} -d {lease}{comment} -j RETURN"),
            to_own_lease,
            leaving,
            entering,
        ]
    } else {
        vec![
            format!("-s {network} -d {network}{comment} -j RETURN"),
            leaving,
            to_own_lease,
            entering,
        ]
    };
    rules.extend(
        texts
            .into_iter()
            .map(|text| FlannelRule::new(Table::Nat, chain, text)),
    );
    rules
}

/// Returns the filter rules. flannel writes them because dockerd since 1.13 can set FORWARD's
/// policy to DROP.
pub(super) fn forward(config: &Flannel) -> Vec<FlannelRule> {
    let version = config.version;
    if version < FORWARD_RULES {
        return Vec::new();
    }
    let mut rules = Vec::new();
    let mut chain = "FORWARD";
    if version >= OWN_CHAINS {
        rules.push(FlannelRule {
            is_inserted: version < JUMPS_APPENDED,
            ..FlannelRule::new(
                Table::Filter,
                chain,
                format!("-m comment --comment \"flanneld forward\" -j {OWN_FORWARD}"),
            )
        });
        chain = OWN_FORWARD;
    }
    let comment = if version >= COMMENTS {
        " -m comment --comment \"flanneld forward\""
    } else {
        ""
    };
    let network = without_host_bits(config.network);
    for side in ["-s", "-d"] {
        rules.push(FlannelRule::new(
            Table::Filter,
            chain,
            format!("{side} {network}{comment} -j ACCEPT"),
        ));
    }
    rules
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(version: &str, random_fully: Option<bool>) -> Vec<String> {
        let network = "192.168.64.0/20".parse().expect("valid network");
        let mut config = Flannel::new(version.parse().expect("valid version"), network);
        config.random_fully = random_fully;
        let lease = "192.168.64.0/24".parse().expect("valid lease");
        masquerade(&config, Some((network, lease)))
            .into_iter()
            .map(|rule| {
                let verb = if rule.is_inserted { "-I" } else { "-A" };
                format!("{verb} {} {}", rule.chain, rule.text)
            })
            .collect()
    }

    #[test]
    fn masquerade_old_versions_write_four_rules() {
        let bare = [
            "-A POSTROUTING -s 192.168.64.0/20 -d 192.168.64.0/20 -j RETURN",
            "-A POSTROUTING -s 192.168.64.0/20 ! -d 224.0.0.0/4 -j MASQUERADE",
            "-A POSTROUTING ! -s 192.168.64.0/20 -d 192.168.64.0/24 -j RETURN",
            "-A POSTROUTING ! -s 192.168.64.0/20 -d 192.168.64.0/20 -j MASQUERADE",
        ];
        assert_eq!(texts("v0.9.0", None), bare);
        assert_eq!(texts("v0.11.0", Some(false)), bare);
        assert_eq!(
            texts("v0.11.0", None)[1],
            format!("{} --random-fully", bare[1])
        );
    }

    #[test]
    fn masquerade_v0_16_2_has_mistyped_comment() {
        let second = |version, random| texts(version, random)[1].clone();
        assert!(second("v0.16.3", None).contains("\"flannel masq\""));
        assert!(second("v0.16.3", Some(false)).contains("\"flanneld masq\""));
        assert!(second("v0.17.0", None).contains("\"flanneld masq\""));
        assert!(!second("v0.16.1", None).contains("comment"));
    }

    #[test]
    fn masquerade_from_v0_20_uses_own_chain() {
        assert_eq!(
            texts("v0.25.1", None),
            [
                "-A POSTROUTING -m comment --comment \"flanneld masq\" -j FLANNEL-POSTRTG",
                "-A FLANNEL-POSTRTG -m mark --mark 0x4000/0x4000 -m comment --comment \"flanneld masq\" -j RETURN",
                "-A FLANNEL-POSTRTG -s 192.168.64.0/24 -d 192.168.64.0/20 -m comment --comment \"flanneld masq\" -j RETURN",
                "-A FLANNEL-POSTRTG -s 192.168.64.0/20 -d 192.168.64.0/24 -m comment --comment \"flanneld masq\" -j RETURN",
                "-A FLANNEL-POSTRTG ! -s 192.168.64.0/20 -d 192.168.64.0/24 -m comment --comment \"flanneld masq\" -j RETURN",
                "-A FLANNEL-POSTRTG -s 192.168.64.0/20 ! -d 224.0.0.0/4 -m comment --comment \"flanneld masq\" -j MASQUERADE --random-fully",
                "-A FLANNEL-POSTRTG ! -s 192.168.64.0/20 -d 192.168.64.0/20 -m comment --comment \"flanneld masq\" -j MASQUERADE --random-fully",
            ]
        );
        assert!(texts("v0.20.0", None)[0].starts_with("-I POSTROUTING"));
        assert!(texts("v0.21.2", None)[0].starts_with("-I POSTROUTING"));
        assert!(texts("v0.21.3", None)[0].starts_with("-A POSTROUTING"));
        let has_mark = |version| {
            texts(version, None)
                .iter()
                .any(|rule| rule.contains("mark"))
        };
        assert!(!has_mark("v0.20.1") && has_mark("v0.20.2"));
    }

    #[test]
    fn forward_rules_depend_on_version() {
        let rules = |version: &str| {
            forward(&Flannel::new(
                version.parse().expect("valid version"),
                "10.244.0.0/16".parse().expect("valid network"),
            ))
        };
        assert!(rules("v0.9.0").is_empty());
        assert_eq!(rules("v0.9.1")[0].text, "-s 10.244.0.0/16 -j ACCEPT");
        assert_eq!(rules("v0.20.0")[0].chain, "FORWARD");
        assert!(rules("v0.20.0")[0].is_inserted && !rules("v0.21.3")[0].is_inserted);
        assert_eq!(rules("v0.20.0")[2].chain, OWN_FORWARD);
    }

    #[test]
    fn masquerade_host_bits_are_removed() {
        let mut config = Flannel::new(
            Release::new(0, 10, 0),
            "192.168.64.1/20".parse().expect("valid network"),
        );
        config.ip_masq = true;
        let networks = Some((
            config.network,
            "192.168.64.1/24".parse().expect("valid lease"),
        ));
        assert_eq!(
            masquerade(&config, networks)[2].text,
            "! -s 192.168.64.0/20 -d 192.168.64.0/24 -j RETURN"
        );
    }
}
