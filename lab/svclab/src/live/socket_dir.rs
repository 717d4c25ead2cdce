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
pub(crate) enum SocketDirError {
    /// The path belongs to another user, or is not a directory.
    #[error("{} is not a directory of this user: it {problem}", path.display())]
    NotOwned {
        path: PathBuf,
        /// Description of the problem, such as `is a symbolic link`.
        problem: String,
    },
    /// Other users can access the directory.
    #[error("{} is accessible to other users: its mode is {mode:03o}", path.display())]
    NotPrivate { path: PathBuf, mode: u32 },
    #[error("cannot {action} {}: {source}", path.display())]
    Io {
        /// Verb of the failed action, such as `make`.
        action: &'static str,
        path: PathBuf,
        source: io::Error,
    },
    /// The case already has a daemon.
    #[error("{case} is already running")]
    AlreadyRunning { case: String },
}

impl SocketDirError {
    /// Returns help for the user.
    pub(crate) fn remedy(&self) -> String {
        match self {
            Self::NotOwned { path, .. } => format!(
                "check who created {}, or use another directory with XDG_RUNTIME_DIR",
                path.display()
            ),
            Self::NotPrivate { path, .. } => format!("run `chmod 700 {}`", path.display()),
            Self::Io { .. } => {
                "set XDG_RUNTIME_DIR to a writable directory of this user with a short path"
                    .to_owned()
            }
            Self::AlreadyRunning { .. } => {
                "`svclab ps` lists it, `svclab down` stops it".to_owned()
            }
        }
    }
}

#[derive(Debug, Clone)]
pub(crate) struct SocketDir(PathBuf);

/// Returns the path of the socket directory. It is inside the runtime directory if that belongs to
/// the user, otherwise at a fixed path for root or this user. With `sudo -E`, root still has the
/// runtime directory of the original user.
fn locate(runtime: Option<OsString>, user: u32, owner: impl Fn(&Path) -> Option<u32>) -> PathBuf {
    let runtime = runtime.map(PathBuf::from);
    let user_runtime = runtime.filter(|path| path.is_absolute() && owner(path) == Some(user));
    match (user_runtime, user) {
        (Some(runtime), _) => runtime.join("svclab"),
        (None, 0) => PathBuf::from("/run/svclab"),
        (None, _) => PathBuf::from(format!("/tmp/svclab-{user}")),
    }
}

impl SocketDir {
    /// Returns the user's directory, and creates it if necessary.
    pub(crate) fn from_env() -> Result<Self, SocketDirError> {
        let owner = |path: &Path| fs::metadata(path).ok().map(|about| about.uid());
        let runtime = std::env::var_os("XDG_RUNTIME_DIR");
        Self::open(locate(runtime, geteuid().as_raw(), owner))
    }

    /// Returns the directory at a path, and creates it if necessary.
    pub(crate) fn open(path: PathBuf) -> Result<Self, SocketDirError> {
        match DirBuilder::new().mode(0o700).create(&path) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
                return Err(io_error("create", &path)(error));
            }
            _ => {}
        }
        let metadata = fs::symlink_metadata(&path).map_err(io_error("inspect", &path))?;
        let problem = if metadata.is_symlink() {
            Some("is a symbolic link".to_owned())
        } else if !metadata.is_dir() {
            Some("is not a directory".to_owned())
        } else if metadata.uid() != geteuid().as_raw() {
            Some(format!("belongs to user {}", metadata.uid()))
        } else {
            None
        };
        if let Some(what) = problem {
            return Err(SocketDirError::NotOwned {
                path,
                problem: what,
            });
        }
        let mode = metadata.mode() & 0o777;
        if mode & 0o077 != 0 {
            return Err(SocketDirError::NotPrivate { path, mode });
        }
        Ok(Self(path))
    }

    /// Returns the path of a file for a case.
    fn case_file(&self, case: &str, extension: &str) -> PathBuf {
        let name = HEXLOWER.encode(&Sha256::digest(case)[..8]);
        self.0.join(name).with_extension(extension)
    }

    /// Returns the path of the log of a case's background daemon.
    pub(crate) fn log_path(&self, case: &str) -> PathBuf {
        self.case_file(case, "log")
    }

    /// Returns the path of the log for a daemon that has not bound its socket yet.
    pub(crate) fn initial_log_path(&self, process: u32) -> PathBuf {
        self.0.join(format!("begun-{process}.log"))
    }

    /// Locks the directory. Sockets are bound and removed only with this lock.
    fn lock(&self) -> Result<File, SocketDirError> {
        let path = self.0.join("lock");
        let mut options = File::options();
        let opened = options.write(true).create(true).truncate(false).mode(0o600);
        opened.custom_flags(OFlag::O_NOFOLLOW.bits());
        let lock = opened.open(&path).map_err(io_error("open", &path))?;
        lock.lock().map_err(io_error("lock", &path))?;
        Ok(lock)
    }

    /// Connects to all live daemons, and removes the sockets of dead ones.
    pub(crate) fn connect_all(&self) -> Result<Vec<UnixStream>, SocketDirError> {
        let _lock = self.lock()?;
        let entries = fs::read_dir(&self.0).map_err(io_error("read", &self.0))?;
        let mut sockets: Vec<PathBuf> = entries
            .filter_map(|entry| Some(entry.ok()?.path()))
            .filter(|path| {
                path.extension()
                    .is_some_and(|extension| extension == "sock")
            })
            .collect();
        sockets.sort();
        let mut streams = Vec::new();
        for socket in sockets {
            streams.extend(connect_socket(&socket)?);
        }
        Ok(streams)
    }

    /// Connects to the daemon of a case; `None` if there is none.
    pub(crate) fn connect(&self, case: &str) -> Result<Option<UnixStream>, SocketDirError> {
        let _lock = self.lock()?;
        connect_socket(&self.case_file(case, "sock"))
    }

    /// Binds the socket of a case, unless the case already has a daemon.
    pub(crate) fn bind(&self, case: &str) -> Result<(SocketLease, UnixListener), SocketDirError> {
        let _lock = self.lock()?;
        let socket = self.case_file(case, "sock");
        if connect_socket(&socket)?.is_some() {
            return Err(SocketDirError::AlreadyRunning {
                case: case.to_owned(),
            });
        }
        let listener = UnixListener::bind(&socket).map_err(io_error("bind", &socket))?;
        listener
            .set_nonblocking(true)
            .map_err(io_error("listen on", &socket))?;
        let directory = self.clone();
        Ok((SocketLease { directory, socket }, listener))
    }
}

/// Connects to a daemon. Returns `None` if it has ended, and removes its socket. The caller holds
/// the lock.
fn connect_socket(socket: &Path) -> Result<Option<UnixStream>, SocketDirError> {
    match UnixStream::connect(socket) {
        Ok(stream) => Ok(Some(stream)),
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
            fs::remove_file(socket).map_err(io_error("remove", socket))?;
            Ok(None)
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(io_error("connect to", socket)(error)),
    }
}

fn io_error(doing: &'static str, path: &Path) -> impl FnOnce(io::Error) -> SocketDirError + use<> {
    let path = path.to_owned();
    move |source| SocketDirError::Io {
        action: doing,
        path,
        source,
    }
}

/// Bound socket of a case's daemon. Dropping removes the socket.
#[derive(Debug)]
pub(crate) struct SocketLease {
    directory: SocketDir,
    socket: PathBuf,
}

impl Drop for SocketLease {
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
    fn socket_dir_is_in_users_runtime_dir() {
        let locate_for = |runtime: Option<&str>, user| {
            let owner = |path: &Path| (path == Path::new("/run/user/7")).then_some(7);
            let place = locate(runtime.map(OsString::from), user, owner);
            place.display().to_string()
        };
        assert_eq!(locate_for(Some("/run/user/7"), 7), "/run/user/7/svclab");
        assert_eq!(locate_for(Some("/run/user/7"), 0), "/run/svclab");
        assert_eq!(locate_for(Some("/run/user/9"), 7), "/tmp/svclab-7");
        assert_eq!(locate_for(Some("run"), 7), "/tmp/svclab-7");
        assert_eq!(locate_for(None, 0), "/run/svclab");
    }

    fn render_error(result: Result<SocketDir, SocketDirError>, root: &Path) -> String {
        let error = result.map(drop).unwrap_err();
        let text = format!("{error}\n{}", error.remedy());
        text.replace(&root.display().to_string(), "ROOT")
    }

    #[test]
    fn socket_dir_of_other_user_is_refused() {
        let root = tempfile::tempdir().unwrap();
        let file = root.path().join("file");
        fs::write(&file, "").unwrap();
        insta::assert_snapshot!(render_error(SocketDir::open(file), root.path()), @r"
        ROOT/file is not a directory of this user: it is not a directory
        check who created ROOT/file, or use another directory with XDG_RUNTIME_DIR
        ");
        let link = root.path().join("link");
        symlink(root.path(), &link).unwrap();
        insta::assert_snapshot!(render_error(SocketDir::open(link), root.path()), @r"
        ROOT/link is not a directory of this user: it is a symbolic link
        check who created ROOT/link, or use another directory with XDG_RUNTIME_DIR
        ");
        let open = root.path().join("open");
        fs::create_dir(&open).unwrap();
        fs::set_permissions(&open, fs::Permissions::from_mode(0o750)).unwrap();
        insta::assert_snapshot!(render_error(SocketDir::open(open), root.path()), @r"
        ROOT/open is accessible to other users: its mode is 750
        run `chmod 700 ROOT/open`
        ");
        insta::assert_snapshot!(render_error(SocketDir::open(root.path().join("a/b")), root.path()), @r"
        cannot create ROOT/a/b: No such file or directory (os error 2)
        set XDG_RUNTIME_DIR to a writable directory of this user with a short path
        ");
    }

    #[test]
    fn socket_is_exclusive_until_daemon_dies() {
        let root = tempfile::tempdir().unwrap();
        let directory = SocketDir::open(root.path().join("svclab")).unwrap();
        let (lease, listener) = directory.bind("lab/a=b").unwrap();
        assert!(matches!(
            directory.bind("lab/a=b"),
            Err(SocketDirError::AlreadyRunning { case }) if case == "lab/a=b"
        ));
        let other_lease = directory.bind("lab/a=c").unwrap();
        assert_eq!(directory.connect_all().unwrap().len(), 2);
        drop(other_lease);
        assert_eq!(directory.connect_all().unwrap().len(), 1);
        // Simulates a killed daemon: the socket exists without a listener.
        drop(listener);
        let socket = lease.socket.clone();
        assert!(socket.exists());
        std::mem::forget(lease);
        assert_eq!(directory.connect_all().unwrap().len(), 0);
        assert!(!socket.exists());
        directory.bind("lab/a=b").unwrap();
    }
}
