//! Renders the reference of the command line from the definitions of its arguments.

use std::fmt::Write as _;

use clap::{Arg, Command};

use super::{NOTE, cell, table};

/// Returns the chapter.
pub(super) fn render() -> String {
    let mut root = svclab::cli::command()
        .term_width(100)
        .disable_help_subcommand(true);
    root.build();
    let mut text = format!(
        "# Command line\n\n{NOTE}\n\nThis chapter lists every command with its arguments. \
         `--help` of a command prints the same text.\n\n"
    );
    let rows = visible(&root).map(|command| {
        let name = command.get_name();
        vec![format!("[`{name}`](#svclab-{name})"), cell(&about(command))]
    });
    text += &table(&["command", "purpose"], rows);
    let global: Vec<&Arg> = root
        .get_arguments()
        .filter(|arg| arg.is_global_set())
        .collect();
    let _ = write!(
        text,
        "\n## Options of every command\n\n{}",
        options(&global)
    );
    for command in visible(&root) {
        write_command(&mut text, command, "svclab");
    }
    text
}

/// Writes the section of a command, and of its subcommands.
fn write_command(text: &mut String, command: &Command, parent: &str) {
    let name = format!("{parent} {}", command.get_name());
    let mut command = command.clone();
    let usage = command.render_usage().to_string();
    let usage = usage.trim_start_matches("Usage: ");
    let _ = write!(
        text,
        "\n## `{name}`\n\n{}.\n\n```text\n{usage}\n```\n",
        about(&command)
    );
    let is_own = |arg: &&Arg| !arg.is_global_set() && !arg.is_hide_set() && arg.get_id() != "help";
    let own: Vec<&Arg> = command.get_arguments().filter(is_own).collect();
    let (named, positional): (Vec<&Arg>, Vec<&Arg>) =
        own.into_iter().partition(|arg| !arg.is_positional());
    for (title, arguments) in [("argument", positional), ("option", named)] {
        if !arguments.is_empty() {
            let rows = arguments.into_iter().map(row);
            let _ = write!(text, "\n{}", table(&[title, "meaning"], rows));
        }
    }
    if let Some(more) = command.get_after_help() {
        let _ = write!(text, "\n```text\n{}\n```\n", more.to_string().trim_end());
    }
    for subcommand in visible(&command) {
        write_command(text, subcommand, &name);
    }
}

/// Renders the table of options.
fn options(arguments: &[&Arg]) -> String {
    table(&["option", "meaning"], arguments.iter().map(|arg| row(arg)))
}

/// Returns the subcommands that the help lists.
fn visible(command: &Command) -> impl Iterator<Item = &Command> {
    command
        .get_subcommands()
        .filter(|command| !command.is_hide_set())
}

fn about(command: &Command) -> String {
    let about = command.get_long_about().or(command.get_about());
    about.expect("a command has help").to_string()
}

/// Renders an argument as a row of a table.
fn row(arg: &Arg) -> Vec<String> {
    let names = arg.get_value_names().unwrap_or_default();
    let takes_value = arg.get_action().takes_values();
    let is_repeated = arg.is_positional() && arg.get_num_args().is_some_and(|n| n.max_values() > 1);
    let value = names.iter().map(|name| format!("<{name}>"));
    let value = value.collect::<Vec<_>>().join(" ") + if is_repeated { "…" } else { "" };
    let mut name = String::new();
    if let Some(short) = arg.get_short() {
        let _ = write!(name, "-{short}, ");
    }
    if let Some(long) = arg.get_long() {
        let _ = write!(name, "--{long} ");
    }
    if takes_value {
        name += &value;
    }
    let help = arg.get_long_help().or(arg.get_help());
    let mut meaning = help.map(ToString::to_string).unwrap_or_default();
    let choices: Vec<String> = arg
        .get_possible_values()
        .iter()
        .filter(|choice| takes_value && !choice.is_hide_set())
        .map(|choice| match choice.get_help() {
            Some(help) => format!("`{}`: {help}", choice.get_name()),
            None => format!("`{}`", choice.get_name()),
        })
        .collect();
    if !choices.is_empty() {
        let separator = if choices[0].contains(": ") {
            ". "
        } else {
            ", "
        };
        let _ = write!(meaning, ". Values: {}", choices.join(separator));
    }
    let defaults: Vec<String> = arg
        .get_default_values()
        .iter()
        .map(|value| format!("`{}`", value.to_string_lossy()))
        .collect();
    if takes_value && !defaults.is_empty() {
        let _ = write!(meaning, ". Default: {}", defaults.join(", "));
    }
    if let Some(variable) = arg.get_env() {
        let _ = write!(meaning, ". Variable: `{}`", variable.to_string_lossy());
    }
    vec![cell(&format!("`{}`", name.trim())), cell(&meaning)]
}
