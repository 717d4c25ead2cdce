//! Where holders of labs are found: sockets in a directory that is the user's
//! alone.

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

/// Why there is no place to be found at.
#[derive(Debug, thiserror::Error)]
pub enum PlaceError {
    /// The directory is somebody else's, or no directory.
    #[error("{} is not a directory of this user's own: it {what}", path.display())]
    Foreign {
        /// The directory.
        path: PathBuf,
        /// What it is: `is a symbolic link`.
        what: String,
    },
    /// Others may look into it.
    #[error("{} is open to others: its mode is {mode:03o}", path.display())]
    Open {
        /// The directory.
        path: PathBuf,
        /// Its permissions.
        mode: u32,
    },
    /// The system refused something.
    #[error("cannot {doing} {}: {source}", path.display())]
    Refused {
        /// What was tried: `make`.
        doing: &'static str,
        /// With what.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// Somebody holds that case.
    #[error("{case} is up already")]
    Up {
        /// The case.
        case: String,
    },
}

impl PlaceError {
    /// What to do about it.
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

/// The directory of the sockets.
#[derive(Debug, Clone)]
pub struct Directory(PathBuf);

/// Where that directory is to be: in the runtime directory if that is the user's,
/// else where root, or this user, has one of its own. A root who came by `sudo -E`
/// still has the runtime directory of the user it was.
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
    /// The user's, which is made if it is not there.
    ///
    /// # Errors
    ///
    /// When it is not the user's alone, or cannot be made.
    pub fn of_environment() -> Result<Self, PlaceError> {
        let owner = |path: &Path| fs::metadata(path).ok().map(|about| about.uid());
        let runtime = std::env::var_os("XDG_RUNTIME_DIR");
        Self::at(locate(runtime, geteuid().as_raw(), owner))
    }

    /// That one.
    ///
    /// # Errors
    ///
    /// When it is not the user's alone, or cannot be made.
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

    /// What belongs to a case.
    fn file(&self, case: &str, extension: &str) -> PathBuf {
        let name = HEXLOWER.encode(&Sha256::digest(case)[..8]);
        self.0.join(name).with_extension(extension)
    }

    /// Where the holder of a case writes what happens to it, when it holds it in the
    /// background.
    #[must_use]
    pub fn log(&self, case: &str) -> PathBuf {
        self.file(case, "log")
    }

    /// Where a holder writes that has not yet got its place.
    #[must_use]
    pub fn first_log(&self, process: u32) -> PathBuf {
        self.0.join(format!("begun-{process}.log"))
    }

    /// Nobody else binds or removes a socket while this is held.
    fn lock(&self) -> Result<File, PlaceError> {
        let path = self.0.join("lock");
        let mut options = File::options();
        let opened = options.write(true).create(true).truncate(false).mode(0o600);
        opened.custom_flags(OFlag::O_NOFOLLOW.bits());
        let lock = opened.open(&path).map_err(refused("open", &path))?;
        lock.lock().map_err(refused("lock", &path))?;
        Ok(lock)
    }

    /// Connections to all holders that live. What is left of those that died is
    /// removed.
    ///
    /// # Errors
    ///
    /// When the directory cannot be read.
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

    /// A connection to the holder of a case; none if it has none.
    ///
    /// # Errors
    ///
    /// When the system refuses it.
    pub fn connect(&self, case: &str) -> Result<Option<UnixStream>, PlaceError> {
        let _lock = self.lock()?;
        connect(&self.file(case, "sock"))
    }

    /// Takes the place of a case's holder.
    ///
    /// # Errors
    ///
    /// When somebody has it.
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

/// A connection to a holder; none if there is none any more, of which nothing is
/// left then. The caller holds the lock.
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

/// The place of a case's holder, which is free again when this is dropped.
#[derive(Debug)]
pub struct Berth {
    directory: Directory,
    socket: PathBuf,
    listener: Option<UnixListener>,
}

impl Berth {
    /// What others connect to; once.
    pub fn listener(&mut self) -> Option<UnixListener> {
        self.listener.take()
    }
}

impl Drop for Berth {
    fn drop(&mut self) {
        // Without the lock somebody may take the socket for a dead holder's in
        // between, and removes it as well.
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
        // As if it had been killed: nobody listens, and the socket is left.
        drop(berth.listener());
        let socket = berth.socket.clone();
        assert!(socket.exists());
        std::mem::forget(berth);
        assert_eq!(directory.connect_all().unwrap().len(), 0);
        assert!(!socket.exists());
        directory.take("lab/a=b").unwrap();
    }
}
