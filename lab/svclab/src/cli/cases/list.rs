//! Implements `svclab list`, which lists cases, and `svclab labs`, which lists labs and prints the
//! file of one.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use super::labs::load_each_lab;
use crate::cli::args::{LabsArguments, LabsCommand, ListArguments};
use crate::cli::error::{CommandResult, Outcome, outcome_of_cases};
use crate::cli::output::print;
use svclab_runner::results::ErrorKind;
use svclab_runner::run::select::lab_source;
use svclab_runner::run::{LabResult, SelectedLab};

/// Lists labs, or prints one.
pub(crate) fn labs(arguments: &LabsArguments) -> CommandResult {
    if let Some(LabsCommand::Show { name, source }) = &arguments.command {
        print(lab_source(name, source.labs())?.text())?;
        return Ok(Outcome::SUCCESS);
    }
    let search = arguments
        .source
        .labs()
        .with_outside(arguments.allow_outside);
    let labs = if arguments.names.is_empty() {
        let mut labs = load_each_lab(&[], search)?;
        let groups = arguments.source.labs().groups();
        if !groups.is_empty() {
            labs.extend(load_each_lab(&groups, search)?);
        }
        labs
    } else {
        load_each_lab(&arguments.names, search)?
    };
    let worst = worst_error(&labs);
    let valid: Vec<&SelectedLab> = labs.iter().flatten().collect();
    let printed = print(&render_table(&valid));
    outcome_of_cases(printed, worst, Outcome::SUCCESS)
}

/// Lists the selected cases.
pub(crate) fn list(arguments: &ListArguments) -> CommandResult {
    let search = arguments
        .source
        .labs()
        .with_outside(arguments.allow_outside);
    let labs = load_each_lab(&arguments.names, search)?;
    let mut text = String::new();
    for lab in labs.iter().flatten() {
        for index in &lab.cases {
            let case = &lab.scenario.cases()[*index];
            let _ = writeln!(text, "{}", lab.rerun_name(case));
            let made = case
                .made_objects()
                .into_iter()
                .filter(|_| arguments.verbose);
            for line in made {
                let _ = writeln!(text, "  {line}");
            }
        }
    }
    outcome_of_cases(print(&text), worst_error(&labs), Outcome::SUCCESS)
}

/// Returns the most severe kind of the errors of invalid labs, which are already printed.
fn worst_error(labs: &[LabResult]) -> Option<ErrorKind> {
    let invalid = labs.iter().filter_map(|lab| lab.as_ref().err());
    invalid.map(|lab| lab.error.kind).max()
}

/// Renders the labs as a table.
fn render_table(labs: &[&SelectedLab]) -> String {
    let head = ["LAB", "CASES", "MODES", "ABOUT"].map(str::to_owned);
    let mut rows = vec![head];
    rows.extend(labs.iter().map(|lab| {
        [
            lab.cli_name.clone(),
            lab.cases.len().to_string(),
            modes(lab),
            lab.scenario.lab.spec.about.clone(),
        ]
    }));
    let width = |column: usize| rows.iter().map(|row| row[column].len()).max().unwrap_or(0);
    let widths: [usize; 3] = std::array::from_fn(width);
    let mut text = String::new();
    for [lab, cases, modes, about] in &rows {
        let [a, b, c] = widths;
        let _ = writeln!(text, "{lab:a$}  {cases:>b$}  {modes:c$}  {about}");
    }
    text
}

/// Returns the modes of kube-proxy in the selected cases of a lab; `-` without kube-proxy.
fn modes(lab: &SelectedLab) -> String {
    let mut modes = BTreeSet::new();
    for index in &lab.cases {
        let spec = &lab.scenario.cases()[*index].spec;
        let own = spec
            .nodes
            .values()
            .filter_map(|node| node.kube_proxy.as_ref());
        modes.extend(
            spec.kube_proxy
                .iter()
                .chain(own)
                .map(|proxy| proxy.mode.to_string()),
        );
    }
    if modes.is_empty() {
        return "-".to_owned();
    }
    modes.into_iter().collect::<Vec<_>>().join(",")
}
