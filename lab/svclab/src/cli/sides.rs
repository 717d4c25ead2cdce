//! Loads the two sides of a bisection. They are two cases, two dumps that replace a node of a case,
//! or two dumps in a lab generated from objects.

use std::path::Path;

use super::args::{BisectArguments, Common, ReplayArguments, ReplayFormat, Selection, from_to};
use super::exit::Exit;
use super::labs::{prepared, tell};
use super::output::told;
use super::replay::{alone, dumps};
use svclab_diagnostic::files::Location;
use svclab_diagnostic::source::MAX_BYTES;
use svclab_dump::folder::Folder;
use svclab_dump::{NodeDump, Read};
use svclab_experiment::bisect::document::Over;
use svclab_experiment::bisect::{is_whole, over};
use svclab_experiment::run::bisect::Task;
use svclab_model::plan::{Patience, Plan};
use svclab_planner::replay::Account;
use svclab_report::quoted;
use svclab_ruleset::tool::Format;
use svclab_runner::results::{RunError, Trouble};
use svclab_runner::run::{Chosen, Prepared};

/// Task of the bisection, with its cases if both sides are cases of one lab.
pub struct Sides {
    /// Plans and names of both sides, and the probe.
    pub task: Task,
    /// Lab with the good and the bad case; `None` for dumps and for cases of different labs.
    pub cases: Option<(Chosen, [Prepared; 2])>,
}

/// Loads the sides of a bisection.
///
/// # Errors
///
/// Returns the exit code if the input is invalid. The error is printed.
pub fn sides(common: &Common, arguments: &BisectArguments) -> Result<Sides, Exit> {
    let names = [&arguments.good, &arguments.bad];
    let task = |[good, bad]: [Plan; 2], over, probe| Task {
        good,
        bad,
        good_name: arguments.good.clone(),
        bad_name: arguments.bad.clone(),
        over,
        probe,
    };
    let alone = |task| Sides { task, cases: None };
    let probe = arguments.probe.clone();
    if let (Some(case), Some(node)) = (&arguments.over, &arguments.node) {
        let (_, case) = one(common, case, arguments)?;
        let plans = [
            laid(&case.plan, node, names[0], arguments)?,
            laid(&case.plan, node, names[1], arguments)?,
        ];
        let over = Over {
            case: case.case.id.clone(),
            node: node.clone(),
        };
        return Ok(alone(task(plans, Some(over), probe)));
    }
    match names.map(|name| is_dump(name)) {
        [true, true] => Ok(alone(task(replayed(arguments)?, None, None))),
        [false, false] if !arguments.objects.is_empty() => Err(wrong(
            "--objects is for dumps by themselves, and two cases have their own objects",
            "leave out --objects",
        )),
        [false, false] => {
            let (lab, good) = one(common, names[0], arguments)?;
            let (other, bad) = one(common, names[1], arguments)?;
            let plans = [good.plan.clone(), bad.plan.clone()];
            let same = lab.named == other.named;
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
            Err(wrong(
                &format!("{dump} is a dump, and {other} is none"),
                "compare two cases, or two dumps; a lab whose node is a dump says so with `nodes: {NODE: {dump: PATH}}`",
            ))
        }
    }
}

/// Prints an input error with its help.
pub fn wrong(message: &str, remedy: &str) -> Exit {
    told(&RunError {
        trouble: Trouble::Input,
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
    let of_node = name.split_once('=').map(|(_, path)| Path::new(path));
    is_dump(Path::new(name)) || of_node.is_some_and(is_dump)
}

/// Returns the plan with a node replaced by a dump.
fn laid(plan: &Plan, node: &str, name: &str, arguments: &BisectArguments) -> Result<Plan, Exit> {
    let dump = dumped(name, arguments)?;
    let (plan, account) = over(plan, node, name, &dump).map_err(|error| {
        eprintln!("error: {error}");
        Exit::Input
    })?;
    warn(name, &account);
    Ok(plan)
}

/// Warns about omitted parts of a dump that can affect packets.
fn warn(name: &str, account: &Account) {
    let all = account.left_out.iter();
    for left in all.filter(|left| !left.affects.is_empty()) {
        eprintln!(
            "warning: {name}: left out is {}: {}; {}",
            left.what, left.because, left.affects
        );
    }
}

/// Reads a dump of a whole node, or of rules and sets only. The rules may refer to sets of the lab.
fn dumped(name: &str, arguments: &BisectArguments) -> Result<NodeDump, Exit> {
    let read = || {
        Folder::read(Path::new(name)).map_err(|error| {
            eprintln!("error: {error}");
            Exit::Input
        })
    };
    if is_whole(&read()?.parse().dump) {
        let given = dumps(&replaying(name, arguments)?)?;
        let mut dumps = given.into_iter().map(|given| given.dump.dump);
        return Ok(dumps.next().unwrap_or_default());
    }
    let (mut sets, mut others) = (read()?, read()?);
    sets.files.retain(|file| file.format == Some(Format::Sets));
    others
        .files
        .retain(|file| file.format != Some(Format::Sets));
    let of_sets = checked(sets.parse());
    let dump = checked(others.parse()).ok_or(Exit::Input)?;
    Ok(NodeDump {
        sets: of_sets.ok_or(Exit::Input)?.sets.or(dump.sets),
        ..dump
    })
}

/// Prints the diagnostics of a dump and returns the dump; `None` if it is not complete.
fn checked(read: Read) -> Option<NodeDump> {
    tell(&read.sources, &read.diagnostics);
    read.is_whole().then_some(read.dump)
}

/// Prepares both dumps independently, as `svclab replay` does.
fn replayed(arguments: &BisectArguments) -> Result<[Plan; 2], Exit> {
    let plan = |name: &str, node: Option<&String>| -> Result<(String, Plan), Exit> {
        let named = match node {
            Some(node) if own_node(name).is_none() => format!("{node}={name}"),
            _ => name.to_owned(),
        };
        let replaying = replaying(&named, arguments)?;
        let (prepared, _) = alone(&replaying, &dumps(&replaying)?)?;
        let account = prepared.accounts.into_iter().next().unwrap_or_default();
        warn(name, &account);
        Ok((account.node, prepared.plan))
    };
    let two_nodes = |good: &str, bad: &str| {
        wrong(
            &format!(
                "{} is of the node {good}, and {} of {bad}",
                arguments.good, arguments.bad
            ),
            "say the same node of both, as NODE=DUMP or with --node: it then has the addresses that were dumped",
        )
    };
    if let [Some(good), Some(bad)] = [&arguments.good, &arguments.bad].map(|name| own_node(name))
        && good != bad
    {
        return Err(two_nodes(good, bad));
    }
    let (good, one) = plan(&arguments.good, arguments.node.as_ref())?;
    // Without objects, only the file name of the second dump identifies its node.
    let same = arguments
        .node
        .as_ref()
        .or_else(|| arguments.objects.is_empty().then_some(&good));
    let (bad, other) = plan(&arguments.bad, same)?;
    if good != bad {
        return Err(two_nodes(&good, &bad));
    }
    Ok([one, other])
}

/// Returns the node name in `NODE=DUMP`; `None` without one.
fn own_node(name: &str) -> Option<&str> {
    let named = name.split_once('=').map(|(node, _)| node);
    named.filter(|_| !Path::new(name).exists())
}

/// Returns the arguments of `svclab replay` for a dump.
fn replaying(name: &str, arguments: &BisectArguments) -> Result<ReplayArguments, Exit> {
    let probe = match (&arguments.over, &arguments.probe) {
        (Some(_), _) => Vec::new(),
        (None, Some(probe)) => vec![from_to(probe).map_err(|how| {
            wrong(
                &format!("`{probe}` is no probe of dumps by themselves, of which no lab tells"),
                &how,
            )
        })?],
        (None, None) => {
            return Err(wrong(
                "what is tried is not said, and no lab says it",
                "name it with --probe: pod/default/client->service/default/web:80",
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
        patience: Patience::SETTLED.longest,
        format: ReplayFormat::Human,
        place: arguments.place.clone(),
        verbose: false,
    })
}

/// Returns the single case that a name selects.
fn one(
    common: &Common,
    name: &str,
    arguments: &BisectArguments,
) -> Result<(Chosen, Prepared), Exit> {
    let selection = Selection {
        names: vec![name.to_owned()],
        patience: Patience::SETTLED,
        kube_proxy: None,
        allow_outside: arguments.allow_outside,
        kube_proxy_timeout: None,
    };
    let labs = prepared(common, &selection)?;
    let mut cases = Vec::new();
    for (lab, prepared) in labs {
        cases.extend(prepared.into_iter().map(|case| (lab.clone(), case)));
    }
    match cases.pop() {
        Some(case) if cases.is_empty() => Ok(case),
        last => {
            let all: Vec<String> = cases
                .iter()
                .chain(&last)
                .map(|(_, case)| format!("  {}", quoted(&case.named)))
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
