//! Checks that a program can run on this machine, before a lab is built.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, Read as _, Seek as _, SeekFrom};
use std::os::unix::ffi::OsStringExt as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

/// Offset of the processor in an ELF header (`e_machine` in `elf(5)`).
const MACHINE_OFFSET: usize = 18;
const HOST_MACHINE: (u16, &str) = if cfg!(target_arch = "aarch64") {
    (183, "aarch64")
} else {
    (62, "x86_64")
};

/// Reason why a program cannot run here.
#[derive(Debug, thiserror::Error)]
pub enum BinaryError {
    /// The file cannot be read.
    #[error("cannot read {}: {source}", .path.display())]
    Unreadable {
        /// Path as the user or the lab gave it.
        path: PathBuf,
        /// Error of the operating system.
        source: io::Error,
    },
    /// The path is a directory or another non-regular file.
    #[error("{} is not a file", .0.display())]
    NotAFile(PathBuf),
    /// No user may execute the file.
    #[error("{} is not executable", .0.display())]
    NotExecutable(PathBuf),
    /// The file is neither an ELF program nor a script.
    #[error("{} is not a program", .0.display())]
    NotAProgram(PathBuf),
    /// The file is shorter than its headers require.
    #[error("{} is truncated: it has {found} of {required} bytes", .path.display())]
    Truncated {
        /// Path as the user or the lab gave it.
        path: PathBuf,
        /// File size in bytes.
        found: u64,
        /// Minimum size in bytes according to the headers.
        required: u64,
    },
    /// The dynamic loader or interpreter of the file does not exist.
    #[error(
        "cannot start {}: it needs {}, which does not exist",
        .path.display(),
        .loader.display()
    )]
    NoLoader {
        /// Path as the user or the lab gave it.
        path: PathBuf,
        /// Dynamic loader, or interpreter of a script.
        loader: PathBuf,
    },
    /// The program is built for another processor.
    #[error(
        "{} is built for another processor than the {} of this machine",
        .0.display(),
        HOST_MACHINE.1
    )]
    ForeignMachine(PathBuf),
}

impl BinaryError {
    /// Returns the help text for the error.
    #[must_use]
    pub const fn remedy(&self) -> &'static str {
        match self {
            Self::Unreadable { .. } | Self::NotAFile(_) => {
                "give the path of a kube-proxy, relative to the lab file or, on the command line, \
                 to the current directory"
            }
            Self::Truncated { .. } => "copy or build the program again",
            Self::NoLoader { .. } => {
                "install the missing file, or use a statically linked kube-proxy (CGO_ENABLED=0)"
            }
            Self::NotExecutable(_) => "run `chmod +x` on the file",
            Self::NotAProgram(_) => "give the path of a kube-proxy",
            Self::ForeignMachine(_) => "build or download kube-proxy for this processor",
        }
    }
}

/// Returns the absolute path of a program that can start on this machine.
///
/// # Errors
///
/// When the program cannot start; [`BinaryError`] states the reason.
pub fn find_executable(path: &Path) -> Result<PathBuf, BinaryError> {
    let unreadable = |source| BinaryError::Unreadable {
        path: path.to_owned(),
        source,
    };
    let found = fs::canonicalize(path).map_err(unreadable)?;
    let metadata = fs::metadata(&found).map_err(unreadable)?;
    if !metadata.is_file() {
        return Err(BinaryError::NotAFile(path.to_owned()));
    }
    if metadata.permissions().mode() & 0o111 == 0 {
        return Err(BinaryError::NotExecutable(path.to_owned()));
    }
    let mut file = File::open(&found).map_err(unreadable)?;
    let mut head = Vec::new();
    let read = (&mut file).take(256).read_to_end(&mut head);
    read.map_err(unreadable)?;
    let loader = if let Some(line) = head.strip_prefix(b"#!") {
        let line = line.split(|byte| *byte == b'\n').next().unwrap_or_default();
        let mut words = line.split(|byte| matches!(byte, b' ' | b'\t'));
        words.find(|word| !word.is_empty()).map(<[u8]>::to_vec)
    } else if head.starts_with(b"\x7fELF") && head.len() >= 20 {
        // ELF files of both supported processors are little-endian.
        if head[MACHINE_OFFSET..MACHINE_OFFSET + 2] != HOST_MACHINE.0.to_le_bytes() {
            return Err(BinaryError::ForeignMachine(path.to_owned()));
        }
        let elf = Elf::read(&file, &head).map_err(unreadable)?;
        if elf.size > metadata.len() {
            return Err(BinaryError::Truncated {
                path: path.to_owned(),
                found: metadata.len(),
                required: elf.size,
            });
        }
        elf.loader
    } else {
        return Err(BinaryError::NotAProgram(path.to_owned()));
    };
    let loader = loader.map(|loader| PathBuf::from(OsString::from_vec(loader)));
    match loader.filter(|loader| !loader.exists()) {
        Some(loader) => Err(BinaryError::NoLoader {
            path: path.to_owned(),
            loader,
        }),
        None => Ok(found),
    }
}

/// Facts from the headers of a 64-bit ELF file (`elf(5)`).
struct Elf {
    /// Minimum size of the whole file, in bytes.
    size: u64,
    /// Dynamic loader; `None` if the program is linked statically.
    loader: Option<Vec<u8>>,
}

/// Sizes in bytes of the file header, a program header and a section header.
const FILE_HEADER_SIZE: u64 = 64;
const PROGRAM_HEADER_SIZE: u64 = 56;
const SECTION_HEADER_SIZE: u64 = 64;

/// Type of the program header that names the loader (`PT_INTERP`), and the maximum length of this
/// name in bytes (`PATH_MAX`).
const PT_INTERP: u64 = 3;
const MAX_LOADER_PATH: u64 = 4096;

/// Type of a section that occupies no space in the file (`SHT_NOBITS`).
const SHT_NOBITS: u64 = 8;

impl Elf {
    fn read(file: &File, head: &[u8]) -> io::Result<Self> {
        let mut elf = Self {
            size: FILE_HEADER_SIZE,
            loader: None,
        };
        let (programs, sections) = (read_number(head, 32, 8), read_number(head, 40, 8));
        let (program_count, section_count) = (read_number(head, 56, 2), read_number(head, 60, 2));
        elf.extend_size(programs, program_count * PROGRAM_HEADER_SIZE);
        elf.extend_size(sections, section_count * SECTION_HEADER_SIZE);
        for header in read_table(file, programs, program_count, PROGRAM_HEADER_SIZE)? {
            let (offset, size) = (read_number(&header, 8, 8), read_number(&header, 32, 8));
            elf.extend_size(offset, size);
            if read_number(&header, 0, 4) == PT_INTERP {
                let mut name = read_bytes(file, offset, size.min(MAX_LOADER_PATH))?;
                name.retain(|byte| *byte != 0);
                elf.loader = Some(name);
            }
        }
        for header in read_table(file, sections, section_count, SECTION_HEADER_SIZE)? {
            if read_number(&header, 4, 4) != SHT_NOBITS {
                elf.extend_size(read_number(&header, 24, 8), read_number(&header, 32, 8));
            }
        }
        Ok(elf)
    }

    fn extend_size(&mut self, offset: u64, size: u64) {
        self.size = self.size.max(offset.saturating_add(size));
    }
}

/// Reads a table of headers. Returns the complete ones.
fn read_table(file: &File, offset: u64, count: u64, size: u64) -> io::Result<Vec<Vec<u8>>> {
    let size = usize::try_from(size).unwrap_or(usize::MAX);
    let length = count.saturating_mul(u64::try_from(size).unwrap_or(u64::MAX));
    let table = read_bytes(file, offset, length)?;
    Ok(table.chunks_exact(size).map(<[u8]>::to_vec).collect())
}

/// Reads `length` bytes at `offset`, or fewer if the file ends before.
fn read_bytes(mut file: &File, offset: u64, length: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    file.seek(SeekFrom::Start(offset.min(i64::MAX.unsigned_abs())))?;
    file.take(length).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Returns a little-endian number of a header; 0 if the header ends before it.
fn read_number(bytes: &[u8], offset: usize, length: usize) -> u64 {
    let bytes = bytes.get(offset..offset + length).unwrap_or_default();
    let bytes = bytes.iter().rev();
    bytes.fold(0, |number, byte| (number << 8) | u64::from(*byte))
}
