//! Reads which kernel modules and programs this machine has. Never makes the kernel load a module.

use std::fs;
use std::path::{Path, PathBuf};

use crate::kernel::requirements::ModuleLists;

/// Reads the lists of this machine. A list that cannot be read counts as missing.
pub(crate) fn read_lists() -> ModuleLists {
    let release = nix::sys::utsname::uname()
        .map(|name| name.release().to_string_lossy().into_owned())
        .unwrap_or_default();
    let directory = module_directory(&release);
    let list = |name: &str| read_text(&directory.as_ref()?.join(name));
    ModuleLists {
        loaded: read_text(Path::new("/proc/modules")),
        in_sysfs: read_names(Path::new("/sys/module"))
            .into_iter()
            .chain(modules_in_proc())
            .collect(),
        dep: list("modules.dep"),
        alias: list("modules.alias"),
        builtin: list("modules.builtin"),
        builtin_info: list("modules.builtin.modinfo"),
        is_loading_disabled: read_text(Path::new("/proc/sys/kernel/modules_disabled"))
            .is_some_and(|text| text.trim() == "1"),
        release,
    }
}

/// Returns the built-in modules that are visible in `/proc`. A built-in module without parameters
/// is not in `/sys/module`. In a container without `/lib/modules`, only `/proc` shows such a
/// module.
fn modules_in_proc() -> impl Iterator<Item = String> {
    // Linux v6.12, `net/packet/af_packet.c`, `packet_net_init`.
    [("/proc/net/packet", "af_packet")]
        .into_iter()
        .filter(|(path, _)| Path::new(path).exists())
        .map(|(_, module)| module.to_owned())
}

/// Returns the directory in which `depmod` keeps the lists of a kernel release.
fn module_directory(release: &str) -> Option<PathBuf> {
    [
        "/lib/modules",
        "/usr/lib/modules",
        "/run/booted-system/kernel-modules/lib/modules",
    ]
    .into_iter()
    .map(|base| Path::new(base).join(release))
    .find(|path| path.is_dir())
}

/// Reads a list. Lists contain ASCII; other bytes are part of no name.
fn read_text(path: &Path) -> Option<String> {
    let bytes = fs::read(path).ok()?;
    Some(String::from_utf8_lossy(&bytes).into_owned())
}

fn read_names(path: &Path) -> Vec<String> {
    fs::read_dir(path)
        .into_iter()
        .flatten()
        .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
        .collect()
}

/// Whether the agent finds a program.
pub(crate) fn has_program(name: &str) -> bool {
    use std::os::unix::fs::PermissionsExt as _;
    svclab_agent::find_program(name).is_some_and(|path| {
        fs::metadata(path)
            .is_ok_and(|found| found.is_file() && found.permissions().mode() & 0o111 != 0)
    })
}
