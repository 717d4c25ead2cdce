//! Kernel in the form that guests boot: its file, an archive of its modules, and its metadata.

mod modinfo;
pub(super) mod package;
pub(super) mod tree;

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::cache::Cache;
use super::initramfs::{FileNode, Files};
use crate::kernel::error::guest::GuestError;
use crate::kernel::requirements::{ModuleLists, Modules};
use svclab_agent::MODULES_DIR;

/// Version of the format of a kernel's entry. An entry of another version is outdated.
pub(super) const FORMAT_VERSION: u32 = 3;

/// File name of the kernel in an entry.
pub(super) const KERNEL_FILE: &str = "vmlinuz";

/// File name of the archive of modules in an entry.
pub(super) const ARCHIVE_FILE: &str = "modules.cpio";

/// File name of the list of module aliases.
const ALIASES_FILE: &str = "modules.alias";

/// File name of the list of built-in modules.
const BUILT_IN_FILE: &str = "modules.builtin";

/// Metadata of a kernel in the cache.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Image {
    /// Version of the format of the entry.
    pub format: u32,
    /// Release of the kernel: `6.12.117+deb12-cloud-amd64`.
    pub release: String,
    /// Origin of the kernel: a package and its version, or a file.
    pub from: String,
    /// Whether the kernel is the user's own and not the distribution's.
    pub own: bool,
    /// Names of the modules that it loads at boot.
    pub modules: Vec<String>,
}

/// Creates the files of a kernel's entry in a directory, from the kernel file and the directory of
/// its modules (`/lib/modules/RELEASE`). Returns the release and the names of the modules.
pub(super) fn create_files(
    cache: &Cache,
    kernel: &Path,
    modules: &Path,
    directory: &Path,
) -> Result<(String, Vec<String>), GuestError> {
    let unreadable = |error: io::Error| GuestError::InvalidImage {
        file: kernel.to_owned(),
        reason: error.to_string(),
    };
    let bytes = fs::read(kernel).map_err(unreadable)?;
    let release = release(&bytes).ok_or_else(|| GuestError::InvalidImage {
        file: kernel.to_owned(),
        reason: "not a Linux kernel for this processor".to_owned(),
    })?;
    let loaded = tree::needed_modules(modules)?;
    let mut files = Files::default();
    for (index, module) in loaded.iter().enumerate() {
        files.add(
            &format!("{MODULES_DIR}/{index:04}-{}.ko", module.name),
            FileNode::File {
                bytes: module.bytes.clone(),
                mode: 0o755,
            },
        );
    }
    let mut archive = Vec::new();
    let result = files
        .write(&mut archive)
        .and_then(|()| fs::write(directory.join(ARCHIVE_FILE), archive))
        .and_then(|()| fs::write(directory.join(KERNEL_FILE), bytes))
        .and_then(|()| fs::write(directory.join(ALIASES_FILE), tree::alias_list(&loaded)))
        .and_then(|()| {
            // A kernel without a list of built-in modules gets an empty list.
            let list = fs::read(modules.join(BUILT_IN_FILE)).unwrap_or_default();
            fs::write(directory.join(BUILT_IN_FILE), list)
        });
    result.map_err(cache.error_of("store a kernel"))?;
    let names = loaded.into_iter().map(|module| module.name).collect();
    Ok((release, names))
}

/// Returns the modules of a guest with this kernel: those that it loads at boot, and the built-in
/// modules. The guest loads no module later.
pub(super) fn modules(image: &Image, directory: &Path) -> Modules {
    let list = |name: &str| fs::read_to_string(directory.join(name)).ok();
    let lines: Vec<String> = image
        .modules
        .iter()
        .map(|name| format!("{name} 0 0 - Live 0x0\n"))
        .collect();
    let loaded = lines.concat();
    Modules::new(&ModuleLists {
        release: image.release.clone(),
        loaded: Some(loaded),
        in_sysfs: Vec::new(),
        dep: Some(String::new()),
        alias: list(ALIASES_FILE),
        builtin: list(BUILT_IN_FILE),
        builtin_info: None,
        is_loading_disabled: true,
    })
}

/// Returns the release that a kernel file contains. `None` if the file is not a kernel.
///
/// A `bzImage` has a pointer to the release (Linux v6.12, `Documentation/arch/x86/boot.rst`,
/// `kernel_version`). A `vmlinux` contains the line that the kernel prints first.
pub(super) fn release(kernel: &[u8]) -> Option<String> {
    const BANNER: &[u8] = b"Linux version ";
    let text = if kernel.get(0x202..0x206) == Some(b"HdrS") {
        let low = usize::from(*kernel.get(0x20e)?);
        let high = usize::from(*kernel.get(0x20f)?);
        kernel.get(0x200 + low + (high << 8)..)?
    } else if kernel.starts_with(b"\x7fELF") {
        let index = kernel
            .windows(BANNER.len())
            .position(|window| window == BANNER)?;
        &kernel[index + BANNER.len()..]
    } else {
        return None;
    };
    let end = text.iter().position(|byte| matches!(byte, 0 | b' '))?;
    let release = std::str::from_utf8(&text[..end]).ok()?;
    (!release.is_empty() && release.len() < 65).then(|| release.to_owned())
}

/// Returns the directory of the modules of a release. Searches at and below `named` if the user
/// names a directory, else in the usual places.
pub(super) fn find_modules(
    user_directory: Option<&Path>,
    kernel: &Path,
    release: &str,
) -> Option<PathBuf> {
    let mut candidates: Vec<PathBuf> = Vec::new();
    if let Some(named) = user_directory {
        candidates.push(named.to_owned());
        for below in ["", "lib/modules", "usr/lib/modules"] {
            candidates.push(named.join(below).join(release));
        }
    } else {
        // Location in an unpacked package, relative to its `boot`.
        if let Some(root) = kernel.parent().and_then(Path::parent) {
            candidates.push(root.join("lib/modules").join(release));
            candidates.push(root.join("usr/lib/modules").join(release));
        }
        candidates.push(Path::new("/lib/modules").join(release));
    }
    candidates
        .into_iter()
        .find(|place| place.join("kernel").is_dir())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn release_is_read_from_kernel_file() {
        let mut image = vec![0; 0x400];
        image[0x202..0x206].copy_from_slice(b"HdrS");
        image[0x20e..0x210].copy_from_slice(&0x110_u16.to_le_bytes());
        let text = b"6.1.0-56-cloud-amd64 (debian) #1 SMP\0";
        image[0x310..0x310 + text.len()].copy_from_slice(text);
        assert_eq!(release(&image).as_deref(), Some("6.1.0-56-cloud-amd64"));
        // The pointer is beyond the end of the file.
        image[0x20f] = 0xff;
        assert_eq!(release(&image), None);
        let mut elf = b"\x7fELF and more".to_vec();
        assert_eq!(release(&elf), None);
        elf.extend(b"Linux version 6.12.9 (x@y) \0");
        assert_eq!(release(&elf).as_deref(), Some("6.12.9"));
        assert_eq!(release(b"#!/bin/sh"), None);
    }

    #[test]
    fn find_modules_searches_packages_and_user_directories() {
        let root = tempfile::tempdir().unwrap();
        let modules = root.path().join("lib/modules/6.1.0");
        fs::create_dir_all(modules.join("kernel")).unwrap();
        let kernel = root.path().join("boot/vmlinuz-6.1.0");
        let found = |named: Option<&Path>| find_modules(named, &kernel, "6.1.0");
        assert_eq!(found(None).as_ref(), Some(&modules));
        assert_eq!(found(Some(&modules)).as_ref(), Some(&modules));
        assert_eq!(found(Some(root.path())).as_ref(), Some(&modules));
        let above = modules.parent().unwrap();
        assert_eq!(found(Some(above)).as_ref(), Some(&modules));
        assert_eq!(found(Some(Path::new("/nowhere"))), None);
        assert_eq!(find_modules(None, Path::new("vmlinuz"), "0.0.0"), None);
    }
}
