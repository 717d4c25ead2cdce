//! Finds the files of a dump below a directory.

use std::io::{self, Read};
use std::path::Path;

use super::{DumpFilesError, Found, archive_error, display_path, io_error};
use crate::archive::{self, ArchiveError, Skipped, SkippedFile};
use crate::recognise;
use svclab_diagnostic::files::{FileError, FileKind, Location};
use svclab_ruleset::text::limits::{MAX_ENTRIES, MAX_FILES, MAX_UNPACKED};
use svclab_ruleset::tool::Format;

/// Maximum number of directories inside each other.
const MAX_DEPTH: usize = 32;

/// Returns a function that selects files by the part of their path below a bundle.
pub(super) fn select_below(bundle: &str) -> impl Fn(&str, &[u8]) -> Result<(), Skipped> + use<> {
    let bundle = bundle.to_owned();
    move |path: &str, head: &[u8]| {
        let below = path.strip_prefix(&bundle).unwrap_or(path);
        recognise::select(below.trim_start_matches(['/', ':']), head)
    }
}

/// Reads the files below a directory, at any depth.
pub(super) fn read_directory(location: &Location) -> Result<Found, DumpFilesError> {
    let mut walk = Walk {
        bundle: display_path(location),
        entries: 0,
        bytes: 0,
        found: Found::default(),
    };
    walk.read_directory(location, 0)?;
    Ok(walk.found)
}

/// Reads the files of a directory that have known names with a prefix and a dot.
pub(super) fn read_prefix(location: &Location) -> Result<Found, DumpFilesError> {
    let prefix = location.file_name().and_then(|name| name.to_str());
    let (Some(prefix), Some(parent)) = (prefix, location.parent()) else {
        return Ok(Found::default());
    };
    let mut walk = Walk {
        bundle: display_path(&parent),
        entries: 0,
        bytes: 0,
        found: Found::default(),
    };
    if !matches!(parent.open(), Ok(opened) if opened.is_directory()) {
        return Ok(walk.found);
    }
    let prefix = format!("{prefix}.");
    for (name, child, kind) in walk.list(&parent)? {
        if !name.starts_with(&prefix) || kind == FileKind::Directory {
            continue;
        }
        if Format::from_file_name(&name).is_some() {
            walk.read_file(&child, kind)?;
        } else {
            let reason = Skipped::without_effect("no supported program has this name");
            walk.skip(&child, reason);
        }
    }
    Ok(walk.found)
}

/// State of reading a directory.
struct Walk {
    bundle: String,
    entries: usize,
    /// Bytes of all files of the dump.
    bytes: usize,
    found: Found,
}

impl Walk {
    /// Lists a directory, sorted by name.
    fn list(
        &mut self,
        directory: &Location,
    ) -> Result<Vec<(String, Location, FileKind)>, DumpFilesError> {
        let name = display_path(directory);
        let mut entries = Vec::new();
        for entry in directory.list().map_err(io_error(&name))? {
            let (entry, kind) = entry.map_err(|error| io_error(&name)(error.into()))?;
            self.entries += 1;
            if self.entries > MAX_ENTRIES {
                return Err(DumpFilesError::TooManyFiles(self.bundle.clone()));
            }
            let child = directory.child(&entry);
            entries.push((entry.to_string_lossy().into_owned(), child, kind));
        }
        entries.sort_by(|(first, ..), (second, ..)| first.cmp(second));
        Ok(entries)
    }

    fn read_directory(&mut self, directory: &Location, depth: usize) -> Result<(), DumpFilesError> {
        for (_, child, kind) in self.list(directory)? {
            if kind != FileKind::Directory {
                self.read_file(&child, kind)?;
            } else if depth < MAX_DEPTH {
                self.read_directory(&child, depth + 1)?;
            } else {
                let reason = Skipped::without_effect("too many directories are inside each other");
                self.skip(&child, reason);
            }
        }
        Ok(())
    }

    /// Reads a file that contains output of a known program, or that is an archive.
    fn read_file(&mut self, location: &Location, kind: FileKind) -> Result<(), DumpFilesError> {
        let name = display_path(location);
        let has_dump_name = location
            .file_name()
            .is_some_and(|name| Format::from_file_name(&name.to_string_lossy()).is_some());
        let opened = match location.open() {
            Ok(opened) if opened.is_directory() => {
                let reason = "a link to a directory";
                let skipped = if self.contains(location) {
                    Skipped::without_effect(reason)
                } else {
                    Skipped::with_effect(reason, "state of the node in it is not known")
                };
                self.skip(location, skipped);
                return Ok(());
            }
            Ok(opened) => opened,
            Err(source) if has_dump_name => return Err(io_error(&name)(source)),
            // A link of a bundle to a file outside the bundle.
            Err(error) => {
                let skipped = match error {
                    // No file is there to compare.
                    FileError::Io(error) if kind == FileKind::Link && is_missing(&error) => {
                        Skipped {
                            is_uncompared: false,
                            ..Skipped::unreadable(&name, "a link to a missing file")
                        }
                    }
                    error => Skipped::unreadable(&name, error.to_string()),
                };
                self.skip(location, skipped);
                return Ok(());
            }
        };
        let link_target = opened.link_target.clone();
        let mut file = opened.into_reader().map_err(io_error(&name))?;
        let select = select_below(&self.bundle);
        self.read_open_file(&name, &mut file, &select)?;
        let Some(target) = link_target else {
            return Ok(());
        };
        if self
            .found
            .files
            .last()
            .is_some_and(|file| file.path == name)
        {
            self.found.link_targets.insert(name, target);
        }
        Ok(())
    }

    fn read_open_file(
        &mut self,
        name: &str,
        file: &mut dyn Read,
        select: &archive::Select<'_>,
    ) -> Result<(), DumpFilesError> {
        let contents = match archive::read_entry(name, file, select) {
            Ok(contents) => contents,
            Err(error @ (ArchiveError::TooLarge | ArchiveError::LargeFile { .. })) => {
                return Err(archive_error(name, error));
            }
            // A damaged archive next to the files of the dump.
            Err(error) => {
                self.found.skipped.push(SkippedFile {
                    path: name.to_owned(),
                    skipped: Skipped::unreadable(name, error.to_string()),
                });
                return Ok(());
            }
        };
        let sizes = contents.files.iter().map(|file| file.bytes.len());
        self.bytes += sizes.sum::<usize>();
        self.found.files.extend(contents.files);
        self.found.skipped.extend(contents.skipped);
        if self.bytes > MAX_UNPACKED || self.found.files.len() > MAX_FILES {
            return Err(DumpFilesError::TooMuchData(self.bundle.clone()));
        }
        Ok(())
    }

    /// Whether a link leads to a directory of the bundle, whose files are read there.
    fn contains(&self, link: &Location) -> bool {
        let resolve = |path: &Path| std::fs::canonicalize(path).ok();
        let target = resolve(&link.display_path());
        let bundle = resolve(Path::new(&self.bundle));
        let pair = target.zip(bundle);
        pair.is_some_and(|(target, bundle)| target.starts_with(bundle))
    }

    fn skip(&mut self, location: &Location, skipped: Skipped) {
        self.found.skipped.push(SkippedFile {
            path: display_path(location),
            skipped,
        });
    }
}

fn is_missing(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::NotFound
}
