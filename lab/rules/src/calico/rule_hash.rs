//! The hash Felix writes into each of its rules' comments, by which it finds
//! them again.
//!
//! Read in projectcalico/felix v3.8.0, `iptables/rules.go`; the same from 2.1.0
//! to v3.32.0 (`felix/generictables/rules.go` there).

use data_encoding::BASE64URL_NOPAD;
use sha2::{Digest, Sha224};

/// How many characters of the hash are kept, 6 bits each.
const LENGTH: usize = 16;

/// One hash a rule of `chain`, in order.
///
/// `rules` are as Felix spells them after the comment (`--jump`, long options,
/// its own order of matches). Each hash covers the one before, and the first
/// covers the chain's name: so a hash names a rule *at its place*, and any
/// change further up changes it.
#[must_use]
pub fn rule_hashes(chain: &str, rules: &[impl AsRef<str>]) -> Vec<String> {
    let mut hash = Sha224::digest(chain);
    rules
        .iter()
        .map(|rule| {
            // The comment would hold the hash itself; a fixed word stands in.
            let spelled = format!("-A {chain} HASH {}", rule.as_ref());
            hash = Sha224::new()
                .chain_update(hash)
                .chain_update(spelled)
                .finalize();
            let mut text = BASE64URL_NOPAD.encode(&hash);
            text.truncate(LENGTH);
            text
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Hashes that any node with Calico shows.
    #[test]
    fn gives_what_nodes_show() {
        for (chain, rules, hashes) in [
            (
                "PREROUTING",
                &["--jump cali-PREROUTING"][..],
                &["6gwbT8clXdHdC1b1"][..],
            ),
            ("OUTPUT", &["--jump cali-OUTPUT"], &["tVnHkvAo15HuiPy0"]),
            (
                "POSTROUTING",
                &["--jump cali-POSTROUTING"],
                &["O3lYWMrLQYEMJtB5"],
            ),
            (
                "cali-PREROUTING",
                &["--jump cali-fip-dnat"],
                &["r6XmIziWUJsdOK6Z"],
            ),
            (
                "cali-OUTPUT",
                &["--jump cali-fip-dnat"],
                &["GBTAv2p5CwevEyJm"],
            ),
            (
                "cali-POSTROUTING",
                &["--jump cali-fip-snat", "--jump cali-nat-outgoing"],
                &["Z-c7XtVd2Bq7s_hA", "nYKhEzDlr11Jccal"],
            ),
        ] {
            assert_eq!(rule_hashes(chain, rules), hashes, "{chain}");
        }
    }

    #[test]
    fn a_change_above_changes_all_below() {
        let before = rule_hashes("c", &["--jump a", "--jump b"]);
        let after = rule_hashes("c", &["--jump x", "--jump b"]);
        assert_ne!(before[1], after[1]);
    }
}
