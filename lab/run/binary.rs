//! A program that is to run in labs, looked at before anything is built.

use std::fs::{self, File};
use std::io::{self, Read as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

/// Where an ELF file says for which processor it is, and what (`e_machine` in
/// `elf(5)`).
const MACHINE: usize = 18;
const OWN: (u16, &str) = if cfg!(target_arch = "aarch64") {
    (183, "aarch64")
} else {
    (62, "x86_64")
};

/// Why a file cannot run here.
#[derive(Debug, thiserror::Error)]
pub enum BinaryError {
    /// It cannot be read.
    #[error("cannot read {}: {source}", .path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// The system's reason.
        source: io::Error,
    },
    /// It is a directory or the like.
    #[error("{} is no file", .0.display())]
    NoFile(PathBuf),
    /// Nobody may run it.
    #[error("{} is not executable", .0.display())]
    NotExecutable(PathBuf),
    /// It is neither a program nor a script.
    #[error("{} is no program", .0.display())]
    NoProgram(PathBuf),
    /// It is another processor's.
    #[error("{} is a program for another processor than this machine's, {}", .0.display(), OWN.1)]
    Foreign(PathBuf),
}

impl BinaryError {
    /// What to do about it.
    #[must_use]
    pub const fn remedy(&self) -> &'static str {
        match self {
            Self::Unreadable { .. } | Self::NoFile(_) => {
                "give the path of a kube-proxy, seen from the lab's file or, on the command line, \
                 from here"
            }
            Self::NotExecutable(_) => "`chmod +x` it",
            Self::NoProgram(_) => "give the path of a kube-proxy",
            Self::Foreign(_) => "build or fetch kube-proxy for this machine",
        }
    }
}

/// The whole path of a program that can be started here.
///
/// # Errors
///
/// Why it cannot.
pub fn find(path: &Path) -> Result<PathBuf, BinaryError> {
    let unreadable = |source| BinaryError::Unreadable {
        path: path.to_owned(),
        source,
    };
    let found = fs::canonicalize(path).map_err(unreadable)?;
    let about = fs::metadata(&found).map_err(unreadable)?;
    if !about.is_file() {
        return Err(BinaryError::NoFile(path.to_owned()));
    }
    if about.permissions().mode() & 0o111 == 0 {
        return Err(BinaryError::NotExecutable(path.to_owned()));
    }
    let mut head = Vec::new();
    let read = File::open(&found).and_then(|file| file.take(64).read_to_end(&mut head));
    read.map_err(unreadable)?;
    if head.starts_with(b"#!") {
        return Ok(found);
    }
    let machine = head.get(MACHINE..MACHINE + 2);
    match machine {
        Some(machine) if head.starts_with(b"\x7fELF") => {
            // Both of these processors have the lower byte first, as their files say.
            if machine == OWN.0.to_le_bytes() {
                Ok(found)
            } else {
                Err(BinaryError::Foreign(path.to_owned()))
            }
        }
        _ => Err(BinaryError::NoProgram(path.to_owned())),
    }
}
