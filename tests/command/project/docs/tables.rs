//! Tests that tables of the reference list every item of the code.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use svclab_diagnostic::exit_code;
use svclab_model::evidence::Verdict;

use super::Page;
use crate::support::project;

/// Returns the inline code in the first column of a chapter's table, by its title row.
fn first_column(chapter: &str, title: &str) -> BTreeSet<String> {
    let text = Page::read(&format!("docs/src/reference/{chapter}.md")).text;
    let (_, table) = text
        .split_once(&format!("| {title} |"))
        .unwrap_or_else(|| panic!("{chapter}.md has no table {title}"));
    let rows = table
        .lines()
        .skip(2)
        .take_while(|line| line.starts_with('|'));
    let cells = rows.filter_map(|row| row.split('|').nth(1));
    cells
        .flat_map(|cell| cell.split('`').skip(1).step_by(2))
        .map(str::to_owned)
        .collect()
}

/// Returns the possible values of an argument of a command.
fn possible_values(command: &str, argument: &str) -> BTreeSet<String> {
    let root = svclab::cli::command();
    let command = root.find_subcommand(command).expect("a command");
    let mut arguments = command.get_arguments();
    let argument = arguments.find(|other| other.get_id() == argument);
    let values = argument.expect("an argument").get_possible_values();
    values
        .iter()
        .map(|value| value.get_name().to_owned())
        .collect()
}

#[test]
fn docs_formats_and_schemas_are_complete() {
    let formats = first_column("formats", "format | content");
    assert_eq!(formats, possible_values("run", "format"));
    let schemas = first_column("formats", "NAME | document");
    assert_eq!(schemas, possible_values("schema", "format"));
}

#[test]
fn docs_verdicts_are_complete() {
    let verdicts = Verdict::ALL.map(|verdict| verdict.name().to_owned());
    assert_eq!(
        first_column("results", "verdict | TCP | UDP, ping"),
        verdicts.into()
    );
}

#[test]
fn docs_exit_codes_are_complete() {
    let text = Page::read("docs/src/reference/exit-codes.md").text;
    let rows = text.lines().skip_while(|line| !line.starts_with("|---"));
    let rows = rows.skip(1).take_while(|line| line.starts_with('|'));
    let codes: Vec<u8> = rows
        .filter_map(|row| row.split('|').nth(1)?.trim().parse().ok())
        .collect();
    let expected = [
        exit_code::SUCCESS,
        exit_code::FAILED,
        exit_code::INVALID_INPUT,
        exit_code::HOST_UNABLE,
        exit_code::NOTHING_SELECTED,
        exit_code::AGENT_LOST,
        exit_code::BUG,
        exit_code::INTERRUPTED,
    ];
    assert_eq!(codes, expected);
}

/// Adds the variables `SVCLAB_…` that the sources below a directory name in strings.
fn collect_variables(directory: &Path, found: &mut BTreeSet<String>) {
    for entry in fs::read_dir(directory).expect("a directory") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            collect_variables(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let text = fs::read_to_string(path).expect("a source");
            let strings = text.split("\"SVCLAB_").skip(1);
            let names = strings.filter_map(|rest| rest.split('"').next());
            found.extend(names.map(|name| format!("SVCLAB_{name}")));
        }
    }
}

#[test]
fn docs_environment_variables_are_complete() {
    let mut variables = BTreeSet::new();
    collect_variables(&project().join("lab"), &mut variables);
    let listed = first_column("environment", "variable | meaning");
    let of_svclab = listed
        .into_iter()
        .filter(|name| name.starts_with("SVCLAB_"));
    assert_eq!(of_svclab.collect::<BTreeSet<_>>(), variables);
}
