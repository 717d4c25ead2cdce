//! Splits a file into the outputs of its commands: a pasted session with prompts, or a file to
//! which a collector appended several outputs.

use std::net::SocketAddr;

use super::commands::{Command, OutputKind};
use super::place::Place;
use super::scope::Scope;
use super::splitter::{Section, find_sections};
use super::{Content, Listing, cut, outputs, paths, recognise, recognise_line, with_family};
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
    let mut sections = if is_listing_of_interfaces(path, &lines) {
        vec![Section {
            lines: 0..lines.len(),
            ..Section::new(0)
        }]
    } else {
        find_sections(&lines, &is_noise)
    };
    if let [only] = sections.as_mut_slice()
        && only.command.is_none()
        && let Some((typed, command)) = paths::command(path)
    {
        only.place = command.place;
        only.typed = typed;
        only.command = Some(command);
    }
    let mut found = Sections::default();
    let is_whole = sections.len() == 1 && !is_noise.contains(&true);
    let judged = sections.iter().map(|section| {
        let own = own_text(&lines, &is_noise, section);
        (section, judge(path, section, &own))
    });
    let mut judged: Vec<Judged<'_>> = judged.collect();
    leave_out_remote(&mut judged);
    found.gaps.extend(missing_outputs(&judged));
    for (section, result) in judged {
        match result {
            Ok(formats) => {
                found.hosts.extend(host_of(section));
                let own = if is_whole {
                    text.to_owned()
                } else {
                    own_text(&lines, &is_noise, section)
                };
                let scope = section.command.as_ref().and_then(|own| own.scope.as_ref());
                for format in formats {
                    let start = section.lines.start;
                    let scoped = scope.map(|scope| scope.add_to(format, &own, start));
                    let text = scoped.unwrap_or_else(|| own.clone());
                    found.outputs.push((format, text));
                }
                found.gaps.extend(reduction(section));
                let is_last = section.lines.end == lines.len();
                found
                    .gaps
                    .extend(cut_rules(section, &found.outputs, text, is_last));
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

/// Section with its formats, or the reason for not reading it.
type Judged<'s> = (&'s Section, Result<Vec<Format>, Unread>);

/// Whether a file is a list of classes or filters of `scripts/collect-node`, in which a comment with
/// the command precedes the output for each interface.
fn is_listing_of_interfaces(path: &str, lines: &[&str]) -> bool {
    let format = paths::named_format(path);
    let is_listing = matches!(
        format,
        Some(Format::TrafficClasses | Format::TrafficFilters)
    );
    let is_heading = |line: &&&str| line.starts_with('#');
    is_listing
        && lines
            .iter()
            .filter(is_heading)
            .all(|line| line.starts_with("# tc "))
}

/// Leaves out the outputs of other hosts, if the file also has outputs of the host of the prompts.
fn leave_out_remote(judged: &mut [Judged<'_>]) {
    let is_local = |(section, result): &Judged<'_>| result.is_ok() && section.remote.is_none();
    if !judged.iter().any(is_local) {
        return;
    }
    for (section, result) in judged {
        let Some(remote) = section.remote.as_ref().filter(|_| result.is_ok()) else {
            continue;
        };
        if host_of(section) != section.host {
            let reason = format!("output of the host `{remote}`");
            *result = Err(Unread::gap(Skipped::uncompared(reason)));
        }
    }
}

/// Returns the host on which the command of a section ran. `None` if the file does not name it.
fn host_of(section: &Section) -> Option<String> {
    let short = |name: &String| name.split('.').next().unwrap_or_default().to_owned();
    let (remote, host) = (section.remote.as_ref(), section.host.as_ref());
    let is_same = remote.map(short) == host.map(short);
    remote.filter(|_| !is_same).or(host).cloned()
}

/// Returns the gaps of commands that printed nothing, although they share a line with others.
fn missing_outputs(judged: &[Judged<'_>]) -> Vec<SectionGap> {
    let mut gaps = Vec::new();
    for (index, (section, _)) in judged.iter().enumerate() {
        let command = section.command.as_ref();
        let Some(command) = command.filter(|command| !command.printed.is_empty()) else {
            continue;
        };
        let following = judged[index + 1..].iter();
        let following = following.take_while(|(section, _)| section.command.is_none());
        let outputs = std::iter::once(&judged[index]).chain(following);
        let formats: Vec<Format> = outputs
            .filter_map(|(_, result)| result.as_ref().ok())
            .flatten()
            .copied()
            .collect();
        for content in &command.printed {
            let Content::State(expected) = content else {
                continue;
            };
            if !formats
                .iter()
                .any(|format| expected.is_compatible_with(*format))
            {
                let reason = format!("`{}` has no output of `{expected}`", section.typed);
                gaps.push(SectionGap {
                    line: Some(section.lines.start),
                    skipped: Skipped::with_effect(reason, LACK),
                });
            }
        }
    }
    gaps
}

/// Whether a program that runs commands printed the line, or `conntrack` the number of entries
/// (conntrack-tools 1.4.7, `src/conntrack.c`, `exit_msg`).
pub(super) fn is_noise(line: &str) -> bool {
    let is_count = || line.starts_with("conntrack v") && line.ends_with(" have been shown.");
    line.starts_with(|c: char| c.is_ascii_uppercase() || c == '[' || c == 'c')
        && (NOISE.iter().any(|begin| line.starts_with(begin)) || is_count())
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

impl Unread {
    fn gap(skipped: Skipped) -> Self {
        Self::Gap(SectionGap {
            line: None,
            skipped,
        })
    }
}

/// Returns why the output of a command is not used, whatever its text. `None` if the text decides.
fn unusable(section: &Section, recognised: Option<Content>, is_empty: bool) -> Option<Unread> {
    let command = section.command.as_ref();
    let typed = &section.typed;
    let expected = command.and_then(|command| command.content);
    let is_unread = command.is_some_and(Command::is_unread);
    let is_written = command.is_some_and(|command| command.output_file.is_some());
    let is_state = recognised.or(expected).is_some() || (is_unread && (!is_empty || is_written));
    let is_other = !is_empty && command.is_some_and(|command| !command.is_silent());
    match section.place {
        Place::Node => {}
        Place::Elsewhere if is_state && !is_empty => {
            let reason = "output in another network namespace";
            return Some(Unread::gap(Skipped::without_effect(reason)));
        }
        Place::Unknown if is_state || is_other => {
            let reason = if typed.is_empty() {
                "the output may be of another network namespace".to_owned()
            } else {
                format!("`{typed}` may run in another network namespace")
            };
            return Some(Unread::gap(Skipped::uncompared(reason)));
        }
        Place::Elsewhere | Place::Unknown => return Some(Unread::Nothing),
    }
    let Some(command) = command else {
        return section.is_unusable.then_some(Unread::Nothing);
    };
    let reason = if !is_state {
        return None;
    } else if let Some(file) = &command.output_file {
        format!("`{typed}` writes its output to `{file}`")
    } else if let Some(filter) = &command.filter {
        format!("the output is filtered by `{filter}`")
    } else if command.kind == OutputKind::Mixed {
        format!("svclab cannot separate the outputs of `{typed}`")
    } else if is_unread {
        let reason = format!("svclab does not read output of `{typed}`");
        return Some(Unread::gap(Skipped::uncompared(reason)));
    } else {
        return None;
    };
    Some(Unread::gap(Skipped::with_effect(reason, LACK)))
}

/// Returns the formats of a section.
fn judge(path: &str, section: &Section, own: &str) -> Result<Vec<Format>, Unread> {
    let gap = |skipped: Skipped| Err(Unread::gap(skipped));
    let is_empty = own.trim_ascii().is_empty();
    let command = section.command.as_ref();
    let recognised = recognise(own);
    if let Some(unread) = unusable(section, recognised, is_empty) {
        return Err(unread);
    }
    let expected = command.and_then(|command| command.content);
    let content = match (recognised, expected) {
        // Without the chains, rules of `iptables -S` look like saved rules.
        (Some(Content::State(Format::Rules(..))), Some(listing @ Content::Unread(_))) => listing,
        (Some(recognised), _) => recognised,
        (None, Some(expected)) if is_empty => expected,
        (None, Some(unread @ Content::Unread(_))) => unread,
        (None, Some(_)) => {
            let first = own.lines().find(|line| !line.trim().is_empty());
            let first = first.unwrap_or_default().trim();
            let reason = format!("`{}` printed `{first}`", section.typed);
            return gap(Skipped::with_effect(reason, LACK));
        }
        (None, None) if is_empty || command.is_none_or(Command::is_silent) => {
            return Err(Unread::Nothing);
        }
        (None, None) => {
            let reason = format!("svclab does not read output of `{}`", section.typed);
            return gap(Skipped::uncompared(reason));
        }
    };
    match content {
        Content::Unread(_) if is_empty => Err(Unread::Nothing),
        Content::Unread(&outputs::LISTING) => {
            let family = listing_family(path, section, own);
            Err(Unread::Listing(Listing::parse(own, family)))
        }
        Content::Unread(&outputs::SERVER_COUNTERS) if outputs::has_no_servers(own) => {
            Err(Unread::Nothing)
        }
        Content::State(Format::VirtualServers) if has_names(own) => {
            gap(outputs::NAMED_SERVERS.skipped())
        }
        Content::Unread(output) => gap(output.skipped()),
        Content::State(format) => {
            let scope = command.and_then(|command| command.scope.as_ref());
            if matches!(scope, Some(Scope::Table(_))) && own.trim_ascii_start().starts_with('[') {
                let reason = format!("the JSON of `{}` does not name the table", section.typed);
                return gap(Skipped::with_effect(reason, LACK));
            }
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

/// Returns the gap of saved rules at the end of a file that ends inside a comment.
fn cut_rules(
    section: &Section,
    outputs: &[(Format, String)],
    text: &str,
    is_last: bool,
) -> Option<SectionGap> {
    let (format, _) = outputs.last().filter(|_| is_last)?;
    let is_rules = matches!(format, Format::Rules(..));
    (is_rules && cut::ends_in_comment(text)).then(|| {
        let reason = "the output ends inside a comment, so tables may be missing";
        SectionGap {
            line: Some(section.lines.start).filter(|line| *line > 0),
            skipped: Skipped::with_effect(reason, LACK),
        }
    })
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
