//! Reads and writes files in directories that other users may control. Only regular files are read,
//! up to a size limit. Files are written completely or not at all, and never through a symbolic
//! link.

mod read;
#[cfg(test)]
mod tests;
mod write;

pub use read::{FileError, FileKind, Location, OpenedPath};
pub use write::{
    UnfinishedFile, begin_file, create_output_directory, remove_file_if_exists, write_file,
};
