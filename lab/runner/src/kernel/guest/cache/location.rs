//! Finds the directory of the cache, and checks that no other user could change it.

use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use super::Cache;
use crate::kernel::error::guest::{CacheProblem, GuestError};

/// Returns the directory of the cache: `$SVCLAB_CACHE`; `svclab` in `$XDG_CACHE_HOME`, or in
/// `.cache` of `$HOME`; for root without a home, `/var/cache/svclab`. `variable` returns the value
/// of an environment variable.
///
/// # Errors
///
/// When no such variable is set.
pub fn find_directory(
    variable: impl Fn(&str) -> Option<OsString>,
    is_root: bool,
) -> Result<PathBuf, GuestError> {
    let set = |name| variable(name).filter(|value| !value.is_empty());
    if let Some(svclab_cache) = set("SVCLAB_CACHE") {
        return Ok(PathBuf::from(svclab_cache));
    }
    if let Some(xdg_cache) = set("XDG_CACHE_HOME") {
        return Ok(Path::new(&xdg_cache).join("svclab"));
    }
    match set("HOME") {
        Some(home) => Ok(Path::new(&home).join(".cache/svclab")),
        None if is_root => Ok(PathBuf::from("/var/cache/svclab")),
        None => Err(GuestError::NoCache),
    }
}

impl Cache {
    /// Rejects a directory that another user could change, because guests boot kernels from it. The
    /// cache itself may be behind a symbolic link, because the user chose the link.
    pub(super) fn check_owner(&self, part: &str) -> Result<(), GuestError> {
        let (directory, metadata) = if part.is_empty() {
            (self.directory.clone(), fs::metadata(&self.directory))
        } else {
            let directory = self.directory.join(part);
            let metadata = fs::symlink_metadata(&directory);
            (directory, metadata)
        };
        let metadata = metadata.map_err(self.error_of("read the metadata of a directory"))?;
        let user = nix::unistd::geteuid().as_raw();
        let problem = if !metadata.is_dir() {
            CacheProblem::NoDirectory
        } else if metadata.uid() != user {
            CacheProblem::OtherOwner {
                owner: metadata.uid(),
                user,
            }
        } else if metadata.mode() & 0o022 != 0 {
            CacheProblem::Writable(metadata.mode() & 0o777)
        } else {
            return Ok(());
        };
        Err(GuestError::CacheUnsafe { directory, problem })
    }
}
