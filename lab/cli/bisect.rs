//! `svclab bisect`

use std::fs;
use std::io;
use std::path::Path;

use super::args::{BisectArguments, BisectFormat, Common, Selection};
use super::exit::Exit;
use super::interrupt::unless_interrupted;
use super::labs::{prepared, tell};
use super::output::{print, print_json, refused, told};
use crate::bisect::document::{Over, Trial};
use crate::bisect::{Bisection, left_out, over};
use crate::dump::folder::Folder;
use crate::dump::{File, Format, NodeDump, Read};
use crate::kernel::{Choice, Kernels};
use crate::plan::Patience;
use crate::report::bisect::{human, line, narrowing};
use crate::report::{RunError, Trouble};
use crate::run::bisect::{BisectError, Task, find, needs, side_by_side};
use crate::run::{Prepared, at_hand, trouble};

/// Finds what makes the difference between good and bad, and prints it.
pub fn bisect(common: &Common, arguments: &BisectArguments) -> Exit {
    if arguments.place.choice() == Choice::All {
        return wrong(
            "what is tried stands on one kernel",
            "name one with --kernel: host, or a version such as 6.12",
        );
    }
    let task = match task(common, arguments) {
        Ok(task) => task,
        Err(exit) => return exit,
    };
    match unless_interrupted(found(&task, arguments)) {
        Ok(Some(Ok(found))) => end(&found, arguments),
        Ok(Some(Err(error))) => told(&error),
        Ok(None) => {
            eprintln!("interrupted");
            Exit::Interrupted
        }
        Err(error) => refused(&error),
    }
}

fn end(found: &Bisection, arguments: &BisectArguments) -> Exit {
    if let Some(directory) = &arguments.report
        && let Err(error) = written(found, directory)
    {
        eprintln!(
            "error: cannot write the report to {}: {error}",
            directory.display()
        );
        return Exit::Of(Trouble::Machine.exit_code());
    }
    match arguments.format {
        BisectFormat::Human => print(&human(found)),
        BisectFormat::Json => print_json(found),
    }
}

fn written(found: &Bisection, directory: &Path) -> io::Result<()> {
    fs::create_dir_all(directory)?;
    fs::write(directory.join("answer.txt"), human(found))?;
    fs::write(directory.join("narrowing.txt"), narrowing(found))?;
    let json = serde_json::to_string_pretty(found).map_err(io::Error::other)?;
    fs::write(directory.join("bisection.json"), json + "\n")
}

async fn found(task: &Task, arguments: &BisectArguments) -> Result<Bisection, RunError> {
    let needs = needs(task);
    let kernels = at_hand(
        Kernels::new(arguments.place.choice()),
        &[&needs],
        Vec::new(),
        Vec::new(),
    );
    let kernels = kernels
        .of_plan(&needs)
        .await
        .map_err(|error| trouble(&error))?;
    let Some(kernel) = kernels.into_iter().next() else {
        return Err(RunError {
            trouble: Trouble::Bug,
            message: "no kernel was chosen, and none is missing".to_owned(),
            remedy: None,
        });
    };
    let agent = kernel.start().await.map_err(|error| trouble(&error))?;
    let mut number = 0;
    let mut tell = |trial: &Trial, differences: usize| {
        number += 1;
        if arguments.verbose {
            eprintln!("{}", line(number, trial, differences));
        }
    };
    let labs = side_by_side(task, kernel.room());
    let found = find(task, &agent, labs, &mut tell).await;
    found.map_err(|error| match &error {
        BisectError::Kernel(kernel) => trouble(kernel),
        BisectError::Unsteady { .. } => run_error(Trouble::Machine, &error),
        _ => run_error(Trouble::Input, &error),
    })
}

fn run_error(trouble: Trouble, error: &BisectError) -> RunError {
    RunError {
        trouble,
        message: error.to_string(),
        remedy: error.remedy(),
    }
}

fn wrong(message: &str, remedy: &str) -> Exit {
    told(&RunError {
        trouble: Trouble::Input,
        message: message.to_owned(),
        remedy: Some(remedy.to_owned()),
    })
}

fn task(common: &Common, arguments: &BisectArguments) -> Result<Task, Exit> {
    let (good_name, bad_name) = (&arguments.good, &arguments.bad);
    let task = |good, bad, over| Task {
        good,
        bad,
        good_name: good_name.clone(),
        bad_name: bad_name.clone(),
        over,
        probe: arguments.probe.clone(),
    };
    let (Some(case), Some(node)) = (&arguments.over, &arguments.node) else {
        let good = one(common, good_name)?;
        let bad = one(common, bad_name)?;
        return Ok(task(good.plan, bad.plan, None));
    };
    let case = one(common, case)?;
    let laid = |name: &String| {
        let dump = dumped(Path::new(name)).ok_or(Exit::Input)?;
        let others: Vec<String> = left_out(&dump).iter().map(ToString::to_string).collect();
        if !others.is_empty() {
            eprintln!(
                "warning: {name}: not laid over the lab is {}",
                others.join(", ")
            );
        }
        over(&case.plan, node, name, &dump).map_err(|error| {
            eprintln!("error: {error}");
            Exit::Input
        })
    };
    let over = Over {
        case: case.case.id.clone(),
        node: node.clone(),
    };
    Ok(task(laid(good_name)?, laid(bad_name)?, Some(over)))
}

/// A dump of rules, which may name sets that the lab has, and of sets.
fn dumped(path: &Path) -> Option<NodeDump> {
    let folder = match Folder::read(path) {
        Ok(folder) => folder,
        Err(error) => {
            eprintln!("error: {error}");
            return None;
        }
    };
    let is_sets = |file: &File| file.format == Some(Format::Sets);
    let (sets, others): (Vec<File>, Vec<File>) = folder.files.into_iter().partition(is_sets);
    let of_sets = checked(NodeDump::read(sets));
    let dump = checked(NodeDump::read(others))?;
    Some(NodeDump {
        sets: of_sets?.sets.or(dump.sets),
        ..dump
    })
}

/// What could be read, after telling what is wrong with it; none if it cannot be.
fn checked(read: Read) -> Option<NodeDump> {
    tell(&read.sources, &read.diagnostics);
    read.is_whole().then_some(read.dump)
}

/// The one case that a name stands for.
fn one(common: &Common, name: &str) -> Result<Prepared, Exit> {
    let selection = Selection {
        names: vec![name.to_owned()],
        patience: Patience::SETTLED,
        kube_proxy: None,
    };
    let labs = prepared(common, &selection)?;
    let mut cases: Vec<Prepared> = labs.into_iter().flat_map(|(_, cases)| cases).collect();
    match cases.pop() {
        Some(case) if cases.is_empty() => Ok(case),
        last => {
            let all: Vec<String> = cases
                .iter()
                .chain(&last)
                .map(|case| format!("  '{}'", case.named))
                .collect();
            Err(wrong(
                &format!(
                    "`{name}` is {} cases, and one is compared with one",
                    all.len()
                ),
                &format!("name one of them:\n{}", all.join("\n")),
            ))
        }
    }
}
