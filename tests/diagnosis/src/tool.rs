//! Runs `svclab` as a program, with a time limit.

use std::ffi::OsString;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use std::{fs, io, thread};

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
        let path = |end: &str| files.join(format!("{name}.{end}"));
        let stdin = match input {
            Some(input) => Stdio::from(File::open(input)?),
            None => Stdio::null(),
        };
        let begun = Instant::now();
        let mut child = Command::new(&self.program)
            .args(arguments.iter().map(OsString::from))
            .env("SVCLAB_KERNEL", &self.kernel)
            .env("XDG_RUNTIME_DIR", &self.runtime)
            .env("NO_COLOR", "1")
            .stdin(stdin)
            .stdout(File::create(path("out"))?)
            .stderr(File::create(path("err"))?)
            .spawn()?;
        let mut timed_out = false;
        let status = loop {
            if let Some(status) = child.try_wait()? {
                break status;
            }
            if begun.elapsed() > self.limit {
                timed_out = true;
                child.kill()?;
            }
            thread::sleep(Duration::from_millis(20));
        };
        let read = |end: &str| {
            fs::read(path(end)).map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
        };
        Ok(Output {
            code: status.code(),
            stdout: read("out")?,
            stderr: read("err")?,
            duration: begun.elapsed(),
            timed_out,
        })
    }
}
