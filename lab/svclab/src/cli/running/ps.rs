//! Implements `svclab ps`.

use std::fmt::Write as _;

use crate::cli::args::{PsArguments, PsFormat};
use crate::cli::error::{CommandResult, Outcome};
use crate::cli::interrupt::run_interruptible;
use crate::cli::output::{print, print_json};
use crate::live::{LabInfo, SocketDir, document, running_labs};

pub(crate) fn ps(arguments: &PsArguments) -> CommandResult {
    let directory = SocketDir::from_env()?;
    let labs = run_interruptible(running_labs(&directory))??;
    match arguments.format {
        PsFormat::Human => print(&render_table(&labs))?,
        PsFormat::Json => print_json(&document(labs))?,
    }
    Ok(Outcome::SUCCESS)
}

/// Renders the labs as a table.
fn render_table(labs: &[LabInfo]) -> String {
    if labs.is_empty() {
        return "no lab is running; start one with `svclab up LAB/CASE`\n".to_owned();
    }
    let head = ["LAB", "KERNEL", "SINCE", "DAEMON", "NAMESPACES"].map(str::to_owned);
    let mut rows = vec![head];
    rows.extend(labs.iter().map(|lab| {
        [
            lab.case.clone(),
            lab.describe_kernel(),
            lab.since.clone(),
            lab.daemon_pid.to_string(),
            lab.namespaces.join(" "),
        ]
    }));
    let width = |column: usize| rows.iter().map(|row| row[column].len()).max().unwrap_or(0);
    let widths: [usize; 4] = std::array::from_fn(width);
    let mut text = String::new();
    for [lab, kernel, since, holder, namespaces] in &rows {
        let [a, b, c, d] = widths;
        let _ = writeln!(
            text,
            "{lab:a$}  {kernel:b$}  {since:c$}  {holder:d$}  {namespaces}"
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::live::State;

    #[test]
    fn ps_table_lists_labs() {
        let lab = |case: &str, kernel: Option<&str>, guest| LabInfo {
            case: case.to_owned(),
            lab: "lab".to_owned(),
            named: case.to_owned(),
            state: State::Running,
            kernel: kernel.map(str::to_owned),
            guest,
            since: "2026-11-22T06:40:11Z".to_owned(),
            namespaces: vec!["fabric".to_owned(), "pod/default/client".to_owned()],
            daemon_pid: 4711,
            svclab: "0.1.0".to_owned(),
        };
        insta::assert_snapshot!(render_table(&[
            lab("lab/a=b", Some("6.18.44"), false),
            lab("lab/a=longer", Some("6.12.117"), true),
            lab("other", None, false),
        ]), @r"
        LAB           KERNEL                  SINCE                 DAEMON  NAMESPACES
        lab/a=b       Linux 6.18.44           2026-11-22T06:40:11Z  4711    fabric pod/default/client
        lab/a=longer  Linux 6.12.117 (guest)  2026-11-22T06:40:11Z  4711    fabric pod/default/client
        other         being built             2026-11-22T06:40:11Z  4711    fabric pod/default/client
        ");
        insta::assert_snapshot!(render_table(&[]), @"no lab is running; start one with `svclab up LAB/CASE`");
    }
}
