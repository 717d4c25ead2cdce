//! Checks that a program can run on this machine, before a lab is built.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, Read as _};
use std::os::unix::ffi::OsStringExt as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use object::elf::{
    ELFMAG, EM_AARCH64, EM_X86_64, FileHeader64, Machine, PT_INTERP, ProgramHeader64,
    SectionHeader64,
};
use object::read::elf::{FileHeader as _, ProgramHeader as _, SectionHeader as _};
use object::{LittleEndian, ReadCache, ReadRef as _};

/// Processor of this machine in an ELF header, and its name.
const HOST_MACHINE: (Machine, &str) = if cfg!(target_arch = "aarch64") {
    (EM_AARCH64, "aarch64")
} else {
    (EM_X86_64, "x86_64")
};

/// Maximum length of the path of a dynamic loader in bytes (`PATH_MAX`). The kernel rejects a longer
/// path (Linux v6.12, `fs/binfmt_elf.c`, `load_elf_binary`).
const MAX_LOADER_PATH: u64 = 4096;

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
    } else if head.starts_with(&ELFMAG) {
        elf_loader(path, &file, metadata.len())?
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

/// Returns the path of the dynamic loader of an ELF file of `length` bytes. `None` for a program
/// that is linked statically.
fn elf_loader(path: &Path, file: &File, length: u64) -> Result<Option<Vec<u8>>, BinaryError> {
    let truncated_if_below = |required: u64| {
        if length < required {
            return Err(BinaryError::Truncated {
                path: path.to_owned(),
                found: length,
                required,
            });
        }
        Ok(())
    };
    let data = ReadCache::new(file);
    truncated_if_below(size_of::<FileHeader64<LittleEndian>>() as u64)?;
    let header = FileHeader64::<LittleEndian>::parse(&data)
        .map_err(|_| BinaryError::ForeignMachine(path.to_owned()))?;
    let endian = LittleEndian;
    if header.e_machine(endian) != HOST_MACHINE.0 {
        return Err(BinaryError::ForeignMachine(path.to_owned()));
    }
    let (programs, program_count) = (header.e_phoff(endian), header.e_phnum(endian));
    let (sections, section_count) = (header.e_shoff(endian), header.e_shnum(endian));
    let table_end = |offset: u64, count: u16, size: usize| {
        offset.saturating_add(u64::from(count) * size as u64)
    };
    let tables = [
        table_end(
            programs,
            program_count,
            size_of::<ProgramHeader64<LittleEndian>>(),
        ),
        table_end(
            sections,
            section_count,
            size_of::<SectionHeader64<LittleEndian>>(),
        ),
    ];
    // A table behind the end of the file has no readable headers.
    let segments: &[ProgramHeader64<LittleEndian>] = (&data)
        .read_slice_at(programs, program_count.into())
        .unwrap_or_default();
    let sections: &[SectionHeader64<LittleEndian>] = (&data)
        .read_slice_at(sections, section_count.into())
        .unwrap_or_default();
    let ranges = (segments.iter().map(|segment| segment.file_range(endian))).chain(
        sections
            .iter()
            .filter_map(|section| section.file_range(endian)),
    );
    let ends = ranges.map(|(offset, size)| offset.saturating_add(size));
    truncated_if_below(tables.into_iter().chain(ends).max().unwrap_or_default())?;
    // The kernel uses the first interpreter, too. The header states its length, so the path is read
    // up to its maximum length only.
    let loader = segments
        .iter()
        .find(|segment| segment.p_type(endian) == PT_INTERP);
    let loader = loader.and_then(|segment| {
        let (offset, size) = segment.file_range(endian);
        let name = (&data).read_bytes_at(offset, size.min(MAX_LOADER_PATH));
        name.ok()?.split(|byte| *byte == 0).next()
    });
    Ok(loader.map(<[u8]>::to_vec))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn program(bytes: &[u8]) -> (tempfile::TempDir, PathBuf) {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("program");
        fs::write(&path, bytes).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        (directory, path)
    }

    #[test]
    fn find_executable_own_program_is_found() {
        let own = std::env::current_exe().unwrap();
        assert_eq!(find_executable(&own).unwrap(), own.canonicalize().unwrap());
    }

    #[test]
    fn find_executable_truncated_program_returns_sizes() {
        let own = fs::read(std::env::current_exe().unwrap()).unwrap();
        for length in [20, 100, own.len() / 2, own.len() - 1] {
            let (_directory, path) = program(&own[..length]);
            let error = find_executable(&path).unwrap_err();
            let BinaryError::Truncated {
                found, required, ..
            } = error
            else {
                panic!("{length}: {error}");
            };
            assert_eq!(found, length as u64);
            let whole = if length < 64 { 64 } else { own.len() as u64 };
            assert!(required.abs_diff(whole) < 8, "{length}: {required}");
        }
    }

    #[test]
    fn find_executable_other_processor_returns_error() {
        let mut own = fs::read(std::env::current_exe().unwrap()).unwrap();
        own[18..20].copy_from_slice(&8_u16.to_le_bytes());
        let (_directory, path) = program(&own);
        let error = find_executable(&path).unwrap_err();
        assert!(matches!(error, BinaryError::ForeignMachine(_)), "{error}");
    }

    #[test]
    fn find_executable_script_needs_its_interpreter() {
        let (_directory, path) = program(b"#! /bin/sh -e\n");
        assert!(find_executable(&path).is_ok());
        let (_directory, path) = program(b"#!/missing/sh\n");
        let error = find_executable(&path).unwrap_err();
        assert!(
            error
                .to_string()
                .ends_with("it needs /missing/sh, which does not exist")
        );
        let (_directory, path) = program(b"\x7fEL");
        let error = find_executable(&path).unwrap_err();
        assert!(matches!(error, BinaryError::NotAProgram(_)), "{error}");
    }

    /// Returns an ELF file whose program headers are interpreters in these ranges.
    fn elf_with_interpreters(ranges: &[(u64, u64)]) -> Vec<u8> {
        let mut bytes = vec![0; 64];
        bytes[..7].copy_from_slice(b"\x7fELF\x02\x01\x01");
        bytes[16..18].copy_from_slice(&2_u16.to_le_bytes());
        bytes[18..20].copy_from_slice(&HOST_MACHINE.0.0.to_le_bytes());
        bytes[20..24].copy_from_slice(&1_u32.to_le_bytes());
        bytes[32..40].copy_from_slice(&64_u64.to_le_bytes());
        bytes[52..54].copy_from_slice(&64_u16.to_le_bytes());
        bytes[54..56].copy_from_slice(&56_u16.to_le_bytes());
        let count = u16::try_from(ranges.len()).unwrap();
        bytes[56..58].copy_from_slice(&count.to_le_bytes());
        for (offset, size) in ranges {
            let mut header = [0; 56];
            header[..4].copy_from_slice(&PT_INTERP.0.to_le_bytes());
            header[8..16].copy_from_slice(&offset.to_le_bytes());
            header[32..40].copy_from_slice(&size.to_le_bytes());
            bytes.extend(header);
        }
        bytes
    }

    #[test]
    fn find_executable_huge_interpreter_is_read_partly() {
        const HUGE: u64 = 1 << 40;
        let mut bytes = elf_with_interpreters(&[(4096, HUGE - 4096), (64, 8)]);
        bytes.resize(4096, 0);
        bytes.extend(b"/no/such/loader\0");
        let (_directory, path) = program(&bytes);
        // The rest of the file is a hole.
        let file = File::options().write(true).open(&path).unwrap();
        file.set_len(HUGE).unwrap();
        let found = find_executable(&path).map_err(|error| error.to_string());
        let error = found.expect_err("the loader does not exist");
        assert!(error.contains("/no/such/loader"), "{error}");
    }
}
