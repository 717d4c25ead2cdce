//! Recognises commands that print state of a node, at a prompt or in the name of a file.

use super::Content;
use super::outputs;
use svclab_ruleset::Family;
use svclab_ruleset::tool::{DumpedBackend, Format};

/// Command line that was typed on a node, or that a collector ran.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Command {
    /// Output of the program. `None` if svclab does not know the program.
    pub(super) content: Option<Content>,
    /// Whether the command states the address family.
    pub(super) has_family: bool,
    /// Arguments that reduce the output: `-t nat`. `None` if the output is complete.
    pub(super) reduced_by: Option<String>,
    /// Only address family of the output of a program that prints both otherwise. `None` if the
    /// output has both.
    pub(super) only_family: Option<(Format, Family)>,
    /// Command behind a pipe that changes the output: `grep KUBE`. `None` without one.
    pub(super) filter: Option<String>,
    /// Whether the command runs in another network namespace.
    pub(super) is_elsewhere: bool,
    /// Whether further commands run in another network namespace until `exit`.
    pub(super) enters_namespace: bool,
}

/// Programs that run another command, each with the number of arguments before the command.
const WRAPPERS: [(&str, usize); 8] = [
    ("sudo", 0),
    ("time", 0),
    ("nice", 0),
    ("env", 0),
    ("command", 0),
    ("exec", 0),
    ("timeout", 1),
    ("chroot", 1),
];

/// Programs that show the whole input, so that a pipe to them does not reduce the output.
const SHOWING: [&str; 5] = ["cat", "less", "more", "tee", "sort"];

impl Command {
    fn unknown() -> Self {
        Self {
            content: None,
            has_family: false,
            reduced_by: None,
            only_family: None,
            filter: None,
            is_elsewhere: false,
            enters_namespace: false,
        }
    }

    /// Parses a command line.
    pub(super) fn parse(line: &str) -> Self {
        let mut stages = line.split('|').map(str::trim);
        let first = stages.next().unwrap_or_default();
        let mut filters = stages.filter(|stage| {
            let program = stage.split_ascii_whitespace().next().unwrap_or_default();
            !SHOWING.contains(&program)
        });
        let filter = filters.next();
        let words = shlex::split(first).unwrap_or_default();
        let words: Vec<&str> = words
            .iter()
            .map(String::as_str)
            .take_while(|word| !word.starts_with(['>', '<']) && *word != "2>&1" && *word != "&&")
            .filter(|word| !word.starts_with("2>"))
            .collect();
        let mut command = Self::parse_words(&words, 0);
        command.filter = filter.map(str::to_owned);
        command
    }

    fn parse_words(words: &[&str], depth: usize) -> Self {
        let Some((program, arguments)) = words.split_first() else {
            return Self::unknown();
        };
        if depth > 8 {
            return Self::unknown();
        }
        // A variable of the environment: `LC_ALL=C`.
        if program.contains('=') && !program.starts_with(['-', '/']) {
            return Self::parse_words(arguments, depth + 1);
        }
        let name = program.rsplit('/').next().unwrap_or_default();
        if let Some((_, count)) = WRAPPERS.iter().find(|(wrapper, _)| *wrapper == name) {
            let first = arguments.iter().position(|word| !word.starts_with('-'));
            let inner = first.and_then(|first| arguments.get(first + count..));
            return Self::parse_words(inner.unwrap_or_default(), depth + 1);
        }
        match name {
            "sh" | "bash" | "dash" => {
                let script = arguments
                    .iter()
                    .skip_while(|word| !is_script_option(word))
                    .nth(1);
                script.map_or_else(Self::unknown, |script| Self::parse_script(script, depth))
            }
            "nsenter" => Self::parse_nsenter(arguments, depth),
            "kubectl" | "oc" | "docker" | "crictl" | "nerdctl" => {
                Self::parse_exec(arguments, depth)
            }
            _ => Self::parse_program(name, arguments, depth),
        }
    }

    fn parse_script(script: &str, depth: usize) -> Self {
        let words = shlex::split(script).unwrap_or_default();
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        Self::parse_words(&words, depth + 1)
    }

    /// Parses `nsenter -t PID -n COMMAND`. The process 1 is in the namespace of the node.
    fn parse_nsenter(arguments: &[&str], depth: usize) -> Self {
        let mut is_elsewhere = false;
        let mut rest = arguments.iter().enumerate();
        while let Some((index, word)) = rest.next() {
            let target = match *word {
                "--" => return Self::parse_inside(&arguments[index + 1..], is_elsewhere, depth),
                "-t" | "--target" => rest.next().map(|(_, pid)| *pid),
                word if word.starts_with("--target=") => word.strip_prefix("--target="),
                word if word.starts_with("-t") => word.strip_prefix("-t"),
                word if word.starts_with("--net=") => {
                    is_elsewhere |= !word.ends_with("/1/ns/net");
                    None
                }
                word if word.starts_with('-') => None,
                _ => return Self::parse_inside(&arguments[index..], is_elsewhere, depth),
            };
            is_elsewhere |= target.is_some_and(|pid| pid != "1");
        }
        Self {
            enters_namespace: is_elsewhere,
            ..Self::unknown()
        }
    }

    /// Parses a command inside a namespace.
    fn parse_inside(words: &[&str], is_elsewhere: bool, depth: usize) -> Self {
        let command = Self::parse_words(words, depth + 1);
        let is_shell = matches!(words, ["sh" | "bash" | "/bin/sh" | "/bin/bash"]);
        Self {
            is_elsewhere: is_elsewhere || command.is_elsewhere,
            enters_namespace: is_elsewhere && (is_shell || words.is_empty()),
            ..command
        }
    }

    /// Parses `kubectl exec POD -- COMMAND` and `kubectl debug node/NODE -- COMMAND`. A pod has
    /// another network namespace unless it is on the network of its node, as debug pods of nodes
    /// and pods of kube-proxy are.
    fn parse_exec(arguments: &[&str], depth: usize) -> Self {
        let separator = arguments.iter().position(|word| *word == "--");
        let (options, inner) = match separator {
            Some(index) => (&arguments[..index], &arguments[index + 1..]),
            None => (arguments, &[][..]),
        };
        let names = |word: &str| options.iter().any(|own| own.contains(word));
        let is_on_node =
            (options.first() == Some(&"debug") && names("node/")) || names("kube-proxy");
        if !options.iter().any(|word| matches!(*word, "exec" | "debug")) {
            return Self::unknown();
        }
        Self::parse_inside(inner, !is_on_node, depth)
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
            "tc" if arguments.iter().any(|word| is_prefix(word, "qdisc", 1)) => Self {
                reduced_by: selection_after(arguments, |word| is_prefix(word, "qdisc", 1)),
                ..command(state(Format::Qdiscs))
            },
            "tc" => command(Some(Content::Unread(&outputs::TRAFFIC_CONTROL))),
            "ifconfig" => command(Some(Content::Unread(&outputs::IFCONFIG))),
            "bridge" if has(&["fdb"]) => Self {
                reduced_by: selection_after(arguments, |word| word == "fdb"),
                ..command(state(Format::Forwarding))
            },
            "bridge" if has(&["link"]) => Self {
                reduced_by: selection_after(arguments, |word| word == "link"),
                ..command(state(Format::BridgePorts))
            },
            _ => Self::unknown(),
        }
    }

    /// Parses the arguments of `ip`. Objects and their commands may be abbreviated (iproute2 6.1,
    /// `ip/ip.c`, `do_cmd`).
    fn parse_ip(arguments: &[&str], depth: usize) -> Self {
        let mut family = None;
        let mut is_detailed = false;
        let mut is_elsewhere = false;
        let mut rest = arguments.iter();
        let mut object = "";
        while let Some(word) = rest.next() {
            match *word {
                "-4" => family = Some(Family::V4),
                "-6" => family = Some(Family::V6),
                "-f" | "-family" | "--family" => {
                    let is_six = rest.next() == Some(&"inet6");
                    family = Some(if is_six { Family::V6 } else { Family::V4 });
                }
                "-n" | "-netns" => {
                    rest.next();
                    is_elsewhere = true;
                }
                "-d" | "-details" | "--details" => is_detailed = true,
                word if word.starts_with('-') => {}
                word => {
                    object = word;
                    break;
                }
            }
        }
        let mut rest: Vec<&str> = rest.copied().collect();
        let is_xfrm = is_prefix(object, "xfrm", 1);
        let is_policy = is_xfrm && rest.first().is_some_and(|of| is_prefix(of, "policy", 1));
        if is_policy {
            rest.remove(0);
        }
        if is_prefix(object, "netns", 2) && rest.first() == Some(&"exec") {
            return Self::parse_inside(rest.get(2..).unwrap_or_default(), true, depth);
        }
        let verb = rest.first().copied().unwrap_or("show");
        let is_listing = ["show", "list", "lst"]
            .iter()
            .any(|listing| is_prefix(verb, listing, 1));
        let format = match object {
            // Cached results of lookups are not routes.
            _ if !is_listing || rest.contains(&"cache") => None,
            _ if is_prefix(object, "address", 1) => Some(Format::Links),
            _ if is_prefix(object, "link", 1) && is_detailed => Some(Format::LinkDetails),
            _ if is_prefix(object, "link", 1) => Some(Format::Links),
            _ if is_prefix(object, "neighbour", 1) || is_prefix(object, "neighbor", 1) => {
                Some(Format::Neighbours)
            }
            _ if is_prefix(object, "route", 1) => {
                Some(Format::Routes(family.unwrap_or(Family::V4)))
            }
            _ if is_prefix(object, "rule", 2) => {
                Some(Format::RoutingRules(family.unwrap_or(Family::V4)))
            }
            _ if is_policy => Some(Format::IpsecPolicies),
            _ => None,
        };
        let unread = (is_xfrm && !is_policy).then_some(&outputs::XFRM);
        let content = unread
            .map(Content::Unread)
            .or_else(|| format.map(Content::State));
        let selectors: Vec<&str> = rest.iter().skip(1).copied().collect();
        // Without `table all`, `ip route` prints the main table, which rules may refer to.
        let is_complete = matches!(
            selectors.as_slice(),
            [] | ["table", "all"] | ["scope", "global"]
        );
        let reduced_by = (content.is_some() && !is_complete).then(|| selectors.join(" "));
        // These programs print both families without an option.
        let only_family = match (format, family) {
            (
                Some(format @ (Format::Links | Format::Neighbours | Format::IpsecPolicies)),
                Some(family),
            ) if reduced_by.is_none() && !is_prefix(object, "link", 1) => Some((format, family)),
            _ => None,
        };
        Self {
            content,
            has_family: family.is_some(),
            only_family,
            reduced_by: reduced_by.or_else(|| {
                let (_, family) = only_family?;
                Some(format!("only {}", family.name()))
            }),
            is_elsewhere,
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
fn is_prefix(word: &str, name: &str, letters: usize) -> bool {
    word.len() >= letters && name.starts_with(word)
}

/// Whether a word is an option like `-c`, possibly among others: `-lc`.
fn is_script_option(word: &str) -> bool {
    word.starts_with('-') && !word.starts_with("--") && word.ends_with('c')
}

fn option_value<'a>(arguments: &[&'a str], names: &[&str]) -> Option<&'a str> {
    let index = arguments.iter().position(|word| names.contains(word))?;
    arguments.get(index + 1).copied()
}
