//! Collects the programs of a guest: those of this machine that labs need, with their libraries, at
//! their paths here, and svclab's agent as init.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::{Component, Path, PathBuf};

use super::elf;
use super::initramfs::{Files, Node};
use svclab_model::plan::Backend;
use svclab_model::tools::iptables_program;

/// Path of the first program that the kernel starts.
pub const INIT: &str = "/init";

/// Tables in which programs look up names.
const TABLES: [&str; 5] = [
    "/etc/protocols",
    "/etc/services",
    "/etc/ethertypes",
    "/etc/ld.so.cache",
    "/etc/xtables/connlabel.conf",
];

/// Directories in which iptables searches its matches and targets, in addition to the directory of
/// its own library.
const EXTENSIONS: [&str; 6] = [
    "/usr/lib/x86_64-linux-gnu/xtables",
    "/usr/lib/aarch64-linux-gnu/xtables",
    "/usr/lib64/xtables",
    "/usr/lib/xtables",
    "/lib64/xtables",
    "/lib/xtables",
];

/// Directories in which the loader searches libraries by default.
const LIBRARIES: [&str; 8] = [
    "/lib/x86_64-linux-gnu",
    "/usr/lib/x86_64-linux-gnu",
    "/lib/aarch64-linux-gnu",
    "/usr/lib/aarch64-linux-gnu",
    "/lib64",
    "/usr/lib64",
    "/lib",
    "/usr/lib",
];

/// Reason why the programs of a guest cannot be collected.
#[derive(Debug, thiserror::Error)]
pub enum UserlandError {
    /// A file cannot be read.
    #[error("cannot read {}: {source}", file.display())]
    Read {
        /// Path of the file.
        file: PathBuf,
        source: io::Error,
    },
    /// A program or library is not a valid ELF file.
    #[error("{} is no program: {source}", file.display())]
    Elf {
        file: PathBuf,
        source: object::Error,
    },
    /// A library was not found.
    #[error("{} needs the library {library}, which is not in any of the usual directories", file.display())]
    NoLibrary {
        /// Path of the file that needs the library.
        file: PathBuf,
        /// File name of the library.
        library: String,
    },
}

/// Returns the file names of the programs that labs may need.
pub fn programs() -> impl Iterator<Item = String> {
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
#[must_use]
pub fn installed() -> Vec<PathBuf> {
    programs()
        .filter_map(|name| svclab_agent::find_program(&name))
        .collect()
}

/// Collects the files of a guest: svclab's agent as `/init`, `programs` at their paths, their
/// dependencies, and some tables. Returns the files, and every path of this machine whose contents
/// they contain.
///
/// # Errors
///
/// When a file cannot be read, or a library is missing.
pub fn gather(
    svclab: &Path,
    programs: &[PathBuf],
) -> Result<(Files, BTreeSet<PathBuf>), UserlandError> {
    let mut gathered = Gathered::default();
    for directory in ["proc", "sys", "dev", "run", "tmp", "etc"] {
        gathered.files.put(directory, Node::Directory);
    }
    gathered
        .files
        .put("dev/console", Node::Device { major: 5, minor: 1 });
    let text = |text: &str| Node::File(text.as_bytes().to_vec());
    gathered
        .files
        .put("etc/passwd", text("root:x:0:0:root:/:/bin/sh\n"));
    gathered.files.put("etc/group", text("root:x:0:\n"));
    let (bytes, wants) = gathered.program(svclab)?;
    gathered.files.put(INIT, Node::File(bytes));
    gathered.all_of(svclab, &wants)?;
    for program in programs {
        gathered.add(program)?;
    }
    for directory in EXTENSIONS.iter().map(Path::new) {
        gathered.extensions(directory)?;
    }
    for program in programs {
        // The extensions of an iptables outside /usr are below the parent of its own directory.
        if let Some(home) = real(program)?.parent().and_then(Path::parent) {
            gathered.extensions(&home.join("lib/xtables"))?;
        }
    }
    for table in TABLES.iter().map(Path::new).filter(|table| table.is_file()) {
        gathered.plain(table)?;
    }
    Ok((gathered.files, gathered.sources))
}

#[derive(Default)]
struct Gathered {
    files: Files,
    sources: BTreeSet<PathBuf>,
}

impl Gathered {
    /// Adds a program or library with all of its dependencies.
    fn add(&mut self, file: &Path) -> Result<(), UserlandError> {
        let target = self.way_to(file);
        if self.files.has(&target.to_string_lossy()) {
            return Ok(());
        }
        let (bytes, wants) = self.program(&target)?;
        self.files.put(&target.to_string_lossy(), Node::File(bytes));
        self.all_of(&target, &wants)
    }

    /// Adds all dependencies of a program.
    fn all_of(&mut self, file: &Path, wants: &elf::Wants) -> Result<(), UserlandError> {
        if let Some(loader) = &wants.loader {
            self.add(loader)?;
        }
        for library in &wants.libraries {
            let found = wants
                .paths
                .iter()
                .map(PathBuf::as_path)
                .chain(LIBRARIES.iter().map(Path::new))
                .map(|directory| directory.join(library))
                .chain(configured(library))
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
    fn extensions(&mut self, directory: &Path) -> Result<(), UserlandError> {
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
    fn plain(&mut self, file: &Path) -> Result<(), UserlandError> {
        let target = self.way_to(file);
        let bytes = read(&target)?;
        self.sources.insert(target.clone());
        self.files.put(&target.to_string_lossy(), Node::File(bytes));
        Ok(())
    }

    fn program(&mut self, file: &Path) -> Result<(Vec<u8>, elf::Wants), UserlandError> {
        let bytes = read(file)?;
        self.sources.insert(file.to_owned());
        let wrong = |source| UserlandError::Elf {
            file: file.to_owned(),
            source,
        };
        let wants = elf::wants(file, &bytes).map_err(wrong)?;
        Ok((elf::loaded_part(&bytes).map_err(wrong)?, wants))
    }

    /// Follows a path link by link, adds every link to the guest, and returns the final path.
    fn way_to(&mut self, path: &Path) -> PathBuf {
        let mut at = PathBuf::from("/");
        let mut parts: Vec<Component<'_>> = path.components().collect();
        parts.reverse();
        let mut left: Vec<PathBuf> = parts
            .iter()
            .map(|part| PathBuf::from(part.as_os_str()))
            .collect();
        // A circle of links cannot be read at the end. The kernel follows 40 links.
        let mut links = 0;
        while let Some(part) = left.pop() {
            match part.to_str() {
                Some("/") => at = PathBuf::from("/"),
                Some("..") => {
                    at.pop();
                }
                Some(".") => {}
                _ => {
                    let next = at.join(&part);
                    match fs::read_link(&next) {
                        Ok(target) if links < 40 => {
                            links += 1;
                            self.files.put(
                                &next.to_string_lossy(),
                                Node::Link(target.to_string_lossy().into_owned()),
                            );
                            let more: Vec<PathBuf> = target
                                .components()
                                .map(|part| PathBuf::from(part.as_os_str()))
                                .collect();
                            left.extend(more.into_iter().rev());
                        }
                        _ => at = next,
                    }
                }
            }
        }
        at
    }
}

fn read(file: &Path) -> Result<Vec<u8>, UserlandError> {
    fs::read(file).map_err(|source| UserlandError::Read {
        file: file.to_owned(),
        source,
    })
}

fn real(file: &Path) -> Result<PathBuf, UserlandError> {
    fs::canonicalize(file).map_err(|source| UserlandError::Read {
        file: file.to_owned(),
        source,
    })
}

/// Returns the paths that a library would have in the directories that `/etc/ld.so.conf.d` names.
fn configured(library: &str) -> Vec<PathBuf> {
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
