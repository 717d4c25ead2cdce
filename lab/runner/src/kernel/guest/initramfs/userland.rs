//! Collects the programs of a guest: those of this machine that labs need, with their libraries, at
//! their paths here, and svclab's agent as init.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Component, Path, PathBuf};

use super::elf;
use crate::kernel::error::guest_files::UserlandError;
use crate::kernel::guest::initramfs::{FileNode, Files};
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
pub(crate) fn collect_files(
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
    let text = |text: &str| FileNode::File(text.as_bytes().to_vec());
    collector
        .files
        .add("etc/passwd", text("root:x:0:0:root:/:/bin/sh\n"));
    collector.files.add("etc/group", text("root:x:0:\n"));
    let (bytes, dependencies) = collector.read_program(svclab)?;
    collector.files.add(INIT, FileNode::File(bytes));
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

#[derive(Default)]
struct Collector {
    files: Files,
    sources: BTreeSet<PathBuf>,
}

impl Collector {
    /// Adds a program or library with all of its dependencies.
    fn add(&mut self, file: &Path) -> Result<(), UserlandError> {
        let target = self.resolve_links(file);
        if self.files.has(&target.to_string_lossy()) {
            return Ok(());
        }
        let (bytes, dependencies) = self.read_program(&target)?;
        self.files
            .add(&target.to_string_lossy(), FileNode::File(bytes));
        self.add_dependencies(&target, &dependencies)
    }

    /// Adds all dependencies of a program.
    fn add_dependencies(
        &mut self,
        file: &Path,
        dependencies: &elf::Dependencies,
    ) -> Result<(), UserlandError> {
        if let Some(loader) = &dependencies.loader {
            self.add(loader)?;
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
        let bytes = read_file(&target)?;
        self.sources.insert(target.clone());
        self.files
            .add(&target.to_string_lossy(), FileNode::File(bytes));
        Ok(())
    }

    fn read_program(&mut self, file: &Path) -> Result<(Vec<u8>, elf::Dependencies), UserlandError> {
        let bytes = read_file(file)?;
        self.sources.insert(file.to_owned());
        let invalid_elf = |source| UserlandError::Elf {
            file: file.to_owned(),
            source,
        };
        let dependencies = elf::dependencies(file, &bytes).map_err(invalid_elf)?;
        Ok((elf::loaded_part(&bytes).map_err(invalid_elf)?, dependencies))
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

fn read_file(file: &Path) -> Result<Vec<u8>, UserlandError> {
    fs::read(file).map_err(|source| UserlandError::Read {
        file: file.to_owned(),
        source,
    })
}

fn canonicalize(file: &Path) -> Result<PathBuf, UserlandError> {
    fs::canonicalize(file).map_err(|source| UserlandError::Read {
        file: file.to_owned(),
        source,
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
