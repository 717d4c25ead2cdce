//! Directory for the sockets of daemons, which only its user can access.

use std::ffi::OsString;
use std::fs::{self, DirBuilder, File};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};

use data_encoding::HEXLOWER;
use nix::fcntl::OFlag;
use nix::unistd::geteuid;
use sha2::{Digest as _, Sha256};

/// Error of the socket directory.
#[derive(Debug, thiserror::Error)]
pub enum PlaceError {
    /// The path belongs to another user, or is not a directory.
    #[error("{} is not a directory of this user's own: it {what}", path.display())]
    Foreign {
        /// Path of the directory.
        path: PathBuf,
        /// Description of the problem, such as `is a symbolic link`.
        what: String,
    },
    /// Other users can access the directory.
    #[error("{} is open to others: its mode is {mode:03o}", path.display())]
    Open {
        /// Path of the directory.
        path: PathBuf,
        /// Permission bits of the directory.
        mode: u32,
    },
    /// A system call failed.
    #[error("cannot {doing} {}: {source}", path.display())]
    Refused {
        /// Verb of the failed action, such as `make`.
        doing: &'static str,
        /// Path of the action.
        path: PathBuf,
        /// Error of the system.
        source: io::Error,
    },
    /// The case already has a daemon.
    #[error("{case} is up already")]
    Up {
        /// Identifier of the case.
        case: String,
    },
}

impl PlaceError {
    /// Returns help for the user.
    #[must_use]
    pub fn remedy(&self) -> String {
        match self {
            Self::Foreign { path, .. } => format!(
                "look who made {}; XDG_RUNTIME_DIR names another place",
                path.display()
            ),
            Self::Open { path, .. } => format!("run `chmod 700 {}`", path.display()),
            Self::Refused { .. } => {
                "set XDG_RUNTIME_DIR to a directory of your own with a short path that can be \
                 written"
                    .to_owned()
            }
            Self::Up { .. } => "`svclab ps` shows it, `svclab down` takes it away".to_owned(),
        }
    }
}

/// Directory of the sockets.
#[derive(Debug, Clone)]
pub struct Directory(PathBuf);

/// Returns the path of the socket directory. It is inside the runtime directory if that belongs to
/// the user, otherwise at a fixed path for root or this user. With `sudo -E`, root still has the
/// runtime directory of the original user.
fn locate(runtime: Option<OsString>, user: u32, owner: impl Fn(&Path) -> Option<u32>) -> PathBuf {
    let runtime = runtime.map(PathBuf::from);
    let own = runtime.filter(|path| path.is_absolute() && owner(path) == Some(user));
    match (own, user) {
        (Some(runtime), _) => runtime.join("svclab"),
        (None, 0) => PathBuf::from("/run/svclab"),
        (None, _) => PathBuf::from(format!("/tmp/svclab-{user}")),
    }
}

impl Directory {
    /// Returns the user's directory, and creates it if necessary.
    ///
    /// # Errors
    ///
    /// Returns an error if other users own or can access the directory, or if it cannot be created.
    pub fn of_environment() -> Result<Self, PlaceError> {
        let owner = |path: &Path| fs::metadata(path).ok().map(|about| about.uid());
        let runtime = std::env::var_os("XDG_RUNTIME_DIR");
        Self::at(locate(runtime, geteuid().as_raw(), owner))
    }

    /// Returns the directory at a path, and creates it if necessary.
    ///
    /// # Errors
    ///
    /// Returns an error if other users own or can access the directory, or if it cannot be created.
    pub fn at(path: PathBuf) -> Result<Self, PlaceError> {
        match DirBuilder::new().mode(0o700).create(&path) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
                return Err(refused("make", &path)(error));
            }
            _ => {}
        }
        let about = fs::symlink_metadata(&path).map_err(refused("look at", &path))?;
        let what = if about.is_symlink() {
            Some("is a symbolic link".to_owned())
        } else if !about.is_dir() {
            Some("is no directory".to_owned())
        } else if about.uid() != geteuid().as_raw() {
            Some(format!("belongs to the user {}", about.uid()))
        } else {
            None
        };
        if let Some(what) = what {
            return Err(PlaceError::Foreign { path, what });
        }
        let mode = about.mode() & 0o777;
        if mode & 0o077 != 0 {
            return Err(PlaceError::Open { path, mode });
        }
        Ok(Self(path))
    }

    /// Returns the path of a file for a case.
    fn file(&self, case: &str, extension: &str) -> PathBuf {
        let name = HEXLOWER.encode(&Sha256::digest(case)[..8]);
        self.0.join(name).with_extension(extension)
    }

    /// Returns the path of the log of a case's background daemon.
    #[must_use]
    pub fn log(&self, case: &str) -> PathBuf {
        self.file(case, "log")
    }

    /// Returns the path of the log for a daemon that has not bound its socket yet.
    #[must_use]
    pub fn first_log(&self, process: u32) -> PathBuf {
        self.0.join(format!("begun-{process}.log"))
    }

    /// Locks the directory. Sockets are bound and removed only with this lock.
    fn lock(&self) -> Result<File, PlaceError> {
        let path = self.0.join("lock");
        let mut options = File::options();
        let opened = options.write(true).create(true).truncate(false).mode(0o600);
        opened.custom_flags(OFlag::O_NOFOLLOW.bits());
        let lock = opened.open(&path).map_err(refused("open", &path))?;
        lock.lock().map_err(refused("lock", &path))?;
        Ok(lock)
    }

    /// Connects to all live daemons, and removes the sockets of dead ones.
    ///
    /// # Errors
    ///
    /// Returns an error if the directory cannot be read.
    pub fn connect_all(&self) -> Result<Vec<UnixStream>, PlaceError> {
        let _lock = self.lock()?;
        let entries = fs::read_dir(&self.0).map_err(refused("read", &self.0))?;
        let mut sockets: Vec<PathBuf> = entries
            .filter_map(|entry| Some(entry.ok()?.path()))
            .filter(|path| {
                path.extension()
                    .is_some_and(|extension| extension == "sock")
            })
            .collect();
        sockets.sort();
        let mut living = Vec::new();
        for socket in sockets {
            living.extend(connect(&socket)?);
        }
        Ok(living)
    }

    /// Connects to the daemon of a case; `None` if there is none.
    ///
    /// # Errors
    ///
    /// Returns an error if a system call fails.
    pub fn connect(&self, case: &str) -> Result<Option<UnixStream>, PlaceError> {
        let _lock = self.lock()?;
        connect(&self.file(case, "sock"))
    }

    /// Binds the socket of a case.
    ///
    /// # Errors
    ///
    /// Returns [`PlaceError::Up`] if the case already has a daemon.
    pub fn take(&self, case: &str) -> Result<Berth, PlaceError> {
        let _lock = self.lock()?;
        let socket = self.file(case, "sock");
        if connect(&socket)?.is_some() {
            return Err(PlaceError::Up {
                case: case.to_owned(),
            });
        }
        let listener = UnixListener::bind(&socket).map_err(refused("bind", &socket))?;
        listener
            .set_nonblocking(true)
            .map_err(refused("listen at", &socket))?;
        Ok(Berth {
            directory: self.clone(),
            socket,
            listener: Some(listener),
        })
    }
}

/// Connects to a daemon. Returns `None` if it has ended, and removes its socket. The caller holds
/// the lock.
fn connect(socket: &Path) -> Result<Option<UnixStream>, PlaceError> {
    match UnixStream::connect(socket) {
        Ok(stream) => Ok(Some(stream)),
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
            fs::remove_file(socket).map_err(refused("remove", socket))?;
            Ok(None)
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(refused("connect to", socket)(error)),
    }
}

fn refused(doing: &'static str, path: &Path) -> impl FnOnce(io::Error) -> PlaceError + use<> {
    let path = path.to_owned();
    move |source| PlaceError::Refused {
        doing,
        path,
        source,
    }
}

/// Bound socket of a case's daemon. Dropping removes the socket.
#[derive(Debug)]
pub struct Berth {
    directory: Directory,
    socket: PathBuf,
    listener: Option<UnixListener>,
}

impl Berth {
    /// Returns the listener; `None` after the first call.
    pub fn listener(&mut self) -> Option<UnixListener> {
        self.listener.take()
    }
}

impl Drop for Berth {
    fn drop(&mut self) {
        // Without the lock, another process may classify the socket as stale before this call, and
        // also remove it.
        let _lock = self.directory.lock();
        let _ = fs::remove_file(&self.socket);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{PermissionsExt as _, symlink};

    #[test]
    fn the_place_is_the_users_own() {
        let at = |runtime: Option<&str>, user| {
            let owner = |path: &Path| (path == Path::new("/run/user/7")).then_some(7);
            let place = locate(runtime.map(OsString::from), user, owner);
            place.display().to_string()
        };
        assert_eq!(at(Some("/run/user/7"), 7), "/run/user/7/svclab");
        assert_eq!(at(Some("/run/user/7"), 0), "/run/svclab");
        assert_eq!(at(Some("/run/user/9"), 7), "/tmp/svclab-7");
        assert_eq!(at(Some("run"), 7), "/tmp/svclab-7");
        assert_eq!(at(None, 0), "/run/svclab");
    }

    fn told(result: Result<Directory, PlaceError>, root: &Path) -> String {
        let error = result.map(drop).unwrap_err();
        let text = format!("{error}\n{}", error.remedy());
        text.replace(&root.display().to_string(), "ROOT")
    }

    #[test]
    fn a_directory_that_others_made_or_may_enter_is_refused() {
        let root = tempfile::tempdir().unwrap();
        let file = root.path().join("file");
        fs::write(&file, "").unwrap();
        insta::assert_snapshot!(told(Directory::at(file), root.path()), @r"
        ROOT/file is not a directory of this user's own: it is no directory
        look who made ROOT/file; XDG_RUNTIME_DIR names another place
        ");
        let link = root.path().join("link");
        symlink(root.path(), &link).unwrap();
        insta::assert_snapshot!(told(Directory::at(link), root.path()), @r"
        ROOT/link is not a directory of this user's own: it is a symbolic link
        look who made ROOT/link; XDG_RUNTIME_DIR names another place
        ");
        let open = root.path().join("open");
        fs::create_dir(&open).unwrap();
        fs::set_permissions(&open, fs::Permissions::from_mode(0o750)).unwrap();
        insta::assert_snapshot!(told(Directory::at(open), root.path()), @r"
        ROOT/open is open to others: its mode is 750
        run `chmod 700 ROOT/open`
        ");
        insta::assert_snapshot!(told(Directory::at(root.path().join("a/b")), root.path()), @r"
        cannot make ROOT/a/b: No such file or directory (os error 2)
        set XDG_RUNTIME_DIR to a directory of your own with a short path that can be written
        ");
    }

    #[test]
    fn a_place_has_one_holder_and_is_free_after_its_death() {
        let root = tempfile::tempdir().unwrap();
        let directory = Directory::at(root.path().join("svclab")).unwrap();
        let mut berth = directory.take("lab/a=b").unwrap();
        assert!(matches!(
            directory.take("lab/a=b"),
            Err(PlaceError::Up { case }) if case == "lab/a=b"
        ));
        let other = directory.take("lab/a=c").unwrap();
        assert_eq!(directory.connect_all().unwrap().len(), 2);
        drop(other);
        assert_eq!(directory.connect_all().unwrap().len(), 1);
        // Simulates a killed daemon: the socket exists without a listener.
        drop(berth.listener());
        let socket = berth.socket.clone();
        assert!(socket.exists());
        std::mem::forget(berth);
        assert_eq!(directory.connect_all().unwrap().len(), 0);
        assert!(!socket.exists());
        directory.take("lab/a=b").unwrap();
    }
}
