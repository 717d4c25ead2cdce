//! Checks that a program can run on this machine, before a lab is built.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, Read as _, Seek as _, SeekFrom};
use std::os::unix::ffi::OsStringExt as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

/// Offset of the processor in an ELF header (`e_machine` in `elf(5)`).
const MACHINE: usize = 18;
const OWN: (u16, &str) = if cfg!(target_arch = "aarch64") {
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
    #[error("{} is no file", .0.display())]
    NoFile(PathBuf),
    /// No user may execute the file.
    #[error("{} is not executable", .0.display())]
    NotExecutable(PathBuf),
    /// The file is neither an ELF program nor a script.
    #[error("{} is no program", .0.display())]
    NoProgram(PathBuf),
    /// The file is shorter than its headers require.
    #[error("{} is not whole: it has {found} bytes of {wanted}", .path.display())]
    Truncated {
        /// Path as the user or the lab gave it.
        path: PathBuf,
        /// File size in bytes.
        found: u64,
        /// Minimum size in bytes according to the headers.
        wanted: u64,
    },
    /// The dynamic loader or interpreter of the file does not exist.
    #[error("{} cannot be started: it needs {}, which is not there", .path.display(), .loader.display())]
    NoLoader {
        /// Path as the user or the lab gave it.
        path: PathBuf,
        /// Dynamic loader, or interpreter of a script.
        loader: PathBuf,
    },
    /// The program is built for another processor.
    #[error("{} is a program for another processor than this machine's, {}", .0.display(), OWN.1)]
    Foreign(PathBuf),
}

impl BinaryError {
    /// Returns the help text for the error.
    #[must_use]
    pub const fn remedy(&self) -> &'static str {
        match self {
            Self::Unreadable { .. } | Self::NoFile(_) => {
                "give the path of a kube-proxy, seen from the lab's file or, on the command line, \
                 from here"
            }
            Self::Truncated { .. } => "copy or build it again",
            Self::NoLoader { .. } => {
                "install that, or give a kube-proxy that is linked statically (CGO_ENABLED=0)"
            }
            Self::NotExecutable(_) => "`chmod +x` it",
            Self::NoProgram(_) => "give the path of a kube-proxy",
            Self::Foreign(_) => "build or fetch kube-proxy for this machine",
        }
    }
}

/// Returns the absolute path of a program that can start on this machine.
///
/// # Errors
///
/// When the program cannot start; [`BinaryError`] states the reason.
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
        if head[MACHINE..MACHINE + 2] != OWN.0.to_le_bytes() {
            return Err(BinaryError::Foreign(path.to_owned()));
        }
        let elf = Elf::read(&file, &head).map_err(unreadable)?;
        if elf.size > about.len() {
            return Err(BinaryError::Truncated {
                path: path.to_owned(),
                found: about.len(),
                wanted: elf.size,
            });
        }
        elf.loader
    } else {
        return Err(BinaryError::NoProgram(path.to_owned()));
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
const HEADER: u64 = 64;
const PROGRAM: u64 = 56;
const SECTION: u64 = 64;

/// Type of the program header that names the loader (`PT_INTERP`), and the maximum length of this
/// name in bytes (`PATH_MAX`).
const INTERPRETER: u64 = 3;
const LONGEST: u64 = 4096;

/// Type of a section that occupies no space in the file (`SHT_NOBITS`).
const NO_BITS: u64 = 8;

impl Elf {
    fn read(file: &File, head: &[u8]) -> io::Result<Self> {
        let mut elf = Self {
            size: HEADER,
            loader: None,
        };
        let (programs, sections) = (number(head, 32, 8), number(head, 40, 8));
        let (program_count, section_count) = (number(head, 56, 2), number(head, 60, 2));
        elf.reaches(programs, program_count * PROGRAM);
        elf.reaches(sections, section_count * SECTION);
        for header in table(file, programs, program_count, PROGRAM)? {
            let (offset, size) = (number(&header, 8, 8), number(&header, 32, 8));
            elf.reaches(offset, size);
            if number(&header, 0, 4) == INTERPRETER {
                let mut name = bytes(file, offset, size.min(LONGEST))?;
                name.retain(|byte| *byte != 0);
                elf.loader = Some(name);
            }
        }
        for header in table(file, sections, section_count, SECTION)? {
            if number(&header, 4, 4) != NO_BITS {
                elf.reaches(number(&header, 24, 8), number(&header, 32, 8));
            }
        }
        Ok(elf)
    }

    fn reaches(&mut self, offset: u64, size: u64) {
        self.size = self.size.max(offset.saturating_add(size));
    }
}

/// Reads a table of headers. Returns the complete ones.
fn table(file: &File, offset: u64, count: u64, size: u64) -> io::Result<Vec<Vec<u8>>> {
    let size = usize::try_from(size).unwrap_or(usize::MAX);
    let length = count.saturating_mul(u64::try_from(size).unwrap_or(u64::MAX));
    let table = bytes(file, offset, length)?;
    Ok(table.chunks_exact(size).map(<[u8]>::to_vec).collect())
}

/// Reads `length` bytes at `offset`, or fewer if the file ends before.
fn bytes(mut file: &File, offset: u64, length: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    file.seek(SeekFrom::Start(offset.min(i64::MAX.unsigned_abs())))?;
    file.take(length).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Returns a little-endian number of a header; 0 if the header ends before it.
fn number(bytes: &[u8], at: usize, length: usize) -> u64 {
    let bytes = bytes.get(at..at + length).unwrap_or_default();
    let bytes = bytes.iter().rev();
    bytes.fold(0, |number, byte| (number << 8) | u64::from(*byte))
}
