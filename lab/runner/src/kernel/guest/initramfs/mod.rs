//! Root file system of a guest, as an archive that the kernel unpacks.

mod elf;
mod host_file;
mod script;
pub(crate) mod userland;

use std::collections::BTreeMap;
use std::io::{self, Write};

use cpio::newc::{Builder, trailer};

/// Object in the file system of a guest.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum FileNode {
    /// Directory with mode 0755.
    Directory,
    /// Symbolic link with this target.
    Link(String),
    /// File of root.
    File {
        /// Contents of the file.
        bytes: Vec<u8>,
        /// Permission bits.
        mode: u32,
    },
    /// Character device with mode 0600.
    Device {
        /// Major number of the device.
        major: u32,
        /// Minor number of the device.
        minor: u32,
    },
}

/// File system: objects by path. Paths are relative to the root, without a leading slash. Their
/// order places directories before their contents.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Files(BTreeMap<String, FileNode>);

impl Files {
    /// Adds an object at a path, and the missing directories above it. An existing object is kept.
    pub(super) fn add(&mut self, path: &str, node: FileNode) {
        let path = path.trim_matches('/');
        for (index, _) in path.match_indices('/') {
            self.0
                .entry(path[..index].to_owned())
                .or_insert(FileNode::Directory);
        }
        if !path.is_empty() {
            self.0.entry(path.to_owned()).or_insert(node);
        }
    }

    /// Whether an object exists at a path.
    pub(super) fn has(&self, path: &str) -> bool {
        self.0.contains_key(path.trim_matches('/'))
    }

    /// Writes the archive in the format that Linux reads
    /// (`Documentation/driver-api/early-userspace/buffer-format.rst`). Archives that are written in
    /// sequence form one file system.
    pub(super) fn write(&self, out: impl Write) -> io::Result<()> {
        let mut out = out;
        for (inode, (path, node)) in self.0.iter().enumerate() {
            // The kernel treats files with links and equal inode numbers as one file.
            let builder = Builder::new(path)
                .ino(u32::try_from(inode).map_err(io::Error::other)?)
                .nlink(1);
            let (builder, bytes): (_, &[u8]) = match node {
                FileNode::Directory => (builder.mode(0o040_755).nlink(2), &[]),
                FileNode::Link(target) => (builder.mode(0o120_777), target.as_bytes()),
                FileNode::File { bytes, mode } => (builder.mode(0o100_000 | mode), bytes),
                FileNode::Device { major, minor } => (
                    builder
                        .mode(0o020_600)
                        .rdev_major(*major)
                        .rdev_minor(*minor),
                    &[],
                ),
            };
            let length = u32::try_from(bytes.len()).map_err(io::Error::other)?;
            let mut writer = builder.write(out, length);
            writer.write_all(bytes)?;
            out = writer.finish()?;
        }
        trailer(out)?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use cpio::NewcReader;
    use std::io::Read as _;

    #[test]
    fn archive_has_directories_before_their_contents() {
        let mut files = Files::default();
        let file = |bytes: &[u8], mode| FileNode::File {
            bytes: bytes.to_vec(),
            mode,
        };
        files.add("/usr/sbin/ipset", file(b"ELF", 0o750));
        files.add("sbin", FileNode::Link("usr/sbin".to_owned()));
        files.add("dev/console", FileNode::Device { major: 5, minor: 1 });
        files.add("/usr/sbin/ipset", file(b"another", 0o755));
        let mut bytes = Vec::new();
        files.write(&mut bytes).unwrap();
        let mut rest = bytes.as_slice();
        let mut entries = Vec::new();
        loop {
            let mut entry = NewcReader::new(rest).unwrap();
            if entry.entry().is_trailer() {
                break;
            }
            let mut contents = String::new();
            entry.read_to_string(&mut contents).unwrap();
            let (name, mode) = (entry.entry().name().to_owned(), entry.entry().mode());
            entries.push(format!("{mode:06o} {name} {contents}").trim().to_owned());
            rest = entry.finish().unwrap();
        }
        assert_eq!(
            entries,
            [
                "040755 dev",
                "020600 dev/console",
                "120777 sbin usr/sbin",
                "040755 usr",
                "040755 usr/sbin",
                "100750 usr/sbin/ipset ELF",
            ]
        );
    }
}
