//! Tests that every command line in the documentation exists: svclab's own with the parser of the
//! program, those of scripts with the options that the scripts name.

use std::collections::BTreeSet;
use std::fs;

use clap::error::{ContextKind, ContextValue, ErrorKind};

use super::{Page, pages};
use crate::support::project;

/// Programs whose arguments are not checked.
const OTHER_PROGRAMS: &[&str] = &[
    "ip",
    "ipset",
    "iptables-save",
    "kubectl",
    "mkdir",
    "tar",
    "tcpdump",
    "wireshark",
];

/// Options of kube-proxy that the documentation names.
const OTHER_OPTIONS: &[&str] = &["--cluster-cidr", "--masquerade-all", "--proxy-mode", "--v"];

/// Returns the pages with command lines.
fn pages_with_commands() -> Vec<Page> {
    let mut pages = pages();
    pages.push(Page::read("ARCHITECTURE.md"));
    pages.push(Page::read("CONTRIBUTING.md"));
    pages
}

/// Returns the programs of a shell's command line with their arguments, without redirections.
pub(super) fn programs(line: &str) -> Vec<Vec<String>> {
    let words = shlex::split(line).unwrap_or_else(|| panic!("open quote: {line}"));
    let mut found = vec![Vec::new()];
    let mut is_file = false;
    for word in words {
        let last = found.last_mut().expect("a program");
        if std::mem::take(&mut is_file) {
            continue;
        }
        match word.as_str() {
            "|" | "&&" | ";" => found.push(Vec::new()),
            ">" | "<" | "2>" => is_file = true,
            _ if word.starts_with(['<', '>']) => {}
            // Variables of the environment.
            _ if last.is_empty() && word.contains('=') => {}
            _ => match word.strip_suffix(';') {
                Some(word) => {
                    last.push(word.to_owned());
                    found.push(Vec::new());
                }
                None => last.push(word),
            },
        }
    }
    found.retain(|program| !program.is_empty());
    found
}

/// Returns the error of clap for the arguments of svclab. `is_mention` is for text that only
/// mentions a command: required arguments may be missing, and values may be placeholders.
fn parse_error(arguments: &[String], is_mention: bool) -> Option<clap::Error> {
    let words = std::iter::once("svclab").chain(arguments.iter().map(String::as_str));
    let error = svclab::cli::command().try_get_matches_from(words).err()?;
    let value = error.get(ContextKind::InvalidValue);
    let is_allowed = match error.kind() {
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => true,
        ErrorKind::MissingRequiredArgument
        | ErrorKind::MissingSubcommand
        | ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => is_mention,
        ErrorKind::InvalidValue | ErrorKind::ValueValidation => {
            is_mention && matches!(value, Some(ContextValue::String(text)) if is_placeholder(text))
        }
        _ => false,
    };
    (!is_allowed).then_some(error)
}

/// Whether a value stands for others, such as `NAME` or `v1.N`.
fn is_placeholder(value: &str) -> bool {
    let value = value.strip_prefix("v1.").unwrap_or(value);
    value.is_empty() || value.chars().all(|letter| letter.is_ascii_uppercase())
}

/// Returns the long options among words, without values.
fn long_options(words: &[String]) -> impl Iterator<Item = &str> {
    let options = words.iter().filter(|word| word.starts_with("--"));
    options
        .map(|option| option.split('=').next().unwrap_or(option))
        .filter(|option| *option != "--")
}

/// Checks a program of a command line.
fn check_program(program: &[String]) -> Result<(), String> {
    let (name, arguments) = program.split_first().expect("a program");
    match name.as_str() {
        "svclab" | "./scripts/lab" => match parse_error(arguments, false) {
            Some(error) => Err(error.to_string()),
            None => Ok(()),
        },
        "cargo" => check_cargo(arguments),
        // The standard input of the remote shell is this script.
        "ssh" => check_script("scripts/collect-node", arguments),
        name if name.contains('/') => check_script(name, arguments),
        name if OTHER_PROGRAMS.contains(&name) => Ok(()),
        name => Err(format!("no check for the program `{name}`")),
    }
}

/// Checks that a script exists and names the options.
fn check_script(script: &str, arguments: &[String]) -> Result<(), String> {
    let text = fs::read_to_string(project().join(script));
    let mut text = text.map_err(|error| format!("{script}: {error}"))?;
    if script.ends_with("scripts/bench") {
        // The script passes options on to this program.
        let program = project().join("tests/diagnosis/src/args.rs");
        text += &fs::read_to_string(program).expect("the source");
    }
    let unknown = long_options(arguments).find(|option| {
        // An option of clap is a field of its name.
        let field = option.trim_start_matches('-').replace('-', "_");
        !text.contains(option) && !text.contains(&format!(" {field}: "))
    });
    match unknown {
        Some(option) => Err(format!("{script} has no option {option}")),
        None => Ok(()),
    }
}

/// Checks that test programs and packages of a cargo command exist.
fn check_cargo(arguments: &[String]) -> Result<(), String> {
    for pair in arguments.windows(2) {
        let (place, name) = match pair[0].as_str() {
            "--test" => ("tests", pair[1].as_str()),
            "-p" => match pair[1].strip_prefix("svclab-") {
                Some("diagnosis") => ("tests", "diagnosis"),
                Some(name) => ("lab", name),
                None => return Err(format!("unknown package {}", pair[1])),
            },
            _ => continue,
        };
        if !project().join(place).join(name).exists() {
            return Err(format!("{place}/{name} does not exist"));
        }
    }
    Ok(())
}

#[test]
fn docs_command_lines_are_valid() {
    let mut errors = Vec::new();
    let mut shown = BTreeSet::new();
    let mut count = 0;
    for page in pages_with_commands() {
        let path = page.path.display();
        let blocks = page.blocks();
        let consoles = blocks.iter().filter(|block| block.language == "console");
        let lines = consoles.flat_map(|block| block.text.lines());
        for line in lines.filter_map(|line| line.strip_prefix("$ ")) {
            for program in programs(line) {
                count += 1;
                if let Err(error) = check_program(&program) {
                    errors.push(format!("{path}: {line}\n{error}"));
                }
                if ["svclab", "./scripts/lab"].contains(&program[0].as_str()) {
                    shown.extend(program.get(1).cloned());
                }
            }
        }
        for code in page.inline_code() {
            let command = code
                .strip_prefix("svclab ")
                .or_else(|| code.strip_prefix("./scripts/lab "));
            let Some(command) = command.filter(|command| *command != "ARGS") else {
                continue;
            };
            count += 1;
            let arguments = programs(command).swap_remove(0);
            if let Some(error) = parse_error(&arguments, true) {
                errors.push(format!("{path}: `{code}`\n{error}"));
            }
            shown.insert(arguments[0].clone());
        }
    }
    assert!(errors.is_empty(), "{}", errors.join("\n"));
    println!("{count} command lines");
    for command in [
        "run",
        "explain",
        "why",
        "plan",
        "graph",
        "claims",
        "verify",
        "bisect",
        "diff",
        "replay",
        "redact",
        "collect-node",
        "report",
        "doctor",
        "kernel",
        "rules",
        "up",
        "ps",
        "exec",
        "shell",
        "probe",
        "capture",
        "down",
        "schema",
        "completions",
    ] {
        assert!(shown.contains(command), "no page shows svclab {command}");
    }
}

#[test]
fn docs_command_line_with_unknown_option_is_refused() {
    let errors = [
        "svclab run --no-such-option node-port.yaml",
        "svclab no-such-command",
        "svclab run | svclab why",
        "SVCLAB_LOG=debug svclab ps; svclab ps --no-such-option > FILE",
        "svclab schema NAME",
        "./scripts/test --no-such-option",
        "./scripts/no-such-script",
        "ssh root@node-1 sh -s -- --no-such-option < scripts/collect-node",
        "cargo test --test no_such_test",
        "no-such-program",
    ];
    for line in errors {
        let mut programs = programs(line).into_iter();
        assert!(
            programs.any(|program| check_program(&program).is_err()),
            "{line}"
        );
    }
    let mention = |text: &str| parse_error(&programs(text).swap_remove(0), true);
    assert!(mention("schema NAME").is_none() && mention("exec").is_none());
    assert!(mention("schema name").is_some() && mention("exec --no-such-option").is_some());
}

/// Returns the options of a command and its subcommands.
fn options_of(command: &clap::Command) -> BTreeSet<String> {
    let own = command.get_arguments();
    let own = own.filter_map(|argument| Some(format!("--{}", argument.get_long()?)));
    let subcommands = command.get_subcommands().flat_map(options_of);
    own.chain(subcommands).collect()
}

#[test]
fn docs_mentioned_options_exist() {
    let mut command = svclab::cli::command();
    command.build();
    let mut known = options_of(&command);
    known.extend(OTHER_OPTIONS.iter().map(ToString::to_string));
    let scripts = ["collect-node", "test", "bench"].map(|script| {
        let text = fs::read_to_string(project().join("scripts").join(script));
        text.expect("the script")
    });
    // Generated chapters also name options of all components.
    let written = pages().into_iter().filter(|page| !page.is_generated());
    for page in written {
        for code in page.inline_code() {
            let words: Vec<String> = code.split_whitespace().map(str::to_owned).collect();
            if !code.starts_with("--") {
                continue;
            }
            for option in long_options(&words) {
                let is_of_script = scripts.iter().any(|script| script.contains(option));
                assert!(
                    known.contains(option) || is_of_script,
                    "{}: unknown option in `{code}`",
                    page.path.display()
                );
            }
        }
    }
}
