//! Implements `svclab replay`.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::args::{Common, ReplayArguments, ReplayFormat, word};
use super::exit::Exit;
use super::explain::{data, human};
use super::interrupt::unless_interrupted;
use super::labs::{chosen, tell};
use super::output::{print, print_json, refused};
use super::run::options;
use svclab_diagnostic::Diagnostic;
use svclab_diagnostic::files::{self, Location};
use svclab_diagnostic::printable::printable;
use svclab_diagnostic::source::Sources;
use svclab_diagnostic::source::{MAX_BYTES, Source};
use svclab_dump::Read;
use svclab_model::evidence::Evidence;
use svclab_model::plan::Protocol;
use svclab_planner::replay::{Dumped, expecting, lab, node_of};
use svclab_report::replay::Replayed;
use svclab_runner::run::dumped::{self, leniently, read, unbuildable};
use svclab_runner::run::{Chosen, Prepared, Wishes, explain as explained, prepare};
use svclab_scenario::lab::Probe;
use svclab_scenario::objects::Objects;
use svclab_scenario::{Case, Scenario};

/// Name of a generated lab that is not written to a file.
const NAME: &str = "replay";

/// Dump from the command line.
#[derive(Clone)]
pub(super) struct Given {
    node: Option<String>,
    path: PathBuf,
    pub(super) dump: dumped::Given,
}

/// Builds dumped nodes in a lab, runs the probes and explains the results.
pub fn replay(common: &Common, arguments: &ReplayArguments) -> Exit {
    let given = match dumps(arguments) {
        Ok(given) => given,
        Err(exit) => return exit,
    };
    let of_lab = arguments.objects.iter().any(|name| is_lab(name));
    let mut keep = None;
    let prepared = if of_lab {
        if arguments.write.is_some() {
            return wrong(
                "the objects are a lab already, and none is written",
                "say `nodes: {NODE: {dump: PATH}}` in the lab itself",
            );
        }
        in_lab(common, arguments, given)
    } else {
        match alone(arguments, &given) {
            Ok((prepared, lab)) => {
                keep = arguments.write.as_deref().map(|file| (file, lab));
                Ok(prepared)
            }
            Err(exit) => Err(exit),
        }
    };
    match prepared {
        Ok(_) if !of_lab && arguments.probe.is_empty() => {
            eprintln!("error: nothing was selected: the objects are no lab, and no probe is named");
            eprintln!(
                "  what to do: say what to try with --probe: pod/default/client->service/default/web:80"
            );
            Exit::Nothing
        }
        // A generated lab has no expectations, so only a given lab is judged.
        Ok(prepared) => {
            let judged = of_lab && arguments.probe.is_empty();
            tried(arguments, prepared, judged, keep.as_ref())
        }
        Err(exit) => exit,
    }
}

fn wrong(message: &str, remedy: &str) -> Exit {
    eprintln!("error: {message}\n  what to do: {remedy}");
    Exit::Input
}

/// Reads the dumps and prints their diagnostics.
pub(super) fn dumps(arguments: &ReplayArguments) -> Result<Vec<Given>, Exit> {
    read_all(&arguments.dumps, arguments.lenient)
}

/// Reads dumps in the form `[NODE=]DUMP` and prints their diagnostics.
pub(super) fn read_all(names: &[String], lenient: bool) -> Result<Vec<Given>, Exit> {
    let mut all = Vec::new();
    let (mut lines, mut files) = (0_usize, 0_usize);
    for name in names {
        let whole = Path::new(name);
        let (node, path) = match name.split_once('=').filter(|_| !whole.exists()) {
            Some((node, path)) => (Some(node.to_owned()), PathBuf::from(path)),
            None => (None, whole.to_owned()),
        };
        let read: Read = read(&path).map_err(|error| {
            eprintln!("error: {error}");
            Exit::Input
        })?;
        tell(&read.sources, &read.diagnostics);
        if !lenient {
            let refused = unbuildable(&read);
            lines += refused.0;
            files += refused.1;
        }
        let whole = read.diagnostics.is_empty();
        let (dump, left) = leniently(read);
        if (whole || lenient) && dump.formats().next().is_none() {
            return Err(wrong(
                &format!("nothing of {} can be read", path.display()),
                "collect the node again, with scripts/collect-node",
            ));
        }
        let dump = dumped::Given {
            dump,
            lenient,
            left,
        };
        all.push(Given { node, path, dump });
    }
    match (lines, files) {
        (0, 0) => Ok(all),
        (0, files) => {
            let (what, them) = several(files, "file", "files");
            Err(wrong(
                &format!("{what}, told above, cannot be taken for a dump's"),
                &format!("collect the node again, or leave {them} out with --lenient"),
            ))
        }
        (lines, _) => {
            let (what, them) = several(lines, "line", "lines");
            Err(wrong(
                &format!("{what} of what was dumped, told above, cannot be built"),
                &format!("collect the node again, or leave {them} out with --lenient"),
            ))
        }
    }
}

/// Returns a count with its noun, and the pronoun for a later reference.
fn several(count: usize, one: &str, more: &str) -> (String, &'static str) {
    match count {
        1 => (format!("one {one}"), "it"),
        count => (format!("{count} {more}"), "them"),
    }
}

/// Whether a name is that of a lab or a case, and not that of a file of objects.
fn is_lab(name: &str) -> bool {
    let Ok((bytes, _)) = Location::anywhere(name).read(MAX_BYTES) else {
        return true;
    };
    let text = String::from_utf8_lossy(&bytes);
    text.lines().any(|line| line.trim_end() == "kind: Lab")
}

/// Prepares the case of a lab with its nodes replaced by the dumps.
fn in_lab(
    common: &Common,
    arguments: &ReplayArguments,
    given: Vec<Given>,
) -> Result<Prepared, Exit> {
    let labs = chosen(&arguments.objects, &common.topologies)?;
    let cases: Vec<(&Chosen, usize)> = labs
        .iter()
        .flat_map(|lab| lab.cases.iter().map(move |case| (lab, *case)))
        .collect();
    let [(lab, at)] = cases.as_slice() else {
        return Err(wrong(
            &format!(
                "{} cases are meant, and one is replayed at a time",
                cases.len()
            ),
            "name one: LAB/axis=value,axis=value",
        ));
    };
    let case = &lab.scenario.cases()[*at];
    let dumps = by_node(case, given)?;
    let case = with_probes(case, arguments);
    prepared(lab, &case, arguments, dumps)
}

/// Assigns the dumps to the nodes of a case.
pub(super) fn by_node(
    case: &Case,
    given: Vec<Given>,
) -> Result<BTreeMap<String, dumped::Given>, Exit> {
    let nodes = addresses(&case.objects);
    let mut dumps = BTreeMap::new();
    for one in given {
        let node = named(&one, &nodes)?;
        if dumps.contains_key(&node) {
            return Err(two_dumps(&node));
        }
        dumps.insert(node, one.dump);
    }
    Ok(dumps)
}

/// Reports two dumps of the same node.
fn two_dumps(node: &str) -> Exit {
    wrong(
        &format!("two of the dumps are of the node `{node}`"),
        "give one dump of each node",
    )
}

fn prepared(
    lab: &Chosen,
    case: &Case,
    arguments: &ReplayArguments,
    dumps: BTreeMap<String, dumped::Given>,
) -> Result<Prepared, Exit> {
    let wishes = Wishes {
        dumps,
        allow_outside: arguments.allow_outside,
        ..Wishes::from(arguments.patience)
    };
    prepare(lab, case, wishes).map_err(|diagnostics| {
        tell(&lab.scenario.sources, &diagnostics);
        Exit::Input
    })
}

/// Adds the probes of the command line to the case.
fn with_probes(case: &Case, arguments: &ReplayArguments) -> Case {
    let mut case = case.clone();
    let spec = Arc::make_mut(&mut case.spec);
    for (at, (from, to)) in arguments.probe.iter().enumerate() {
        let probe = Probe {
            from: from.clone(),
            to: to.clone(),
            protocol: Protocol::default(),
            connections: 1,
            bind: None,
            max_wait: None,
            after: None,
            across: None,
        };
        spec.probes.insert(format!("probe-{}", at + 1), probe);
    }
    case
}

/// Returns the nodes of the objects with their internal addresses.
fn addresses(objects: &Objects) -> Vec<(String, Vec<IpAddr>)> {
    let nodes = objects.nodes.iter().map(|node| {
        let status = node.value.status.as_ref();
        let all = status.and_then(|status| status.addresses.as_ref());
        let internal = all
            .into_iter()
            .flatten()
            .filter(|address| address.type_ == "InternalIP")
            .filter_map(|address| address.address.parse().ok());
        let name = node.value.metadata.name.clone().unwrap_or_default();
        (name, internal.collect())
    });
    nodes.collect()
}

/// Returns the name of the node that a dump belongs to.
fn named(given: &Given, nodes: &[(String, Vec<IpAddr>)]) -> Result<String, Exit> {
    let known = |name: &&String| nodes.iter().any(|(known, _)| known == *name);
    let path = given.path.display();
    let names: Vec<&str> = nodes.iter().map(|(name, _)| name.as_str()).collect();
    match &given.node {
        Some(name) if nodes.is_empty() || known(&name) => return Ok(name.clone()),
        Some(name) => {
            return Err(wrong(
                &format!("there is no node `{name}` among the objects"),
                &format!("name one of these: {}", names.join(", ")),
            ));
        }
        None => {}
    }
    if let Some(node) = node_of(&given.dump.dump, nodes) {
        return Ok(node.to_owned());
    }
    match names.as_slice() {
        [] => {
            let stem = given.path.file_name().unwrap_or_default().to_string_lossy();
            Ok(stem.split('.').next().unwrap_or_default().to_lowercase())
        }
        [only] => Ok((*only).to_owned()),
        _ => Err(wrong(
            &format!("no address in {path} is one of a node of the objects"),
            &format!("say whose it is: {}={path}", names.join("|")),
        )),
    }
}

/// Generates a lab from the dumps and the objects. Returns its case and its text.
pub(super) fn alone(
    arguments: &ReplayArguments,
    given: &[Given],
) -> Result<(Prepared, String), Exit> {
    let mut files = Vec::new();
    for path in &arguments.objects {
        files.push(Source::read(Path::new(path)).map_err(|error| {
            eprintln!("error: {error}");
            Exit::Input
        })?);
    }
    let sources = Sources::new(files.clone());
    let (objects, _) = Objects::load(&sources).map_err(|diagnostics| {
        tell(&sources, &diagnostics);
        Exit::Input
    })?;
    let nodes = addresses(&objects);
    let mut named_dumps: Vec<(String, String, &Given)> = Vec::new();
    for one in given {
        let path = seen_from(arguments.write.as_deref(), &one.path);
        let node = named(one, &nodes)?;
        if named_dumps.iter().any(|(known, ..)| *known == node) {
            return Err(two_dumps(&node));
        }
        named_dumps.push((node, path.display().to_string(), one));
    }
    let dumped: Vec<Dumped<'_>> = named_dumps
        .iter()
        .map(|(node, path, one)| Dumped {
            node,
            path,
            dump: &one.dump.dump,
            lenient: arguments.lenient,
        })
        .collect();
    let file = arguments.write.clone();
    let file = file.unwrap_or_else(|| PathBuf::from(format!("{NAME}.yaml")));
    let name = file.file_stem().unwrap_or_default().to_string_lossy();
    let text = lab(&name, &dumped, &nodes, &arguments.probe).map_err(|node| {
        wrong(
            &format!("no address of the node {node} is known: neither its Node object nor `ip addr` and `ip route` of it"),
            "name a file with its Node object with --objects",
        )
    })?;
    let whole = with_objects(text.clone(), &files);
    let mut all = vec![Source::of_text(file.display().to_string(), text)];
    all.extend(files);
    let sources = Sources::new(all);
    let (scenario, warnings) = Scenario::load(&sources).map_err(|diagnostics| {
        tell(&sources, &diagnostics);
        Exit::Input
    })?;
    tell(&sources, &warnings);
    let case = scenario.cases()[0].clone();
    let lab = Chosen {
        scenario,
        cases: vec![0],
        warnings: Vec::<Diagnostic>::new(),
        named: NAME.to_owned(),
    };
    let dumps = named_dumps
        .iter()
        .map(|(node, _, one)| (node.clone(), one.dump.clone()));
    Ok((prepared(&lab, &case, arguments, dumps.collect())?, whole))
}

/// Returns the path of a dump for use in a lab file: relative if the dump is below the lab's
/// directory, otherwise absolute.
fn seen_from(lab: Option<&Path>, dump: &Path) -> PathBuf {
    let whole = |path: &Path| fs::canonicalize(path).ok();
    let dump = whole(dump).unwrap_or_else(|| dump.to_owned());
    let directory = lab.map(|lab| match lab.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    });
    let below = directory.and_then(whole);
    let below = below.and_then(|directory| dump.strip_prefix(directory).ok().map(Path::to_owned));
    below.unwrap_or(dump)
}

/// Appends the objects to the text of the lab.
fn with_objects(mut text: String, objects: &[Source]) -> String {
    for source in objects {
        let objects = printable(source.text());
        let begins = objects.trim_start().starts_with("---");
        let divider = if begins { "" } else { "---\n" };
        let _ = write!(text, "{divider}{objects}");
        if !text.ends_with('\n') {
            text.push('\n');
        }
    }
    text
}

/// Writes the lab with the observed results as its expectations.
fn write(file: &Path, text: &str, evidence: &Evidence) -> Result<(), Exit> {
    let text = expecting(text, &evidence.attempts);
    files::write(file, |out| out.write_all(text.as_bytes())).map_err(|error| {
        eprintln!("error: cannot write {}: {error}", file.display());
        eprintln!("  what to do: name a file that can be written with --write");
        Exit::Machine
    })?;
    // The lab contains an absolute path for a dump outside its directory.
    let outside = if text.contains("{dump: /") || text.contains("{dump: \"/") {
        " --allow-outside"
    } else {
        ""
    };
    eprintln!(
        "wrote {}, which expects what was seen; run it with `svclab run {}{outside}`",
        file.display(),
        word(&file.display().to_string())
    );
    Ok(())
}

/// Runs the probes and explains where the packets went.
fn tried(
    arguments: &ReplayArguments,
    prepared: Prepared,
    judged: bool,
    keep: Option<&(&Path, String)>,
) -> Exit {
    let before = told(&prepared);
    let options = options(None, false, arguments.place.choice());
    let ran = unless_interrupted(explained(vec![prepared], &options, std::future::pending()));
    let seen = match ran {
        Ok(Some(Some(seen))) => seen,
        Ok(_) => {
            eprintln!("interrupted");
            return Exit::Interrupted;
        }
        Err(error) => return refused(&error),
    };
    let mut text = String::new();
    for one in seen {
        match one {
            Ok(one) => {
                if let Some((file, lab)) = keep
                    && let Err(exit) = write(file, lab, &one.evidence)
                {
                    return exit;
                }
                let wanted = wanted(arguments);
                if arguments.format == ReplayFormat::Json {
                    let case = data(&one, &wanted, judged);
                    return print_json(&Replayed::of(one.prepared.accounts, case));
                }
                text += &told(&one.prepared);
                text += &human(&[one], &wanted, arguments.verbose, judged);
            }
            Err((_, error)) => {
                if arguments.format == ReplayFormat::Human {
                    let _ = print(&before);
                }
                eprintln!("error: {}", error.message);
                if let Some(remedy) = &error.remedy {
                    eprintln!("  what to do: {remedy}");
                }
                return Exit::Of(error.trouble.exit_code());
            }
        }
    }
    print(&text)
}

/// Lists the replayed, simulated and omitted parts of each node.
fn told(prepared: &Prepared) -> String {
    let mut text = String::new();
    for account in &prepared.accounts {
        let _ = writeln!(text, "{account}");
    }
    text
}

/// Returns the names of the probes from the command line; empty if there are none.
fn wanted(arguments: &ReplayArguments) -> Vec<String> {
    let count = arguments.probe.len();
    (1..=count).map(|at| format!("probe-{at}")).collect()
}
