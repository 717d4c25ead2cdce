//! `scripts/bench diagnosis`: breaks a healthy lab in many ways, and measures which commands of
//! svclab name the cause. Prints a table of the kinds of faults, and each wrong answer.

mod args;
#[cfg(test)]
mod catalogue;
mod draw;
mod fault;
mod kinds;
mod lab;
mod mode;
mod report;
mod score;
mod state;
mod subject;
mod tool;
mod trial;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::{fs, thread};

use clap::Parser;

use crate::args::{Arguments, Format};
use crate::draw::Random;
use crate::kinds::Kind;
use crate::lab::HealthyLab;
use crate::mode::Mode;
use crate::report::Document;
use crate::tool::Tool;
use crate::trial::{Bench, Healthy, Status, Task, Trial};

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let kinds = selected(&arguments);
    if arguments.list {
        for kind in &kinds {
            let modes: Vec<&str> = kind.modes.iter().map(|mode| mode.name()).collect();
            println!("{:<16} {:<34} {}", kind.area, kind.name, modes.join(", "));
        }
        return ExitCode::SUCCESS;
    }
    match measure(&arguments, &kinds) {
        Ok(trials) => {
            match arguments.format {
                Format::Text => print!("{}", report::render(&trials, &arguments.commands())),
                Format::Json => println!("{}", json(&trials)),
            }
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::from(3)
        }
    }
}

/// Returns the kinds that the arguments select.
fn selected(arguments: &Arguments) -> Vec<Kind> {
    let is_selected = |kind: &Kind| {
        arguments.kind.is_empty()
            || arguments
                .kind
                .iter()
                .any(|name| kind.name.starts_with(name.as_str()))
    };
    kinds::library().into_iter().filter(is_selected).collect()
}

fn json(trials: &[Trial]) -> String {
    serde_json::to_string_pretty(&Document::new(trials)).unwrap_or_default()
}

fn measure(arguments: &Arguments, kinds: &[Kind]) -> Result<Vec<Trial>, String> {
    if kinds.is_empty() {
        return Err("no kind has this name\nhelp: print the names with `--list`".to_owned());
    }
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let temporary = tempfile::tempdir().map_err(|error| error.to_string())?;
    let files = arguments
        .keep
        .clone()
        .unwrap_or_else(|| temporary.path().join("files"));
    let runtime = temporary.path().join("run");
    for directory in [&files, &runtime] {
        fs::create_dir_all(directory)
            .map_err(|error| format!("cannot create {}: {error}", directory.display()))?;
    }
    // Sockets of labs are only made in a directory that others cannot read.
    let owner_only = std::os::unix::fs::PermissionsExt::from_mode(0o700);
    fs::set_permissions(&runtime, owner_only).map_err(|error| error.to_string())?;
    let bench = Bench {
        tool: Tool {
            program: arguments.svclab.clone(),
            kernel: arguments.kernel.clone(),
            limit: arguments.limit(),
            runtime,
        },
        lab: HealthyLab::read(
            &arguments
                .lab
                .clone()
                .unwrap_or_else(|| here.join("diagnosis.yaml")),
        )?,
        files,
        collector: here.join("../../scripts/collect-node"),
        kube_proxy: arguments.kube_proxy.clone().map(absolute),
        commands: arguments.commands(),
    };
    let mut healthy: BTreeMap<Mode, Healthy> = BTreeMap::new();
    for mode in arguments.modes() {
        let found = bench
            .healthy(mode)
            .map_err(|error| format!("{}: {error}", mode.name()))?;
        healthy.insert(mode, found);
    }
    Ok(run_all(
        &bench,
        &healthy,
        &tasks(arguments, kinds),
        arguments,
    ))
}

fn absolute(path: PathBuf) -> PathBuf {
    fs::canonicalize(&path).unwrap_or(path)
}

/// Returns the trials in the order in which they are printed.
fn tasks(arguments: &Arguments, kinds: &[Kind]) -> Vec<Task> {
    let mut tasks = Vec::new();
    let all = kinds::library();
    for kind in kinds {
        for mode in arguments
            .modes()
            .into_iter()
            .filter(|mode| kind.modes.contains(mode))
        {
            for seed in &arguments.seed {
                let mut chosen = vec![*kind];
                if arguments.pairs {
                    chosen.extend(partner(&all, *kind, mode, *seed));
                }
                tasks.push(Task {
                    kinds: chosen,
                    mode,
                    seed: *seed,
                });
            }
        }
    }
    tasks
}

/// Chooses the second kind of a pair, from another area.
fn partner(all: &[Kind], first: Kind, mode: Mode, seed: u64) -> Option<Kind> {
    let fits = |kind: &&Kind| {
        kind.area != first.area && kind.modes.contains(&mode) && kind.real_proxy == first.real_proxy
    };
    let others: Vec<&Kind> = all.iter().filter(fits).collect();
    let index = Random::new(seed, &format!("pair of {}", first.name), 0).below(others.len());
    others.get(index).map(|kind| **kind)
}

/// Runs all trials, as many at once as the arguments permit.
fn run_all(
    bench: &Bench,
    healthy: &BTreeMap<Mode, Healthy>,
    tasks: &[Task],
    arguments: &Arguments,
) -> Vec<Trial> {
    let next = AtomicUsize::new(0);
    let done: Mutex<BTreeMap<usize, Trial>> = Mutex::new(BTreeMap::new());
    let work = || {
        loop {
            let index = next.fetch_add(1, Ordering::Relaxed);
            let Some(task) = tasks.get(index) else {
                return;
            };
            let Some(state) = healthy.get(&task.mode) else {
                continue;
            };
            let trial = bench.run(state, task);
            eprintln!("{} of {}: {}", index + 1, tasks.len(), progress(&trial));
            let Ok(mut done) = done.lock() else {
                return;
            };
            done.insert(index, trial);
            if let Some(path) = &arguments.write {
                let trials: Vec<&Trial> = done.values().collect();
                let text = serde_json::to_string_pretty(&trials).unwrap_or_default();
                if let Err(error) = fs::write(path, text) {
                    eprintln!("cannot write {}: {error}", path.display());
                }
            }
        }
    };
    thread::scope(|scope| {
        for _ in 0..arguments.jobs.max(1) {
            scope.spawn(work);
        }
    });
    done.into_inner()
        .map(|done| done.into_values().collect())
        .unwrap_or_default()
}

fn progress(trial: &Trial) -> String {
    let name = format!(
        "{} ({}, seed {})",
        trial.kinds.join(" and "),
        trial.mode.name(),
        trial.seed
    );
    match &trial.status {
        Status::DoesNotShow => format!("{name}: does not show"),
        Status::CannotBeApplied { reason } => format!("{name}: cannot be applied: {reason}"),
        Status::Shows { .. } => {
            let scores = trial.scores.iter();
            let scores =
                scores.map(|(command, score)| format!("{} {:?}", command.name(), score.grade));
            format!("{name}: {}", scores.collect::<Vec<_>>().join(", "))
        }
    }
}
