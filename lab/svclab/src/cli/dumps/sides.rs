//! Loads the two sides of a bisection. They are two cases, two dumps that replace a node of a case,
//! or two dumps in a lab generated from objects.

use std::path::{Path, PathBuf};

use super::generated::prepare_generated_lab;
use super::lab_file::contains_lab;
use crate::cli::args::{
    BisectArguments, ReplayArguments, ReplayFormat, Selection, parse_source_and_target,
};
use crate::cli::cases::labs::prepare_one_case;
use crate::cli::error::CliError;
use crate::cli::input::dumps::{
    DumpArgument, both, check_dumps, complete_dump, read_dump_arguments, split_node, warn_unread,
};
use crate::cli::input::verdict::{require_whole_tables, untried_differences};
use crate::cli::output::print_message;
use svclab_dump::folder::{DumpFiles, is_archive_part};
use svclab_dump::{Gap, NodeDump, uncollected_state};
use svclab_experiment::bisect::document::BaseCase;
use svclab_experiment::bisect::{Task, Unexamined, is_whole, overlay_dump};
use svclab_model::plan::{MaxWait, Plan};
use svclab_planner::replay::{HardwareAddresses, ReplayReport};
use svclab_ruleset::tool::Format;
use svclab_runner::run::dumps::DumpOverride;
use svclab_runner::run::{Prepared, SelectedLab};

/// Task of the bisection, with its cases.
pub(crate) struct Sides {
    /// Plans and names of both sides, and the probe.
    pub(crate) task: Task,
    /// Good and bad case, with the plans of the task.
    pub(crate) cases: [Prepared; 2],
    /// Lab of both cases; `None` for dumps and for cases of different labs.
    pub(crate) lab: Option<SelectedLab>,
}

/// Loads the sides of a bisection.
pub(crate) fn load_sides(arguments: &BisectArguments) -> Result<Sides, CliError> {
    let names = [&arguments.good, &arguments.bad];
    let task = |[good, bad]: [Plan; 2], over, probe, unexamined| Task {
        good,
        bad,
        unexamined,
        good_name: arguments.good.clone(),
        bad_name: arguments.bad.clone(),
        base: over,
        probe,
    };
    let without_lab = |task: Task, cases: [Prepared; 2]| Sides {
        task,
        cases,
        lab: None,
    };
    let probe = arguments.probe.clone();
    if let (Some(case), Some(node)) = (&arguments.case, &arguments.node) {
        let (_, case) = load_case(case, arguments)?;
        let dumps = [
            read_dump(names[0], arguments)?,
            read_dump(names[1], arguments)?,
        ];
        let known = HardwareAddresses::from_dumps(dumps.iter().map(|read| &read.dump));
        let overlay = |name, read| overlay_plan(&case.plan, node, name, read, &known);
        let (good, good_report) = overlay(names[0], &dumps[0])?;
        let (bad, bad_report) = overlay(names[1], &dumps[1])?;
        let unexamined = Unexamined {
            not_tried: untried_differences(&good_report, &bad_report),
            not_collected: not_collected(dumps.iter().map(|read| &read.dump)),
        };
        let over = BaseCase {
            case: case.case.id.clone(),
            node: node.clone(),
        };
        let cases = [&good, &bad].map(|plan| Prepared {
            plan: plan.clone(),
            ..case.clone()
        });
        return Ok(without_lab(
            task([good, bad], Some(over), probe, unexamined),
            cases,
        ));
    }
    match names.map(|name| is_dump(name)) {
        [true, true] => {
            let (cases, unexamined) = prepare_dumps(arguments)?;
            let plans = [&cases[0], &cases[1]].map(|case| case.plan.clone());
            Ok(without_lab(task(plans, None, None, unexamined), cases))
        }
        [false, false] => {
            for (is_given, option, owner) in [
                (!arguments.objects.is_empty(), "--objects", "objects"),
                (arguments.node.is_some(), "--node", "nodes"),
            ] {
                if is_given {
                    return Err(CliError::refused(
                        format!("{option} is only for two dumps; cases have their own {owner}"),
                        format!("omit {option}"),
                    ));
                }
            }
            let (lab, good) = load_case(names[0], arguments)?;
            let (bad_lab, bad) = load_case(names[1], arguments)?;
            let plans = [good.plan.clone(), bad.plan.clone()];
            let same = lab.cli_name == bad_lab.cli_name;
            Ok(Sides {
                task: task(plans, None, probe, Unexamined::default()),
                cases: [good, bad],
                lab: same.then_some(lab),
            })
        }
        [good, _] => {
            let (dump, other) = if good {
                (names[0], names[1])
            } else {
                (names[1], names[0])
            };
            Err(CliError::refused(
                format!("{dump} is a dump, but {other} is not"),
                "compare two cases or two dumps; a lab uses a dump as a node with \
                 `nodes: {NODE: {dump: PATH}}`",
            ))
        }
    }
}

/// Returns the state that one of the dumps does not contain.
fn not_collected<'d>(dumps: impl Iterator<Item = &'d NodeDump>) -> Vec<String> {
    let dumps: Vec<&NodeDump> = dumps.collect();
    uncollected_state(|format| dumps.iter().all(|dump| dump.has(format)))
}

/// Whether a name is that of a dump, and not of a lab or a case.
fn is_dump(name: &str) -> bool {
    let is_dump = |path: &Path| {
        let is_unpacked = || path.is_dir() || is_archive_part(path);
        contains_lab(path).map_or_else(is_unpacked, |is_lab| !is_lab)
    };
    let dump_path = name.split_once('=').map(|(_, path)| Path::new(path));
    is_dump(Path::new(name)) || dump_path.is_some_and(is_dump)
}

/// Returns the plan with a node replaced by a dump, and the report of the replay.
fn overlay_plan(
    plan: &Plan,
    node: &str,
    name: &str,
    read: &DumpOverride,
    known: &HardwareAddresses,
) -> Result<(Plan, ReplayReport), CliError> {
    let (plan, mut report) = overlay_dump(plan, node, name, &read.dump, known)?;
    report.omitted.splice(0..0, read.omitted.iter().cloned());
    report.unread.clone_from(&read.gaps);
    warn_omitted(name, &report);
    require_whole_tables(std::slice::from_ref(&report))?;
    Ok((plan, report))
}

/// Warns about omitted parts of a dump that can affect packets, and about files that are not read.
fn warn_omitted(name: &str, report: &ReplayReport) {
    warn_unread(report.unread.iter().map(Gap::describe));
    let omitted = report.omitted.iter();
    for item in omitted.filter(|item| !item.affects.is_empty()) {
        print_message(format_args!(
            "warning: {name}: omitted {}: {}; {}",
            item.description, item.reason, item.affects
        ));
    }
}

/// Reads a dump of a whole node, or of rules and sets only. The rules may refer to sets of the lab.
fn read_dump(name: &str, arguments: &BisectArguments) -> Result<DumpOverride, CliError> {
    let files = DumpFiles::read(Path::new(name))?;
    let read = files.clone().parse();
    if is_whole(&read.dump) {
        let parsed = (None, PathBuf::from(name), read);
        let given = check_dumps([Ok(parsed)], arguments.lenient)?;
        let mut dumps = given.into_iter().map(|given| given.dump);
        return Ok(dumps.next().unwrap_or_default());
    }
    let part = |is_sets: bool| -> Result<NodeDump, CliError> {
        let mut files = files.clone();
        let is_part = |format| (format == Some(Format::Sets)) == is_sets;
        files.files.retain(|file| is_part(file.format));
        complete_dump(files.parse())
    };
    let [sets, rules] = both(part(true), part(false))?;
    let dump = NodeDump {
        sets: sets.sets.or(rules.sets),
        ..rules
    };
    Ok(DumpOverride {
        dump,
        gaps: read.gaps,
        ..DumpOverride::default()
    })
}

/// Prepares both dumps as `svclab replay` does. They share only the link-layer addresses of their
/// neighbours. Also returns what no trial includes.
fn prepare_dumps(arguments: &BisectArguments) -> Result<([Prepared; 2], Unexamined), CliError> {
    let two_nodes = |good: &str, bad: &str| {
        CliError::refused(
            format!(
                "{} is for node {good}, but {} is for node {bad}",
                arguments.good, arguments.bad
            ),
            "give both the same node, as NODE=DUMP or with --node; it then has the dumped addresses",
        )
    };
    if let [Some((good, _)), Some((bad, _))] =
        [&arguments.good, &arguments.bad].map(|name| split_node(name))
        && good != bad
    {
        return Err(two_nodes(good, bad));
    }
    let replaying = replay_arguments(arguments)?;
    let dumps = read_dump_arguments(&replaying.dumps, replaying.lenient)?;
    let known = HardwareAddresses::from_dumps(dumps.iter().map(|given| &given.dump.dump));
    let absent = not_collected(dumps.iter().map(|given| &given.dump.dump));
    let mut dumps = dumps.into_iter();
    let mut side =
        |name: &str, node: Option<&String>| -> Result<(ReplayReport, Prepared), CliError> {
            let given = dumps.next().map(|given| DumpArgument {
                node: given.node.or_else(|| node.cloned()),
                ..given
            });
            let given: Vec<DumpArgument> = given.into_iter().collect();
            let (prepared, _) = prepare_generated_lab(&replaying, &given, &known)?;
            let report = prepared.replay_reports.first().cloned().unwrap_or_default();
            warn_omitted(name, &report);
            require_whole_tables(std::slice::from_ref(&report))?;
            Ok((report, prepared))
        };
    let (good_report, good_case) = side(&arguments.good, arguments.node.as_ref())?;
    let good = &good_report.node;
    // Without objects, only the file name of the second dump identifies its node.
    let same = arguments
        .node
        .as_ref()
        .or_else(|| arguments.objects.is_empty().then_some(good));
    let (bad_report, bad_case) = side(&arguments.bad, same)?;
    if *good != bad_report.node {
        return Err(two_nodes(good, &bad_report.node));
    }
    let unexamined = Unexamined {
        not_tried: untried_differences(&good_report, &bad_report),
        not_collected: absent,
    };
    Ok(([good_case, bad_case], unexamined))
}

/// Returns the arguments of `svclab replay` for both dumps.
fn replay_arguments(arguments: &BisectArguments) -> Result<ReplayArguments, CliError> {
    let Some(probe) = &arguments.probe else {
        return Err(CliError::refused(
            "no probe is given, and no lab defines one",
            "give one with --probe: pod/default/client,service/default/web:80",
        ));
    };
    let source_and_target = parse_source_and_target(probe).map_err(|format| {
        CliError::refused(
            format!("`{probe}` is not a valid probe for two dumps without a lab"),
            format,
        )
    })?;
    Ok(ReplayArguments {
        dumps: vec![arguments.good.clone(), arguments.bad.clone()],
        objects: arguments.objects.clone(),
        source: arguments.source.clone(),
        probe: vec![source_and_target],
        write: None,
        lenient: arguments.lenient,
        allow_outside: false,
        max_wait: MaxWait::SETTLED.limit,
        format: ReplayFormat::Human,
        kernels: arguments.kernels.clone(),
        report: None,
        verbose: false,
    })
}

/// Returns the single case that a name selects.
fn load_case(name: &str, arguments: &BisectArguments) -> Result<(SelectedLab, Prepared), CliError> {
    let selection = Selection {
        names: vec![name.to_owned()],
        source: arguments.source.clone(),
        max_wait: MaxWait::SETTLED,
        kube_proxy: None,
        allow_outside: arguments.allow_outside,
        kube_proxy_timeout: None,
    };
    prepare_one_case(&selection, "compared")
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;
    use crate::cli::args::{Arguments, Command};

    #[test]
    fn options_of_dumps_are_refused_for_cases() {
        let refusal = |option: &str| {
            let words = [
                "svclab",
                "bisect",
                "--good=lab/a",
                "--bad=lab/b",
                option,
                "x",
            ];
            let arguments = Arguments::try_parse_from(words).expect("arguments");
            let Command::Bisect(bisect) = &arguments.command else {
                panic!("not bisect");
            };
            let error = load_sides(bisect).map(drop);
            let error = error.expect_err("the option is refused");
            format!("{error}\nhelp: {}", error.help().unwrap_or_default())
        };
        insta::assert_snapshot!(refusal("--objects"), @r"
        --objects is only for two dumps; cases have their own objects
        help: omit --objects
        ");
        insta::assert_snapshot!(refusal("--node"), @r"
        --node is only for two dumps; cases have their own nodes
        help: omit --node
        ");
    }
}
