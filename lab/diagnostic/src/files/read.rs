//! Opens and reads files without side effects on devices and pipes.

use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::io::{self, Read as _};
use std::os::fd::{AsFd, AsRawFd as _, OwnedFd};
use std::os::unix::fs::{FileTypeExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, Mode, OFlags, ResolveFlags, openat2};
use rustix::io::Errno;

/// Error for a file that cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum FileError {
    /// The path is a device, a pipe or a socket.
    #[error("not a regular file but {0}")]
    NotRegular(&'static str),
    /// The path is a directory.
    #[error("is a directory")]
    Directory,
    /// The path leaves the directory that it must stay in.
    #[error("the path is outside the lab's directory")]
    OutsideDirectory,
    /// The operating system reports an error.
    #[error("{0}")]
    Io(#[from] io::Error),
}

impl FileError {
    /// Whether the file does not exist.
    #[must_use]
    pub fn is_missing(&self) -> bool {
        matches!(self, Self::Io(error) if error.kind() == io::ErrorKind::NotFound)
    }
}

/// Path, with the directory that it must stay in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Location {
    path: PathBuf,
    below: Option<PathBuf>,
}

/// Kind of a directory entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FileKind {
    /// Directory.
    Directory,
    /// Symbolic link, also to a directory.
    Link,
    /// Regular file, device, pipe or socket.
    Other,
}

/// Open regular file or directory.
#[derive(Debug)]
pub struct OpenedPath {
    file: File,
    is_directory: bool,
    /// Target of the path, if the path is a symbolic link.
    pub link_target: Option<PathBuf>,
}

impl Location {
    /// Creates a location without restrictions, for a path from the user.
    #[must_use]
    pub fn anywhere(path: impl Into<PathBuf>) -> Self {
        Self {
            path: path.into(),
            below: None,
        }
    }

    /// Creates a location below a directory, for a path from a file. The path cannot leave the
    /// directory by `..`, a symbolic link, or an absolute path.
    #[must_use]
    pub fn below(directory: &Path, path: impl Into<PathBuf>) -> Self {
        let is_here = directory.as_os_str().is_empty();
        let directory = if is_here { Path::new(".") } else { directory };
        Self {
            path: path.into(),
            below: Some(directory.to_owned()),
        }
    }

    /// Returns the path for messages.
    #[must_use]
    pub fn display_path(&self) -> PathBuf {
        match &self.below {
            Some(below) if below == Path::new(".") => self.path.clone(),
            Some(below) => below.join(&self.path),
            None => self.path.clone(),
        }
    }

    /// Returns a location with the same restriction and another path.
    #[must_use]
    pub fn with_path(&self, path: impl Into<PathBuf>) -> Self {
        Self {
            path: path.into(),
            below: self.below.clone(),
        }
    }

    /// Returns the path.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the location of a file in this directory.
    #[must_use]
    pub fn child(&self, name: &OsStr) -> Self {
        Self {
            path: self.path.join(name),
            below: self.below.clone(),
        }
    }

    /// Returns the location of the parent directory. `None` if the path has no parent.
    #[must_use]
    pub fn parent(&self) -> Option<Self> {
        let parent = self.path.parent()?;
        let is_here = parent.as_os_str().is_empty();
        let parent = if is_here { Path::new(".") } else { parent };
        Some(Self {
            path: parent.to_owned(),
            below: self.below.clone(),
        })
    }

    /// Returns the last component of the path. `None` if the path ends in `..`.
    #[must_use]
    pub fn file_name(&self) -> Option<&OsStr> {
        self.path.file_name()
    }

    /// Opens a regular file or a directory. Other files are never opened, because opening a device
    /// or a pipe can have side effects or block.
    ///
    /// # Errors
    ///
    /// Returns a [`FileError`] if the path is not a readable regular file or directory.
    pub fn open(&self) -> Result<OpenedPath, FileError> {
        if self.below.is_none() && is_descriptor(&self.path) {
            // The user's own descriptor, which may be a pipe from `<(…)` or standard input.
            let file = File::open(&self.path)?;
            let is_directory = file.metadata()?.is_dir();
            return Ok(OpenedPath {
                file,
                is_directory,
                link_target: None,
            });
        }
        let (path_fd, is_linked) = self.open_path()?;
        let found = File::from(path_fd);
        let kind = found.metadata()?.file_type();
        if !kind.is_file() && !kind.is_dir() {
            return Err(FileError::NotRegular(if kind.is_fifo() {
                "a named pipe"
            } else if kind.is_socket() {
                "a socket"
            } else {
                "a device"
            }));
        }
        // Opens the file that was checked, even if its name now belongs to another file.
        let fd_path = format!("/proc/self/fd/{}", found.as_raw_fd());
        let linked_to = is_linked.then(|| fs::read_link(&fd_path)).transpose()?;
        let file = File::options()
            .read(true)
            .custom_flags(open_flags(OFlags::NONBLOCK | OFlags::NOCTTY))
            .open(&fd_path)?;
        Ok(OpenedPath {
            file,
            is_directory: kind.is_dir(),
            link_target: linked_to,
        })
    }

    /// Opens the file as a path descriptor. Returns whether the path contains a symbolic link.
    fn open_path(&self) -> Result<(OwnedFd, bool), FileError> {
        let (base, resolve) = match &self.below {
            Some(directory) => {
                let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
                let base = File::options()
                    .read(true)
                    .custom_flags(open_flags(flags))
                    .open(directory)?;
                (Some(base), ResolveFlags::BENEATH)
            }
            None => (None, ResolveFlags::empty()),
        };
        let open = |resolve| {
            let flags = OFlags::PATH | OFlags::CLOEXEC;
            let directory = base.as_ref().map_or(CWD, AsFd::as_fd);
            loop {
                let opened = openat2(directory, &self.path, flags, Mode::empty(), resolve);
                // A concurrent rename interrupted the lookup (openat2(2)).
                if !matches!(opened, Err(Errno::AGAIN)) {
                    return opened;
                }
            }
        };
        let found = match open(resolve | ResolveFlags::NO_SYMLINKS) {
            Ok(found) => Ok((found, false)),
            Err(Errno::LOOP) => open(resolve).map(|found| (found, true)),
            Err(error) => Err(error),
        };
        found.map_err(|error| match error {
            Errno::XDEV if base.is_some() => FileError::OutsideDirectory,
            error => FileError::Io(error.into()),
        })
    }

    /// Reads a regular file, at most `max_bytes` bytes and one more. The additional byte shows that
    /// the file is too large. Also returns the target, if the path is a symbolic link.
    ///
    /// # Errors
    ///
    /// Returns a [`FileError`] if the path is not a readable regular file.
    pub fn read(&self, max_bytes: usize) -> Result<(Vec<u8>, Option<PathBuf>), FileError> {
        self.open()?.read(max_bytes)
    }

    /// Returns the names and kinds of the entries of a directory, in no particular order.
    ///
    /// # Errors
    ///
    /// Returns a [`FileError`] if the path is not a readable directory.
    pub fn list(
        &self,
    ) -> Result<impl Iterator<Item = io::Result<(OsString, FileKind)>>, FileError> {
        let opened = self.open()?;
        let entries = fs::read_dir(format!("/proc/self/fd/{}", opened.file.as_raw_fd()))?;
        Ok(entries.map(|entry| {
            let entry = entry?;
            let kind = entry.file_type()?;
            let kind = if kind.is_dir() {
                FileKind::Directory
            } else if kind.is_symlink() {
                FileKind::Link
            } else {
                FileKind::Other
            };
            Ok((entry.file_name(), kind))
        }))
    }
}

impl OpenedPath {
    /// Whether the path is a directory.
    #[must_use]
    pub const fn is_directory(&self) -> bool {
        self.is_directory
    }

    /// Returns the metadata of the open file.
    ///
    /// # Errors
    ///
    /// When the operating system reports an error.
    pub fn metadata(&self) -> io::Result<fs::Metadata> {
        self.file.metadata()
    }

    /// Reads the file, see [`Location::read`].
    ///
    /// # Errors
    ///
    /// Returns a [`FileError`] if the path is a directory or cannot be read.
    pub fn read(self, max_bytes: usize) -> Result<(Vec<u8>, Option<PathBuf>), FileError> {
        let limit = u64::try_from(max_bytes)
            .unwrap_or(u64::MAX)
            .saturating_add(1);
        let link_target = self.link_target.clone();
        let mut bytes = Vec::new();
        self.into_reader()?.take(limit).read_to_end(&mut bytes)?;
        Ok((bytes, link_target))
    }

    /// Returns a reader of the whole file, without a limit of its size.
    ///
    /// # Errors
    ///
    /// Returns a [`FileError`] if the path is a directory.
    pub fn into_reader(self) -> Result<impl io::Read, FileError> {
        if self.is_directory {
            return Err(FileError::Directory);
        }
        Ok(self.file)
    }
}

/// Converts flags for [`OpenOptionsExt::custom_flags`].
fn open_flags(flags: OFlags) -> i32 {
    flags.bits().cast_signed()
}

/// Whether a path names a descriptor of this process.
fn is_descriptor(path: &Path) -> bool {
    path == Path::new("/dev/stdin")
        || ["/dev/fd", "/proc/self/fd"].iter().any(|directory| {
            path.strip_prefix(directory).is_ok_and(|number| {
                number
                    .to_str()
                    .is_some_and(|text| text.parse::<u16>().is_ok())
            })
        })
}
