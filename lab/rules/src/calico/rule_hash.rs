//! Computes the hash that Felix writes into the comment of each of its rules, and by which it
//! recognises its rules.
//!
//! The source is projectcalico/felix v3.8.0, `iptables/rules.go`. The hash is the same from 2.1.0
//! to v3.32.0 (`felix/generictables/rules.go` in the latter).

use data_encoding::BASE64URL_NOPAD;
use sha2::{Digest, Sha224};

/// Number of characters of the hash that are kept, 6 bits each.
const HASH_LENGTH: usize = 16;

/// Returns one hash per rule of `chain`, in order.
///
/// `rules` have Felix's spelling after the comment (`--jump`, long options, Felix's order of
/// matches). Each hash covers the previous one, and the first covers the chain name. Therefore a
/// hash identifies a rule *at its position*, and any change to an earlier rule changes the hash.
#[must_use]
pub fn rule_hashes(chain: &str, rules: &[impl AsRef<str>]) -> Vec<String> {
    let mut hash = Sha224::digest(chain);
    rules
        .iter()
        .map(|rule| {
            // The comment would contain the hash itself; the word HASH replaces it.
            let rule_text = format!("-A {chain} HASH {}", rule.as_ref());
            hash = Sha224::new()
                .chain_update(hash)
                .chain_update(rule_text)
                .finalize();
            let mut text = BASE64URL_NOPAD.encode(&hash);
            text.truncate(HASH_LENGTH);
            text
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Hashes from nodes with Calico.
    #[test]
    fn rule_hashes_match_real_nodes() {
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
    fn rule_hashes_depend_on_earlier_rules() {
        let before = rule_hashes("c", &["--jump a", "--jump b"]);
        let after = rule_hashes("c", &["--jump x", "--jump b"]);
        assert_ne!(before[1], after[1]);
    }
}
