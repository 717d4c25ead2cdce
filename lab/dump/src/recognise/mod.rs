//! Recognises the programs that printed a file from its content, and from its path where the content
//! does not decide.

mod commands;
mod cut;
mod ip_command;
mod listing;
mod outputs;
mod outside;
mod paths;
mod place;
mod prompts;
mod scope;
mod sections;
mod shell;
mod splitter;

pub(crate) use listing::Listing;
pub use outputs::UnreadOutput;
pub(crate) use paths::{file_name, named_format};
pub(crate) use sections::{LACK, Sections, split};

use super::archive::Skipped;
use svclab_ruleset::Family;
use svclab_ruleset::tool::Format;

/// Output of a program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Content {
    /// State of a node in a format that svclab reads.
    State(Format),
    /// Output that svclab does not read.
    Unread(&'static UnreadOutput),
}

/// Number of first lines that decide on a content.
const DECISIVE_LINES: usize = 64;

/// Recognises the content of a text. At least half of its first lines must be lines of the program.
/// `None` if no known program prints the text.
#[must_use]
pub fn recognise(text: &str) -> Option<Content> {
    if outputs::is_bridge_rules(text) {
        return Some(Content::Unread(&outputs::BRIDGE_RULES));
    }
    let lines = text
        .lines()
        .filter(|line| !sections::is_noise(line))
        .map(str::trim);
    let lines = lines.filter(|line| !line.is_empty() && !line.starts_with('#'));
    let lines: Vec<&str> = lines.take(DECISIVE_LINES).collect();
    if outputs::is_json(text) {
        let format = Format::detect(text).filter(|format| format.has_json());
        let unread = outputs::json_without_format(text);
        return Some(format.map_or(Content::Unread(unread), Content::State));
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
        match self {
            Self::State(Format::RoutingRules(_)) => line.contains("from "),
            // One line of other outputs decides.
            _ => self.is_line(line) || !self.has_plain_lines(),
        }
    }

    /// Whether each line shows the program.
    fn has_plain_lines(self) -> bool {
        let format = match self {
            Self::Unread(_) => return false,
            Self::State(format) => format,
        };
        matches!(
            format,
            Format::Rules(..) | Format::VirtualServers | Format::Sysctls
        )
    }

    /// Whether the line is certainly a line of the program.
    fn is_line(self, line: &str) -> bool {
        let format = match self {
            Self::Unread(output) => return output == &outputs::LISTING && listing::is_line(line),
            Self::State(format) => format,
        };
        let mut words = line.split_ascii_whitespace();
        let first = words.next().unwrap_or_default();
        match format {
            Format::Rules(..) => match first {
                "-A" => !words.next().unwrap_or_default().starts_with('-'),
                _ => first.starts_with(['*', ':', '[', '#']) || first == "COMMIT",
            },
            Format::Sets => matches!(first, "create" | "add"),
            Format::VirtualServers => {
                matches!(
                    first,
                    "-A" | "-a" | "->" | "Prot" | "TCP" | "UDP" | "SCTP" | "FWM"
                )
            }
            Format::Sysctls => is_sysctl(line),
            Format::Nft => line.starts_with([' ', '\t', '}']) || first == "table",
            Format::Links | Format::LinkDetails => line.starts_with(' '),
            // With `-s`, a template looks like a state: `proto esp spi 0x00000000`.
            Format::IpsecPolicies => line.starts_with([' ', '\t']),
            _ => false,
        }
    }

    /// Whether the contents of two outputs tell the outputs apart. The first lines of saved rules
    /// name the program.
    fn differs_from(self, other: Self) -> bool {
        let is_rules = |own| matches!(own, Self::State(Format::Rules(..)));
        if is_rules(self) && is_rules(other) {
            self != other
        } else {
            !self.is_same_kind(other)
        }
    }

    /// Whether both are output of the same program.
    fn is_same_kind(self, other: Self) -> bool {
        match (self, other) {
            (Self::State(own), Self::State(other)) => own.is_compatible_with(other),
            _ => self == other,
        }
    }
}

/// First parts of names of sysctls (Linux, `kernel/sysctl.c` and callers of `register_sysctl`).
const SYSCTL_ROOTS: [&str; 10] = [
    "abi", "crypto", "debug", "dev", "fs", "kernel", "net", "sunrpc", "user", "vm",
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

/// Returns the format of an empty file from its name. `None` for a file with text.
pub(crate) fn empty_format(path: &str, text: &str) -> Option<Format> {
    let is_empty = text.trim_ascii().is_empty();
    is_empty.then(|| paths::empty_format(path)).flatten()
}

/// Maximum number of lines of an error message.
const MAX_ERROR_LINES: usize = 3;

/// Parts of error messages of shells, programs and collectors.
const ERROR_MARKS: [&str; 7] = [
    "not installed",
    "not found",
    "No such file",
    "ermission denied",
    "not permitted",
    "annot ",
    "an't ",
];

/// Returns the first line of a text that is only an error message. `None` for other texts.
pub(crate) fn failure(text: &str) -> Option<&str> {
    let mut lines = text.lines().filter(|line| !line.trim().is_empty());
    let is_short = lines.clone().count() <= MAX_ERROR_LINES;
    let first = lines.next().filter(|_| is_short)?;
    let has_mark = ERROR_MARKS.iter().any(|mark| text.contains(mark));
    has_mark.then(|| first.trim())
}

/// File in which `scripts/collect-node` lists the state that it could not read. Its lines are
/// `FILE: REASON`.
pub(crate) const MISSING_FILE: &str = "missing.txt";

/// Decides from the path and the first bytes of a file whether it contains state of a node.
///
/// # Errors
///
/// Returns the reason for skipping the file.
pub fn select(path: &str, head: &[u8]) -> Result<(), Skipped> {
    let skip = |reason: &str| Err(Skipped::without_effect(reason));
    if paths::is_disk_copy(path) {
        return skip("copied from the disk of the node, not state of the kernel");
    }
    if paths::is_other_namespace(path) {
        return skip("output in another network namespace");
    }
    if paths::is_informational(paths::file_name(path)) {
        return skip("");
    }
    if paths::file_name(path) == MISSING_FILE {
        return Ok(());
    }
    if named_format(path).is_some() {
        return Ok(());
    }
    let text = crate::text::decode_head(head);
    let recognised = recognise(&text);
    if let Some((typed, command)) = paths::typed_command(path)
        && command.is_unread()
        && (recognised.is_none() || typed.starts_with("ip "))
        && !head.is_empty()
    {
        let reason = format!("svclab does not read output of `{typed}`");
        return Err(Skipped::uncompared(reason));
    }
    match recognised {
        Some(Content::State(_) | Content::Unread(&outputs::LISTING)) => Ok(()),
        _ if splitter::is_session(&text) => Ok(()),
        Some(Content::Unread(&outputs::SERVER_COUNTERS)) if outputs::has_no_servers(&text) => {
            skip("the output lists no virtual server")
        }
        Some(Content::Unread(output)) => Err(output.skipped()),
        None if head.is_empty() && paths::empty_format(path).is_some() => Ok(()),
        None if head.is_empty() => skip("the file is empty"),
        None if is_compressed(head) => {
            let reason = "svclab cannot decompress this format";
            Err(Skipped::unreadable(path, reason))
        }
        None => {
            let reason = "no supported program prints this content";
            let is_silent = crate::silent::is_silent_file(file_name(path));
            Err(Skipped {
                is_uncompared: !is_silent,
                ..Skipped::without_effect(reason)
            })
        }
    }
}

/// Whether a file begins like one of a compression program that svclab does not know: bzip2, lz4,
/// lzip, lzop, compress, 7-Zip, RAR.
fn is_compressed(head: &[u8]) -> bool {
    let marks: [&[u8]; 7] = [
        b"BZh",
        b"\x04\x22\x4d\x18",
        b"LZIP",
        b"\x89LZO",
        b"\x1f\x9d",
        b"7z\xbc\xaf",
        b"Rar!",
    ];
    marks.iter().any(|mark| head.starts_with(mark))
}

#[cfg(test)]
mod tests;
