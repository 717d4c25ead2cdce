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
use svclab_experiment::affinity_runs;
use svclab_experiment::bisect::document::BaseCase;
use svclab_experiment::bisect::{Task, Unexamined, is_whole, overlay_dump};
use svclab_model::plan::MaxWait;
use svclab_planner::replay::{HardwareAddresses, ReplayReport, UnseenNextHop};
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
    /// Task and bad case in which next hops do not reply that only bad uses, and of which its dump
    /// does not show whether they exist. `None` without such next hops.
    pub(crate) if_silent: Option<Box<(Task, Prepared)>>,
}

/// Loads the sides of a bisection.
pub(crate) fn load_sides(arguments: &BisectArguments) -> Result<Sides, CliError> {
    let names = [&arguments.good, &arguments.bad];
    if let (Some(case), Some(node)) = (&arguments.case, &arguments.node) {
        return overlay_dumps(case, node, arguments);
    }
    match names.map(|name| is_dump(name)) {
        [true, true] => prepare_dumps(arguments),
        [false, false] => load_cases(arguments),
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

/// Creates a task for the plans of both cases.
fn new_task(arguments: &BisectArguments, [good, bad]: &[Prepared; 2]) -> Task {
    Task {
        good: good.plan.clone(),
        bad: bad.plan.clone(),
        good_name: arguments.good.clone(),
        bad_name: arguments.bad.clone(),
        base: None,
        probe: arguments.probe.clone(),
        draws: affinity_runs(good)
            .into_iter()
            .chain(affinity_runs(bad))
            .collect(),
        assumed: Vec::new(),
        unexamined: Unexamined::default(),
    }
}

/// Loads two cases of labs.
fn load_cases(arguments: &BisectArguments) -> Result<Sides, CliError> {
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
    let (lab, good) = load_case(&arguments.good, arguments)?;
    let (bad_lab, bad) = load_case(&arguments.bad, arguments)?;
    let cases = [good, bad];
    let is_same = lab.cli_name == bad_lab.cli_name;
    Ok(Sides {
        task: new_task(arguments, &cases),
        cases,
        lab: is_same.then_some(lab),
        if_silent: None,
    })
}

/// Returns the state that one of the dumps does not contain.
fn not_collected(dumps: [&NodeDump; 2]) -> Vec<String> {
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

/// Lab with a dump in place of a node, and the report of the replay.
type Replayed = (Prepared, ReplayReport);

/// Creates the sides of two dumps. `replay` puts a dump of this name in place of the node.
fn sides_of_dumps(
    arguments: &BisectArguments,
    [good_dump, bad_dump]: [&NodeDump; 2],
    mut replay: impl FnMut(&str, &NodeDump, Option<&ReplayReport>) -> Result<Replayed, CliError>,
) -> Result<Sides, CliError> {
    let mut replay_and_warn = |name: &str, dump, good: Option<&ReplayReport>| {
        let (case, report) = replay(name, dump, good)?;
        warn_omitted(name, &report);
        require_whole_tables(std::slice::from_ref(&report))?;
        Ok::<Replayed, CliError>((case, report))
    };
    let (good_case, good) = replay_and_warn(&arguments.good, good_dump, None)?;
    let (bad_case, bad) = replay_and_warn(&arguments.bad, bad_dump, Some(&good))?;
    let cases = [good_case, bad_case];
    let task = |cases: &[Prepared; 2], bad: &ReplayReport| Task {
        unexamined: Unexamined {
            not_tried: untried_differences(&good, bad),
            not_collected: not_collected([good_dump, bad_dump]),
        },
        ..new_task(arguments, cases)
    };
    let unseen: Vec<&UnseenNextHop> = bad
        .unseen_next_hops()
        .difference(&good.unseen_next_hops())
        .copied()
        // Of a route that good has too, the neighbour was only removed since.
        .filter(|hop| !good_dump.is_next_hop(hop.address, &hop.interface))
        .collect();
    let if_silent = if unseen.is_empty() {
        None
    } else {
        let mut silent = bad_dump.clone();
        for hop in &unseen {
            silent.add_failed_neighbour(hop.address, &hop.interface);
        }
        let (bad_case, report) = replay(&arguments.bad, &silent, Some(&good))?;
        let assumed = unseen.iter().map(|hop| hop.describe_silence(&bad.node));
        let task = Task {
            assumed: assumed.collect(),
            ..task(&[cases[0].clone(), bad_case.clone()], &report)
        };
        Some(Box::new((task, bad_case)))
    };
    Ok(Sides {
        task: task(&cases, &bad),
        cases,
        lab: None,
        if_silent,
    })
}

/// Replaces a node of a case by each of two dumps.
fn overlay_dumps(case: &str, node: &str, arguments: &BisectArguments) -> Result<Sides, CliError> {
    let (_, case) = load_case(case, arguments)?;
    let [good, bad] = [
        read_dump(&arguments.good, arguments)?,
        read_dump(&arguments.bad, arguments)?,
    ];
    let dumps = [&good.dump, &bad.dump];
    let known = HardwareAddresses::from_dumps(dumps);
    let mut sides = sides_of_dumps(arguments, dumps, |name, dump, other| {
        let (plan, mut report) = overlay_dump(&case.plan, node, name, dump, &known)?;
        let read = if other.is_none() { &good } else { &bad };
        report.omitted.splice(0..0, read.omitted.iter().cloned());
        report.unread.clone_from(&read.gaps);
        let case = Prepared {
            plan,
            ..case.clone()
        };
        Ok((case, report))
    })?;
    let base = BaseCase {
        case: case.case.id.clone(),
        node: node.to_owned(),
    };
    if let Some(silent) = &mut sides.if_silent {
        silent.0.base = Some(base.clone());
    }
    sides.task.base = Some(base);
    Ok(sides)
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
/// neighbours.
fn prepare_dumps(arguments: &BisectArguments) -> Result<Sides, CliError> {
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
    let [good, bad] = dumps.as_slice() else {
        return Err(CliError::refused(
            "a bisection needs two dumps",
            "give one with --good and one with --bad",
        ));
    };
    let both = [&good.dump.dump, &bad.dump.dump];
    let known = HardwareAddresses::from_dumps(both);
    let mut sides = sides_of_dumps(arguments, both, |_, dump, other| {
        let given = if other.is_none() { good } else { bad };
        // Without objects, only the file name of the second dump identifies its node.
        let same = other.filter(|_| arguments.objects.is_empty());
        let same = same.map(|report| report.node.clone());
        let given = DumpArgument {
            node: given.node.clone().or(arguments.node.clone()).or(same),
            dump: DumpOverride {
                dump: dump.clone(),
                ..given.dump.clone()
            },
            ..given.clone()
        };
        let (prepared, _) = prepare_generated_lab(&replaying, &[given], &known)?;
        let report = prepared.replay_reports.first().cloned().unwrap_or_default();
        match other {
            Some(good) if good.node != report.node => Err(two_nodes(&good.node, &report.node)),
            _ => Ok((prepared, report)),
        }
    })?;
    // The probe was given as source and target. The generated labs have only this one.
    sides.task.probe = None;
    if let Some(silent) = &mut sides.if_silent {
        silent.0.probe = None;
    }
    Ok(sides)
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
