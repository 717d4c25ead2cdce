//! Reads the files of a tarball.

use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Read};
use std::rc::Rc;

use tar::{Archive, Entry, EntryType};

use super::watched::{State, Watched};
use super::{ArchiveError, ArchiveReader, Place, display_path, path_components};
use svclab_ruleset::tool::Format;

/// Block size of a tarball in bytes (POSIX.1-1988, `ustar`).
const BLOCK: u64 = 512;

impl ArchiveReader<'_> {
    /// Reads a tarball.
    pub(super) fn read_tarball(
        &mut self,
        place: &Place,
        input: &mut dyn Read,
    ) -> Result<(), ArchiveError> {
        let mut tarball = Tarball::default();
        let mut archive = Archive::new(Watched::new(input, &tarball.state));
        for entry in archive.entries()? {
            let read = entry.and_then(|entry| self.read_tarball_entry(place, entry, &mut tarball));
            read.map_err(|error| tarball.convert_error(error))??;
            // Another entry, or the blocks of zeros at the end of a tarball, must follow.
            if tarball.state.get() == State::Ended {
                return Err(ArchiveError::CutOff(tarball.last_path));
            }
        }
        if tarball.state.get() == State::Ended {
            return Err(ArchiveError::CutOff(tarball.last_path));
        }
        self.add_links(place, &tarball)?;
        // The remaining bytes are padding, and the checksum of the compressed data.
        let mut rest = archive.into_inner();
        let mut block = [0; 8192];
        loop {
            match rest.read(&mut block) {
                Ok(0) => return Ok(()),
                Ok(read) if block[..read].iter().all(|byte| *byte == 0) => {}
                Ok(_) => return Err(ArchiveError::TrailingData),
                Err(error) => return Err(tarball.convert_error(error)),
            }
        }
    }

    /// Reads an entry. The outer error is an error of the stream.
    fn read_tarball_entry(
        &mut self,
        place: &Place,
        mut entry: Entry<'_, impl Read>,
        tarball: &mut Tarball,
    ) -> io::Result<Result<(), ArchiveError>> {
        let path = display_path(&entry.path_bytes());
        tarball.last_path.clone_from(&path);
        let size = entry.size();
        let file = entry.raw_file_position();
        tarball.end = size
            .checked_next_multiple_of(BLOCK)
            .and_then(|padded| padded.checked_add(file))
            .unwrap_or(file);
        if let Err(error) = self.budget.add_entry() {
            return Ok(Err(error));
        }
        let Some(has_holes) = has_holes(&mut entry)? else {
            return Ok(Err(ArchiveError::Ambiguous(path)));
        };
        let kind = entry.header().entry_type();
        let inner = place.entry(&path);
        match kind {
            // GNU tar packs sparse files in its own format: the data after the headers is not the
            // file.
            kind if kind.is_file() && !has_holes => {}
            EntryType::Directory | EntryType::XGlobalHeader => return Ok(Ok(())),
            EntryType::Link | EntryType::Symlink => {
                let to = entry.link_name_bytes();
                let to = to.map(|to| display_path(&to)).unwrap_or_default();
                tarball.links.push(TarballLink {
                    path,
                    to,
                    is_symbolic: kind == EntryType::Symlink,
                });
                return Ok(Ok(()));
            }
            // These headers describe the next file, but in a mix of formats the `tar` crate does
            // not apply them.
            EntryType::XHeader | EntryType::GNULongName | EntryType::GNULongLink => {
                return Ok(Err(ArchiveError::Ambiguous(path)));
            }
            kind => {
                let what = describe_kind(kind, has_holes);
                if has_dump_name(&path) {
                    return Ok(Err(ArchiveError::NotPlain { path, what }));
                }
                self.skip(&inner.path, what);
                return Ok(Ok(()));
            }
        }
        let selected = self.contents.files.len();
        let read = self.read_stream(&inner, &mut entry);
        if self.budget.is_exceeded() {
            return Ok(Err(ArchiveError::TooLarge));
        }
        match read {
            Err(ArchiveError::Io(error)) if tarball.state.get() == State::Failed => {
                return Err(error);
            }
            Err(error @ ArchiveError::LargeFile { .. }) => return Ok(Err(error)),
            // A damaged archive inside the tarball. Its files are not used.
            Err(error) => {
                self.contents.files.truncate(selected);
                self.skip(&inner.path, error.to_string());
            }
            Ok(()) => {}
        }
        let is_selected = self.contents.files.len() > selected;
        let components: Vec<String> = path_components(&path).map(str::to_owned).collect();
        match tarball.paths.insert(components, is_selected) {
            Some(was_selected) if was_selected || is_selected => {
                Ok(Err(ArchiveError::Duplicate(path)))
            }
            _ => Ok(Ok(())),
        }
    }

    /// Reports links to files outside the tarball. Other links are names of files that are read.
    fn add_links(&mut self, place: &Place, tarball: &Tarball) -> Result<(), ArchiveError> {
        for link in &tarball.links {
            if tarball.paths.contains_key(&link.target()) {
                continue;
            }
            if has_dump_name(&link.path) {
                return Err(ArchiveError::Link {
                    path: link.path.clone(),
                    to: link.to.clone(),
                });
            }
            let reason = format!("a link to {}, and links are not followed", link.to);
            self.skip(&place.entry(&link.path).path, reason);
        }
        Ok(())
    }
}

/// Entries of a tarball that were read so far.
struct Tarball {
    /// Path of the entry that was started last.
    last_path: String,
    /// Offset of the byte after that entry.
    end: u64,
    /// Components of the paths of all files, and whether the content was selected.
    paths: BTreeMap<Vec<String>, bool>,
    links: Vec<TarballLink>,
    /// State of the tarball's data.
    state: Rc<Cell<State>>,
}

struct TarballLink {
    path: String,
    to: String,
    is_symbolic: bool,
}

impl Default for Tarball {
    fn default() -> Self {
        Self {
            last_path: "the first header".to_owned(),
            end: 0,
            paths: BTreeMap::new(),
            links: Vec::new(),
            state: Rc::default(),
        }
    }
}

impl TarballLink {
    /// Returns the components of the target's path in the tarball. The target of a symbolic link is
    /// relative to the directory of the link.
    fn target(&self) -> Vec<String> {
        let mut components: Vec<String> = Vec::new();
        if self.is_symbolic && !self.to.starts_with('/') {
            components.extend(path_components(&self.path).map(str::to_owned));
            components.pop();
        }
        for component in path_components(&self.to) {
            if component == ".." {
                components.pop();
            } else {
                components.push(component.to_owned());
            }
        }
        components
    }
}

impl Tarball {
    /// Converts an error of the stream or of its headers.
    fn convert_error(&self, error: io::Error) -> ArchiveError {
        let error = match error.downcast() {
            Ok(archive_error) => return archive_error,
            Err(error) => error,
        };
        match error.kind() {
            io::ErrorKind::UnexpectedEof => ArchiveError::CutOff(self.last_path.clone()),
            // The stream ended within a header.
            _ if self.state.get() == State::Ended => ArchiveError::CutOff(self.last_path.clone()),
            io::ErrorKind::Other => ArchiveError::NotTarball(self.end),
            _ => ArchiveError::Io(error),
        }
    }
}

/// Whether svclab looks for a file of this name.
fn has_dump_name(path: &str) -> bool {
    let name = path.rsplit('/').next().unwrap_or_default();
    Format::from_file_name(name).is_some()
}

fn describe_kind(kind: EntryType, has_holes: bool) -> &'static str {
    match kind {
        EntryType::Fifo => "a named pipe",
        EntryType::Char | EntryType::Block => "a device",
        EntryType::GNUSparse => "a sparse file",
        _ if has_holes => "a sparse file",
        _ => "of an unsupported file type",
    }
}

/// Whether pax headers declare a sparse file. `None` if the headers are ambiguous: a record has a
/// wrong length or occurs twice. To the `tar` crate, a record with a line end in its value has a
/// wrong length.
fn has_holes(entry: &mut Entry<'_, impl Read>) -> io::Result<Option<bool>> {
    let mut keys = BTreeSet::new();
    if let Some(records) = entry.pax_extensions()? {
        for record in records {
            let Ok(record) = record else { return Ok(None) };
            if !keys.insert(record.key_bytes()) {
                return Ok(None);
            }
        }
    }
    Ok(Some(keys.iter().any(|key| key.starts_with(b"GNU.sparse."))))
}
