//! Selects the labs and cases that a user names.

use std::path::{Path, PathBuf};

use super::invalid::{InvalidLab, catch_panic_sync, first_error_location, summarize};
use crate::results::FileLine;
use svclab_diagnostic::Diagnostic;
use svclab_diagnostic::printable::one_line;
use svclab_diagnostic::source::{Source, SourceError, Sources};
use svclab_diagnostic::suggest::did_you_mean;
use svclab_scenario::Scenario;

/// Default directory in which labs are found by name.
pub const DEFAULT_LAB_DIRECTORY: &str = "topologies";

/// Environment variable that overrides [`DEFAULT_LAB_DIRECTORY`].
pub const LAB_DIRECTORY_VARIABLE: &str = "SVCLAB_TOPOLOGIES";

/// Returns the name that selects a lab again in a new command. `cli_name` is the lab's name and
/// `file` its path. The result is `cli_name` if the default directory contains the lab, else
/// `file`.
#[must_use]
pub fn rerun_name(cli_name: &str, file: &str) -> String {
    let is_default = std::env::var_os(LAB_DIRECTORY_VARIABLE)
        .is_none_or(|set| set == DEFAULT_LAB_DIRECTORY)
        && Path::new(file).starts_with(DEFAULT_LAB_DIRECTORY);
    if is_default || file.is_empty() {
        cli_name.to_owned()
    } else if file.starts_with('-') {
        // A leading dash would make the file an option.
        format!("./{file}")
    } else {
        file.to_owned()
    }
}

/// Lab that was read, with the selected cases.
#[derive(Debug, Clone)]
pub struct SelectedLab {
    /// Lab document with all of its cases.
    pub scenario: Scenario,
    /// Indices of the selected cases, ascending.
    pub cases: Vec<usize>,
    /// Warnings about the lab file.
    pub warnings: Vec<Diagnostic>,
    /// Name of the lab on the command line: the path without extension relative to the directory of
    /// labs, for example `conformance/node-port`. For a lab outside that directory, the path of its
    /// file.
    pub cli_name: String,
}

/// Reason why a lab or case that a user names cannot run.
#[derive(Debug, thiserror::Error)]
pub enum SelectError {
    /// The file cannot be read.
    #[error(transparent)]
    Source(#[from] SourceError),
    /// The lab is invalid.
    #[error("cannot run the lab {}: {}", one_line(&.0.cli_name), .0.error.message)]
    InvalidLab(Box<InvalidLab>),
    /// No file has the name of the lab.
    #[error("there is no lab `{name}` in {directory}{}", hint(help.as_ref()))]
    NoLab {
        /// Name as the user wrote it.
        name: String,
        /// Directory that was searched.
        directory: String,
        /// Suggestion of another name. `None` if no lab is similar.
        help: Option<String>,
    },
    /// The lab does not have the case.
    #[error("the lab `{lab}` has no case `{case}`{}", hint(help.as_ref()))]
    NoCase {
        /// Name of the lab.
        lab: String,
        /// Case as the user wrote it.
        case: String,
        /// Suggestion of another case, or the reason of the mismatch.
        help: Option<String>,
    },
    /// The directory of labs contains no lab file.
    #[error("there is no lab in {directory}; name a file, or the directory with --topologies")]
    NoLabs {
        /// Path of the directory.
        directory: String,
    },
    /// The directory of labs cannot be read.
    #[error(
        "cannot read {directory}: {source}; name a lab's file, or the directory of labs with --topologies"
    )]
    UnreadableDirectory {
        /// Path of the directory.
        directory: String,
        /// Error of the operating system.
        source: std::io::Error,
    },
}

fn hint(help: Option<&String>) -> String {
    help.map(|help| format!("; {help}")).unwrap_or_default()
}

/// Reads the labs and cases that `names` selects. Without names, reads every lab directly in
/// `directory`. A name has one of these forms:
///
/// - `LAB`: a lab in `directory`
/// - `LAB/CASE`: the cases with these axis values, which may be some of the axes only
/// - path of a lab file, optionally followed by `/CASE`
/// - directory of labs, in `directory` or by its path, for every lab directly in it
///
/// # Errors
///
/// When a name selects nothing that can run, or a lab is invalid. Returns the first such error.
pub fn select_labs(names: &[String], directory: &Path) -> Result<Vec<SelectedLab>, SelectError> {
    let each = select_labs_each(names, directory)?.into_iter();
    each.map(|lab| lab.map_err(SelectError::InvalidLab))
        .collect()
}

/// Lab that can run, or lab that cannot.
pub type LabResult = Result<SelectedLab, Box<InvalidLab>>;

/// Reads labs like [`select_labs`], but an invalid lab does not prevent others from running.
///
/// # Errors
///
/// When a name selects nothing. Returns the first such error.
pub fn select_labs_each(names: &[String], directory: &Path) -> Result<Vec<LabResult>, SelectError> {
    if names.is_empty() {
        let files = require_labs_in(directory)?.into_iter();
        return files.map(|file| load(&file, directory)).collect();
    }
    let mut chosen: Vec<(PathBuf, LabResult)> = Vec::new();
    for name in names {
        for (file, case) in files(name, directory)? {
            let known = chosen.iter().position(|(known, _)| *known == file);
            let index = if let Some(at) = known {
                at
            } else {
                let mut lab = load(&file, directory)?;
                if let Ok(lab) = &mut lab {
                    lab.cases.clear();
                }
                chosen.push((file, lab));
                chosen.len() - 1
            };
            let Ok(lab) = &mut chosen[index].1 else {
                continue;
            };
            let wanted = matching_cases(&lab.scenario, case.as_deref())?;
            lab.cases.extend(wanted);
            lab.cases.sort_unstable();
            lab.cases.dedup();
        }
    }
    Ok(chosen.into_iter().map(|(_, lab)| lab).collect())
}

/// Returns the lab files that a name selects, each with the case part of the name.
fn files(name: &str, directory: &Path) -> Result<Vec<(PathBuf, Option<String>)>, SelectError> {
    let is_lab = ["yaml", "yml"]
        .iter()
        .any(|extension| directory.join(format!("{name}.{extension}")).is_file());
    let group = [directory.join(name), PathBuf::from(name)]
        .into_iter()
        .find(|path| !is_lab && path.is_dir());
    match group {
        Some(group) => {
            let files = require_labs_in(&group)?;
            Ok(files.into_iter().map(|file| (file, None)).collect())
        }
        None => Ok(vec![find_lab(name, directory)?]),
    }
}

/// Returns the lab files directly in a directory. Fails if there are none.
fn require_labs_in(directory: &Path) -> Result<Vec<PathBuf>, SelectError> {
    let files = labs_in(directory)?;
    if files.is_empty() {
        return Err(SelectError::NoLabs {
            directory: directory.display().to_string(),
        });
    }
    Ok(files)
}

/// Reads a lab.
///
/// # Errors
///
/// When the file does not exist or is a directory. Every problem of an existing file becomes part
/// of the returned [`InvalidLab`].
fn load(file: &Path, directory: &Path) -> Result<LabResult, SelectError> {
    let cli_name = match file.strip_prefix(directory) {
        Ok(inside) => inside.with_extension("").display().to_string(),
        Err(_) => file.display().to_string(),
    };
    let invalid_lab = |sources, diagnostics, error, place: Option<FileLine>| {
        let name = file.file_stem().unwrap_or(file.as_os_str());
        let place = place.unwrap_or_else(|| FileLine {
            file: one_line(&file.to_string_lossy()).into_owned(),
            line: 1,
        });
        Box::new(InvalidLab {
            name: one_line(&name.to_string_lossy()).into_owned(),
            cli_name: cli_name.clone(),
            file: file.display().to_string(),
            sources,
            diagnostics,
            error,
            location: place,
        })
    };
    let source = match Source::read(file) {
        Ok(source) => source,
        // A dangling symbolic link is a lab that cannot be read.
        Err(error @ SourceError::Missing { .. }) if !file.is_symlink() => {
            return Err(error.into());
        }
        Err(error @ SourceError::Directory { .. }) => return Err(error.into()),
        Err(error) => {
            let place = error.line().map(|line| FileLine {
                file: one_line(&file.to_string_lossy()).into_owned(),
                line,
            });
            let (sources, diagnostics) = (Sources::default(), vec![Diagnostic::from(error)]);
            let summary = summarize(&sources, &diagnostics);
            return Ok(Err(invalid_lab(sources, diagnostics, summary, place)));
        }
    };
    let sources = Sources::new(vec![source]);
    Ok(match catch_panic_sync(|| Scenario::load(&sources)) {
        Ok(Ok((scenario, warnings))) => Ok(SelectedLab {
            cases: (0..scenario.cases().len()).collect(),
            scenario,
            warnings,
            cli_name,
        }),
        Ok(Err(diagnostics)) => {
            let (short, at) = (
                summarize(&sources, &diagnostics),
                first_error_location(&sources, &diagnostics),
            );
            Err(invalid_lab(sources, diagnostics, short, at))
        }
        Err(panicked) => Err(invalid_lab(sources, Vec::new(), panicked, None)),
    })
}

/// Whether a file has the extension of a lab: `.yaml` or `.yml`.
fn is_lab_name(path: &Path) -> bool {
    path.extension()
        .is_some_and(|extension| extension == "yaml" || extension == "yml")
}

/// Returns the lab files directly in a directory, sorted by name, including unreadable files.
fn labs_in(directory: &Path) -> Result<Vec<PathBuf>, SelectError> {
    let unreadable = |source| SelectError::UnreadableDirectory {
        directory: directory.display().to_string(),
        source,
    };
    let mut files = Vec::new();
    for entry in std::fs::read_dir(directory).map_err(unreadable)? {
        let path = entry.map_err(unreadable)?.path();
        // A dangling link or a named pipe becomes an error when the file is read.
        if is_lab_name(&path) && !path.is_dir() {
            files.push(path);
        }
    }
    files.sort();
    Ok(files)
}

/// Returns the file and the case of a name. The path of a file has priority, so that every file can
/// be named.
fn find_lab(name: &str, directory: &Path) -> Result<(PathBuf, Option<String>), SelectError> {
    let splits = std::iter::once((name, None)).chain(
        name.match_indices('/')
            .rev()
            .map(|(at, _)| (&name[..at], Some(name[at + 1..].to_owned()))),
    );
    for (front, case) in splits.clone() {
        let path = Path::new(front);
        if is_lab_name(path) || case.is_none() && path.exists() {
            return Ok((path.to_owned(), case));
        }
    }
    for (front, case) in splits {
        for extension in ["yaml", "yml"] {
            let path = directory.join(format!("{front}.{extension}"));
            if path.is_file() {
                return Ok((path, case));
            }
        }
    }
    let labs: Vec<String> = labs_in(directory)
        .unwrap_or_default()
        .iter()
        .filter_map(|path| Some(one_line(&path.file_stem()?.to_string_lossy()).into_owned()))
        .collect();
    let lab = name.split('/').next().unwrap_or(name);
    // A bare name is searched in the directory of labs only, not in the current directory.
    let here = ["yaml", "yml"]
        .map(|extension| format!("{lab}.{extension}"))
        .into_iter()
        .find(|file| Path::new(file).is_file())
        .map(|file| format!("for the file in this directory, write `{file}`"));
    Err(SelectError::NoLab {
        name: lab.to_owned(),
        directory: directory.display().to_string(),
        help: here
            .or_else(|| did_you_mean(lab, labs.iter().map(String::as_str)))
            .or_else(|| (!labs.is_empty()).then(|| format!("the labs are {}", labs.join(", ")))),
    })
}

/// Returns the indices of the cases with the axis values that a user names.
fn matching_cases(scenario: &Scenario, case: Option<&str>) -> Result<Vec<usize>, SelectError> {
    let cases = scenario.cases();
    let Some(pairs) = case else {
        return Ok((0..cases.len()).collect());
    };
    let no_case = |help: Option<String>| SelectError::NoCase {
        lab: scenario.name().to_owned(),
        case: pairs.to_owned(),
        help,
    };
    if scenario.lab.spec.axes.is_empty() {
        return Err(no_case(Some(
            "the lab has no axes; name it without a case".to_owned(),
        )));
    }
    let mut wanted_values = Vec::new();
    for pair in pairs.split(',') {
        let (axis, value) = pair.split_once('=').ok_or_else(|| {
            no_case(Some(
                "the name of a case is a list of axis values: `axis=value,axis=value`".to_owned(),
            ))
        })?;
        let defined = &scenario.lab.spec.axes;
        let Some(values) = defined.get(axis) else {
            return Err(no_case(
                did_you_mean(axis, defined.keys().map(String::as_str)).or_else(|| {
                    Some(format!(
                        "its axes are {}",
                        defined.keys().cloned().collect::<Vec<_>>().join(", ")
                    ))
                }),
            ));
        };
        if !values.contains_key(value) {
            return Err(no_case(
                did_you_mean(value, values.keys().map(String::as_str)).or_else(|| {
                    Some(format!(
                        "`{axis}` is one of {}",
                        values.keys().cloned().collect::<Vec<_>>().join(", ")
                    ))
                }),
            ));
        }
        if wanted_values.iter().any(|(known, _)| *known == axis) {
            return Err(no_case(Some(format!("the axis `{axis}` occurs twice"))));
        }
        wanted_values.push((axis, value));
    }
    let found: Vec<usize> = cases
        .iter()
        .enumerate()
        .filter(|(_, case)| {
            wanted_values
                .iter()
                .all(|(axis, value)| case.values.get(*axis).is_some_and(|own| own == value))
        })
        .map(|(at, _)| at)
        .collect();
    if found.is_empty() {
        Err(no_case(Some(
            "the lab excludes that combination".to_owned(),
        )))
    } else {
        Ok(found)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn topologies() -> PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../topologies")
    }

    fn select_names(names: &[&str]) -> Vec<(String, usize)> {
        let names: Vec<String> = names.iter().map(|&name| name.to_owned()).collect();
        let labs = select_labs(&names, &topologies()).expect("the labs can be read");
        labs.into_iter()
            .map(|lab| (lab.cli_name, lab.cases.len()))
            .collect()
    }

    #[test]
    fn rerun_name_leading_dash_gets_path_prefix() {
        for named in ["-x.yaml", "other"] {
            assert_eq!(rerun_name(named, "-x.yaml"), "./-x.yaml");
        }
    }

    #[test]
    fn select_directory_returns_its_labs() {
        let selected = select_names(&["conformance"]);
        let names: Vec<&str> = selected.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(
            names,
            [
                "conformance/cluster-ip",
                "conformance/external-ip",
                "conformance/load-balancer",
                "conformance/node-port",
                "conformance/security-group",
                "conformance/session-affinity"
            ]
        );
        // The path of the directory selects the same labs. A lab that is named twice runs once.
        let path = topologies().join("conformance").display().to_string();
        assert_eq!(select_names(&[&path]), selected);
        assert_eq!(
            select_names(&["conformance", "conformance/node-port/mode=ipvs"]),
            selected
        );
    }

    #[test]
    fn lab_in_directory_name_contains_directory() {
        let ipvs = select_names(&["conformance/external-ip/mode=ipvs"]);
        assert_eq!(ipvs, [("conformance/external-ip".to_owned(), 2)]);
    }

    #[test]
    fn select_empty_directory_returns_error() {
        let empty = tempfile::tempdir().expect("the directory is created");
        let name = empty.path().display().to_string();
        let error = select_labs(std::slice::from_ref(&name), &topologies())
            .expect_err("the directory has no labs");
        let message = error.to_string().replace(&name, "DIRECTORY");
        insta::assert_snapshot!(message, @"there is no lab in DIRECTORY; name a file, or the directory with --topologies");
    }

    #[test]
    fn select_directory_unreadable_labs_are_invalid() {
        let folder = tempfile::tempdir().expect("the directory is created");
        let path_of = |name: &str| folder.path().join(name);
        let good = topologies().join("clb-hairpin.yaml");
        std::fs::copy(good, path_of("clb-hairpin.yaml")).expect("the lab is copied");
        std::os::unix::fs::symlink("none", path_of("dangling.yaml")).expect("the link is created");
        std::os::unix::fs::symlink("loop.yml", path_of("loop.yml")).expect("the link is created");
        nix::unistd::mkfifo(&path_of("pipe.yaml"), nix::sys::stat::Mode::S_IRWXU)
            .expect("the pipe is created");
        std::fs::create_dir(path_of("directory.yaml")).expect("the directory is created");
        std::fs::write(path_of("notes.txt"), "none").expect("the file is written");
        let name = folder.path().display().to_string();
        let selected = select_labs_each(std::slice::from_ref(&name), &topologies())
            .expect("the directory can be read");
        let lines = selected.iter().map(|lab| match lab {
            Ok(lab) => format!("read: {}", lab.scenario.name()),
            Err(wrong) => wrong.error.message.replace(&name, "DIRECTORY"),
        });
        let lines: Vec<String> = lines.collect();
        insta::assert_snapshot!(lines.join("\n"), @r"
        read: clb-hairpin
        cannot read DIRECTORY/dangling.yaml: no such file
        cannot read DIRECTORY/loop.yml: Too many levels of symbolic links (os error 40)
        cannot read DIRECTORY/pipe.yaml: not a regular file but a named pipe
        ");
    }

    /// Checks that the labs contain every flow of kube-proxy's tests, in each variant.
    #[test]
    fn conformance_labs_cover_every_cited_test_flow() {
        let names = ["conformance".to_owned()];
        let labs = select_labs(&names, &topologies()).expect("the labs can be read");
        let facts = || {
            let specs = labs.iter().map(|lab| &lab.scenario.lab.spec);
            specs.flat_map(|spec| spec.facts.values())
        };
        for (test, flows) in [
            // 30 flows, with and without a cluster CIDR and --masquerade-all.
            ("TestInternalExternalMasquerade", 4 * 30),
            ("TestClusterIPGeneral", 10),
            ("TestLoadBalancer", 13),
            // 3 flows, and 1 to a second address; with one and several networks, for both families.
            ("TestNodePorts", 2 * 2 * 4),
            ("TestExternalTrafficPolicyLocal", 7),
            ("TestExternalTrafficPolicyCluster", 7),
            // 4 flows, and the same 4 after the endpoints are removed.
            ("TestInternalTrafficPolicy", 2 * 4),
        ] {
            let of_test = facts().filter(|fact| fact.test.split('/').next() == Some(test));
            assert_eq!(of_test.count(), flows, "{test}");
        }
    }
}
