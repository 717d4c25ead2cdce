//! What QEMU may do on this machine besides being a machine: nothing. Should a
//! guest break out of it, it finds no network, no privilege, and nothing that it
//! can write.

use std::io;

use nix::errno::Errno;
use nix::libc;
use nix::sched::{CloneFlags, unshare};
use nix::sys::prctl;
use nix::sys::resource::{Resource, setrlimit};
use nix::sys::signal::Signal;

/// Takes from the calling process, which is about to become QEMU, what it does
/// not need. With `privileges` it keeps those it has, for where files are not
/// its own. Makes system calls only, so that it may be called between fork and
/// exec.
///
/// Namespaces and read-only mounts are had where the machine gives them; root,
/// and whoever may make user namespaces, is given them.
///
/// # Errors
///
/// When the kernel refuses what every process may do.
pub fn confine(privileges: bool) -> io::Result<()> {
    setrlimit(Resource::RLIMIT_CORE, 0, 0)?;
    let namespaces = CloneFlags::CLONE_NEWNS
        | CloneFlags::CLONE_NEWNET
        | CloneFlags::CLONE_NEWIPC
        | CloneFlags::CLONE_NEWUTS;
    let apart = unshare(namespaces)
        .or_else(|_| unshare(CloneFlags::CLONE_NEWUSER | namespaces))
        .is_ok();
    if apart {
        seal_mounts()?;
    }
    if !privileges {
        forgo_privileges();
    }
    prctl::set_no_new_privs()?;
    prctl::set_pdeathsig(Signal::SIGKILL)?;
    Ok(())
}

/// What `mount_setattr` is told (Linux v6.12, `include/uapi/linux/mount.h`).
#[repr(C)]
struct MountAttributes {
    set: u64,
    clear: u64,
    propagation: u64,
    user_namespace: u64,
}

const READ_ONLY: u64 = 1;

/// Makes every mount that there is read-only, in this process's mount namespace.
/// What is reached by a descriptor from outside of it stays as it was.
fn seal_mounts() -> io::Result<()> {
    let attributes = MountAttributes {
        set: READ_ONLY,
        clear: 0,
        propagation: libc::MS_PRIVATE,
        user_namespace: 0,
    };
    // SAFETY: the path and the attributes live through the call, which is told
    // how large they are.
    let done = unsafe {
        libc::syscall(
            libc::SYS_mount_setattr,
            -1,
            c"/".as_ptr(),
            libc::AT_RECURSIVE,
            &raw const attributes,
            size_of::<MountAttributes>(),
        )
    };
    match Errno::result(done) {
        // Kernels before 5.12 have no such call.
        Ok(_) | Err(Errno::ENOSYS) => Ok(()),
        Err(errno) => Err(errno.into()),
    }
}

/// From the next program on the user root has no privileges by being root
/// (`capabilities(7)`, "The securebits flags").
fn forgo_privileges() {
    let bits = libc::SECBIT_NOROOT | libc::SECBIT_NOROOT_LOCKED;
    // SAFETY: the call takes numbers. Who may not make it has no privileges.
    unsafe {
        libc::prctl(libc::PR_SET_SECUREBITS, bits, 0, 0, 0);
    }
}
