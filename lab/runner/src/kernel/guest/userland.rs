//! The programs a guest has: those of this machine that labs need, with their
//! libraries, at the paths where they lie here, and svclab itself as init.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::{Component, Path, PathBuf};

use super::elf;
use super::initramfs::{Files, Node};
use svclab_model::plan::Backend;
use svclab_model::tools::iptables_program;

/// Where the kernel finds its first program.
pub const INIT: &str = "/init";

/// Tables that programs look names up in.
const TABLES: [&str; 5] = [
    "/etc/protocols",
    "/etc/services",
    "/etc/ethertypes",
    "/etc/ld.so.cache",
    "/etc/xtables/connlabel.conf",
];

/// Where iptables looks for its matches and targets, besides the directory of
/// its own library.
const EXTENSIONS: [&str; 6] = [
    "/usr/lib/x86_64-linux-gnu/xtables",
    "/usr/lib/aarch64-linux-gnu/xtables",
    "/usr/lib64/xtables",
    "/usr/lib/xtables",
    "/lib64/xtables",
    "/lib/xtables",
];

/// Where the loader looks for libraries when nothing says otherwise.
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

/// Why a guest's programs cannot be put together.
#[derive(Debug, thiserror::Error)]
pub enum UserlandError {
    /// A file cannot be read.
    #[error("cannot read {}: {source}", file.display())]
    Read {
        /// The file.
        file: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// A program or library is none.
    #[error("{} is no program: {source}", file.display())]
    Elf {
        /// The file.
        file: PathBuf,
        /// What is wrong with it.
        source: object::Error,
    },
    /// A library is nowhere to be found.
    #[error("{} needs the library {library}, which is not in any of the usual directories", file.display())]
    NoLibrary {
        /// Who needs it.
        file: PathBuf,
        /// Which it is.
        library: String,
    },
}

/// The programs that labs may need, by file name.
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

/// Where each of those programs lies, as the agent would find them; those that
/// this machine lacks are left out.
#[must_use]
pub fn installed() -> Vec<PathBuf> {
    programs()
        .filter_map(|name| svclab_agent::find_program(&name))
        .collect()
}

/// The files of a guest: svclab's own program as `/init`, `programs` where they
/// lie, what they need to start, and a few tables. Besides the files, every
/// path of this machine whose contents went into them.
///
/// # Errors
///
/// A file that cannot be read, or a library that is not there.
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
        // Where iptables is not at home under /usr: beside its own directory.
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
    /// Adds a program or library with all that it needs.
    fn add(&mut self, file: &Path) -> Result<(), UserlandError> {
        let target = self.way_to(file);
        if self.files.has(&target.to_string_lossy()) {
            return Ok(());
        }
        let (bytes, wants) = self.program(&target)?;
        self.files.put(&target.to_string_lossy(), Node::File(bytes));
        self.all_of(&target, &wants)
    }

    /// Adds all that a program needs.
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

    /// Adds every extension of iptables in a directory, if there is one.
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

    /// Adds a file that is no program.
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

    /// Follows a path link by link, puts every link on the way into the guest,
    /// and returns where it ends.
    fn way_to(&mut self, path: &Path) -> PathBuf {
        let mut at = PathBuf::from("/");
        let mut parts: Vec<Component<'_>> = path.components().collect();
        parts.reverse();
        let mut left: Vec<PathBuf> = parts
            .iter()
            .map(|part| PathBuf::from(part.as_os_str()))
            .collect();
        // A circle of links cannot be read in the end; the kernel follows 40.
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

/// Where a library would lie in the directories that `/etc/ld.so.conf.d` names.
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
