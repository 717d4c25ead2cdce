//! Collects the programs of a guest: those of this machine that labs need, with their libraries, at
//! their paths here, and svclab's agent as init.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Component, Path, PathBuf};

use super::host_file::{self, HostFile};
use super::{elf, script};
use crate::kernel::error::guest_files::UserlandError;
use crate::kernel::guest::initramfs::{FileNode, Files};
use svclab_agent::rootfs::VISIBLE_PATHS;
use svclab_model::plan::Backend;
use svclab_model::tools::iptables_program;

/// Path of the first program that the kernel starts.
pub(crate) const INIT: &str = "/init";

/// Tables in which programs look up names.
const NAME_TABLES: [&str; 5] = [
    "/etc/protocols",
    "/etc/services",
    "/etc/ethertypes",
    "/etc/ld.so.cache",
    "/etc/xtables/connlabel.conf",
];

/// Directories in which iptables searches its matches and targets, in addition to the directory of
/// its own library.
const EXTENSION_DIRECTORIES: [&str; 6] = [
    "/usr/lib/x86_64-linux-gnu/xtables",
    "/usr/lib/aarch64-linux-gnu/xtables",
    "/usr/lib64/xtables",
    "/usr/lib/xtables",
    "/lib64/xtables",
    "/lib/xtables",
];

/// Directories in which the loader searches libraries by default.
const LIBRARY_DIRECTORIES: [&str; 8] = [
    "/lib/x86_64-linux-gnu",
    "/usr/lib/x86_64-linux-gnu",
    "/lib/aarch64-linux-gnu",
    "/usr/lib/aarch64-linux-gnu",
    "/lib64",
    "/usr/lib64",
    "/lib",
    "/usr/lib",
];

/// Returns the file names of the programs that labs may need.
pub(crate) fn lab_programs() -> impl Iterator<Item = String> {
    let iptables = [Backend::Nft, Backend::Legacy]
        .into_iter()
        .flat_map(|backend| {
            [4, 6].into_iter().flat_map(move |family| {
                ["restore", "save"].map(|verb| iptables_program(family, backend, verb))
            })
        });
    iptables.chain(["ipset", "nft"].map(str::to_owned))
}

/// Returns the paths of these programs, as the agent finds them. Programs that this machine lacks
/// are omitted.
pub(crate) fn installed_programs() -> Vec<PathBuf> {
    lab_programs()
        .filter_map(|name| svclab_agent::find_program(&name))
        .collect()
}

/// Collects the files of a guest: svclab's agent as `/init`, `programs` at their paths, their
/// dependencies, and some tables. Returns the files, and every path of this machine whose contents
/// they contain.
pub(in crate::kernel::guest) fn collect_files(
    svclab: &Path,
    programs: &[PathBuf],
) -> Result<(Files, BTreeSet<PathBuf>), UserlandError> {
    let mut collector = Collector::default();
    for directory in ["proc", "sys", "dev", "run", "tmp", "etc"] {
        collector.files.add(directory, FileNode::Directory);
    }
    collector
        .files
        .add("dev/console", FileNode::Device { major: 5, minor: 1 });
    let text = |text: &str| FileNode::File {
        bytes: text.as_bytes().to_vec(),
        mode: 0o644,
    };
    collector
        .files
        .add("etc/passwd", text("root:x:0:0:root:/:/bin/sh\n"));
    collector.files.add("etc/group", text("root:x:0:\n"));
    let (HostFile { bytes, .. }, dependencies) = collector.read_program(svclab)?;
    let mode = 0o755;
    collector.files.add(INIT, FileNode::File { bytes, mode });
    collector.add_dependencies(svclab, &dependencies)?;
    for program in programs {
        collector.add(program)?;
    }
    for directory in EXTENSION_DIRECTORIES.iter().map(Path::new) {
        collector.add_extensions(directory)?;
    }
    for program in programs {
        // The extensions of an iptables outside /usr are below the parent of its own directory.
        if let Some(prefix) = canonicalize(program)?.parent().and_then(Path::parent) {
            collector.add_extensions(&prefix.join("lib/xtables"))?;
        }
    }
    for table in NAME_TABLES
        .iter()
        .map(Path::new)
        .filter(|table| table.is_file())
    {
        collector.add_plain_file(table)?;
    }
    Ok((collector.files, collector.sources))
}

/// Checks that a guest can contain programs. `typed` are the programs of commands: as on the host,
/// programs of the system.
///
/// # Errors
///
/// When a program or a dependency cannot be collected.
pub(crate) fn check_programs<'p>(
    typed: impl IntoIterator<Item = &'p PathBuf>,
    programs: impl IntoIterator<Item = &'p PathBuf>,
) -> Result<(), UserlandError> {
    let mut collector = Collector::default();
    for program in typed {
        let target = canonicalize(program)?;
        if !VISIBLE_PATHS.iter().any(|path| target.starts_with(path)) {
            return Err(UserlandError::NotOfSystem(program.to_owned()));
        }
        collector.add(program)?;
    }
    programs
        .into_iter()
        .try_for_each(|program| collector.add(program))
}

#[derive(Default)]
struct Collector {
    files: Files,
    sources: BTreeSet<PathBuf>,
}

impl Collector {
    /// Adds a program, script or library with all of its dependencies.
    fn add(&mut self, file: &Path) -> Result<(), UserlandError> {
        let target = self.resolve_links(file);
        if self.files.has(&target.to_string_lossy()) {
            return Ok(());
        }
        let (HostFile { bytes, mode }, dependencies) = self.read_program(&target)?;
        self.files
            .add(&target.to_string_lossy(), FileNode::File { bytes, mode });
        self.add_dependencies(&target, &dependencies)
    }

    /// Adds all dependencies of a program.
    fn add_dependencies(
        &mut self,
        file: &Path,
        dependencies: &elf::Dependencies,
    ) -> Result<(), UserlandError> {
        for program in &dependencies.programs {
            self.add(program)?;
        }
        for library in &dependencies.libraries {
            let found = dependencies
                .paths
                .iter()
                .map(PathBuf::as_path)
                .chain(LIBRARY_DIRECTORIES.iter().map(Path::new))
                .map(|directory| directory.join(library))
                .chain(configured_paths(library))
                .find(|path| path.is_file())
                .ok_or_else(|| UserlandError::NoLibrary {
                    file: file.to_owned(),
                    library: library.clone(),
                })?;
            self.add(&found)?;
        }
        Ok(())
    }

    /// Adds all extensions of iptables in a directory, if the directory exists.
    fn add_extensions(&mut self, directory: &Path) -> Result<(), UserlandError> {
        let Ok(entries) = fs::read_dir(directory) else {
            return Ok(());
        };
        self.sources.insert(directory.to_owned());
        let mut files: Vec<PathBuf> = entries
            .filter_map(|entry| Some(entry.ok()?.path()))
            .filter(|path| path.extension().is_some_and(|extension| extension == "so"))
            .collect();
        files.sort();
        files.iter().try_for_each(|file| self.add(file))
    }

    /// Adds a file that is not a program.
    fn add_plain_file(&mut self, file: &Path) -> Result<(), UserlandError> {
        let target = self.resolve_links(file);
        let HostFile { bytes, mode } = read_file(&target)?;
        self.sources.insert(target.clone());
        self.files
            .add(&target.to_string_lossy(), FileNode::File { bytes, mode });
        Ok(())
    }

    fn read_program(
        &mut self,
        file: &Path,
    ) -> Result<(HostFile, elf::Dependencies), UserlandError> {
        let HostFile { bytes, mode } = read_file(file)?;
        self.sources.insert(file.to_owned());
        if let Some(programs) = script::interpreters(&bytes) {
            let dependencies = elf::Dependencies {
                programs,
                ..elf::Dependencies::default()
            };
            return Ok((HostFile { bytes, mode }, dependencies));
        }
        let invalid_elf = |source| UserlandError::Elf {
            file: file.to_owned(),
            source,
        };
        let dependencies = elf::dependencies(file, &bytes).map_err(invalid_elf)?;
        let bytes = elf::loaded_part(&bytes).map_err(invalid_elf)?;
        Ok((HostFile { bytes, mode }, dependencies))
    }

    /// Follows a path link by link, adds every link to the guest, and returns the final path.
    fn resolve_links(&mut self, path: &Path) -> PathBuf {
        let mut resolved = PathBuf::from("/");
        let mut parts: Vec<Component<'_>> = path.components().collect();
        parts.reverse();
        let mut remaining: Vec<PathBuf> = parts
            .iter()
            .map(|part| PathBuf::from(part.as_os_str()))
            .collect();
        // A circle of links cannot be read at the end. The kernel follows 40 links.
        let mut links = 0;
        while let Some(part) = remaining.pop() {
            match part.to_str() {
                Some("/") => resolved = PathBuf::from("/"),
                Some("..") => {
                    resolved.pop();
                }
                Some(".") => {}
                _ => {
                    let next = resolved.join(&part);
                    match fs::read_link(&next) {
                        Ok(target) if links < 40 => {
                            links += 1;
                            self.files.add(
                                &next.to_string_lossy(),
                                FileNode::Link(target.to_string_lossy().into_owned()),
                            );
                            let target_parts: Vec<PathBuf> = target
                                .components()
                                .map(|part| PathBuf::from(part.as_os_str()))
                                .collect();
                            remaining.extend(target_parts.into_iter().rev());
                        }
                        _ => resolved = next,
                    }
                }
            }
        }
        resolved
    }
}

fn read_file(file: &Path) -> Result<HostFile, UserlandError> {
    host_file::read(file).map_err(|source| UserlandError::Read {
        file: file.to_owned(),
        source,
    })
}

fn canonicalize(file: &Path) -> Result<PathBuf, UserlandError> {
    fs::canonicalize(file).map_err(|source| UserlandError::Read {
        file: file.to_owned(),
        source: source.into(),
    })
}

/// Returns the paths that a library would have in the directories that `/etc/ld.so.conf.d` names.
fn configured_paths(library: &str) -> Vec<PathBuf> {
    fs::read_dir("/etc/ld.so.conf.d")
        .into_iter()
        .flatten()
        .filter_map(|entry| fs::read_to_string(entry.ok()?.path()).ok())
        .flat_map(|text| {
            text.lines()
                .map(str::trim)
                .filter(|line| line.starts_with('/'))
                .map(|directory| Path::new(directory).join(library))
                .collect::<Vec<_>>()
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt as _;

    #[test]
    fn collect_script_adds_interpreter_and_keeps_mode() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().canonicalize().unwrap().join("script");
        fs::write(&path, "#!/usr/bin/env sh\n").unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o4700)).unwrap();
        let mut collector = Collector::default();
        collector.add(&path).unwrap();
        let node = &collector.files.0[path.to_str().unwrap().trim_matches('/')];
        let bytes = b"#!/usr/bin/env sh\n".to_vec();
        assert_eq!(*node, FileNode::File { bytes, mode: 0o700 });
        for name in ["env", "sh"] {
            let program = svclab_agent::find_program(name).unwrap();
            let target = canonicalize(&program).unwrap();
            assert!(collector.files.has(&target.to_string_lossy()), "{name}");
        }
    }

    #[test]
    fn check_programs_typed_paths_are_of_the_system() {
        let directory = tempfile::tempdir().unwrap();
        let copy = directory.path().join("true");
        fs::copy("/usr/bin/true", &copy).unwrap();
        let check = |typed: &[PathBuf], programs: &[PathBuf]| {
            check_programs(typed, programs).map_err(|error| error.to_string())
        };
        assert_eq!(
            check(&["/usr/bin/true".into()], std::slice::from_ref(&copy)),
            Ok(())
        );
        let error = check(&[copy], &[]).unwrap_err();
        assert!(error.ends_with("is not a program of the system"), "{error}");
        let error = check(&["/dev/zero".into()], &[]).unwrap_err();
        insta::assert_snapshot!(error, @"/dev/zero is not a program of the system");
        let error = check(&[], &["/dev/zero".into()]).unwrap_err();
        insta::assert_snapshot!(error, @"cannot read /dev/zero: not a regular file but a device");
    }
}
