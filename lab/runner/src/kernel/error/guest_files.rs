//! Errors of collecting the modules and programs of a guest.

use std::io;
use std::path::PathBuf;

use svclab_diagnostic::files::FileError;

/// Reason why the modules of a kernel cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum TreeError {
    /// The directory of the modules cannot be read.
    #[error("cannot read the modules in {}: {source}", directory.display())]
    Directory {
        directory: PathBuf,
        source: io::Error,
    },
    /// The directory contains no module that labs need.
    #[error("no module that labs need is in {}", .0.display())]
    NoModules(PathBuf),
    /// The file of a module is damaged.
    #[error("{}: {source}", file.display())]
    Module {
        /// Path of the file.
        file: PathBuf,
        source: ModuleError,
    },
}

/// Reason why the file of a module cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ModuleError {
    /// The file cannot be read or decompressed.
    #[error("cannot read the module: {0}")]
    Io(#[from] io::Error),
    /// The file is not a 64-bit ELF object.
    #[error("not a kernel module: {0}")]
    Elf(#[from] object::Error),
}

/// Reason why the programs of a guest cannot be collected.
#[derive(Debug, thiserror::Error)]
pub enum UserlandError {
    /// A file cannot be read.
    #[error("cannot read {}: {source}", file.display())]
    Read {
        /// Path of the file.
        file: PathBuf,
        source: FileError,
    },
    /// A command of a lab is a path outside of the directories that labs see.
    #[error("{} is not a program of the system", .0.display())]
    NotOfSystem(PathBuf),
    /// A program or library is not a valid ELF file.
    #[error("{} is not a program: {source}", file.display())]
    Elf {
        file: PathBuf,
        source: object::Error,
    },
    /// A library was not found.
    #[error(
        "{} needs the library {library}, which is in none of the usual directories",
        file.display()
    )]
    NoLibrary {
        /// Path of the file that needs the library.
        file: PathBuf,
        /// File name of the library.
        library: String,
    },
}
