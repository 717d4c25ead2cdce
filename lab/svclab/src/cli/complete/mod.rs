//! Completes arguments for shells: labs, cases, namespaces and probes. Nothing is printed but the
//! candidates, and labs that cannot be read have none.

mod line;

use std::ffi::OsStr;
use std::path::Path;

use clap::Command;
use clap_complete::engine::{CompletionCandidate, PathCompleter, ValueCompleter as _};
use clap_complete::env::Shells;
use clap_complete::{ArgValueCompleter, CompleteEnv, Shell};

use super::args;
use super::error::CliError;
use super::interrupt::block_on;
use super::output::print_error;
use crate::live::{LabInfo, SocketDir, pick_lab, running_labs};
use line::Line;
use svclab_diagnostic::exit_code;
use svclab_runner::run::{SelectedLab, select_labs_each};

/// Environment variable with the name of the shell that completes a command line.
const VARIABLE: &str = "SVCLAB_COMPLETE";

/// Name of the program in completion scripts, which the shell finds on its `PATH`.
const PROGRAM: &str = "svclab";

/// Completion script for bash.
const BASH: &str = include_str!("svclab.bash");

/// End of the script for zsh. zsh loads a file `_svclab` in `fpath` as the body of a function, whose
/// first call must complete.
const ZSH_FIRST_CALL: &str = r#"if [[ ${funcstack[1]} == _svclab ]]; then
    _clap_dynamic_completer_svclab "$@"
fi
"#;

/// Function that returns the candidates for the current word.
type Candidates = fn(&OsStr) -> Vec<CompletionCandidate>;

/// Commands, identifiers of their arguments, and the candidates for these.
const COMPLETED: [(&[&str], &[&str], Candidates); 6] = [
    (
        &[
            "run", "explain", "why", "plan", "graph", "claims", "verify", "list",
        ],
        &["names"],
        cases,
    ),
    (&["labs"], &["names", "name"], labs),
    (&["up"], &["name"], cases),
    (&["bisect"], &["good", "bad", "case"], cases),
    (&["explain", "why", "graph", "bisect"], &["probe"], probes),
    (
        &["exec", "shell", "probe", "capture", "down"],
        &["lab"],
        running,
    ),
];

/// Commands for running labs, and their arguments that are namespaces.
const NAMESPACES: [(&[&str], &[&str], Candidates); 2] = [
    (&["exec", "shell"], &["namespace"], namespaces),
    (&["probe", "capture"], &["from", "targets"], namespaces),
];

/// Adds the candidates to the arguments of the commands.
fn with_candidates(command: Command) -> Command {
    command.mut_subcommands(|command| {
        let name = command.get_name().to_owned();
        let all = COMPLETED.iter().chain(&NAMESPACES);
        all.filter(|(commands, ..)| commands.contains(&name.as_str()))
            .fold(command, |command, (_, ids, candidates)| {
                add_candidates(command, ids, *candidates)
            })
    })
}

/// Adds the candidates to arguments of a command, and of the commands below it.
fn add_candidates(command: Command, ids: &[&str], candidates: Candidates) -> Command {
    let command = command.mut_subcommands(|below| add_candidates(below, ids, candidates));
    command.mut_args(|argument| {
        if ids.contains(&argument.get_id().as_str()) {
            argument.add(ArgValueCompleter::new(candidates))
        } else {
            argument
        }
    })
}

/// Answers the request of a completion script. Returns the exit code, or `None` for a normal command.
pub(crate) fn answer() -> Option<u8> {
    std::env::var_os(VARIABLE)?;
    let completion = CompleteEnv::with_factory(|| with_candidates(args::command()))
        .var(VARIABLE)
        .completer(PROGRAM);
    let current = std::env::current_dir().ok();
    match completion.try_complete(std::env::args_os(), current.as_deref()) {
        Ok(true) => Some(exit_code::SUCCESS),
        Ok(false) => None,
        Err(error) => {
            print_error(&CliError::Usage(error));
            Some(exit_code::INVALID_INPUT)
        }
    }
}

/// Returns the completion script of a shell. `None` for a shell that clap does not support.
pub(crate) fn script(shell: Shell) -> Option<String> {
    if shell == Shell::Bash {
        return Some(BASH.to_owned());
    }
    let mut script = Vec::new();
    let shells = Shells::builtins();
    let completer = shells.completer(&shell.to_string())?;
    completer
        .write_registration(VARIABLE, PROGRAM, PROGRAM, PROGRAM, &mut script)
        .ok()?;
    let script = String::from_utf8(script).ok()?;
    Some(match shell {
        Shell::Zsh => script + ZSH_FIRST_CALL,
        _ => script,
    })
}

/// Completes the name of a lab, or the path of its file.
pub(crate) fn labs(current: &OsStr) -> Vec<CompletionCandidate> {
    let source = Line::from_process().lab_source();
    let mut names = source.labs().lab_names();
    names.extend(source.labs().groups().into_iter().map(|group| group + "/"));
    let mut candidates = starting_with(names, current);
    let is_lab = |path: &Path| {
        let extension = path.extension();
        path.is_dir()
            || extension.is_some_and(|extension| extension == "yaml" || extension == "yml")
    };
    candidates.extend(PathCompleter::any().filter(is_lab).complete(current));
    candidates
}

/// Completes the name of a lab or a case.
pub(crate) fn cases(current: &OsStr) -> Vec<CompletionCandidate> {
    let mut candidates = labs(current);
    let lab = current
        .to_str()
        .and_then(|current| current.rsplit_once('/'));
    if let Some((lab, _)) = lab {
        let source = Line::from_process().lab_source();
        let selected = select_labs_each(&[lab.to_owned()], source.labs());
        let selected = selected.into_iter().flatten().flatten();
        // A directory also selects labs.
        for selected in selected.filter(|selected| selected.cli_name == lab) {
            let names = case_names(&selected, lab);
            candidates.extend(starting_with(names, current));
        }
    }
    candidates
}

/// Returns the cases of a lab, after the name that the user wrote.
fn case_names(selected: &SelectedLab, lab: &str) -> Vec<String> {
    let cases = selected.scenario.cases().iter();
    let values = cases.filter_map(|case| case.id.strip_prefix(&case.lab));
    let values = values.filter(|values| !values.is_empty());
    values.map(|values| format!("{lab}{values}")).collect()
}

/// Completes the name of a probe of the cases on the command line.
pub(crate) fn probes(current: &OsStr) -> Vec<CompletionCandidate> {
    let line = Line::from_process();
    let source = line.lab_source();
    let mut names = line.cases(&source);
    if line.has("--running") && names.is_empty() {
        names = find_running_labs()
            .into_iter()
            .map(|lab| lab.named)
            .collect();
    }
    let selected = select_labs_each(&names, source.labs());
    let mut probes = Vec::new();
    for lab in selected.into_iter().flatten().flatten() {
        for index in &lab.cases {
            probes.extend(lab.scenario.cases()[*index].spec.probes.keys().cloned());
        }
    }
    starting_with(probes, current)
}

/// Completes the name of a running lab.
pub(crate) fn running(current: &OsStr) -> Vec<CompletionCandidate> {
    starting_with(find_running_labs().into_iter().map(|lab| lab.case), current)
}

/// Completes a namespace of the running lab that `--lab` names, or of all running labs.
pub(crate) fn namespaces(current: &OsStr) -> Vec<CompletionCandidate> {
    let labs = find_running_labs();
    let line = Line::from_process();
    let name = line.value("--lab");
    let picked = pick_lab(&labs, name, "--lab")
        .ok()
        .map(|index| &labs[index]);
    let namespaces = match picked {
        Some(lab) => lab.namespaces.clone(),
        None if name.is_some() => Vec::new(),
        None => labs.into_iter().flat_map(|lab| lab.namespaces).collect(),
    };
    starting_with(namespaces, current)
}

fn find_running_labs() -> Vec<LabInfo> {
    let labs = async { running_labs(&SocketDir::from_env().ok()?).await.ok() };
    block_on(labs).ok().flatten().unwrap_or_default()
}

/// Returns the different names that start with the current word, sorted. A name with characters that
/// could change the terminal is no candidate.
fn starting_with(
    names: impl IntoIterator<Item = String>,
    current: &OsStr,
) -> Vec<CompletionCandidate> {
    let current = current.to_string_lossy();
    let mut names: Vec<String> = names
        .into_iter()
        .filter(|name| name.starts_with(&*current) && !name.contains(char::is_control))
        .collect();
    names.sort();
    names.dedup();
    names.into_iter().map(CompletionCandidate::new).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn candidates_are_those_of_existing_arguments() {
        let command = args::command();
        for (commands, ids, _) in COMPLETED.iter().chain(&NAMESPACES) {
            for id in *ids {
                let has = |command: &Command| {
                    command
                        .get_arguments()
                        .any(|argument| argument.get_id() == *id)
                };
                let known = commands
                    .iter()
                    .map(|name| command.find_subcommand(name).expect(name));
                let known = known.filter(|known| has(known) || known.get_subcommands().any(has));
                assert!(known.count() > 0, "{id}");
            }
        }
    }

    #[test]
    fn script_of_bash_has_the_names_of_variables() {
        assert!(BASH.contains(&format!("{VARIABLE}=bash")));
        assert!(BASH.contains(&format!(" {PROGRAM} -- ")));
    }
}
