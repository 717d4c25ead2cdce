//! Reads the loader and the libraries that a program needs to start from its ELF file.

use std::path::{Path, PathBuf};

use object::elf::{DT_NEEDED, DT_RPATH, DT_RUNPATH, FileHeader64};
use object::read::elf::{Dyn as _, FileHeader as _, ProgramHeader as _};

/// Dependencies of a program or library.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Dependencies {
    /// Absolute paths of the loader, or of the interpreters of a script. Empty for a library or a
    /// static program.
    pub programs: Vec<PathBuf>,
    /// File names of the libraries.
    pub libraries: Vec<String>,
    /// Directories that the loader searches first. `$ORIGIN` is replaced by the directory of the
    /// file.
    pub paths: Vec<PathBuf>,
}

/// Reads the dependencies of an ELF file. `file` is its path.
pub(super) fn dependencies(file: &Path, bytes: &[u8]) -> Result<Dependencies, object::Error> {
    let header = FileHeader64::<object::Endianness>::parse(bytes)?;
    let endian = header.endian()?;
    let mut dependencies = Dependencies::default();
    for segment in header.program_headers(endian, bytes)? {
        if let Some(loader) = segment.interpreter(endian, bytes)? {
            let loader = PathBuf::from(String::from_utf8_lossy(loader).as_ref());
            dependencies.programs.push(loader);
        }
    }
    let sections = header.sections(endian, bytes)?;
    let Some((entries, link)) = sections.dynamic(endian, bytes)? else {
        return Ok(dependencies);
    };
    let strings = sections.strings(endian, bytes, link)?;
    let origin = file.parent().unwrap_or(Path::new("/")).to_string_lossy();
    for entry in entries {
        let tag = entry.tag(endian);
        if tag == DT_NEEDED || tag == DT_RPATH || tag == DT_RUNPATH {
            let text = String::from_utf8_lossy(entry.string(endian, strings)?).into_owned();
            if tag == DT_NEEDED {
                dependencies.libraries.push(text);
            } else {
                dependencies.paths.extend(
                    text.split(':')
                        .filter(|path| !path.is_empty())
                        .map(|path| {
                            path.replace("$ORIGIN", &origin)
                                .replace("${ORIGIN}", &origin)
                        })
                        .map(PathBuf::from),
                );
            }
        }
    }
    Ok(dependencies)
}

/// Returns the part of an ELF file that is loaded to run it. The data at the end that only
/// debuggers and linkers read is removed.
pub(super) fn loaded_part(bytes: &[u8]) -> Result<Vec<u8>, object::Error> {
    let header = FileHeader64::<object::Endianness>::parse(bytes)?;
    let endian = header.endian()?;
    let headers = header.program_headers(endian, bytes)?;
    let end = headers
        .iter()
        .map(|segment| {
            let (start, length) = segment.file_range(endian);
            start.saturating_add(length)
        })
        .max()
        .unwrap_or(0);
    let end = usize::try_from(end).unwrap_or(usize::MAX).min(bytes.len());
    let mut part = bytes[..end].to_vec();
    // Clears `e_shoff`, and `e_shnum` and `e_shstrndx` at the end of the header, because no section
    // is left (System V ABI, ELF-64 header).
    if sections_lie_beyond(header.e_shoff.get(endian), end) {
        part[0x28..0x30].fill(0);
        part[0x3c..0x40].fill(0);
    }
    Ok(part)
}

fn sections_lie_beyond(table: u64, end: usize) -> bool {
    usize::try_from(table).is_ok_and(|table| table >= end)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::io;
    use std::process::Command;

    #[test]
    fn dependencies_program_has_loader_and_libraries() {
        let program = std::env::current_exe().unwrap();
        let dependencies = dependencies(&program, &fs::read(&program).unwrap()).unwrap();
        assert!(dependencies.programs[0].exists());
        assert!(
            dependencies
                .libraries
                .iter()
                .any(|name| name.starts_with("libc.so")),
            "{:?}",
            dependencies.libraries
        );
    }

    #[test]
    fn loaded_part_of_program_still_runs() {
        let program = fs::read(std::env::current_exe().unwrap()).unwrap();
        let part = loaded_part(&program).unwrap();
        assert!(part.len() < program.len());
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("part");
        fs::copy(std::env::current_exe().unwrap(), &path).unwrap();
        fs::write(&path, part).unwrap();
        let run = || Command::new(&path).arg("--list").output();
        let is_busy = |error: &io::Error| error.kind() == io::ErrorKind::ExecutableFileBusy;
        // A child that another test forked has the file open until it executes its program.
        let listed = loop {
            match run() {
                Err(error) if is_busy(&error) => std::thread::yield_now(),
                ended => break ended.unwrap(),
            }
        };
        assert!(listed.status.success());
        assert!(
            String::from_utf8_lossy(&listed.stdout).contains("loaded_part_of_program_still_runs")
        );
    }

    #[test]
    fn dependencies_script_returns_error() {
        assert!(dependencies(Path::new("/bin/x"), b"#!/bin/sh\nexit 0\n").is_err());
    }
}
