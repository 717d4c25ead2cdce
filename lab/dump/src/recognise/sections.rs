//! Splits a file into the outputs of its commands: a pasted session with prompts, or a file to
//! which a collector appended several outputs.

use std::net::SocketAddr;
use std::ops::Range;

use super::commands::Command;
use super::{Content, Listing, outputs, paths, prompts, recognise, recognise_line, with_family};
use crate::archive::Skipped;
use svclab_ruleset::Family;
use svclab_ruleset::tool::{DumpedBackend, Format};

/// Outputs in a file.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Sections {
    /// Outputs that svclab reads. Each text has the lines of the other outputs blank, so that line
    /// numbers are those of the file.
    pub(crate) outputs: Vec<(Format, String)>,
    /// Outputs that are not read.
    pub(crate) gaps: Vec<SectionGap>,
    /// Listings of iptables, with their first lines as for [`SectionGap`].
    pub(crate) listings: Vec<(Option<usize>, Listing)>,
    /// Hosts that the prompts of the outputs name.
    pub(crate) hosts: Vec<String>,
}

/// Output in a file that is not read, or only in part.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SectionGap {
    /// First line, from 1. `None` if the file has no other output.
    pub(crate) line: Option<usize>,
    /// Reason and possible effect.
    pub(crate) skipped: Skipped,
}

/// Output of one command.
struct Section {
    command: Option<Command>,
    /// Text of the command line.
    typed: String,
    host: Option<String>,
    /// Whether a command before it entered another network namespace.
    is_elsewhere: bool,
    lines: Range<usize>,
    /// Content that the first line with a decision has.
    content: Option<Content>,
    /// Program, version and options that a line shows.
    generator: Option<String>,
}

/// First words of lines without state: the version that `ipvsadm -Ln` prints, and what `kubectl debug`,
/// `oc debug`, `sudo` and collectors print around an output (kubectl 1.33, `pkg/cmd/debug/debug.go`; oc 4.18, `pkg/cli/debug/debug.go`;
/// network-tools at 0b53ac3, `debug-scripts/test-networking/sdn_cluster_and_node_info`).
const NOISE: [&str; 14] = [
    "IP Virtual Server version ",
    "INFO: ",
    "Starting pod/",
    "Removing debug pod",
    "To use host binaries, run ",
    "Temporary namespace ",
    "Creating debugging pod ",
    "Defaulting debug container name ",
    "If you don't see a command prompt",
    "All commands and output from this session",
    "The credentials and certificates used",
    "Pod IP: ",
    "[sudo] password for ",
    "command terminated with exit code",
];

/// Splits a file into the outputs of its commands.
pub(crate) fn split(path: &str, text: &str) -> Sections {
    let lines: Vec<&str> = text.lines().collect();
    let is_noise: Vec<bool> = lines.iter().map(|line| is_noise(line)).collect();
    let mut sections = find_sections(&lines, &is_noise);
    if let [only] = sections.as_mut_slice()
        && only.command.is_none()
        && let Some((typed, command)) = paths::command(path)
    {
        only.is_elsewhere = command.is_elsewhere;
        only.typed = typed;
        only.command = Some(command);
    }
    let mut found = Sections::default();
    let is_whole = sections.len() == 1 && !is_noise.contains(&true);
    for section in &sections {
        let own = own_text(&lines, &is_noise, section);
        if own.trim_ascii().is_empty() && section.command.is_none() {
            continue;
        }
        match judge(path, section, &own) {
            Ok(formats) => {
                found.hosts.extend(section.host.clone());
                for format in formats {
                    let text = if is_whole {
                        text.to_owned()
                    } else {
                        own.clone()
                    };
                    found.outputs.push((format, text));
                }
                if let Some(reason) = reduction(section) {
                    found.gaps.push(reason);
                }
            }
            Err(unread) => {
                let line = (sections.len() > 1).then(|| section.lines.start.max(1));
                match unread {
                    Unread::Gap(gap) => found.gaps.push(SectionGap { line, ..gap }),
                    Unread::Listing(listing) => found.listings.push((line, listing)),
                    Unread::Nothing => {}
                }
            }
        }
    }
    found.hosts.sort_unstable();
    found.hosts.dedup();
    found
}

/// Whether a program that runs commands printed the line, or `conntrack` the number of entries
/// (conntrack-tools 1.4.7, `src/conntrack.c`, `exit_msg`).
pub(super) fn is_noise(line: &str) -> bool {
    let is_count = || line.starts_with("conntrack v") && line.ends_with(" have been shown.");
    line.starts_with(|c: char| c.is_ascii_uppercase() || c == '[' || c == 'c')
        && (NOISE.iter().any(|begin| line.starts_with(begin)) || is_count())
}

/// Whether a file is a session: whether a prompt has a command whose output svclab knows.
pub(super) fn is_session(text: &str) -> bool {
    text.lines().any(|line| has_known_command(line, false))
}

fn find_sections(lines: &[&str], is_noise: &[bool]) -> Vec<Section> {
    let mut splitter = Splitter {
        prompts: find_prompts(lines),
        sections: Vec::new(),
        current: Section::new(0, None, false),
        is_elsewhere: false,
        lists_namespaces: false,
    };
    for (index, line) in lines.iter().enumerate() {
        if is_noise[index] || line.trim().is_empty() {
            continue;
        }
        if line.starts_with(NAMESPACE_HEADING) {
            splitter.start_namespace(index);
        } else if !splitter.read_prompt(index, line) {
            splitter.read_output(index, line);
        }
    }
    splitter.finish(lines.len(), Section::new(lines.len(), None, false));
    splitter.sections
}

/// Whether a line is a prompt with a command whose output svclab knows. With `is_bare`, only prompts
/// that are a single sign count.
fn has_known_command(line: &str, is_bare: bool) -> bool {
    let prompt = prompts::parse(line).filter(|prompt| prompt.is_bare || !is_bare);
    let command = prompt.map(|prompt| Command::parse(prompt.command));
    command.is_some_and(|command| command.content.is_some())
}

/// Whether a line after a single sign looks like a command, and not like a comment: `# Generated by`.
fn is_typed(command: &str) -> bool {
    command.starts_with(|c: char| c.is_ascii_lowercase() || matches!(c, '/' | '.'))
}

/// Heading of the output of each namespace that `ip -all netns exec` prints (iproute2 6.1,
/// `ip/ipnetns.c`, `on_netns`).
const NAMESPACE_HEADING: &str = "netns: ";

/// Prompts with known commands in a file.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Prompts {
    Absent,
    /// Prompts that are more than a single sign.
    Named,
    /// Also prompts that are a single sign.
    Bare,
}

fn find_prompts(lines: &[&str]) -> Prompts {
    let has = |is_bare| lines.iter().any(|line| has_known_command(line, is_bare));
    if has(true) {
        Prompts::Bare
    } else if has(false) {
        Prompts::Named
    } else {
        Prompts::Absent
    }
}

struct Splitter {
    prompts: Prompts,
    sections: Vec<Section>,
    current: Section,
    /// Whether an earlier command entered another network namespace.
    is_elsewhere: bool,
    /// Whether the lines are output of `ip -all netns exec`. `set -x` can print commands in it.
    lists_namespaces: bool,
}

impl Splitter {
    /// Ends the current section before a line.
    fn finish(&mut self, end: usize, next: Section) {
        let mut ended = std::mem::replace(&mut self.current, next);
        ended.lines.end = end;
        if ended.command.is_some() || !ended.lines.is_empty() {
            self.sections.push(ended);
        }
    }

    /// Starts the output in another network namespace.
    fn start_namespace(&mut self, index: usize) {
        self.lists_namespaces = true;
        let host = self.current.host.clone();
        self.finish(index, Section::new(index + 1, host, true));
    }

    /// Reads a prompt. Returns `false` for other lines.
    fn read_prompt(&mut self, index: usize, line: &str) -> bool {
        let Some(prompt) = prompts::parse(line).filter(|_| self.prompts != Prompts::Absent) else {
            return false;
        };
        let command = Command::parse(prompt.command);
        let is_certain =
            !prompt.is_bare || (self.prompts == Prompts::Bare && is_typed(prompt.command));
        if command.content.is_none() && !is_certain {
            return false;
        }
        if matches!(prompt.command, "exit" | "logout") {
            self.is_elsewhere = false;
        }
        self.lists_namespaces &= line.starts_with('+');
        let is_elsewhere = self.is_elsewhere || self.lists_namespaces || command.is_elsewhere;
        self.is_elsewhere |= command.enters_namespace;
        let host = prompt.host.map(str::to_owned);
        let mut next = Section::new(index + 1, host, is_elsewhere);
        if next.host.is_none() {
            next.host.clone_from(&self.current.host);
        }
        prompt.command.clone_into(&mut next.typed);
        next.command = Some(command);
        self.finish(index, next);
        true
    }

    /// Reads another line. A line that only another program prints begins a new section.
    fn read_output(&mut self, index: usize, line: &str) {
        let generator = generator(line);
        let is_other_generator = match (&self.current.generator, &generator) {
            (Some(current), Some(other)) => current != other,
            _ => false,
        };
        let content = match self.current.content {
            _ if is_other_generator => None,
            Some(content) if content.is_line(line) => {
                self.current.generator = self.current.generator.take().or(generator);
                return;
            }
            Some(content) => {
                match recognise_line(line.trim()).filter(|next| !content.is_same_kind(*next)) {
                    None => return,
                    next => next,
                }
            }
            None => {
                self.current.content = recognise_line(line.trim());
                self.current.generator = generator.or(self.current.generator.take());
                return;
            }
        };
        let host = self.current.host.clone();
        let mut next = Section::new(index, host, self.current.is_elsewhere);
        next.content = content;
        next.generator = generator;
        self.finish(index, next);
    }
}

/// Returns what a line shows about the program and the options that printed an output: the version
/// in the first line of `iptables-save`, or whether `ipset` and `ipvsadm` save or list.
fn generator(line: &str) -> Option<String> {
    if let Some(program) = line.strip_prefix("# Generated by ") {
        return Some(program.split(" on ").next()?.to_owned());
    }
    let generators = ["Name: ", "create ", "Prot ", "-A -t ", "-A -u ", "-A -f "];
    let begin = generators.iter().find(|begin| line.starts_with(**begin))?;
    Some(begin.get(..4)?.to_owned())
}

impl Section {
    fn new(start: usize, host: Option<String>, is_elsewhere: bool) -> Self {
        Self {
            command: None,
            typed: String::new(),
            host,
            is_elsewhere,
            lines: start..start,
            content: None,
            generator: None,
        }
    }
}

/// Returns the text of a section, with all other lines blank.
fn own_text(lines: &[&str], is_noise: &[bool], section: &Section) -> String {
    let mut text = String::new();
    for (index, line) in lines.iter().enumerate().take(section.lines.end) {
        if section.lines.contains(&index) && !is_noise[index] {
            text.push_str(line);
        }
        text.push('\n');
    }
    text
}

/// Effect of output that is missing.
pub(crate) const LACK: &str = "packets pass as if the node had none of it";

/// Section that is not read.
enum Unread {
    Gap(SectionGap),
    Listing(Listing),
    /// The section contains nothing of interest.
    Nothing,
}

/// Returns the formats of a section.
fn judge(path: &str, section: &Section, own: &str) -> Result<Vec<Format>, Unread> {
    let gap = |skipped: Skipped| {
        Err(Unread::Gap(SectionGap {
            line: None,
            skipped,
        }))
    };
    let is_empty = own.trim_ascii().is_empty();
    let command = section.command.as_ref();
    let expected = command.and_then(|command| command.content);
    let content = match (recognise(own), expected) {
        // Without the chains, rules of `iptables -S` look like saved rules.
        (Some(Content::State(Format::Rules(..))), Some(listing @ Content::Unread(_))) => listing,
        (Some(recognised), _) => recognised,
        (None, Some(expected)) if is_empty => expected,
        (None, Some(unread @ Content::Unread(_))) => unread,
        (None, Some(expected)) if section.is_elsewhere => expected,
        (None, Some(_)) => {
            let first = own.lines().find(|line| !line.trim().is_empty());
            let first = first.unwrap_or_default().trim();
            let reason = format!("`{}` printed `{first}`", section.typed);
            return gap(Skipped::with_effect(reason, LACK));
        }
        (None, None) => return Err(Unread::Nothing),
    };
    if section.is_elsewhere {
        return gap(Skipped::without_effect(
            "output in another network namespace",
        ));
    }
    if let Some(filter) = command.and_then(|command| command.filter.as_ref()) {
        let reason = format!("the output is filtered by `{filter}`");
        return gap(Skipped::with_effect(reason, LACK));
    }
    match content {
        Content::Unread(_) if is_empty => Err(Unread::Nothing),
        Content::Unread(&outputs::LISTING) => {
            let family = listing_family(path, section, own);
            Err(Unread::Listing(Listing::parse(own, family)))
        }
        Content::State(Format::VirtualServers) if has_names(own) => {
            gap(outputs::NAMED_SERVERS.skipped())
        }
        Content::Unread(output) => gap(output.skipped()),
        Content::State(format) => {
            let formats = formats(path, section, format, own);
            if formats.is_empty() {
                return gap(outputs::LINKS.skipped());
            }
            Ok(formats)
        }
    }
}

/// Returns the address family of a listing of iptables.
fn listing_family(path: &str, section: &Section, own: &str) -> Family {
    let is_six = if section.typed.contains("tables") {
        section.typed.contains("ip6tables")
    } else {
        paths::is_ipv6(path) || own.contains("::/0")
    };
    if is_six { Family::V6 } else { Family::V4 }
}

/// Whether saved virtual servers have names, which `ipvsadm -S` prints without the option `-n`.
fn has_names(own: &str) -> bool {
    let mut servers = own.lines().filter_map(|line| {
        let rest = line
            .strip_prefix("-A -t ")
            .or_else(|| line.strip_prefix("-A -u "))?;
        rest.split_ascii_whitespace().next()
    });
    servers.any(|address| address.parse::<SocketAddr>().is_err())
}

/// Returns the formats of an output. Detailed output of `ip addr` has two.
fn formats(path: &str, section: &Section, format: Format, own: &str) -> Vec<Format> {
    let command = section.command.as_ref();
    let stated = command
        .filter(|command| command.has_family)
        .and_then(|command| command.content);
    let is_six = match stated {
        Some(Content::State(
            Format::Rules(ip, _) | Format::Routes(ip) | Format::RoutingRules(ip),
        )) => ip == Family::V6,
        _ => paths::is_ipv6(path),
    };
    let family = if is_six { Family::V6 } else { Family::V4 };
    match format {
        Format::Rules(..) => {
            let is_legacy =
                paths::file_name(path).contains("legacy") || section.typed.contains("legacy");
            let backend = if is_legacy {
                DumpedBackend::Legacy
            } else {
                DumpedBackend::Default
            };
            let shown = with_family(format, own);
            let is_shown_six = matches!(shown, Format::Rules(Family::V6, _));
            let family = if is_shown_six { Family::V6 } else { family };
            vec![Format::Rules(family, backend)]
        }
        Format::Routes(_) => {
            let has_four = own.lines().filter_map(|line| recognise_line(line.trim()));
            let mut families = has_four.filter_map(|content| match content {
                Content::State(Format::Routes(ip)) => Some(ip),
                _ => None,
            });
            let has_only_six = {
                let first = families.next();
                first == Some(Family::V6) && families.all(|ip| ip == Family::V6)
            };
            let is_json_six =
                format == Format::Routes(Family::V6) && own.trim_ascii_start().starts_with('[');
            let is_six = is_six || has_only_six || is_json_six;
            vec![Format::Routes(if is_six { Family::V6 } else { Family::V4 })]
        }
        Format::RoutingRules(_) => {
            let has_six = own.contains("::") || is_six;
            vec![Format::RoutingRules(if has_six {
                Family::V6
            } else {
                Family::V4
            })]
        }
        Format::Links | Format::LinkDetails => {
            let has = |marks: &[&str]| marks.iter().any(|mark| own.contains(mark));
            let has_addresses = has(&[" inet ", " inet6 ", "\"addr_info\""]);
            let is_detailed = has(&[" promiscuity ", "\"promiscuity\""]);
            let addresses = has_addresses.then_some(Format::Links);
            // `ip link` completes the interfaces of `ip -o addr`.
            let is_list = !has_addresses && has(&[": <", "\"ifname\""]);
            let details = (is_detailed || is_list).then_some(Format::LinkDetails);
            addresses.into_iter().chain(details).collect()
        }
        other => vec![other],
    }
}

/// Returns the gap of an output that an option of its command reduces.
fn reduction(section: &Section) -> Option<SectionGap> {
    let command = section.command.as_ref()?;
    let reduced_by = command.reduced_by.as_ref()?;
    let reason = format!("`{}` prints only a part: {reduced_by}", section.typed);
    let affects = "packets pass as if the node had no other part";
    Some(SectionGap {
        // A file whose name states the command has no line with the command.
        line: Some(section.lines.start).filter(|line| *line > 0),
        skipped: Skipped {
            only: command.only_family,
            ..Skipped::with_effect(reason, affects)
        },
    })
}
