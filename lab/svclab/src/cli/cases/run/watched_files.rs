//! Watches the files of labs. Editors replace a file with a new one, so the directories are watched.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::fd::{AsFd as _, AsRawFd, RawFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Component, Path, PathBuf};
use std::time::Duration;

use nix::sys::inotify::{AddWatchFlags, InitFlags, Inotify, InotifyEvent, WatchDescriptor};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

use crate::cli::args::RunArguments;
use svclab_runner::run::{LabDirectory, select_labs_each};

/// Maximum number of directories below the directory of a dump.
const MAX_DIRECTORIES: usize = 1000;

/// Names in a directory whose changes matter.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Names {
    /// File with this name.
    File(OsString),
    /// Files whose names start with these bytes, as those of a dump.
    Prefix(OsString),
    /// Labs: `*.yaml` and `*.yml`.
    Labs,
    /// Every file.
    All,
}

impl Names {
    fn contains(&self, name: &OsStr) -> bool {
        match self {
            Self::File(file) => file == name,
            Self::Prefix(prefix) => name.as_bytes().starts_with(prefix.as_bytes()),
            Self::Labs => {
                let extension = Path::new(name).extension();
                extension.is_some_and(|extension| extension == "yaml" || extension == "yml")
            }
            Self::All => true,
        }
    }
}

/// Directories, each with names whose changes matter.
pub(super) type WatchedFiles = BTreeSet<(PathBuf, Names)>;

/// Returns the files that the selected labs are read from. Labs that cannot be read are included, so
/// that they can be corrected.
pub(super) fn files_of(arguments: &RunArguments) -> WatchedFiles {
    let selection = &arguments.selection;
    let directory = selection.source.labs();
    let mut files = WatchedFiles::new();
    add_directories(&mut files, &selection.names, directory);
    if let Some(program) = &selection.kube_proxy {
        add_file(&mut files, program);
    }
    // A file that is missing at the moment may be in a directory that is already watched.
    let search = directory.with_outside(selection.allow_outside);
    for lab in select_labs_each(&selection.names, search)
        .into_iter()
        .flatten()
    {
        let (sources, unread) = match &lab {
            Ok(lab) => (&lab.scenario.sources, None),
            Err(invalid) => (&invalid.sources, Some(Path::new(&invalid.file))),
        };
        // The path of an embedded lab is not that of a file.
        let paths = sources.iter().filter(|(_, source)| source.is_file());
        for (_, source) in paths {
            add_file(&mut files, Path::new(&*source.path()));
        }
        if let Some(path) = unread.filter(|path| path.exists() || path.is_symlink()) {
            add_file(&mut files, path);
        }
        let Ok(lab) = &lab else { continue };
        let Some((_, source)) = sources.iter().next() else {
            continue;
        };
        let cases = lab.cases.iter().map(|index| &lab.scenario.cases()[*index]);
        let nodes = cases.flat_map(|case| case.spec.nodes.values());
        for dump in nodes.filter_map(|node| node.dump.as_ref()) {
            add_dump(&mut files, &source.directory().join(dump));
        }
    }
    files
}

/// Adds the directories of labs from which a name can select further labs.
fn add_directories(files: &mut WatchedFiles, names: &[String], directory: LabDirectory<'_>) {
    let own = match directory {
        LabDirectory::Path(path) => Some(path),
        LabDirectory::Embedded(_) => None,
    };
    if names.is_empty() {
        files.extend(own.map(|own| (own.to_owned(), Names::Labs)));
    }
    for name in names {
        let pattern = name.contains(['*', '?']).then(|| name.split('/').next());
        let group = pattern
            .flatten()
            .filter(|group| !group.contains(['*', '?']));
        let group = group.unwrap_or(name);
        let places = own
            .map(|own| own.join(group))
            .into_iter()
            .chain([group.into()]);
        let places = places.filter(|place| place.is_dir());
        files.extend(places.map(|place| (place, Names::Labs)));
        if pattern.is_some() {
            files.extend(own.map(|own| (own.to_owned(), Names::Labs)));
        }
    }
}

/// Adds a file, and the target of a symbolic link.
fn add_file(files: &mut WatchedFiles, path: &Path) {
    let target = path
        .is_symlink()
        .then(|| path.canonicalize().ok())
        .flatten();
    for path in [Some(path.to_owned()), target].into_iter().flatten() {
        if let Some(name) = path.file_name() {
            files.insert((parent(&path), Names::File(name.to_owned())));
        }
    }
}

/// Adds a dump: a file, a directory, or a common prefix of files.
fn add_dump(files: &mut WatchedFiles, path: &Path) {
    if path.is_file() {
        add_file(files, path);
    } else if path.is_dir() {
        let mut left = vec![path.to_owned()];
        for _ in 0..MAX_DIRECTORIES {
            let Some(directory) = left.pop() else { break };
            let entries = std::fs::read_dir(&directory)
                .into_iter()
                .flatten()
                .flatten();
            let is_directory =
                |entry: &std::fs::DirEntry| entry.file_type().is_ok_and(|kind| kind.is_dir());
            left.extend(entries.filter(is_directory).map(|entry| entry.path()));
            files.insert((directory, Names::All));
        }
    } else if let Some(prefix) = path.file_name() {
        files.insert((parent(path), Names::Prefix(prefix.to_owned())));
    }
}

/// Returns the directory of a file.
fn parent(path: &Path) -> PathBuf {
    match path.parent() {
        Some(parent) if parent.as_os_str().is_empty() => PathBuf::from("."),
        Some(parent) => parent.to_owned(),
        None => path.to_owned(),
    }
}

/// Queue of events. nix 0.31 has no [`AsRawFd`] for it, which tokio needs.
struct Queue(Inotify);

impl AsRawFd for Queue {
    fn as_raw_fd(&self) -> RawFd {
        self.0.as_fd().as_raw_fd()
    }
}

/// Watch of directories.
pub(super) struct Watcher {
    events: AsyncFd<Queue>,
    files: WatchedFiles,
    /// Directory of each watch, and the directories of `files` that it stands for: itself, or missing
    /// ones below it.
    watches: BTreeMap<WatchDescriptor, (PathBuf, BTreeSet<PathBuf>)>,
}

impl Watcher {
    /// Starts a watch of no files.
    ///
    /// # Errors
    ///
    /// When the kernel does not permit another watch.
    pub(super) fn new() -> io::Result<Self> {
        let inotify = Inotify::init(InitFlags::IN_CLOEXEC | InitFlags::IN_NONBLOCK)?;
        // SAFETY: the queue owns its descriptor, which stays open and the same until it is dropped.
        let events =
            unsafe { AsyncFd::register_with_interest(Queue(inotify), Interest::READABLE)? };
        Ok(Self {
            events,
            files: WatchedFiles::new(),
            watches: BTreeMap::new(),
        })
    }

    /// Adds files to the watch. A file that is not read any more stays in it, because a lab that is
    /// invalid at the moment does not name its files.
    ///
    /// # Errors
    ///
    /// When the kernel does not permit another watch.
    pub(super) fn add(&mut self, files: WatchedFiles) -> io::Result<()> {
        self.files.extend(files);
        self.watches.clear();
        for (directory, _) in &self.files {
            let mut existing = directory.as_path();
            while !existing.is_dir() {
                existing = existing.parent().unwrap_or(Path::new("/"));
                if existing.as_os_str().is_empty() {
                    existing = Path::new(".");
                }
            }
            let flags = AddWatchFlags::IN_CLOSE_WRITE
                | AddWatchFlags::IN_CREATE
                | AddWatchFlags::IN_DELETE
                | AddWatchFlags::IN_DELETE_SELF
                | AddWatchFlags::IN_MOVE
                | AddWatchFlags::IN_MOVE_SELF
                | AddWatchFlags::IN_ONLYDIR;
            // A second watch of a directory has the number of the first.
            let watch = self.events.get_ref().0.add_watch(existing, flags)?;
            let entry = self.watches.entry(watch);
            let entry = entry.or_insert_with(|| (existing.to_owned(), BTreeSet::new()));
            entry.1.insert(directory.clone());
        }
        Ok(())
    }

    pub(super) fn is_empty(&self) -> bool {
        self.files.is_empty()
    }

    /// Describes the watched files.
    pub(super) fn describe(&self) -> String {
        match self.files.len() {
            1 => "1 file".to_owned(),
            many => format!("{many} files and directories"),
        }
    }

    /// Waits for a change of a watched file, and until nothing changed for `quiet`. Returns the names
    /// of the changed files.
    ///
    /// # Errors
    ///
    /// When the kernel's events cannot be read.
    pub(super) async fn changed(&mut self, quiet: Duration) -> io::Result<Vec<String>> {
        let mut changed = BTreeSet::new();
        while changed.is_empty() {
            changed = self.next_changes().await?;
        }
        while let Ok(more) = tokio::time::timeout(quiet, self.next_changes()).await {
            changed.extend(more?);
        }
        Ok(changed.into_iter().collect())
    }

    /// Waits for events, and returns the names of the changed files among them.
    async fn next_changes(&mut self) -> io::Result<BTreeSet<String>> {
        let read = |queue: &Queue| Ok(queue.0.read_events()?);
        let events: Vec<InotifyEvent> = self.events.async_io(Interest::READABLE, read).await?;
        Ok(events
            .iter()
            .filter_map(|event| self.changed_file(event))
            .collect())
    }

    /// Returns the name of a changed file. `None` if the event is about another file.
    fn changed_file(&self, event: &InotifyEvent) -> Option<String> {
        // Events were lost, or the directory itself is moved or removed.
        let Some(name) = &event.name else {
            let is_ignored = event.mask.contains(AddWatchFlags::IN_IGNORED);
            return (!is_ignored).then(|| "a directory".to_owned());
        };
        let (existing, directories) = self.watches.get(&event.wd)?;
        let is_watched = |directory: &PathBuf| {
            let below = directory.strip_prefix(existing).unwrap_or(directory);
            let mut parts = below.components().filter(|part| *part != Component::CurDir);
            if let Some(next) = parts.next() {
                // A missing directory, or one above it, may be there now.
                next.as_os_str() == name
            } else {
                let mut files = self.files.iter();
                files.any(|(of, names)| of == directory && names.contains(name))
            }
        };
        directories.iter().any(is_watched).then(|| {
            let path = existing.strip_prefix(".").unwrap_or(existing).join(name);
            path.display().to_string()
        })
    }
}
