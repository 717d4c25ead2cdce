//! Runs `svclab` as a program, with a time limit.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use std::{env, fs, io, thread};

/// Interval at which a child is observed.
const POLL: Duration = Duration::from_millis(20);

/// Programs of `scripts/collect-node` that a guest has only on request.
const COLLECTOR_PROGRAMS: [&str; 11] = [
    "awk", "tar", "gzip", "mktemp", "od", "mkdir", "mv", "rm", "uname", "hostname", "find",
];

/// Returns the paths of the programs that `scripts/collect-node` needs.
fn collector_programs() -> Vec<String> {
    let path = env::var("PATH").unwrap_or_default();
    let find = |name: &&str| {
        let mut candidates = path
            .split(':')
            .map(|directory| format!("{directory}/{name}"));
        candidates.find(|candidate| Path::new(candidate).is_file())
    };
    COLLECTOR_PROGRAMS.iter().filter_map(find).collect()
}

/// Program `svclab` and the options of all its calls.
#[derive(Debug)]
pub(crate) struct Tool {
    pub(crate) program: PathBuf,
    /// Kernel in the format of `--kernel`.
    pub(crate) kernel: String,
    /// Time limit of each call.
    pub(crate) limit: Duration,
    /// Directory for the sockets of running labs.
    pub(crate) runtime: PathBuf,
}

/// Result of a call.
#[derive(Debug)]
pub(crate) struct Output {
    /// Exit code; `None` if a signal or the time limit ended the program.
    pub(crate) code: Option<i32>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
    pub(crate) duration: Duration,
    pub(crate) timed_out: bool,
}

impl Output {
    /// First line of the error, or the reason why there is none.
    pub(crate) fn failure(&self) -> String {
        if self.timed_out {
            return format!("no answer within {} s", self.duration.as_secs());
        }
        let lines = self
            .stderr
            .lines()
            .filter(|line| line.contains("error") || line.contains("ERROR"));
        let first = lines.chain(self.stderr.lines()).next().unwrap_or_default();
        format!(
            "exit code {}: {first}",
            self.code
                .map_or_else(|| "none".to_owned(), |code| code.to_string())
        )
    }
}

impl Tool {
    /// Runs `svclab` with these arguments. `files` is a directory for its outputs, `name` the
    /// beginning of their names.
    pub(crate) fn run(&self, files: &Path, name: &str, arguments: &[&str]) -> io::Result<Output> {
        self.run_with_input(files, name, arguments, None)
    }

    /// Runs `svclab` with the content of a file on standard input.
    pub(crate) fn run_with_input(
        &self,
        files: &Path,
        name: &str,
        arguments: &[&str],
        input: Option<&Path>,
    ) -> io::Result<Output> {
        let begun = Instant::now();
        let mut child = self.spawn(files, name, arguments, input)?;
        let mut timed_out = false;
        let status = loop {
            if let Some(status) = child.try_wait()? {
                break status;
            }
            if begun.elapsed() > self.limit {
                timed_out = true;
                child.kill()?;
            }
            thread::sleep(POLL);
        };
        let read = |end: &str| {
            fs::read(files.join(format!("{name}.{end}")))
                .map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
        };
        Ok(Output {
            code: status.code(),
            stdout: read("out")?,
            stderr: read("err")?,
            duration: begun.elapsed(),
            timed_out,
        })
    }

    /// Builds a lab with `svclab up`. The lab ends with the child, which ends with this program on
    /// Ctrl-C.
    pub(crate) fn up(
        &self,
        files: &Path,
        name: &str,
        case: &str,
    ) -> io::Result<Result<Child, String>> {
        let begun = Instant::now();
        let mut arguments = vec!["up".to_owned(), case.to_owned()];
        for program in collector_programs() {
            arguments.extend(["--program".to_owned(), program]);
        }
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        let mut child = self.spawn(files, name, &arguments, None)?;
        loop {
            // The list of namespaces is printed after the lab is built.
            let printed = fs::read_to_string(files.join(format!("{name}.out")))?;
            if printed.contains("svclab down") {
                return Ok(Ok(child));
            }
            let ended = child.try_wait()?;
            if ended.is_some() || begun.elapsed() > self.limit {
                child.kill()?;
                let output = Output {
                    code: child.wait()?.code(),
                    stdout: printed,
                    stderr: fs::read_to_string(files.join(format!("{name}.err")))?,
                    duration: begun.elapsed(),
                    timed_out: ended.is_none(),
                };
                return Ok(Err(output.failure()));
            }
            thread::sleep(POLL);
        }
    }

    fn spawn(
        &self,
        files: &Path,
        name: &str,
        arguments: &[&str],
        input: Option<&Path>,
    ) -> io::Result<Child> {
        let stdin = match input {
            Some(input) => Stdio::from(File::open(input)?),
            None => Stdio::null(),
        };
        Command::new(&self.program)
            .args(arguments)
            .env("SVCLAB_KERNEL", &self.kernel)
            .env("XDG_RUNTIME_DIR", &self.runtime)
            .env("NO_COLOR", "1")
            .stdin(stdin)
            .stdout(File::create(files.join(format!("{name}.out")))?)
            .stderr(File::create(files.join(format!("{name}.err")))?)
            .spawn()
    }
}
