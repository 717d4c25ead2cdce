//! Implements `svclab redact`.

use std::fmt::Write as _;
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use crate::cli::args::RedactArguments;
use crate::cli::error::{CliError, CommandResult, Outcome};
use crate::cli::output::{print, print_diagnostics, print_message};
use svclab_diagnostic::files::{self, Location};
use svclab_diagnostic::source::{Source, SourceError, Sources};
use svclab_scenario::redact::{RedactedObjects, RedactionKey, redact_objects};

/// Maximum size of a key in bytes.
const MAX_KEY_BYTES: usize = 1 << 20;

/// Help text for an invalid key.
const MAKE_KEY: &str =
    "make a key: head -c 32 /dev/urandom | od -A n -v -t x1 | tr -d ' \\n' >redact.key";

/// Help text for a dump in the place of a file of objects.
const REDACT_DUMP: &str = "collect the dump again with `collect-node --redact-key FILE`; only objects can be \
     redacted later";

/// Redacts files of objects. Nothing is written unless all files can be redacted.
pub(crate) fn redact(arguments: &RedactArguments) -> CommandResult {
    let key = read_key(&arguments.key)?;
    let targets = choose_targets(arguments)?;
    let mut redacted = Vec::new();
    for (file, target) in arguments.files.iter().zip(targets) {
        redacted.push((redact_file(file, &key)?, target));
    }
    let write_error = |target: &Path, source| CliError::Write {
        target: target.display().to_string(),
        source,
        help: Some("give another directory with --output"),
    };
    files::create_output_directory(&arguments.output)
        .map_err(|source| write_error(&arguments.output, source))?;
    for (objects, target) in redacted {
        files::write_file(&target, |out| out.write_all(objects.text.as_bytes()))
            .map_err(|source| write_error(&target, source))?;
        if arguments.verbose {
            print(&list_names(&objects))?;
        }
        print_message(format_args!(
            "wrote {}: {}",
            target.display(),
            describe(&objects)
        ));
    }
    Ok(Outcome::SUCCESS)
}

fn read_key(path: &Path) -> Result<RedactionKey, CliError> {
    let refused = |problem: String| {
        CliError::refused(format!("key `{}`: {problem}", path.display()), MAKE_KEY)
    };
    let (bytes, _) = Location::anywhere(path)
        .read(MAX_KEY_BYTES)
        .map_err(|error| refused(error.to_string()))?;
    if bytes.len() > MAX_KEY_BYTES {
        return Err(refused(format!("larger than {MAX_KEY_BYTES} bytes")));
    }
    RedactionKey::new(&bytes).map_err(|error| refused(error.to_string()))
}

/// Returns the path of each redacted file. No path is that of another file or of an input.
fn choose_targets(arguments: &RedactArguments) -> Result<Vec<PathBuf>, CliError> {
    let inputs = arguments.files.iter().chain([&arguments.key]);
    let inputs: Vec<(u64, u64)> = inputs.filter_map(|file| identity(file)).collect();
    let mut targets: Vec<PathBuf> = Vec::new();
    for file in &arguments.files {
        let mut name = file.file_stem().unwrap_or_default().to_owned();
        name.push(".redacted.yaml");
        let target = arguments.output.join(name);
        if targets.contains(&target) || identity(&target).is_some_and(|id| inputs.contains(&id)) {
            return Err(CliError::refused(
                format!(
                    "{} would replace another file of this command",
                    target.display()
                ),
                "redact the files one by one, each with its own --output",
            ));
        }
        targets.push(target);
    }
    Ok(targets)
}

/// Returns device and number of a file. `None` if the file does not exist.
fn identity(path: &Path) -> Option<(u64, u64)> {
    let metadata = fs::metadata(path).ok()?;
    Some((metadata.dev(), metadata.ino()))
}

fn redact_file(file: &Path, key: &RedactionKey) -> Result<RedactedObjects, CliError> {
    let source = match Source::read(file) {
        Ok(source) => source,
        Err(SourceError::Directory { name } | SourceError::NotUtf8 { name, .. }) => {
            return Err(CliError::refused(
                format!("{name} is not a file of Kubernetes objects"),
                REDACT_DUMP,
            ));
        }
        Err(error) => return Err(error.into()),
    };
    let sources = Sources::from(source);
    match redact_objects(&sources, key) {
        Ok((objects, warnings)) => {
            print_diagnostics(&sources, &warnings);
            Ok(objects)
        }
        Err(diagnostics) => Err(CliError::invalid_input(&sources, diagnostics)),
    }
}

/// Returns a line with the old and the new name of each object.
fn list_names(objects: &RedactedObjects) -> String {
    let lines = objects.renamed.iter();
    lines.fold(String::new(), |mut text, (old, new)| {
        let _ = writeln!(text, "{old} -> {new}");
        text
    })
}

fn describe(objects: &RedactedObjects) -> String {
    let kept = match objects.count {
        1 => "1 object".to_owned(),
        count => format!("{count} objects"),
    };
    match objects.dropped {
        0 => kept,
        1 => format!("{kept}; 1 object without an effect on packets is dropped"),
        count => format!("{kept}; {count} objects without an effect on packets are dropped"),
    }
}
