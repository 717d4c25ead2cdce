//! Rules of iptables-nft in batches that a user namespace may send; for tables of nftables
//! see [`nft::batches`].
//!
//! iptables-nft hands a table to the kernel in one message, for which it enlarges its
//! socket's buffer by `SO_SNDBUFFORCE` (iptables v1.8.9, `iptables/nft.c`,
//! `mnl_set_sndbuffer`). The kernel grants that to the machine's own root alone
//! (Linux v6.1, `net/core/sock.c`, `sock_setsockopt`), and there is no second try
//! with `SO_SNDBUF`: in a user namespace, some 300 rules are refused with "Message
//! too long". So a table is committed so many rules at a time.

use std::borrow::Cow;

use svclab_ruleset::nft;

/// The most bytes of netlink that are committed at once. The buffer has 212,992 unless the
/// machine's `net.core.wmem_default` says otherwise.
pub const LIMIT: usize = 156_000;

/// Bytes of a rule with a comment, a set, a mark and a probability.
const RULE: usize = 1_300;

/// Bytes of the declaration of a chain that exists: the chain, and the deletion of its
/// rules.
const CHAIN: usize = 250;

/// Bytes of netlink, at most, of a line of a restore program's input.
pub const fn weight(line: &str) -> usize {
    match line.as_bytes().first() {
        Some(b'-') => RULE,
        Some(b':') => CHAIN,
        _ => 0,
    }
}

/// What `program` is given of `input`, one after the other. A program that ends with its
/// input is started for each.
pub fn for_program<'a>(program: &str, input: &'a str) -> Vec<Cow<'a, str>> {
    match program {
        "nft" => nft::batches(input).into_iter().map(Cow::Owned).collect(),
        _ if program.contains("-nft-") => vec![of(input)],
        _ => vec![Cow::Borrowed(input)],
    }
}

/// A restore program's input, for a program that flushes nothing, with a commit
/// wherever a table grows too large.
fn of(input: &str) -> Cow<'_, str> {
    if input.lines().map(weight).sum::<usize>() <= LIMIT {
        return Cow::Borrowed(input);
    }
    let mut batches = String::with_capacity(input.len() + input.len() / 64);
    let (mut table, mut size) = ("", 0);
    for line in input.lines() {
        if line.starts_with('*') {
            (table, size) = (line, 0);
        }
        if size + weight(line) > LIMIT {
            batches.extend(["COMMIT\n", table, "\n"]);
            size = 0;
        }
        size += weight(line);
        batches.extend([line, "\n"]);
    }
    Cow::Owned(batches)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_large_table_is_committed_in_parts_and_nothing_else_changes() {
        let rules: Vec<String> = (0..250)
            .map(|n| format!("-A A -m mark --mark {n}"))
            .collect();
        let input = format!(
            "*filter\n:F - [0:0]\n-A F -j DROP\nCOMMIT\n*nat\n:A - [0:0]\n{}\nCOMMIT\n",
            rules.join("\n")
        );
        let batches = of(&input);
        let commits = batches.matches("COMMIT\n*nat\n").count();
        assert_eq!(commits, 1 + 2, "{batches}");
        let whole: Vec<&str> = batches
            .lines()
            .filter(|line| line.starts_with('-'))
            .collect();
        assert_eq!(whole.len(), 251);
        assert_eq!(whole[1..], rules);
        for batch in batches.split("COMMIT\n") {
            assert!(batch.lines().map(weight).sum::<usize>() <= LIMIT);
        }
    }

    #[test]
    fn batches_of_many_chains_are_committed_in_parts() {
        let chains: Vec<String> = (0..2_000).map(|n| format!(":C{n} - [0:0]")).collect();
        let input = format!("*nat\n{}\n-A C0 -j C1\nCOMMIT\n", chains.join("\n"));
        let batches = of(&input);
        assert!(batches.matches("COMMIT\n*nat\n").count() > 2);
        for batch in batches.split("COMMIT\n") {
            assert!(batch.lines().map(weight).sum::<usize>() <= LIMIT);
        }
        let declared = batches.lines().filter(|line| line.starts_with(':'));
        assert!(declared.eq(&chains));
    }

    #[test]
    fn what_is_small_stays_as_it_is() {
        let input = "*nat\n:A - [0:0]\n-A A -j RETURN\nCOMMIT\n";
        assert!(matches!(of(input), Cow::Borrowed(text) if text == input));
    }
}
