//! Loads the two sides of a bisection. They are two cases, two dumps that replace a node of a case,
//! or two dumps in a lab generated from objects.

use std::path::Path;

use super::replay::{prepare_generated_lab, read_dumps};
use crate::cli::args::{
    BisectArguments, Common, ReplayArguments, ReplayFormat, Selection, parse_source_and_target,
};
use crate::cli::cases::labs::{prepare_labs, print_diagnostics};
use crate::cli::exit::Exit;
use crate::cli::output::print_error;
use svclab_diagnostic::files::Location;
use svclab_diagnostic::source::MAX_BYTES;
use svclab_dump::folder::DumpFiles;
use svclab_dump::{NodeDump, ParsedDump};
use svclab_experiment::bisect::document::BaseCase;
use svclab_experiment::bisect::{is_whole, overlay_dump};
use svclab_experiment::run::bisect::Task;
use svclab_model::plan::{MaxWait, Plan};
use svclab_planner::replay::ReplayReport;
use svclab_report::shell_quote;
use svclab_ruleset::tool::Format;
use svclab_runner::results::{ErrorKind, RunError};
use svclab_runner::run::{Prepared, SelectedLab};

/// Task of the bisection, with its cases if both sides are cases of one lab.
pub struct Sides {
    /// Plans and names of both sides, and the probe.
    pub task: Task,
    /// Lab with the good and the bad case; `None` for dumps and for cases of different labs.
    pub cases: Option<(SelectedLab, [Prepared; 2])>,
}

/// Loads the sides of a bisection.
///
/// # Errors
///
/// Returns the exit code if the input is invalid. The error is printed.
pub fn load_sides(common: &Common, arguments: &BisectArguments) -> Result<Sides, Exit> {
    let names = [&arguments.good, &arguments.bad];
    let task = |[good, bad]: [Plan; 2], over, probe| Task {
        good,
        bad,
        good_name: arguments.good.clone(),
        bad_name: arguments.bad.clone(),
        base: over,
        probe,
    };
    let without_cases = |task| Sides { task, cases: None };
    let probe = arguments.probe.clone();
    if let (Some(case), Some(node)) = (&arguments.case, &arguments.node) {
        let (_, case) = load_case(common, case, arguments)?;
        let plans = [
            overlay_plan(&case.plan, node, names[0], arguments)?,
            overlay_plan(&case.plan, node, names[1], arguments)?,
        ];
        let over = BaseCase {
            case: case.case.id.clone(),
            node: node.clone(),
        };
        return Ok(without_cases(task(plans, Some(over), probe)));
    }
    match names.map(|name| is_dump(name)) {
        [true, true] => Ok(without_cases(task(prepare_dumps(arguments)?, None, None))),
        [false, false] if !arguments.objects.is_empty() => Err(input_error(
            "--objects is only for two dumps; cases have their own objects",
            "omit --objects",
        )),
        [false, false] => {
            let (lab, good) = load_case(common, names[0], arguments)?;
            let (bad_lab, bad) = load_case(common, names[1], arguments)?;
            let plans = [good.plan.clone(), bad.plan.clone()];
            let same = lab.cli_name == bad_lab.cli_name;
            Ok(Sides {
                task: task(plans, None, probe),
                cases: same.then_some((lab, [good, bad])),
            })
        }
        [good, _] => {
            let (dump, other) = if good {
                (names[0], names[1])
            } else {
                (names[1], names[0])
            };
            Err(input_error(
                &format!("{dump} is a dump, but {other} is not"),
                "compare two cases or two dumps; a lab uses a dump as a node with \
                 `nodes: {NODE: {dump: PATH}}`",
            ))
        }
    }
}

/// Prints an input error with its help.
pub fn input_error(message: &str, remedy: &str) -> Exit {
    print_error(&RunError {
        kind: ErrorKind::Input,
        message: message.to_owned(),
        remedy: Some(remedy.to_owned()),
    })
}

/// Whether a name is that of a dump, and not of a lab or a case.
fn is_dump(name: &str) -> bool {
    let is_dump = |path: &Path| {
        let Ok((bytes, _)) = Location::anywhere(path).read(MAX_BYTES) else {
            return path.is_dir();
        };
        let text = String::from_utf8_lossy(&bytes);
        !text.lines().any(|line| line.trim_end() == "kind: Lab")
    };
    let dump_path = name.split_once('=').map(|(_, path)| Path::new(path));
    is_dump(Path::new(name)) || dump_path.is_some_and(is_dump)
}

/// Returns the plan with a node replaced by a dump.
fn overlay_plan(
    plan: &Plan,
    node: &str,
    name: &str,
    arguments: &BisectArguments,
) -> Result<Plan, Exit> {
    let dump = read_dump(name, arguments)?;
    let (plan, account) = overlay_dump(plan, node, name, &dump).map_err(|error| {
        eprintln!("error: {error}");
        Exit::Input
    })?;
    warn_omitted(name, &account);
    Ok(plan)
}

/// Warns about omitted parts of a dump that can affect packets.
fn warn_omitted(name: &str, account: &ReplayReport) {
    let omitted = account.omitted.iter();
    for left in omitted.filter(|left| !left.affects.is_empty()) {
        eprintln!(
            "warning: {name}: omitted {}: {}; {}",
            left.description, left.reason, left.affects
        );
    }
}

/// Reads a dump of a whole node, or of rules and sets only. The rules may refer to sets of the lab.
fn read_dump(name: &str, arguments: &BisectArguments) -> Result<NodeDump, Exit> {
    let read = || {
        DumpFiles::read(Path::new(name)).map_err(|error| {
            eprintln!("error: {error}");
            Exit::Input
        })
    };
    if is_whole(&read()?.parse().dump) {
        let given = read_dumps(&replay_arguments(name, arguments)?)?;
        let mut dumps = given.into_iter().map(|given| given.dump.dump);
        return Ok(dumps.next().unwrap_or_default());
    }
    let (mut sets, mut other_files) = (read()?, read()?);
    sets.files.retain(|file| file.format == Some(Format::Sets));
    other_files
        .files
        .retain(|file| file.format != Some(Format::Sets));
    let set_dump = complete_dump(sets.parse());
    let dump = complete_dump(other_files.parse()).ok_or(Exit::Input)?;
    Ok(NodeDump {
        sets: set_dump.ok_or(Exit::Input)?.sets.or(dump.sets),
        ..dump
    })
}

/// Prints the diagnostics of a dump and returns the dump; `None` if it is not complete.
fn complete_dump(read: ParsedDump) -> Option<NodeDump> {
    print_diagnostics(&read.sources, &read.diagnostics);
    read.has_no_errors().then_some(read.dump)
}

/// Prepares both dumps independently, as `svclab replay` does.
fn prepare_dumps(arguments: &BisectArguments) -> Result<[Plan; 2], Exit> {
    let plan = |name: &str, node: Option<&String>| -> Result<(String, Plan), Exit> {
        let named = match node {
            Some(node) if node_prefix(name).is_none() => format!("{node}={name}"),
            _ => name.to_owned(),
        };
        let replaying = replay_arguments(&named, arguments)?;
        let (prepared, _) = prepare_generated_lab(&replaying, &read_dumps(&replaying)?)?;
        let account = prepared
            .replay_reports
            .into_iter()
            .next()
            .unwrap_or_default();
        warn_omitted(name, &account);
        Ok((account.node, prepared.plan))
    };
    let two_nodes = |good: &str, bad: &str| {
        input_error(
            &format!(
                "{} is for node {good}, but {} is for node {bad}",
                arguments.good, arguments.bad
            ),
            "give both the same node, as NODE=DUMP or with --node; it then has the dumped addresses",
        )
    };
    if let [Some(good), Some(bad)] = [&arguments.good, &arguments.bad].map(|name| node_prefix(name))
        && good != bad
    {
        return Err(two_nodes(good, bad));
    }
    let (good, good_plan) = plan(&arguments.good, arguments.node.as_ref())?;
    // Without objects, only the file name of the second dump identifies its node.
    let same = arguments
        .node
        .as_ref()
        .or_else(|| arguments.objects.is_empty().then_some(&good));
    let (bad, bad_plan) = plan(&arguments.bad, same)?;
    if good != bad {
        return Err(two_nodes(&good, &bad));
    }
    Ok([good_plan, bad_plan])
}

/// Returns the node name in `NODE=DUMP`; `None` without one.
fn node_prefix(name: &str) -> Option<&str> {
    let named = name.split_once('=').map(|(node, _)| node);
    named.filter(|_| !Path::new(name).exists())
}

/// Returns the arguments of `svclab replay` for a dump.
fn replay_arguments(name: &str, arguments: &BisectArguments) -> Result<ReplayArguments, Exit> {
    let probe = match (&arguments.case, &arguments.probe) {
        (Some(_), _) => Vec::new(),
        (None, Some(probe)) => vec![parse_source_and_target(probe).map_err(|how| {
            input_error(
                &format!("`{probe}` is not a valid probe for two dumps without a lab"),
                &how,
            )
        })?],
        (None, None) => {
            return Err(input_error(
                "no probe is given, and no lab defines one",
                "give one with --probe: pod/default/client->service/default/web:80",
            ));
        }
    };
    Ok(ReplayArguments {
        dumps: vec![name.to_owned()],
        objects: arguments.objects.clone(),
        probe,
        write: None,
        lenient: arguments.lenient,
        allow_outside: false,
        max_wait: MaxWait::SETTLED.limit,
        format: ReplayFormat::Human,
        kernels: arguments.kernels.clone(),
        verbose: false,
    })
}

/// Returns the single case that a name selects.
fn load_case(
    common: &Common,
    name: &str,
    arguments: &BisectArguments,
) -> Result<(SelectedLab, Prepared), Exit> {
    let selection = Selection {
        names: vec![name.to_owned()],
        max_wait: MaxWait::SETTLED,
        kube_proxy: None,
        allow_outside: arguments.allow_outside,
        kube_proxy_timeout: None,
    };
    let labs = prepare_labs(common, &selection)?;
    let mut cases = Vec::new();
    for (lab, prepared) in labs {
        cases.extend(prepared.into_iter().map(|case| (lab.clone(), case)));
    }
    match cases.pop() {
        Some(case) if cases.is_empty() => Ok(case),
        last => {
            let names: Vec<String> = cases
                .iter()
                .chain(&last)
                .map(|(_, case)| format!("  {}", shell_quote(&case.cli_name)))
                .collect();
            Err(input_error(
                &format!(
                    "`{name}` selects {} cases, but only one can be compared",
                    names.len()
                ),
                &format!("select one:\n{}", names.join("\n")),
            ))
        }
    }
}
