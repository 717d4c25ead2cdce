//! The agent's root directory: the system's programs and what they look things
//! up in, read-only, and two small places to write in.

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

use super::restore;

/// What is shown of the host's file system: programs, their libraries, and the
/// few tables under `/etc` that those look things up in. No home, no secrets.
pub const SHOWN: [&str; 16] = [
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

/// Devices that programs expect.
pub const DEVICES: [&str; 5] = [
    "/dev/null",
    "/dev/zero",
    "/dev/full",
    "/dev/random",
    "/dev/urandom",
];

/// Directories that are writable inside, each a small file system of its own.
const WRITABLE: [&str; 2] = ["/run", "/tmp"];

/// Makes a root directory of programs and moves into it. Everybody may write in what is
/// writable there; `programs` are shown besides the system's.
///
/// # Errors
///
/// The step that the kernel refused, in words that follow "could not".
pub fn build(programs: &[PathBuf]) -> Result<(), (String, Errno)> {
    let at = |step: &str| {
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
    .map_err(at("make the agent's mounts private"))?;
    let base = ["/tmp", "/run", "/mnt", "/var"]
        .into_iter()
        .map(Path::new)
        .find(|path| path.is_dir())
        .ok_or_else(|| {
            (
                "find a directory to build the agent's root in (/tmp, /run, /mnt or /var)"
                    .to_owned(),
                Errno::ENOENT,
            )
        })?;
    // A program may lie where something else is mounted by then.
    let programs: Vec<(&Path, File)> = programs
        .iter()
        .filter_map(|program| Some((program.as_path(), File::open(program).ok()?)))
        .collect();
    // By its path: the link itself leads to a mount of another mount namespace.
    let own = fs::read_link("/proc/self/exe").and_then(File::open).ok();
    mount(
        Some("svclab"),
        base,
        Some("tmpfs"),
        MsFlags::MS_NOSUID | MsFlags::MS_NODEV,
        Some("size=1m,mode=0755"),
    )
    .map_err(at("mount a tmpfs for the agent's root"))?;
    for shown in SHOWN.iter().map(Path::new) {
        show(base, shown, shown, true)
            .map_err(at(&format!("show {} to the agent", shown.display())))?;
    }
    for device in DEVICES.iter().map(Path::new) {
        show(base, device, device, false)
            .map_err(at(&format!("show {} to the agent", device.display())))?;
    }
    for directory in ["proc", "run", "tmp", "old"] {
        fs::create_dir_all(base.join(directory))
            .map_err(|error| os(&error))
            .map_err(at("make the agent's directories"))?;
    }
    for writable in WRITABLE {
        mount(
            Some("svclab"),
            &base.join(writable.trim_start_matches('/')),
            Some("tmpfs"),
            MsFlags::MS_NOSUID | MsFlags::MS_NODEV | MsFlags::MS_NOEXEC,
            Some("size=16m,mode=1777"),
        )
        .map_err(at(&format!("mount {writable} for the agent")))?;
    }
    for (program, file) in &programs {
        let source = PathBuf::from(format!("/proc/self/fd/{}", file.as_raw_fd()));
        show(base, program, &source, true)
            .map_err(at(&format!("show {} to the agent", program.display())))?;
    }
    drop(programs);
    if let Some(own) = own {
        let source = PathBuf::from(format!("/proc/self/fd/{}", own.as_raw_fd()));
        // A file that was removed meanwhile cannot be mounted; what it does is done without.
        let _ = show(base, Path::new(restore::PATH), &source, true);
    }
    terminals(base).map_err(at("mount terminals for the agent"))?;
    write_etc(base)
        .map_err(|error| os(&error))
        .map_err(at("write the agent's /etc"))?;
    mount(
        Some("proc"),
        &base.join("proc"),
        Some("proc"),
        MsFlags::MS_NOSUID | MsFlags::MS_NODEV | MsFlags::MS_NOEXEC,
        None::<&str>,
    )
    .map_err(at("mount a /proc of the agent's own"))?;
    pivot_root(base, &base.join("old")).map_err(at("move into the agent's root"))?;
    chdir("/").map_err(at("enter the agent's root"))?;
    umount2("/old", MntFlags::MNT_DETACH).map_err(at("let go of the host's file system"))?;
    fs::remove_dir("/old")
        .map_err(|error| os(&error))
        .map_err(at("let go of the host's file system"))?;
    seal(Path::new("/")).map_err(at("seal the agent's root"))
}

/// Makes all settings read-only but those of the network, which are the
/// namespace's of whoever writes them. Where the agent is root of a user
/// namespace, the kernel sees to that.
///
/// # Errors
///
/// What the kernel refused.
pub fn seal_settings() -> nix::Result<()> {
    let harmless = MsFlags::MS_NOSUID | MsFlags::MS_NODEV | MsFlags::MS_NOEXEC;
    for (path, flags) in [
        ("/proc/sys", harmless | MsFlags::MS_RDONLY),
        ("/proc/sys/net", harmless),
    ] {
        let none = None::<&str>;
        mount(Some(path), path, none, MsFlags::MS_BIND, none)?;
        let again = MsFlags::MS_REMOUNT | MsFlags::MS_BIND | flags;
        mount(none, path, none, again, none)?;
    }
    Ok(())
}

/// Terminals of the agent's own, of which anybody in there may have one: each
/// mount has its own (Linux v6.12, `Documentation/filesystems/devpts.rst`).
fn terminals(base: &Path) -> nix::Result<()> {
    let made = fs::create_dir_all(base.join("dev/pts"))
        .and_then(|()| std::os::unix::fs::symlink("pts/ptmx", base.join("dev/ptmx")));
    made.map_err(|error| os(&error))?;
    mount(
        Some("svclab"),
        &base.join("dev/pts"),
        Some("devpts"),
        MsFlags::MS_NOSUID | MsFlags::MS_NOEXEC,
        Some("ptmxmode=0666,mode=0600"),
    )
}

/// The tables programs look themselves up in, where the host's may not be shown.
fn write_etc(base: &Path) -> io::Result<()> {
    let etc = base.join("etc");
    fs::create_dir_all(&etc)?;
    fs::write(etc.join("passwd"), "root:x:0:0:root:/:/bin/sh\n")?;
    fs::write(etc.join("group"), "root:x:0:\n")
}

/// Shows one path of the host, which is to be had as `source`, under the new root: a
/// link as a link, all else by a bind mount, read-only if `sealed`. What the host lacks is left out.
fn show(base: &Path, path: &Path, source: &Path, sealed: bool) -> nix::Result<()> {
    // What an open file stands for is no link.
    let found = if source == path {
        fs::symlink_metadata(path)
    } else {
        fs::metadata(source)
    };
    let Ok(found) = found else {
        return Ok(());
    };
    let inside = base.join(path.strip_prefix("/").unwrap_or(path));
    if inside.exists() {
        // It lies in what is shown already.
        return Ok(());
    }
    let made = match inside.parent() {
        Some(parent) => fs::create_dir_all(parent),
        None => Ok(()),
    };
    made.and_then(|()| {
        if found.is_symlink() {
            std::os::unix::fs::symlink(fs::read_link(path)?, &inside)
        } else if found.is_dir() {
            fs::create_dir_all(&inside)
        } else {
            fs::write(&inside, "")
        }
    })
    .map_err(|error| os(&error))?;
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
    if sealed {
        // A remount speaks of one mount only, and there may be others below.
        for mounted in mounted_below(&inside).map_err(|error| os(&error))? {
            match seal(&mounted) {
                // Its directory was removed, so no path leads to it.
                Err(Errno::ENOENT) => {}
                sealed => sealed?,
            }
        }
    }
    Ok(())
}

/// Makes one mount read-only.
fn seal(at: &Path) -> nix::Result<()> {
    // Flags that were set outside the user namespace are locked: a remount that
    // leaves one out is refused.
    let locked = kept_flags(statvfs(at)?.flags());
    mount(
        None::<&str>,
        at,
        None::<&str>,
        MsFlags::MS_REMOUNT | MsFlags::MS_BIND | MsFlags::MS_RDONLY | locked,
        None::<&str>,
    )
}

/// The mount at a path and all below it.
fn mounted_below(path: &Path) -> io::Result<Vec<PathBuf>> {
    Ok(fs::read_to_string("/proc/self/mountinfo")?
        .lines()
        .filter_map(mount_point)
        .filter(|point| point.starts_with(path))
        .collect())
}

/// Where a line of `mountinfo` says that something is mounted: the fifth field,
/// in which blanks, tabs, line ends and backslashes are written as octal numbers
/// (Linux v6.12, `fs/proc_namespace.c`, `mangle`).
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

/// The mount flags that a mount's file-system flags stand for.
fn kept_flags(flags: FsFlags) -> MsFlags {
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

fn os(error: &io::Error) -> Errno {
    Errno::from_raw(error.raw_os_error().unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mount_point_is_read_with_whatever_is_in_its_name() {
        let line = "36 35 98:0 /mnt1 /a\\040b\\134c rw,noatime master:1 - ext3 /dev/root rw";
        assert_eq!(mount_point(line), Some(PathBuf::from("/a b\\c")));
        assert_eq!(mount_point("36 35 98:0 /"), None);
        let odd = mount_point("1 2 0:1 / /x\\04 rw");
        assert_eq!(odd, Some(PathBuf::from("/x\\04")));
    }
}
