//! Builds the agent's root directory: the host's programs and their configuration, read-only, and
//! two small writable directories.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io;
use std::os::fd::AsRawFd as _;
use std::os::unix::ffi::OsStringExt as _;
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::mount::{MntFlags, MsFlags, mount, umount2};
use nix::sys::statvfs::{FsFlags, statvfs};
use nix::unistd::{chdir, pivot_root};

/// Path of the agent's own program in its root directory.
pub const AGENT_PATH: &str = "/svclab-agent";

/// Visible paths of the host: programs, their libraries, and the few configuration files under
/// `/etc` that programs read. Home directories and secrets are not visible.
pub const VISIBLE_PATHS: [&str; 16] = [
    "/usr",
    "/bin",
    "/sbin",
    "/lib",
    "/lib32",
    "/lib64",
    "/nix/store",
    "/etc/alternatives",
    "/etc/ethertypes",
    "/etc/ld.so.cache",
    "/etc/ld.so.conf",
    "/etc/ld.so.conf.d",
    "/etc/nsswitch.conf",
    "/etc/protocols",
    "/etc/services",
    "/etc/xtables",
];

/// Devices that programs require.
pub const DEVICES: [&str; 5] = [
    "/dev/null",
    "/dev/zero",
    "/dev/full",
    "/dev/random",
    "/dev/urandom",
];

/// Writable directories, each a small tmpfs.
const WRITABLE: [&str; 2] = ["/run", "/tmp"];

/// Builds a root directory with the host's programs and `programs`, and changes to it. All users
/// may write to its writable directories.
///
/// # Errors
///
/// When the kernel rejects a step. The error contains a description of the step, to follow "could
/// not".
pub fn build(programs: &[PathBuf]) -> Result<(), (String, Errno)> {
    let with_step = |step: &str| {
        let step = step.to_owned();
        move |errno| (step, errno)
    };
    mount(
        None::<&str>,
        "/",
        None::<&str>,
        MsFlags::MS_REC | MsFlags::MS_PRIVATE,
        None::<&str>,
    )
    .map_err(with_step("make the agent's mounts private"))?;
    let base = ["/tmp", "/run", "/mnt", "/var"]
        .into_iter()
        .map(Path::new)
        .find(|path| path.is_dir())
        .ok_or_else(|| {
            (
                "find a directory for the agent's root (/tmp, /run, /mnt or /var)".to_owned(),
                Errno::ENOENT,
            )
        })?;
    // The path of a program may be hidden by a later mount.
    let programs: Vec<(&Path, File)> = programs
        .iter()
        .filter_map(|program| Some((program.as_path(), File::open(program).ok()?)))
        .collect();
    // The path is read, because the link itself refers to a mount of another mount namespace.
    let agent_file = fs::read_link("/proc/self/exe").and_then(File::open).ok();
    mount(
        Some("svclab"),
        base,
        Some("tmpfs"),
        MsFlags::MS_NOSUID | MsFlags::MS_NODEV,
        Some("size=1m,mode=0755"),
    )
    .map_err(with_step("mount a tmpfs for the agent's root"))?;
    for shown in VISIBLE_PATHS.iter().map(Path::new) {
        expose(base, shown, shown, true).map_err(with_step(&format!(
            "make {} visible to the agent",
            shown.display()
        )))?;
    }
    for device in DEVICES.iter().map(Path::new) {
        expose(base, device, device, false).map_err(with_step(&format!(
            "make {} visible to the agent",
            device.display()
        )))?;
    }
    for directory in ["proc", "run", "tmp", "old"] {
        fs::create_dir_all(base.join(directory))
            .map_err(|error| to_errno(&error))
            .map_err(with_step("create the agent's directories"))?;
    }
    for writable in WRITABLE {
        mount(
            Some("svclab"),
            &base.join(writable.trim_start_matches('/')),
            Some("tmpfs"),
            MsFlags::MS_NOSUID | MsFlags::MS_NODEV | MsFlags::MS_NOEXEC,
            Some("size=16m,mode=1777"),
        )
        .map_err(with_step(&format!("mount {writable} for the agent")))?;
    }
    for (program, file) in &programs {
        let source = PathBuf::from(format!("/proc/self/fd/{}", file.as_raw_fd()));
        expose(base, program, &source, true).map_err(with_step(&format!(
            "make {} visible to the agent",
            program.display()
        )))?;
    }
    drop(programs);
    if let Some(own) = agent_file {
        let source = PathBuf::from(format!("/proc/self/fd/{}", own.as_raw_fd()));
        // A file that was removed meanwhile cannot be mounted. The agent works without the
        // replacement programs.
        let _ = expose(base, Path::new(AGENT_PATH), &source, true);
    }
    mount_terminals(base).map_err(with_step("mount terminals for the agent"))?;
    write_etc(base)
        .map_err(|error| to_errno(&error))
        .map_err(with_step("write the agent's /etc"))?;
    mount(
        Some("proc"),
        &base.join("proc"),
        Some("proc"),
        MsFlags::MS_NOSUID | MsFlags::MS_NODEV | MsFlags::MS_NOEXEC,
        None::<&str>,
    )
    .map_err(with_step("mount /proc for the agent"))?;
    pivot_root(base, &base.join("old")).map_err(with_step("pivot to the agent's root"))?;
    chdir("/").map_err(with_step("enter the agent's root"))?;
    umount2("/old", MntFlags::MNT_DETACH).map_err(with_step("unmount the host's file system"))?;
    fs::remove_dir("/old")
        .map_err(|error| to_errno(&error))
        .map_err(with_step(
            "remove the mount point of the host's file system",
        ))?;
    make_read_only(Path::new("/")).map_err(with_step("make the agent's root read-only"))
}

/// Makes `/proc/sys` read-only except `/proc/sys/net`, whose sysctls belong to the network
/// namespace of the writing process. If the agent is root of a user namespace, the kernel enforces
/// this itself.
///
/// # Errors
///
/// When the kernel rejects a mount.
pub fn make_sysctls_read_only() -> nix::Result<()> {
    let harmless = MsFlags::MS_NOSUID | MsFlags::MS_NODEV | MsFlags::MS_NOEXEC;
    for (path, flags) in [
        ("/proc/sys", harmless | MsFlags::MS_RDONLY),
        ("/proc/sys/net", harmless),
    ] {
        let none = None::<&str>;
        mount(Some(path), path, none, MsFlags::MS_BIND, none)?;
        let remount = MsFlags::MS_REMOUNT | MsFlags::MS_BIND | flags;
        mount(none, path, none, remount, none)?;
    }
    Ok(())
}

/// Mounts a separate devpts for the agent, in which every user may open terminals (Linux v6.12,
/// `Documentation/filesystems/devpts.rst`).
fn mount_terminals(base: &Path) -> nix::Result<()> {
    let result = fs::create_dir_all(base.join("dev/pts"))
        .and_then(|()| std::os::unix::fs::symlink("pts/ptmx", base.join("dev/ptmx")));
    result.map_err(|error| to_errno(&error))?;
    mount(
        Some("svclab"),
        &base.join("dev/pts"),
        Some("devpts"),
        MsFlags::MS_NOSUID | MsFlags::MS_NOEXEC,
        Some("ptmxmode=0666,mode=0600"),
    )
}

/// Writes the user and group tables, because those of the host may be secret.
fn write_etc(base: &Path) -> io::Result<()> {
    let etc = base.join("etc");
    fs::create_dir_all(&etc)?;
    fs::write(etc.join("passwd"), "root:x:0:0:root:/:/bin/sh\n")?;
    fs::write(etc.join("group"), "root:x:0:\n")
}

/// Makes one path of the host visible under the new root. `source` is the path to mount. A symbolic
/// link is copied; other files are bind-mounted, read-only if `read_only`. Missing paths are
/// skipped.
fn expose(base: &Path, path: &Path, source: &Path, read_only: bool) -> nix::Result<()> {
    // A `/proc/self/fd` link refers to an open file and must be followed.
    let metadata = if source == path {
        fs::symlink_metadata(path)
    } else {
        fs::metadata(source)
    };
    let Ok(found) = metadata else {
        return Ok(());
    };
    let inside = base.join(path.strip_prefix("/").unwrap_or(path));
    if inside.exists() {
        // The path is inside a directory that is already visible.
        return Ok(());
    }
    let result = match inside.parent() {
        Some(parent) => fs::create_dir_all(parent),
        None => Ok(()),
    };
    result
        .and_then(|()| {
            if found.is_symlink() {
                std::os::unix::fs::symlink(fs::read_link(path)?, &inside)
            } else if found.is_dir() {
                fs::create_dir_all(&inside)
            } else {
                fs::write(&inside, "")
            }
        })
        .map_err(|error| to_errno(&error))?;
    if found.is_symlink() {
        return Ok(());
    }
    mount(
        Some(source),
        &inside,
        None::<&str>,
        MsFlags::MS_BIND | MsFlags::MS_REC,
        None::<&str>,
    )?;
    if read_only {
        // A remount changes only one mount, and there may be mounts below.
        for mounted in mount_points_below(&inside).map_err(|error| to_errno(&error))? {
            match make_read_only(&mounted) {
                // The mount's directory was removed, so that no path leads to it.
                Err(Errno::ENOENT) => {}
                sealed => sealed?,
            }
        }
    }
    Ok(())
}

/// Makes one mount read-only.
fn make_read_only(path: &Path) -> nix::Result<()> {
    // Flags set outside the user namespace are locked: the kernel rejects a remount that omits one.
    let locked = mount_flags(statvfs(path)?.flags());
    mount(
        None::<&str>,
        path,
        None::<&str>,
        MsFlags::MS_REMOUNT | MsFlags::MS_BIND | MsFlags::MS_RDONLY | locked,
        None::<&str>,
    )
}

/// Returns the mount points at and below a path.
fn mount_points_below(path: &Path) -> io::Result<Vec<PathBuf>> {
    Ok(fs::read_to_string("/proc/self/mountinfo")?
        .lines()
        .filter_map(mount_point)
        .filter(|point| point.starts_with(path))
        .collect())
}

/// Parses the mount point of a `mountinfo` line: the fifth field, in which blanks, tabs, line ends
/// and backslashes are octal numbers (Linux v6.12, `fs/proc_namespace.c`, `mangle`).
fn mount_point(line: &str) -> Option<PathBuf> {
    let field = line.split(' ').nth(4)?;
    let mut bytes = Vec::with_capacity(field.len());
    let mut rest = field.as_bytes();
    while let Some((first, after)) = rest.split_first() {
        let octal = (*first == b'\\')
            .then(|| after.get(..3))
            .flatten()
            .and_then(|digits| u8::from_str_radix(std::str::from_utf8(digits).ok()?, 8).ok());
        if let Some(byte) = octal {
            bytes.push(byte);
            rest = &after[3..];
        } else {
            bytes.push(*first);
            rest = after;
        }
    }
    Some(PathBuf::from(OsString::from_vec(bytes)))
}

/// Converts file system flags to mount flags.
fn mount_flags(flags: FsFlags) -> MsFlags {
    [
        (FsFlags::ST_NOSUID, MsFlags::MS_NOSUID),
        (FsFlags::ST_NODEV, MsFlags::MS_NODEV),
        (FsFlags::ST_NOEXEC, MsFlags::MS_NOEXEC),
        (FsFlags::ST_NOATIME, MsFlags::MS_NOATIME),
        (FsFlags::ST_NODIRATIME, MsFlags::MS_NODIRATIME),
        (FsFlags::ST_RELATIME, MsFlags::MS_RELATIME),
    ]
    .into_iter()
    .filter(|(found, _)| flags.contains(*found))
    .fold(MsFlags::empty(), |kept, (_, flag)| kept | flag)
}

fn to_errno(error: &io::Error) -> Errno {
    Errno::from_raw(error.raw_os_error().unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mount_point_escapes_are_decoded() {
        let line = "36 35 98:0 /mnt1 /a\\040b\\134c rw,noatime master:1 - ext3 /dev/root rw";
        assert_eq!(mount_point(line), Some(PathBuf::from("/a b\\c")));
        assert_eq!(mount_point("36 35 98:0 /"), None);
        let invalid_escape = mount_point("1 2 0:1 / /x\\04 rw");
        assert_eq!(invalid_escape, Some(PathBuf::from("/x\\04")));
    }
}
