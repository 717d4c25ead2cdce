//! Recognises commands that print state of a node, at a prompt or in the name of a file.

use super::place::{Place, is_shell, program_name};
use super::scope::{self, Scope};
use super::shell::{self, Pipeline};
use super::{Content, outputs};
use crate::silent;
use svclab_ruleset::Family;
use svclab_ruleset::tool::{DumpedBackend, Format};

/// Command line that was typed on a node, or that a collector ran.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Command {
    /// Output of the program. `None` if svclab does not know the program.
    pub(super) content: Option<Content>,
    /// Kind of the output.
    pub(super) kind: OutputKind,
    /// Whether the command states the address family.
    pub(super) has_family: bool,
    /// Arguments that reduce the output: `-t nat`. `None` if the output is complete.
    pub(super) reduced_by: Option<String>,
    /// Only address family of the output of a program that prints both otherwise. `None` if the
    /// output has both.
    pub(super) only_family: Option<(Format, Family)>,
    /// Argument that the lines of the output lack. `None` if the lines state everything.
    pub(super) scope: Option<Scope>,
    /// Command behind a pipe that changes the output: `grep KUBE`. `None` without one.
    pub(super) filter: Option<String>,
    /// File to which the output is written. `None` if the terminal shows the output.
    pub(super) output_file: Option<String>,
    /// Outputs of several commands on one line that differ in their content.
    pub(super) printed: Vec<Content>,
    /// Namespace in which the command runs.
    pub(super) place: Place,
    /// Namespace of further commands until `exit`. `None` if the command starts no shell.
    pub(super) enters: Option<Place>,
    /// Other host on which the command runs. `None` for the host of the prompt.
    pub(super) host: Option<String>,
}

/// Kind of an output.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum OutputKind {
    /// Output of one command. Its text decides whether svclab reads it.
    #[default]
    Single,
    /// Outputs of several commands that cannot be separated.
    Mixed,
    /// State of a network that svclab does not read: `ip nexthop`.
    Unread,
    /// No state of a network: `uname -a`.
    Silent,
}

/// Programs that run another command, each with the number of arguments before the command, and the
/// letters of the options with a value.
const WRAPPERS: [(&str, usize, &str); 14] = [
    ("sudo", 0, "ughpCrt"),
    ("doas", 0, "u"),
    ("time", 0, "fo"),
    ("nice", 0, "n"),
    ("env", 0, "uCS"),
    ("exec", 0, "a"),
    ("stdbuf", 0, "ioe"),
    ("sshpass", 0, "pfe"),
    ("busybox", 0, ""),
    ("k3s", 0, ""),
    ("microk8s", 0, ""),
    ("watch", 0, "n"),
    ("timeout", 1, "sk"),
    ("chroot", 1, ""),
];

/// Programs that show the whole input, so that a pipe to them does not reduce the output.
const SHOWING: [&str; 5] = ["cat", "less", "more", "tee", "sort"];

impl Command {
    /// Returns a command that svclab does not know.
    pub(super) fn unknown() -> Self {
        Self::default()
    }

    /// Whether the output has no state of a network.
    pub(super) fn is_silent(&self) -> bool {
        self.kind == OutputKind::Silent
    }

    /// Whether the output is state that svclab does not read.
    pub(super) fn is_unread(&self) -> bool {
        self.kind == OutputKind::Unread
    }

    /// Whether no part of the output can be used.
    pub(super) fn is_unusable(&self) -> bool {
        matches!(self.kind, OutputKind::Mixed | OutputKind::Unread)
            || self.filter.is_some()
            || self.output_file.is_some()
    }

    /// Parses a command line.
    pub(super) fn parse(line: &str) -> Self {
        Self::parse_script(line, 0)
    }

    /// Parses a command line inside another command.
    pub(super) fn parse_script(line: &str, depth: usize) -> Self {
        let Some(pipelines) = shell::parse(line) else {
            return Self::unknown();
        };
        let commands = pipelines.iter().map(|own| Self::parse_pipeline(own, depth));
        let mut commands: Vec<Self> = commands.collect();
        if commands.iter().any(|command| !command.is_silent()) {
            commands.retain(|command| !command.is_silent() || command.enters.is_some());
        }
        let is_loop = shell::is_loop(line);
        if commands.len() > 1 || (is_loop && !commands.is_empty()) {
            return Self::several(&commands, is_loop);
        }
        commands.pop().unwrap_or_else(Self::silent)
    }

    /// Returns a command without state of a network.
    pub(super) fn silent() -> Self {
        Self {
            kind: OutputKind::Silent,
            ..Self::default()
        }
    }

    /// Combines the commands of one line.
    fn several(commands: &[Self], is_loop: bool) -> Self {
        let contents: Vec<Content> = commands.iter().filter_map(|own| own.content).collect();
        let is_plain = |own: &Self| {
            own.place == Place::Node
                && own.reduced_by.is_none()
                && own.filter.is_none()
                && own.output_file.is_none()
                && own.host.is_none()
                && own.kind == OutputKind::Single
                && matches!(own.content, Some(Content::State(_)))
        };
        let are_different = contents.iter().enumerate().all(|(index, own)| {
            let mut others = contents[..index].iter();
            others.all(|other| own.differs_from(*other))
        });
        let enters = commands.last().and_then(|last| last.enters);
        let has_known = commands.iter().any(|own| own.content.is_some());
        if !is_loop && are_different && commands.iter().all(is_plain) {
            return Self {
                printed: contents,
                ..Self::unknown()
            };
        }
        let place = commands.iter().map(|own| own.place).min();
        Self {
            content: contents.first().copied(),
            kind: if has_known {
                OutputKind::Mixed
            } else {
                OutputKind::Unread
            },
            place: place.unwrap_or_default(),
            enters,
            ..Self::unknown()
        }
    }

    fn parse_pipeline(pipeline: &Pipeline, depth: usize) -> Self {
        let mut stages = pipeline.stages.iter();
        let words: Vec<&str> = stages
            .next()
            .into_iter()
            .flatten()
            .map(String::as_str)
            .collect();
        let mut filters = stages.filter(|stage| {
            let program = stage.first().map(String::as_str).unwrap_or_default();
            !SHOWING.contains(&program)
        });
        let command = Self::parse_words(&words, depth);
        let filter = filters.next().map(|stage| stage.join(" "));
        Self {
            filter: filter.or(command.filter),
            output_file: pipeline.output_file.clone().or(command.output_file),
            ..command
        }
    }

    /// Parses the words of a command.
    pub(super) fn parse_words(words: &[&str], depth: usize) -> Self {
        let Some((program, arguments)) = words.split_first() else {
            return Self::silent();
        };
        if depth > 8 {
            return Self::unknown();
        }
        // A variable of the environment: `LC_ALL=C`.
        if program.contains('=') && !program.starts_with(['-', '/']) {
            return Self::parse_words(arguments, depth + 1);
        }
        let name = program_name(program);
        if let Some((_, count, values)) = WRAPPERS.iter().find(|(own, ..)| *own == name) {
            return Self::parse_wrapped(name, arguments, (*count, values), depth);
        }
        if is_shell(words) || name == "su" {
            return Self {
                enters: Some(Place::Node),
                ..Self::silent()
            };
        }
        if let Some(command) = Self::parse_outside(name, arguments, depth) {
            return command;
        }
        if matches!(name, "sh" | "bash" | "ash" | "dash" | "zsh") {
            let script = arguments
                .iter()
                .skip_while(|word| !is_script_option(word))
                .nth(1);
            return script.map_or_else(Self::unknown, |script| {
                Self::parse_script(script, depth + 1)
            });
        }
        Self::parse_program(name, arguments, depth)
    }

    /// Parses the arguments of a program that runs another command on the node.
    fn parse_wrapped(
        name: &str,
        arguments: &[&str],
        (count, values): (usize, &str),
        depth: usize,
    ) -> Self {
        let mut first = 0;
        while let Some(letters) = arguments.get(first).and_then(|word| word.strip_prefix('-')) {
            let has_value = letters.len() == 1 && values.contains(letters);
            first += 1 + usize::from(has_value);
        }
        let inner = arguments.get(first + count..).unwrap_or_default();
        let starts_shell = name == "chroot" || arguments.iter().any(|word| is_login(word));
        if inner.is_empty() && starts_shell {
            return Self {
                enters: Some(Place::Node),
                ..Self::silent()
            };
        }
        Self::parse_words(inner, depth + 1)
    }

    fn parse_program(name: &str, arguments: &[&str], depth: usize) -> Self {
        let has = |options: &[&str]| arguments.iter().any(|word| options.contains(word));
        let family = if name.starts_with("ip6") {
            Family::V6
        } else {
            Family::V4
        };
        let state = |format| Some(Content::State(format));
        let command = |content| Self {
            content,
            has_family: true,
            ..Self::unknown()
        };
        match name {
            "ip" => Self::parse_ip(arguments, depth),
            "iptables-save"
            | "iptables-nft-save"
            | "iptables-legacy-save"
            | "ip6tables-save"
            | "ip6tables-nft-save"
            | "ip6tables-legacy-save" => {
                let backend = if name.contains("legacy") {
                    DumpedBackend::Legacy
                } else {
                    DumpedBackend::Default
                };
                let joined = arguments.iter().find_map(|word| {
                    let long = word.strip_prefix("--table=");
                    long.or_else(|| word.strip_prefix("-t"))
                });
                let table = option_value(arguments, &["-t", "--table"]);
                let table = table.or(joined.filter(|table| !table.is_empty()));
                Self {
                    reduced_by: table.map(|table| format!("-t {table}")),
                    ..command(state(Format::Rules(family, backend)))
                }
            }
            "iptables" | "iptables-nft" | "iptables-legacy" | "ip6tables" | "ip6tables-nft"
            | "ip6tables-legacy" => command(Some(Content::Unread(&outputs::LISTING))),
            "nft" if has(&["list"]) => {
                let list = arguments.iter().skip_while(|word| **word != "list").skip(1);
                let list: Vec<&str> = list.copied().collect();
                let is_terse = has(&["--terse"]) || has_letter(arguments, &['t']);
                let objects = (list != ["ruleset"]).then(|| format!("list {}", list.join(" ")));
                Self {
                    reduced_by: objects.or_else(|| is_terse.then(|| "--terse".to_owned())),
                    ..command(state(Format::Nft))
                }
            }
            "ipset" if has(&IPSET_LISTINGS) => Self {
                reduced_by: selection(arguments, &IPSET_LISTINGS, &["-o", "-output", "--output"]),
                ..command(state(Format::Sets))
            },
            "ipvsadm" if has(&["--stats", "--rate", "-c", "--connection"]) => {
                command(Some(Content::Unread(&outputs::SERVER_COUNTERS)))
            }
            "ipvsadm" => {
                let is_one = has(&SERVICE_OPTIONS) || has_letter(arguments, &['t', 'u', 'f']);
                Self {
                    reduced_by: is_one.then(|| arguments.join(" ")),
                    ..command(state(Format::VirtualServers))
                }
            }
            // A collector names a file `sysctl_all`.
            "sysctl" if has(&["-a", "-A", "--all", "-an", "-ae", "all"]) => {
                command(state(Format::Sysctls))
            }
            "sysctl" if !has(&["-w", "-p", "--write", "--system"]) => Self {
                reduced_by: Some(arguments.join(" ")),
                ..command(state(Format::Sysctls))
            },
            "conntrack" if has(&["-L", "--dump"]) => {
                let listing = ["-L", "--dump", "conntrack"];
                let rest = without_option(arguments, &["-o", "--output"]);
                let rest: Vec<&str> = rest.filter(|word| !listing.contains(word)).collect();
                Self {
                    reduced_by: (!rest.is_empty()).then(|| rest.join(" ")),
                    ..command(state(Format::Connections))
                }
            }
            "tc" => Self::parse_tc(arguments),
            "ifconfig" => command(Some(Content::Unread(&outputs::IFCONFIG))),
            "bridge" if arguments.first().is_some_and(|word| is_netns_option(word)) => Self {
                place: Place::Elsewhere,
                ..Self::parse_program(name, arguments.get(2..).unwrap_or_default(), depth)
            },
            "bridge" if has(&["fdb"]) => Self {
                reduced_by: selection_after(arguments, |word| word == "fdb"),
                ..command(state(Format::Forwarding))
            },
            "bridge" if has(&["link"]) => Self {
                reduced_by: selection_after(arguments, |word| word == "link"),
                ..command(state(Format::BridgePorts))
            },
            _ if silent::is_silent(name, arguments) => Self::silent(),
            _ if silent::is_network_program(name) => Self {
                kind: OutputKind::Unread,
                ..Self::unknown()
            },
            _ => Self::unknown(),
        }
    }

    /// Parses the arguments of `tc`. Objects and verbs may be abbreviated (iproute2 6.1, `tc/tc.c`,
    /// `do_cmd`).
    fn parse_tc(arguments: &[&str]) -> Self {
        let mut place = Place::Node;
        let mut rest = arguments.iter();
        let object = loop {
            match rest.next() {
                Some(word) if is_netns_option(word) => {
                    rest.next();
                    place = Place::Elsewhere;
                }
                Some(word) if word.starts_with('-') => {}
                word => break word.copied().unwrap_or_default(),
            }
        };
        let objects = [
            ("qdisc", Format::Qdiscs),
            ("class", Format::TrafficClasses),
            ("filter", Format::TrafficFilters),
        ];
        let mut objects = objects.into_iter();
        let format = objects.find(|(name, _)| is_prefix(object, name, 1));
        let is_other = ["action", "chain", "monitor"].contains(&object);
        let rest: Vec<&str> = rest.copied().collect();
        let (is_listing, selectors) = match rest.as_slice() {
            [verb, selectors @ ..] => {
                let mut verbs = LISTING_VERBS.iter();
                (verbs.any(|listing| is_prefix(verb, listing, 1)), selectors)
            }
            [] => (true, &[][..]),
        };
        let Some((name, format)) = format.filter(|_| is_listing) else {
            let kind = if !is_listing && silent::is_change(rest[0]) {
                OutputKind::Silent
            } else if is_other {
                OutputKind::Unread
            } else {
                OutputKind::Single
            };
            return Self {
                kind,
                place,
                ..Self::unknown()
            };
        };
        Self {
            content: Some(Content::State(format)),
            has_family: true,
            reduced_by: (!selectors.is_empty()).then(|| selectors.join(" ")),
            scope: scope::of_tc(name, selectors),
            place,
            ..Self::unknown()
        }
    }
}

/// Commands of `ipset` that print sets.
const IPSET_LISTINGS: [&str; 8] = [
    "save", "-S", "--save", "-save", "list", "-L", "--list", "-list",
];

/// Options of `ipvsadm` that select one virtual server.
const SERVICE_OPTIONS: [&str; 4] = [
    "--tcp-service",
    "--udp-service",
    "--sctp-service",
    "--fwmark-service",
];

/// Verbs of `tc` and `bridge` that print all objects.
const LISTING_VERBS: [&str; 4] = ["show", "list", "lst", "ls"];

/// Whether a word is short options with one of these letters: `-Lnt`.
fn has_letter(arguments: &[&str], letters: &[char]) -> bool {
    let mut short = arguments
        .iter()
        .filter_map(|word| word.strip_prefix('-'))
        .filter(|letters| !letters.starts_with('-'));
    short.any(|word| word.contains(letters))
}

/// Returns the arguments without these options and their values.
fn without_option<'a>(
    arguments: &'a [&'a str],
    options: &'a [&'a str],
) -> impl Iterator<Item = &'a str> {
    let is_option = move |index: usize| options.contains(&arguments[index]);
    (0..arguments.len())
        .filter(move |index| !is_option(*index) && (*index == 0 || !is_option(*index - 1)))
        .map(move |index| arguments[index])
}

/// Returns the names that follow a command: `KUBE-CLUSTER-IP`. `None` without names.
fn selection(arguments: &[&str], commands: &[&str], options: &[&str]) -> Option<String> {
    let names = without_option(arguments, options);
    let names = names.filter(|word| !word.starts_with('-') && !commands.contains(word));
    let names: Vec<&str> = names.collect();
    (!names.is_empty()).then(|| names.join(" "))
}

/// Returns the words after an object, except the verb that prints all. `None` without such words.
fn selection_after(arguments: &[&str], is_object: impl Fn(&str) -> bool) -> Option<String> {
    let rest = arguments.iter().skip_while(|word| !is_object(word)).skip(1);
    let rest: Vec<&str> = rest.copied().collect();
    let words = match rest.as_slice() {
        [verb, words @ ..] if LISTING_VERBS.contains(verb) => words,
        words => words,
    };
    (!words.is_empty()).then(|| words.join(" "))
}

/// Whether a word is an abbreviation of a name, with at least some letters.
pub(super) fn is_prefix(word: &str, name: &str, letters: usize) -> bool {
    word.len() >= letters && name.starts_with(word)
}

/// Whether a word is an option like `-c`, possibly among others: `-lc`.
fn is_script_option(word: &str) -> bool {
    word.starts_with('-') && !word.starts_with("--") && word.ends_with('c')
}

/// Whether an option of `ip`, `tc` or `bridge` selects another network namespace: `-n`, `-netns`.
pub(super) fn is_netns_option(word: &str) -> bool {
    let letters = word.trim_start_matches('-');
    word.starts_with('-') && is_prefix(letters, "netns", 1)
}

/// Whether an option of `sudo` starts a shell.
fn is_login(word: &str) -> bool {
    matches!(word, "-i" | "-s" | "--login" | "--shell")
}

fn option_value<'a>(arguments: &[&'a str], names: &[&str]) -> Option<&'a str> {
    let index = arguments.iter().position(|word| names.contains(word))?;
    arguments.get(index + 1).copied()
}
