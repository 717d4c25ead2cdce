//! Replaces `iptables-restore`, `ip6tables-restore` and `nft` for a real kube-proxy in a user
//! namespace: splits a transaction that is too large for one message.
//!
//! Both programs send a transaction to the kernel in one message. For this message they enlarge
//! their socket buffer with `SO_SNDBUFFORCE`, which requires root in the initial user namespace
//! (see [`batches`]). Input that fits into one message is forwarded unchanged and stays one
//! transaction. Only input that the kernel rejects as too long is split, first into tables, then
//! into consecutive lines.

use std::collections::VecDeque;
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Output, Stdio};

use crate::program;
use crate::rules::batches;
use crate::sandbox::rootfs::AGENT_PATH;

/// Names of the replaced programs, and the programs that are called instead.
pub const NAMES: [(&str, &str); 3] = [
    ("iptables-restore", "iptables-nft-restore"),
    ("ip6tables-restore", "ip6tables-nft-restore"),
    ("nft", "nft"),
];

/// Error message of both programs for a message that is too long (`EMSGSIZE`).
const TOO_LONG_MESSAGE: &[u8] = b"Message too long";

/// Maximum number of netlink bytes for each byte of an nft command, and for each command.
const NFT_BYTES: (usize, usize) = (5, 200);

/// Whether programs in the agent's root directory can execute this program. A guest does not need
/// the replacement: the root of a guest has the privilege.
#[must_use]
pub fn is_installed() -> bool {
    let file = std::fs::metadata(AGENT_PATH);
    file.is_ok_and(|file| file.is_file() && file.permissions().mode() & 0o001 != 0)
}

/// Runs the replacement if the process was started under one of [`NAMES`]. Returns `None`
/// otherwise.
#[must_use]
pub fn run_if_called() -> Option<ExitCode> {
    let mut arguments = std::env::args_os();
    let called_as = PathBuf::from(arguments.next()?);
    let own = called_as.file_name()?.to_str()?;
    let (_, program) = NAMES.into_iter().find(|(name, _)| *name == own)?;
    let arguments: Vec<String> = arguments
        .map(|argument| argument.to_string_lossy().into_owned())
        .collect();
    Some(match restore(program, &arguments) {
        Ok(code) => ExitCode::from(code),
        Err(error) => {
            let _ = writeln!(io::stderr(), "{program}: {error}");
            ExitCode::FAILURE
        }
    })
}

fn restore(program: &str, arguments: &[String]) -> io::Result<u8> {
    let found = program::find(program)
        .ok_or_else(|| io::Error::new(io::ErrorKind::NotFound, "not installed"))?;
    let has = |word: &str| arguments.iter().any(|argument| argument == word);
    let is_divisible = if program == "nft" {
        has("-f") && has("-") && !has("-c") && !has("--check")
    } else {
        // A restore with flush would delete the rules of the previous part.
        has("--noflush") || has("-n")
    };
    if !is_divisible {
        return Err(Command::new(found).args(arguments).exec());
    }
    let mut input = String::new();
    io::stdin().read_to_string(&mut input)?;
    let mut parts = if program == "nft" {
        split_nft(&input)
    } else {
        split_iptables(&input)
    };
    while let Some(part) = parts.pop_front() {
        let output = run(&found, arguments, &part.render())?;
        if !output.status.success()
            && is_too_long(&output)
            && let Some([first, second]) = part.halves()
        {
            parts.push_front(second);
            parts.push_front(first);
            continue;
        }
        io::stdout().write_all(&output.stdout)?;
        io::stderr().write_all(&output.stderr)?;
        if !output.status.success() {
            let code = output
                .status
                .code()
                .and_then(|code| u8::try_from(code).ok());
            return Ok(code.unwrap_or(1));
        }
    }
    Ok(0)
}

fn is_too_long(output: &Output) -> bool {
    let has = |text: &[u8]| {
        text.windows(TOO_LONG_MESSAGE.len())
            .any(|window| window == TOO_LONG_MESSAGE)
    };
    has(&output.stderr) || has(&output.stdout)
}

fn run(program: &Path, arguments: &[String], input: &str) -> io::Result<Output> {
    let mut child = Command::new(program)
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()?;
    let mut stdin = child.stdin.take();
    std::thread::scope(|scope| {
        // A program with much output blocks until the output is read.
        scope.spawn(move || {
            // A program that rejects a line may stop reading.
            let _ = stdin
                .as_mut()
                .map(|stdin| stdin.write_all(input.as_bytes()));
        });
        child.wait_with_output()
    })
}

/// Lines of one transaction.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Transaction<'i> {
    /// Line that starts an iptables table.
    table: Option<&'i str>,
    lines: Vec<&'i str>,
}

impl<'i> Transaction<'i> {
    fn render(&self) -> String {
        let (begin, end) = match self.table {
            Some(table) => (format!("{table}\n"), "COMMIT\n"),
            None => (String::new(), ""),
        };
        let lines = self.lines.iter().flat_map(|line| [*line, "\n"]);
        begin + &lines.collect::<String>() + end
    }

    /// Splits the lines into two halves. Returns `None` for fewer than two lines.
    fn halves(&self) -> Option<[Self; 2]> {
        let (first, second) = self.lines.split_at(self.lines.len() / 2);
        let part = |lines: &[&'i str]| Self {
            table: self.table,
            lines: lines.to_vec(),
        };
        (!first.is_empty()).then(|| [part(first), part(second)])
    }
}

/// Splits the input of a restore program into its tables, which are separate transactions. A table
/// that is much too large for one message is split further.
fn split_iptables(input: &str) -> VecDeque<Transaction<'_>> {
    let mut parts = VecDeque::new();
    let mut lines = Vec::new();
    let mut table = None;
    for line in input.lines() {
        if line.starts_with('*') {
            table = Some(line);
        } else if line == "COMMIT" {
            let lines = std::mem::take(&mut lines);
            parts.extend(split_large(
                Transaction { table, lines },
                batches::netlink_bytes,
            ));
            table = None;
        } else {
            lines.push(line);
        }
    }
    if table.is_some() || lines.iter().any(|line| batches::netlink_bytes(line) > 0) {
        // The input is invalid for these programs, and they report the error themselves.
        return VecDeque::from([Transaction {
            table: None,
            lines: input.lines().collect(),
        }]);
    }
    parts
}

/// Returns an nft transaction, split if it is much too large for one message.
fn split_nft(input: &str) -> VecDeque<Transaction<'_>> {
    let part = Transaction {
        table: None,
        lines: input.lines().collect(),
    };
    split_large(part, |line| NFT_BYTES.0 * line.len() + NFT_BYTES.1).collect()
}

/// Splits the part into pieces of one message each if it is larger than two messages.
fn split_large(
    part: Transaction<'_>,
    weight: impl Fn(&str) -> usize,
) -> impl Iterator<Item = Transaction<'_>> {
    let total: usize = part.lines.iter().map(|line| weight(line)).sum();
    let limit = if total > 2 * batches::MAX_BATCH_BYTES {
        batches::MAX_BATCH_BYTES
    } else {
        usize::MAX
    };
    let mut size = 0;
    let mut pieces = vec![Vec::new()];
    for line in part.lines {
        if size + weight(line) > limit {
            pieces.push(Vec::new());
            size = 0;
        }
        size += weight(line);
        if let Some(piece) = pieces.last_mut() {
            piece.push(line);
        }
    }
    let table = part.table;
    pieces
        .into_iter()
        .map(move |lines| Transaction { table, lines })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(name: &str, rules: usize) -> String {
        let chains = (0..rules).map(|n| format!(":C{n} - [0:0]"));
        let lines = chains.chain((0..rules).map(|n| format!("-A C{n} -j ACCEPT")));
        let lines: Vec<String> = lines.collect();
        format!("*{name}\n{}\nCOMMIT\n", lines.join("\n"))
    }

    #[test]
    fn restore_small_tables_stay_one_transaction_each() {
        let (filter, nat) = (table("filter", 3), table("nat", 100));
        let input = format!("# a comment\n{filter}{nat}");
        let parts: Vec<String> = split_iptables(&input)
            .iter()
            .map(Transaction::render)
            .collect();
        assert_eq!(
            parts,
            [format!("*filter\n# a comment\n{}", &filter[8..]), nat]
        );
    }

    #[test]
    fn restore_large_table_is_split_in_order() {
        let input = table("nat", 5_000);
        let parts = split_iptables(&input);
        assert!(parts.len() > 10, "{}", parts.len());
        let lines = parts.iter().flat_map(|part| &part.lines).copied();
        let expected = input.lines().filter(|line| line.starts_with([':', '-']));
        assert!(lines.eq(expected));
        assert!(parts.iter().all(|part| part.table == Some("*nat")));
        let [first, second] = parts[0].halves().expect("the part has many lines");
        assert_eq!([first.lines, second.lines].concat(), parts[0].lines);
    }

    #[test]
    fn restore_invalid_input_is_unchanged() {
        for input in [
            "-A C -j ACCEPT\n",
            "*nat\n-A C -j ACCEPT\n",
            "refused\n*nat\n-A C\n",
        ] {
            let parts: Vec<String> = split_iptables(input)
                .iter()
                .map(Transaction::render)
                .collect();
            assert_eq!(parts, [input]);
        }
    }

    #[test]
    fn restore_large_nft_transaction_is_split_at_commands() {
        let lines: Vec<String> = (0..5_000)
            .map(|n| format!("add rule ip kube-proxy c{n} ip daddr 10.0.0.1 accept"))
            .collect();
        let input = lines.join("\n") + "\n";
        let parts = split_nft(&input);
        assert!(parts.len() > 5);
        let text: String = parts.iter().map(Transaction::render).collect();
        assert_eq!(text, input);
        assert_eq!(split_nft("add table ip kube-proxy\n").len(), 1);
    }
}
