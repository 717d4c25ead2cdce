//! Starts programs inside a namespace, feeds their input and collects their output.

pub(crate) mod background;
pub(crate) mod child;
pub(crate) mod exec;
pub(crate) mod launch;
pub(crate) mod limits;
pub(crate) mod terminal;

use std::collections::BTreeMap;
use std::io;
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};

use tokio::io::AsyncWriteExt;
use tokio::process::ChildStdin;

use crate::net::netns::NetNs;
use crate::program::child::{Child, TooMuchOutputError};
use crate::program::launch::{Launch, LaunchError};
use crate::runtime::failure;
use svclab_model::protocol::{Failure, FailureKind, ProgramOutput, RejectedInput};
use svclab_model::tools::package;

/// Search path for programs. The caller's PATH does not apply inside a lab.
pub const PATH: &str = "/usr/sbin:/usr/bin:/sbin:/bin:/usr/local/sbin:/usr/local/bin";

/// Maximum number of bytes that a program selected by svclab may print.
pub(crate) const MAX_OUTPUT_BYTES: u64 = 256 << 20;

/// Program start with pipes for all three streams.
pub(crate) struct ProgramStart<'s> {
    pub ns: &'s NetNs,
    /// Name of the namespace.
    pub name: &'s str,
    pub program: &'s str,
    pub arguments: &'s [&'s str],
    /// Search path for programs that the program starts.
    pub path: &'s str,
    /// Maximum number of processes of the program's user; `None` for no limit.
    pub max_processes: Option<u64>,
}

impl ProgramStart<'_> {
    /// Starts the program. Dropping the returned value kills the program.
    pub(crate) fn start(&self) -> Result<Child, Failure> {
        let program = self.program;
        let missing = || io::Error::from(io::ErrorKind::NotFound);
        let found = find(program).ok_or_else(|| cannot_start(program, &missing()))?;
        let mut launch = launch(self.ns, &found);
        let arguments = self.arguments.iter().map(|word| (*word).to_owned());
        launch.argv.extend(arguments);
        launch.max_processes = self.max_processes;
        let mut set = |name: &str, value: &str| {
            launch.environment.insert(name.to_owned(), value.to_owned());
        };
        set("LC_ALL", "C");
        set("PATH", self.path);
        launch.start(self.ns).map_err(|refusal| match refusal {
            LaunchError::Namespace(error) => failure::cannot_enter(self.name, &error),
            LaunchError::Program(error) => cannot_start(program, &error),
        })
    }
}

/// Starts `program` in a namespace, with pipes for all three streams. Dropping the returned value
/// kills the program.
pub(crate) fn start(
    ns: &NetNs,
    name: &str,
    program: &str,
    arguments: &[&str],
    path: &str,
) -> Result<Child, Failure> {
    let command = ProgramStart {
        ns,
        name,
        program,
        arguments,
        path,
        max_processes: None,
    };
    command.start()
}

/// Returns the launch of an executable, with the environment common to all programs of labs.
pub(crate) fn launch(ns: &NetNs, found: &Path) -> Launch {
    // The name contains the user. Inode numbers of namespaces are reused, and a lock file of
    // another lab's user could not be opened.
    let user = ns.tenant().user().unwrap_or(0);
    let environment = [
        ("PATH", PATH.to_owned()),
        // By default, iptables-legacy uses one lock for the whole host. The rules of a namespace
        // need a lock for this namespace only.
        (
            "XTABLES_LOCKFILE",
            format!("/run/xtables-{}-{user}.lock", ns.inode()),
        ),
    ];
    let environment = environment.map(|(name, value)| (name.to_owned(), value));
    Launch {
        program: found.to_owned(),
        argv: vec![found.to_string_lossy().into_owned()],
        environment: BTreeMap::from(environment),
        terminal: None,
        max_processes: None,
    }
}

/// Finds the path of a program in [`PATH`], or returns `None`. A name with a slash is the path
/// itself.
#[must_use]
pub fn find(program: &str) -> Option<PathBuf> {
    if program.contains('/') {
        return Some(program.into());
    }
    let paths = PATH.split(':');
    paths
        .map(|directory| Path::new(directory).join(program))
        .find(|path| path.is_file())
}

/// Starts `program` in a namespace, writes `input` to it, and waits for its exit. An exit status
/// other than 0 is not an error.
pub(crate) async fn run(
    ns: &NetNs,
    name: &str,
    program: &str,
    arguments: &[&str],
    input: &str,
) -> Result<ProgramOutput, Failure> {
    let child = start(ns, name, program, arguments, PATH)?;
    finish(child, name, program, input, MAX_OUTPUT_BYTES)
        .await?
        .map_err(|TooMuchOutputError| printed_too_much(name, program))
}

/// Returns the failure of a program that exceeded the output limit.
pub(crate) fn printed_too_much(name: &str, program: &str) -> Failure {
    Failure {
        kind: FailureKind::Input,
        message: format!(
            "{program} printed more than {} MiB in {name}",
            MAX_OUTPUT_BYTES >> 20
        ),
        remedy: Some("reduce the output of the program".to_owned()),
        rejected: None,
    }
}

/// Writes the input of a started program and waits for its exit. An exit status other than 0 is not
/// an error.
///
/// # Errors
///
/// When a signal killed the program, or it does not read its input. Returns
/// `Ok(Err(TooMuchOutputError))` when the program prints more than `max_bytes` bytes.
pub(crate) async fn finish(
    mut child: Child,
    name: &str,
    program: &str,
    input: &str,
    max_bytes: u64,
) -> Result<Result<ProgramOutput, TooMuchOutputError>, Failure> {
    // Reading and writing must run in parallel: a program with much output blocks until the output
    // is read.
    let stdin = child.stdin.take();
    let (fed, output) = tokio::join!(write_input(stdin, input), child.wait_with_output(max_bytes));
    let output = output
        .map_err(|error| failure::host(format!("cannot wait for {program}: {error}"), &error))?;
    let Ok(output) = output else {
        return Ok(Err(TooMuchOutputError));
    };
    if let Some(signal) = output.status.signal() {
        return Err(Failure {
            kind: FailureKind::Machine,
            message: format!("{program} was killed by signal {signal} in {name}"),
            remedy: Some(
                "retry; if the error persists, check the system log for the cause, often a lack of \
                 memory"
                    .to_owned(),
            ),
            rejected: None,
        });
    }
    // A program that rejects its input may close it before everything was written. In this case its
    // own message is more precise.
    if let Err(error) = fed
        && output.status.success()
    {
        return Err(failure::host(
            format!("cannot write to {program}: {error}"),
            &error,
        ));
    }
    Ok(Ok(ProgramOutput {
        success: output.status.success(),
        stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
        stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
    }))
}

async fn write_input(stdin: Option<ChildStdin>, input: &str) -> io::Result<()> {
    let Some(mut stdin) = stdin else {
        return Ok(());
    };
    stdin.write_all(input.as_bytes()).await?;
    stdin.shutdown().await
}

/// Returns the failure of a program that rejected its input. `before` is the number of lines that
/// the program received earlier and counts too.
pub(crate) fn input_rejected(
    name: &str,
    program: &str,
    message: &str,
    input: &str,
    before: usize,
) -> Failure {
    let mut lines = rejected_lines(message, input, before).into_iter();
    let first = lines.next();
    let others = lines.map(|(_, line)| line).collect();
    Failure {
        kind: if lacks_support(message) {
            FailureKind::Machine
        } else {
            FailureKind::Input
        },
        message: match &first {
            Some((_, line)) => {
                format!("{program} rejected a line in {name}:\n    {line}\n  message: {message}")
            }
            None => format!("{program} rejected its input in {name}: {message}"),
        },
        remedy: None,
        rejected: Some(Box::new({
            let (number, line) = first.unwrap_or_default();
            RejectedInput {
                namespace: name.to_owned(),
                program: program.to_owned(),
                line,
                line_number: number,
                related_lines: others,
                message: message.to_owned(),
            }
        })),
    }
}

/// Whether a program's message concerns the kernel and not the input.
fn lacks_support(message: &str) -> bool {
    [
        "Table does not exist",
        "can't initialize",
        "Kernel error received",
        "Operation not permitted",
        "Permission denied",
    ]
    .iter()
    .any(|words| message.contains(words))
}

/// Finds the rejected lines of the input with their numbers, from messages such as `line 4:
/// RULE_APPEND failed`, `Error occurred at line: 4`, `Error in line 4:` or `/dev/stdin:4:9-44:
/// Error:`.
fn rejected_lines(message: &str, input: &str, before: usize) -> Vec<(usize, String)> {
    let locations = message.split("/dev/stdin:").skip(1);
    let numbers = locations
        .chain(message.split("line").skip(1))
        .filter_map(|rest| {
            let digits: String = rest
                .trim_start_matches([':', ' '])
                .chars()
                .take_while(char::is_ascii_digit)
                .collect();
            digits.parse::<usize>().ok()?.checked_sub(before)
        });
    let lines: Vec<&str> = input.lines().collect();
    let mut found: Vec<(usize, String)> = Vec::new();
    for number in numbers {
        let line = number.checked_sub(1).and_then(|at| lines.get(at));
        if let Some(line) = line.filter(|_| found.iter().all(|(known, _)| *known != number)) {
            found.push((number, (*line).to_owned()));
        }
    }
    found
}

fn cannot_start(program: &str, error: &io::Error) -> Failure {
    if error.kind() == io::ErrorKind::NotFound {
        let remedy = package(program).map_or_else(
            || format!("install {program} in one of these directories: {PATH}"),
            |package| {
                format!(
                    "run `apt-get install {package}`, or your distribution's equivalent, as root"
                )
            },
        );
        return Failure {
            kind: FailureKind::Machine,
            message: format!("{program} is not installed"),
            remedy: Some(remedy),
            rejected: None,
        };
    }
    failure::host(format!("cannot start {program}: {error}"), error)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rejected_line_is_found_in_program_message() {
        let input = "*nat\n:A - [0:0]\n-A A -j NOPE\nCOMMIT\n";
        for message in [
            "iptables-restore v1.8.9 (nf_tables): Couldn't load target `NOPE'\n\nError occurred at line: 3\nTry",
            "iptables-restore v1.8.9 (nf_tables): \nline 3: RULE_APPEND failed (No such file or directory): rule in chain A",
            "iptables-restore: line 3 failed",
            "ipset v7.17: Error in line 3: Syntax error",
            "/dev/stdin:3:9-44: Error: Could not process rule: File exists",
        ] {
            let found = rejected_lines(message, input, 0);
            assert_eq!(found, [(3, "-A A -j NOPE".to_owned())], "{message}");
        }
        assert_eq!(rejected_lines("no number in this line", input, 0), []);
        assert_eq!(rejected_lines("line 99 failed", input, 0), []);
        let both = "line 3: RULE_APPEND failed (Invalid argument): rule in chain A\n\
                    line 4: RULE_APPEND failed (Invalid argument): rule in chain A\n";
        let numbers = rejected_lines(both, input, 0);
        let numbers: Vec<usize> = numbers.into_iter().map(|(number, _)| number).collect();
        assert_eq!(numbers, [3, 4]);
        assert_eq!(
            rejected_lines("line 13: no", input, 10)[0].1,
            "-A A -j NOPE"
        );
    }
}
