//! Refuses options that have no effect because of other options.
//!
//! Clap also counts values of environment variables as arguments, so its `conflicts_with` would
//! refuse every use of a command while the variable is set.

use clap::error::ErrorKind;
use clap::parser::ValueSource;
use clap::{ArgMatches, Command};

use svclab_runner::kernel::KernelChoice;

/// Condition under which options of a command have no effect.
enum Without<'a> {
    /// The switch is given.
    Given(&'a str),
    /// The switch is not given.
    Missing(&'a str),
}
use Without::{Given, Missing};

/// Command, condition, and the identifiers of the options that have no effect under it.
const RULES: [(&str, Without<'static>, &[&str]); 4] = [
    (
        "explain",
        Given("running"),
        &[
            "topologies",
            "kernel",
            "modules",
            "kube_proxy",
            "kube_proxy_timeout",
            "allow_outside",
        ],
    ),
    (
        "claims",
        Given("from"),
        &[
            "kernel",
            "modules",
            "max_wait",
            "kube_proxy",
            "kube_proxy_timeout",
            "allow_outside",
            "jobs",
        ],
    ),
    (
        "graph",
        Missing("probe"),
        &[
            "kernel",
            "modules",
            "max_wait",
            "kube_proxy",
            "kube_proxy_timeout",
        ],
    ),
    ("rules", Missing("read_back"), &["kernel", "modules"]),
];

/// Checks that each option on the command line has an effect.
///
/// # Errors
///
/// Names the first option that has none.
pub(super) fn check(command: &mut Command, matches: &ArgMatches) -> Result<(), clap::Error> {
    let Some((name, matches)) = matches.subcommand() else {
        return Ok(());
    };
    let Some(command) = command.find_subcommand_mut(name) else {
        return Ok(());
    };
    let is_given = |option: &str| matches.value_source(option) == Some(ValueSource::CommandLine);
    for (_, condition, options) in RULES.iter().filter(|(of, ..)| *of == name) {
        let (applies, reason) = match condition {
            Given(switch) => (is_given(switch), format!("with {}", flag(command, switch))),
            Missing(switch) => (
                !is_given(switch),
                format!("without {}", flag(command, switch)),
            ),
        };
        if let Some(option) = options.iter().find(|option| applies && is_given(option)) {
            let message = format!("{} has no effect {reason}", flag(command, option));
            return Err(command.error(ErrorKind::ArgumentConflict, message));
        }
    }
    let kernel = matches.try_get_one::<KernelChoice>("kernel").ok().flatten();
    if let Some(KernelChoice::UserKernel { .. }) | None = kernel {
        return Ok(());
    }
    if is_given("modules") {
        let message = "`--modules` has no effect unless `--kernel` is a path";
        return Err(command.error(ErrorKind::ArgumentConflict, message));
    }
    Ok(())
}

/// Returns the name of an option on the command line.
fn flag(command: &Command, id: &str) -> String {
    let mut arguments = command.get_arguments();
    let long = arguments
        .find(|argument| argument.get_id() == id)
        .and_then(clap::Arg::get_long);
    format!("`--{}`", long.unwrap_or(id))
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;
    use crate::cli::args::Arguments;

    fn error(line: &str) -> Option<String> {
        let mut command = Arguments::command();
        let words = line.split(' ');
        let matches = command
            .try_get_matches_from_mut(words)
            .expect("valid arguments");
        let error = check(&mut command, &matches).err()?;
        Some(error.to_string().lines().next()?.to_owned())
    }

    #[test]
    fn rules_name_existing_options() {
        let command = Arguments::command();
        for (name, condition, options) in RULES {
            let command = command.find_subcommand(name).expect(name);
            let (Given(switch) | Missing(switch)) = condition;
            for option in options.iter().chain([&switch]) {
                let mut known = command.get_arguments();
                assert!(known.any(|known| known.get_id() == option), "{option}");
            }
        }
    }

    #[test]
    fn option_without_effect_is_refused() {
        let errors = [
            "svclab explain --running --kernel 6.12",
            "svclab explain --running --topologies labs",
            "svclab claims --from results.json --jobs 2",
            "svclab graph node-port --max-wait 3s",
            "svclab rules objects.yaml --kube-version v1.30 --kernel host",
            "svclab run --kernel 6.12 --modules /lib/modules",
        ];
        let errors = errors.map(|line| error(line).unwrap_or_default());
        insta::assert_snapshot!(errors.join("\n"), @r"
        error: `--kernel` has no effect with `--running`
        error: `--topologies` has no effect with `--running`
        error: `--jobs` has no effect with `--from`
        error: `--max-wait` has no effect without `--probe`
        error: `--kernel` has no effect without `--read-back`
        error: `--modules` has no effect unless `--kernel` is a path
        ");
        for line in [
            "svclab explain --kernel 6.12",
            "svclab explain --running --max-wait 3s",
            "svclab claims --jobs 2",
            "svclab run --kernel ./vmlinuz --modules /lib/modules",
            "svclab graph node-port --probe call --max-wait 3s",
            "svclab rules objects.yaml --kube-version v1.30 --read-back d --kernel host",
        ] {
            assert_eq!(error(line), None, "{line}");
        }
    }
}
