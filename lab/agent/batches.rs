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

use crate::dump::nft;

/// How many rules are committed at once. The buffer has 212,992 bytes unless the
/// machine's `net.core.wmem_default` says otherwise, and a rule with a comment, a
/// set, a mark and a probability takes some 1,300.
const RULES: usize = 120;

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
/// after each so many rules.
fn of(input: &str) -> Cow<'_, str> {
    if input.lines().count() <= RULES {
        return Cow::Borrowed(input);
    }
    let mut batches = String::with_capacity(input.len() + input.len() / 64);
    let mut table = "";
    let mut rules = 0;
    for line in input.lines() {
        match line.as_bytes().first() {
            Some(b'*') => (table, rules) = (line, 0),
            Some(b'-') => {
                if rules == RULES {
                    batches.extend(["COMMIT\n", table, "\n"]);
                    rules = 0;
                }
                rules += 1;
            }
            _ => {}
        }
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
            let rules = batch.lines().filter(|line| line.starts_with('-'));
            assert!(rules.count() <= RULES);
        }
    }

    #[test]
    fn what_is_small_stays_as_it_is() {
        let input = "*nat\n:A - [0:0]\n-A A -j RETURN\nCOMMIT\n";
        assert!(matches!(of(input), Cow::Borrowed(text) if text == input));
    }
}
