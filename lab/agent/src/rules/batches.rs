//! Splits the input of iptables-nft into batches that a user namespace may send. For nftables
//! tables see [`svclab_ruleset::nft::split_batches`].
//!
//! iptables-nft sends a table to the kernel in one message. For this message it enlarges its socket
//! buffer with `SO_SNDBUFFORCE` (iptables v1.8.9, `iptables/nft.c`, `mnl_set_sndbuffer`). The
//! kernel allows this option only to root in the initial user namespace (Linux v6.1,
//! `net/core/sock.c`, `sock_setsockopt`). A fallback to `SO_SNDBUF` does not exist. In a user
//! namespace, about 300 rules already fail with "Message too long". Therefore each commit contains
//! a limited number of rules.

use std::borrow::Cow;

use svclab_ruleset::nft;

/// Maximum number of netlink bytes in one commit. The socket buffer has 212,992 bytes unless
/// `net.core.wmem_default` of the host differs.
pub(crate) const MAX_BATCH_BYTES: usize = 156_000;

/// Bytes of a rule with a comment, a set, a mark and a probability.
const RULE_BYTES: usize = 1_300;

/// Bytes of the declaration of an existing chain: the chain, and the deletion of its rules.
const CHAIN_BYTES: usize = 250;

/// Returns the maximum number of netlink bytes for one line of a restore program's input.
pub(crate) const fn netlink_bytes(line: &str) -> usize {
    match line.as_bytes().first() {
        Some(b'-') => RULE_BYTES,
        Some(b':') => CHAIN_BYTES,
        _ => 0,
    }
}

/// Splits `input` into the inputs that `program` receives in sequence. A program that exits at the
/// end of its input is started once for each part.
pub(crate) fn split_for_program<'a>(program: &str, input: &'a str) -> Vec<Cow<'a, str>> {
    match program {
        "nft" => nft::split_batches(input)
            .into_iter()
            .map(Cow::Owned)
            .collect(),
        _ if program.contains("-nft-") => vec![split_commits(input)],
        _ => vec![Cow::Borrowed(input)],
    }
}

/// Inserts a commit wherever a table exceeds [`MAX_BATCH_BYTES`], into the input of a restore
/// program that runs without flushing.
fn split_commits(input: &str) -> Cow<'_, str> {
    if input.lines().map(netlink_bytes).sum::<usize>() <= MAX_BATCH_BYTES {
        return Cow::Borrowed(input);
    }
    let mut batches = String::with_capacity(input.len() + input.len() / 64);
    let (mut table, mut size) = ("", 0);
    for line in input.lines() {
        if line.starts_with('*') {
            (table, size) = (line, 0);
        }
        if size + netlink_bytes(line) > MAX_BATCH_BYTES {
            batches.extend(["COMMIT\n", table, "\n"]);
            size = 0;
        }
        size += netlink_bytes(line);
        batches.extend([line, "\n"]);
    }
    Cow::Owned(batches)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn large_table_is_committed_in_parts() {
        let rules: Vec<String> = (0..250)
            .map(|n| format!("-A A -m mark --mark {n}"))
            .collect();
        let input = format!(
            "*filter\n:F - [0:0]\n-A F -j DROP\nCOMMIT\n*nat\n:A - [0:0]\n{}\nCOMMIT\n",
            rules.join("\n")
        );
        let batches = split_commits(&input);
        let commits = batches.matches("COMMIT\n*nat\n").count();
        assert_eq!(commits, 1 + 2, "{batches}");
        let whole: Vec<&str> = batches
            .lines()
            .filter(|line| line.starts_with('-'))
            .collect();
        assert_eq!(whole.len(), 251);
        assert_eq!(whole[1..], rules);
        for batch in batches.split("COMMIT\n") {
            assert!(batch.lines().map(netlink_bytes).sum::<usize>() <= MAX_BATCH_BYTES);
        }
    }

    #[test]
    fn batches_of_many_chains_are_committed_in_parts() {
        let chains: Vec<String> = (0..2_000).map(|n| format!(":C{n} - [0:0]")).collect();
        let input = format!("*nat\n{}\n-A C0 -j C1\nCOMMIT\n", chains.join("\n"));
        let batches = split_commits(&input);
        assert!(batches.matches("COMMIT\n*nat\n").count() > 2);
        for batch in batches.split("COMMIT\n") {
            assert!(batch.lines().map(netlink_bytes).sum::<usize>() <= MAX_BATCH_BYTES);
        }
        let declared = batches.lines().filter(|line| line.starts_with(':'));
        assert!(declared.eq(&chains));
    }

    #[test]
    fn small_input_is_unchanged() {
        let input = "*nat\n:A - [0:0]\n-A A -j RETURN\nCOMMIT\n";
        assert!(matches!(split_commits(input), Cow::Borrowed(text) if text == input));
    }
}
