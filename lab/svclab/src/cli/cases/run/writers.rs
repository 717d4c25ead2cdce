//! Creates the outputs of a run: standard output, files and the report.

use std::collections::HashSet;
use std::fs::File;
use std::io;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use nix::fcntl::OFlag;

use crate::cli::args::{RunArguments, shell_word};
use crate::cli::error::CliError;
use crate::cli::output::{has_colour_on_stdout, is_read_by_runner, terminal_width};
use crate::cli::report_output::{create_output, create_report_writer};
use svclab_model::plan::MaxWait;
use svclab_report::folder::PageTarget;
use svclab_report::{Additions, AtomicFileWriter, Format, TerminalWidth, Writer};
use svclab_runner::kernel::KernelChoice;

/// Returns the writers to standard output and to files.
pub(super) fn create_writers(arguments: &RunArguments) -> Result<Vec<Box<dyn Writer>>, CliError> {
    let reported = arguments
        .report
        .iter()
        .filter(|path| matches!(PageTarget::from_path(path), PageTarget::File(_)));
    let written = arguments.write.iter().map(|written| &written.file);
    let mut files = HashSet::new();
    for file in written.chain(reported) {
        // The directory of a file may be missing, or have several paths.
        let location = locate_output(file).map_err(|error| write_error(file, error))?;
        if !files.insert(location) {
            return Err(CliError::refused(
                format!("{} is named twice", file.display()),
                "give each output its own file",
            ));
        }
    }
    let mut writers = vec![
        arguments
            .format
            .writer(io::stdout(), report_options(arguments)),
    ];
    for written in &arguments.write {
        let created = create_output(&written.file);
        let (file, unfinished) = created.map_err(|error| write_error(&written.file, error))?;
        let plain = svclab_report::Options {
            quiet: false,
            colour: false,
            width: TerminalWidth::default(),
            is_read_by_runner: false,
            summary: None,
            ..report_options(arguments)
        };
        let writer = written.format.writer(file, plain);
        writers.push(Box::new(AtomicFileWriter::new(writer, unfinished)));
    }
    if let Some(path) = &arguments.report {
        let again = rerun_command(arguments);
        writers.push(create_report_writer(path, &again, Additions::default())?);
    }
    Ok(writers)
}

fn write_error(file: &Path, source: io::Error) -> CliError {
    CliError::Write {
        target: file.display().to_string(),
        source,
        help: Some("give a writable file"),
    }
}

/// Creates the directory of a file, and returns the only path of the file without links to its
/// directory.
fn locate_output(file: &Path) -> io::Result<PathBuf> {
    let absolute = std::path::absolute(file)?;
    let directory = absolute.parent().unwrap_or(Path::new("/"));
    std::fs::create_dir_all(directory)?;
    let name = file.file_name().unwrap_or_default();
    Ok(std::fs::canonicalize(directory)?.join(name))
}

/// Opens GitHub's step summary file for appending, without following links.
fn open_step_summary() -> Option<File> {
    let file = File::options()
        .append(true)
        .create(true)
        .custom_flags((OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK).bits())
        .open(std::env::var_os("GITHUB_STEP_SUMMARY")?)
        .ok()?;
    file.metadata().ok()?.is_file().then_some(file)
}

/// Returns the options for printing the results.
fn report_options(arguments: &RunArguments) -> svclab_report::Options<'static> {
    let is_github = arguments.format == Format::Github;
    let summary = is_github.then(open_step_summary).flatten();
    svclab_report::Options {
        verbose: arguments.verbose,
        quiet: arguments.quiet,
        colour: has_colour_on_stdout(),
        width: terminal_width(),
        is_read_by_runner: is_read_by_runner(),
        names_kernels: arguments.kernels.kernel == KernelChoice::All,
        rerun_command: rerun_command(arguments),
        summary: summary.map(|file| Box::new(file) as Box<dyn io::Write>),
    }
}

/// Returns the command that runs a case again with the same options.
fn rerun_command(arguments: &RunArguments) -> String {
    let max_wait = arguments.selection.max_wait;
    let max_wait = if max_wait == MaxWait::SETTLED {
        String::new()
    } else {
        format!(" --max-wait {max_wait}")
    };
    let proxy = arguments.selection.kube_proxy.as_ref();
    let proxy =
        proxy.map(|path| format!(" --kube-proxy {}", shell_word(&path.display().to_string())));
    let timeout = arguments.selection.kube_proxy_timeout;
    let timeout = timeout.map(|time| {
        let time = humantime::format_duration(time).to_string();
        format!(" --kube-proxy-timeout {}", time.replace(' ', ""))
    });
    let outside = if arguments.selection.allow_outside {
        " --allow-outside"
    } else {
        ""
    };
    let (proxy, kernel_arguments) = (
        proxy.unwrap_or_default(),
        arguments.kernels.rerun_arguments(),
    );
    let timeout = timeout.unwrap_or_default();
    format!("svclab run{max_wait}{proxy}{timeout}{outside}{kernel_arguments}")
}
