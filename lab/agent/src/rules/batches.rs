//! Splits the input of iptables-nft into batches that a user namespace may send. For nftables
//! tables see [`svclab_ruleset::nft::split_batches`].
//!
//! iptables-nft sends a table to the kernel in one message. For this message it enlarges its socket
//! buffer with `SO_SNDBUFFORCE` (iptables v1.8.9, `iptables/nft.c`, `mnl_set_sndbuffer`). The
//! kernel allows this option only to root in the initial user namespace (Linux v6.1,
//! `net/core/sock.c`, `sock_setsockopt`). A fallback to `SO_SNDBUF` does not exist. In a user
//! namespace, about 300 rules already fail with "Message too long". Therefore each commit contains
//! a limited number of rules.
//!
//! The limit is an estimate. A message that is still too long is divided again: the kernel rejects
//! it as a whole, so that nothing of it is loaded.

use std::borrow::Cow;
use std::iter;

use svclab_model::protocol::Failure;
use svclab_ruleset::nft;

/// Maximum number of netlink bytes in one commit. The socket buffer has 212,992 bytes unless
/// `net.core.wmem_default` of the host differs.
pub(crate) const MAX_BATCH_BYTES: usize = 200_000;

/// Minimum number of netlink bytes to which a message of `nft` is divided.
const MIN_NFT_BATCH_BYTES: usize = 4_000;

/// Bytes of a rule without matches, and of each address, interface or protocol, comment and other
/// match. Measured with iptables v1.8.9; only rare matches are larger.
const RULE_BYTES: usize = 250;
const HEADER_BYTES: usize = 100;
const COMMENT_BYTES: usize = 310;
const MATCH_BYTES: usize = 200;

/// Bytes of the declaration of an existing chain: the chain, and the deletion of its rules.
const CHAIN_BYTES: usize = 180;

/// Error message of iptables-nft and `nft` for a message that is too long (`EMSGSIZE`).
pub(crate) const TOO_LONG_MESSAGE: &str = "Message too long";

/// Estimates the number of netlink bytes for one line of a restore program's input.
pub(crate) fn netlink_bytes(line: &str) -> usize {
    match line.as_bytes().first() {
        Some(b'-') => {
            let words = line.split(' ').map(|word| match word {
                "-s" | "-d" | "-i" | "-o" | "-p" => HEADER_BYTES,
                "-m" => MATCH_BYTES,
                "--comment" => COMMENT_BYTES - MATCH_BYTES,
                _ => 0,
            });
            RULE_BYTES + words.sum::<usize>()
        }
        Some(b':') => CHAIN_BYTES,
        _ => 0,
    }
}

/// Part of a program's input. A program that exits at the end of its input is started once for each
/// part.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Part<'i> {
    pub text: Cow<'i, str>,
    /// Number of each line in the whole input. Empty if the part begins with the first line and has
    /// no added lines.
    line_numbers: Vec<usize>,
    /// Maximum number of netlink bytes in one message of `nft`.
    limit: usize,
}

/// Splits `input` into the parts that `program` receives in sequence.
pub(crate) fn split_for_program<'i>(program: &str, input: &'i str) -> Vec<Part<'i>> {
    match program {
        "nft" => split_nft(input, nft::MAX_BATCH_SIZE),
        _ if program.contains("-nft-") => vec![split_commits(input)],
        _ => vec![Part::whole(input)],
    }
}

fn split_nft<'i>(input: &str, limit: usize) -> Vec<Part<'i>> {
    let batches = nft::split_batches(input, limit).into_iter();
    let part = |text: String| Part {
        text: Cow::Owned(text),
        line_numbers: Vec::new(),
        limit,
    };
    batches.map(part).collect()
}

/// Inserts a commit wherever a table exceeds [`MAX_BATCH_BYTES`], into the input of a restore
/// program that runs without flushing.
fn split_commits(input: &str) -> Part<'_> {
    if input.lines().map(netlink_bytes).sum::<usize>() <= MAX_BATCH_BYTES {
        return Part::whole(input);
    }
    let mut size = 0;
    insert_commits((1..).zip(input.lines()), |_, line| {
        if line.starts_with('*') {
            size = 0;
        }
        let is_full = size + netlink_bytes(line) > MAX_BATCH_BYTES;
        if is_full {
            size = 0;
        }
        size += netlink_bytes(line);
        is_full
    })
}

/// Inserts a commit before each line that `begins_commit` selects by its index and text. The lines
/// have their numbers in the whole input.
fn insert_commits<'i>(
    lines: impl Iterator<Item = (usize, &'i str)>,
    mut begins_commit: impl FnMut(usize, &str) -> bool,
) -> Part<'static> {
    let mut table = "";
    let mut text = String::new();
    let mut line_numbers = Vec::new();
    let mut inserted = Vec::new();
    for (index, (number, line)) in lines.enumerate() {
        if line.starts_with('*') {
            table = line;
        }
        if begins_commit(index, line) {
            inserted.extend([line_numbers.len(), line_numbers.len() + 1]);
            line_numbers.extend([0; 2]);
            text.extend(["COMMIT\n", table, "\n"]);
        }
        line_numbers.push(number);
        text.extend([line, "\n"]);
        if line == "COMMIT" {
            // An error of an inserted commit concerns the commit of the table.
            inserted
                .drain(..)
                .for_each(|index| line_numbers[index] = number);
        }
    }
    Part {
        text: Cow::Owned(text),
        line_numbers,
        limit: 0,
    }
}

impl<'i> Part<'i> {
    fn whole(input: &'i str) -> Self {
        Self {
            text: Cow::Borrowed(input),
            line_numbers: Vec::new(),
            limit: 0,
        }
    }

    /// Returns the failure with the line number of the whole input.
    pub(crate) fn locate(&self, mut failure: Failure) -> Failure {
        if let Some(rejected) = &mut failure.rejected
            && let Some(index) = rejected.line_number.checked_sub(1)
            && let Some(number) = self.line_numbers.get(index)
        {
            rejected.line_number = *number;
        }
        failure
    }

    /// Returns what is left of the part after a program rejected a message of it as too long, with
    /// this message divided in two. `None` for other failures, or if the message has only one item.
    pub(crate) fn divide(&self, program: &str, failure: &Failure) -> Option<Vec<Part<'static>>> {
        let rejected = failure.rejected.as_ref()?;
        if !rejected.message.contains(TOO_LONG_MESSAGE) {
            return None;
        }
        if program == "nft" {
            let halves = iter::successors(Some(self.limit / 2), |limit| Some(limit / 2));
            let limits = halves.take_while(|limit| *limit >= MIN_NFT_BATCH_BYTES);
            let mut divisions = limits.map(|limit| split_nft(&self.text, limit));
            return divisions.find(|parts| parts.len() > 1);
        }
        self.divide_commit(rejected.line_number)
            .map(|rest| vec![rest])
    }

    /// Returns the lines from the table on that contains a line, with its first commit divided in
    /// two. Everything before this table is committed.
    fn divide_commit(&self, line_number: usize) -> Option<Part<'static>> {
        let lines: Vec<&str> = self.text.lines().collect();
        let up_to_line = lines.get(..line_number)?;
        let begin = up_to_line.iter().rposition(|line| line.starts_with('*'))?;
        let length = lines[begin..].iter().position(|line| *line == "COMMIT")?;
        let has_bytes = |index: &usize| netlink_bytes(lines[*index]) > 0;
        let items: Vec<usize> = (begin..begin + length).filter(has_bytes).collect();
        let middle = *items.get(items.len() / 2).filter(|_| items.len() > 1)?;
        let rest = (begin..).zip(&lines[begin..]).map(|(index, line)| {
            let number = self.line_numbers.get(index);
            (number.copied().unwrap_or(index + 1), *line)
        });
        Some(insert_commits(rest, |index, _| begin + index == middle))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use svclab_model::protocol::RejectedInput;

    #[test]
    fn large_table_is_committed_in_parts() {
        let rules: Vec<String> = (0..1_000)
            .map(|n| format!("-A A -m mark --mark {n}"))
            .collect();
        let input = format!(
            "*filter\n:F - [0:0]\n-A F -j DROP\nCOMMIT\n*nat\n:A - [0:0]\n{}\nCOMMIT\n",
            rules.join("\n")
        );
        let batches = split_commits(&input).text;
        let commits = batches.matches("COMMIT\n*nat\n").count();
        assert_eq!(commits, 1 + 2, "{batches}");
        let whole: Vec<&str> = batches
            .lines()
            .filter(|line| line.starts_with('-'))
            .collect();
        assert_eq!(whole.len(), 1_001);
        assert_eq!(whole[1..], rules);
        for batch in batches.split("COMMIT\n") {
            assert!(batch.lines().map(netlink_bytes).sum::<usize>() <= MAX_BATCH_BYTES);
        }
    }

    #[test]
    fn batches_of_many_chains_are_committed_in_parts() {
        let chains: Vec<String> = (0..2_500).map(|n| format!(":C{n} - [0:0]")).collect();
        let input = format!("*nat\n{}\n-A C0 -j C1\nCOMMIT\n", chains.join("\n"));
        let batches = split_commits(&input).text;
        assert_eq!(batches.matches("COMMIT\n*nat\n").count(), 2);
        for batch in batches.split("COMMIT\n") {
            assert!(batch.lines().map(netlink_bytes).sum::<usize>() <= MAX_BATCH_BYTES);
        }
        let declared = batches.lines().filter(|line| line.starts_with(':'));
        assert!(declared.eq(&chains));
    }

    #[test]
    fn small_input_is_unchanged() {
        let input = "*nat\n:A - [0:0]\n-A A -j RETURN\nCOMMIT\n";
        assert_eq!(split_commits(input), Part::whole(input));
    }

    fn failure(message: &str, line_number: usize) -> Failure {
        let rejected = RejectedInput {
            line_number,
            message: message.to_owned(),
            ..RejectedInput::default()
        };
        Failure {
            rejected: Some(Box::new(rejected)),
            ..crate::runtime::failure::bug("rejected".to_owned())
        }
    }

    #[test]
    fn rejected_line_has_number_of_whole_input() {
        let rules: Vec<String> = (0..1_000).map(|n| format!("-A A -j RULE{n}")).collect();
        let input = format!("*nat\n:A - [0:0]\n{}\nCOMMIT\n", rules.join("\n"));
        let part = split_commits(&input);
        let line = part.text.lines().position(|line| line.ends_with("RULE950"));
        let located = part.locate(failure("no", line.unwrap() + 1));
        let number = located.rejected.unwrap().line_number;
        assert_eq!(input.lines().nth(number - 1), Some("-A A -j RULE950"));
        let commit = part.text.lines().position(|line| line == "COMMIT");
        let located = part.locate(failure("no", commit.unwrap() + 1));
        assert_eq!(located.rejected.unwrap().line_number, input.lines().count());
        let whole = Part::whole("*nat\n-A A\nCOMMIT\n");
        assert_eq!(whole.locate(failure("no", 2)), failure("no", 2));
    }

    #[test]
    fn rejected_commit_is_divided_and_earlier_tables_are_dropped() {
        let input = "*filter\n-A F -j DROP\nCOMMIT\n*nat\n:A - [0:0]\n-A A -j B\n-A A -j C\nCOMMIT\n*raw\n-A R\nCOMMIT\n";
        let part = Part::whole(input);
        let long = failure("line 7 failed: Message too long.", 7);
        let divided = part.divide("iptables-nft-restore", &long).unwrap();
        assert_eq!(divided.len(), 1);
        let expected =
            "*nat\n:A - [0:0]\nCOMMIT\n*nat\n-A A -j B\n-A A -j C\nCOMMIT\n*raw\n-A R\nCOMMIT\n";
        assert_eq!(divided[0].text, expected);
        let again = divided[0].divide("iptables-nft-restore", &failure(TOO_LONG_MESSAGE, 6));
        let again = again.unwrap();
        let expected = "*nat\n-A A -j B\nCOMMIT\n*nat\n-A A -j C\nCOMMIT\n*raw\n-A R\nCOMMIT\n";
        assert_eq!(again[0].text, expected);
        let located = again[0].locate(failure("no", 5));
        assert_eq!(located.rejected.unwrap().line_number, 7);
        // A commit of one rule cannot be divided.
        let single = again[0].divide("iptables-nft-restore", &failure(TOO_LONG_MESSAGE, 2));
        assert_eq!(single, None);
        let other = failure("line 7 failed: Invalid argument.", 7);
        assert_eq!(part.divide("iptables-nft-restore", &other), None);
    }

    #[test]
    fn rejected_nft_part_is_divided() {
        let rules = "\t\tcounter accept\n".repeat(200);
        let input = format!("table ip t {{\n\tchain a {{\n{rules}\t}}\n}}\n");
        let parts = split_for_program("nft", &input);
        assert_eq!(parts.len(), 1);
        let long = failure(
            "netlink: Error: Could not process rule: Message too long",
            0,
        );
        let mut parts = parts[0].divide("nft", &long).unwrap_or_default();
        while let Some(again) = parts.last().and_then(|part| part.divide("nft", &long)) {
            parts.pop();
            parts.extend(again);
        }
        let text: String = parts.iter().map(|part| part.text.as_ref()).collect();
        assert_eq!(text.matches("accept").count(), 200);
        assert!(parts.len() > 2, "{text}");
    }
}
