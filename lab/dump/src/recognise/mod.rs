//! Recognises the program that printed a file from its content, and from its path where the content
//! does not decide.

mod outputs;
mod paths;

pub use outputs::UnreadOutput;
pub(crate) use paths::{file_name, named_format};

use super::archive::Skipped;
use svclab_ruleset::Family;
use svclab_ruleset::tool::Format;

/// Content of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Content {
    /// State of a node in a format that svclab reads.
    State(Format),
    /// Output of a program that svclab does not read.
    Unread(&'static UnreadOutput),
}

/// Number of first lines that decide on a content.
const DECISIVE_LINES: usize = 64;

/// Recognises the content of a text. At least half of its first lines must be lines of the program.
/// `None` if no known program prints the text.
#[must_use]
pub fn recognise(text: &str) -> Option<Content> {
    let lines = text.lines().map(str::trim);
    let lines = lines.filter(|line| !line.is_empty() && !line.starts_with('#'));
    let lines: Vec<&str> = lines.take(DECISIVE_LINES).collect();
    if let Some(output) = outputs::detect_json(text) {
        let format = Format::detect(text).filter(|format| format.has_json());
        return Some(format.map_or(Content::Unread(output), Content::State));
    }
    let content = lines.iter().find_map(|line| recognise_line(line))?;
    let fitting = lines.iter().filter(|line| content.fits(line)).count();
    (fitting * 2 >= lines.len()).then_some(content)
}

fn recognise_line(line: &str) -> Option<Content> {
    if let Some(output) = outputs::detect_line(line) {
        return Some(Content::Unread(output));
    }
    Format::detect(line).map(Content::State)
}

impl Content {
    /// Whether the program may print the line.
    fn fits(self, line: &str) -> bool {
        let format = match self {
            // One line of these outputs decides.
            Self::Unread(_) => return true,
            Self::State(format) => format,
        };
        let first = line.split_ascii_whitespace().next().unwrap_or_default();
        match format {
            Format::Rules(..) => line.starts_with(['*', ':', '-', '[']) || line == "COMMIT",
            Format::Sets => matches!(first, "create" | "add"),
            Format::VirtualServers => matches!(first, "-A" | "-a"),
            Format::Sysctls => is_sysctl(line),
            Format::RoutingRules(_) => line.contains(" lookup ") || line.contains("from "),
            // One line of these outputs decides.
            _ => true,
        }
    }
}

/// First parts of names of sysctls (Linux, `kernel/sysctl.c` and callers of `register_sysctl`).
const SYSCTL_ROOTS: [&str; 9] = [
    "abi", "crypto", "debug", "dev", "fs", "kernel", "net", "user", "vm",
];

/// Whether `sysctl -a` prints the line, or an error about a sysctl.
fn is_sysctl(line: &str) -> bool {
    let root = line.split('.').next().unwrap_or_default();
    line.starts_with("sysctl: ") || (SYSCTL_ROOTS.contains(&root) && line.contains('='))
}

/// Completes the format of rules with the address family that their text shows.
#[must_use]
pub fn with_family(detected: Format, text: &str) -> Format {
    let Format::Rules(_, backend) = detected else {
        return detected;
    };
    let six = text.contains("ip6tables-save") || text.contains("icmp6-") || {
        let mut words = text.split_ascii_whitespace();
        words.any(|word| matches!(word, "-s" | "-d"))
            && words.next().is_some_and(|value| value.contains(':'))
    };
    Format::Rules(if six { Family::V6 } else { Family::V4 }, backend)
}

/// Decides from the path and the first bytes of a file whether it contains state of a node.
///
/// # Errors
///
/// Returns the reason for skipping the file.
pub fn select(path: &str, head: &[u8]) -> Result<(), Skipped> {
    let skip = |reason: String, affects: &'static str| Err(Skipped { reason, affects });
    if paths::is_disk_copy(path) {
        return skip(
            "copied from the disk of the node, not state of the kernel".to_owned(),
            "",
        );
    }
    if paths::is_other_namespace(path) {
        return skip("output in another network namespace".to_owned(), "");
    }
    if paths::is_informational(paths::file_name(path)) {
        return skip(String::new(), "");
    }
    let text = String::from_utf8_lossy(head);
    let named = named_format(path);
    match recognise(&text) {
        Some(Content::State(_)) => Ok(()),
        Some(Content::Unread(output)) => skip(
            format!("svclab does not read output of `{}`", output.command),
            output.affects,
        ),
        None if named.is_some() => Ok(()),
        None if head.is_empty() => skip("the file is empty".to_owned(), ""),
        None => skip("no supported program prints this content".to_owned(), ""),
    }
}
