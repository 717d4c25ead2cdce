//! Writes files completely or not at all.

use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use tempfile::{NamedTempFile, TempPath};

/// Temporary file next to the file that it will replace.
#[derive(Debug)]
pub struct UnfinishedFile {
    path: TempPath,
    target: PathBuf,
}

impl UnfinishedFile {
    /// Renames the temporary file to its final name.
    ///
    /// # Errors
    ///
    /// Returns an error if the operating system reports one, or if the name now belongs to anything
    /// but a regular file.
    pub fn finish(self) -> io::Result<()> {
        check_replaceable(&self.target)?;
        self.path.persist(&self.target).map_err(|error| error.error)
    }
}

/// Creates a temporary file that gets the name `target` once it is finished.
///
/// # Errors
///
/// Returns an error if `target` is a symbolic link, a device or a directory, or if the operating
/// system reports an error.
pub fn begin_file(target: &Path) -> io::Result<(File, UnfinishedFile)> {
    check_replaceable(target)?;
    let directory = match target.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    // The mode before umask is that of any new file, so the user's umask decides who can read it.
    let file: NamedTempFile = tempfile::Builder::new()
        .prefix(".svclab-")
        .permissions(fs::Permissions::from_mode(0o666))
        .tempfile_in(directory)?;
    let (file, path) = file.into_parts();
    let target = target.to_owned();
    Ok((file, UnfinishedFile { path, target }))
}

/// Writes a file, completely or not at all.
///
/// # Errors
///
/// Returns the errors of [`begin_file`] and of `write`.
pub fn write_file(
    target: &Path,
    write: impl FnOnce(&mut dyn Write) -> io::Result<()>,
) -> io::Result<()> {
    let (file, unfinished) = begin_file(target)?;
    let mut out = BufWriter::new(file);
    write(&mut out)?;
    out.into_inner().map_err(io::IntoInnerError::into_error)?;
    unfinished.finish()
}

/// Creates an output directory, unless it exists.
///
/// # Errors
///
/// Returns an error if the name is a symbolic link, or if the operating system reports an error.
pub fn create_output_directory(directory: &Path) -> io::Result<()> {
    fs::create_dir_all(directory)?;
    if fs::symlink_metadata(directory)?.is_symlink() {
        return Err(symlink_error());
    }
    Ok(())
}

/// Checks that a new file may replace `place`.
fn check_replaceable(place: &Path) -> io::Result<()> {
    match fs::symlink_metadata(place) {
        Ok(metadata) if metadata.is_file() => Ok(()),
        Ok(metadata) if metadata.is_symlink() => Err(symlink_error()),
        Ok(_) => Err(io::Error::other(
            "the target exists and is not a regular file",
        )),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(error),
    }
}

fn symlink_error() -> io::Error {
    io::Error::other("the target is a symbolic link, which svclab does not follow")
}

/// Removes a file, such as the results of an earlier run. A missing file is no error.
///
/// # Errors
///
/// Returns an error if the file exists and cannot be removed.
pub fn remove_file_if_exists(path: &Path) -> io::Result<()> {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        removed => removed,
    }
}
