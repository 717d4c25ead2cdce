//! What an agent learns from a front end that takes it up: what time it is, and
//! chance.
//!
//! A guest that was kept as a snapshot wakes with the clock and the random
//! numbers of the moment it was kept, and so does every clone of it.

use std::fs::OpenOptions;
use std::io;
use std::os::fd::AsRawFd as _;
use std::time::Duration;

use nix::sys::time::TimeSpec;
use nix::time::{ClockId, clock_settime};

/// `struct rand_pool_info` with room for 32 bytes (Linux v6.12,
/// `include/uapi/linux/random.h`).
#[repr(C)]
struct Entropy {
    bits: i32,
    bytes: i32,
    pool: [u8; 32],
}

nix::ioctl_write_ptr!(add_entropy, b'R', 0x03, [i32; 2]);
nix::ioctl_none!(reseed, b'R', 0x07);

/// Sets the clock to `now`, the time since the epoch.
///
/// # Errors
///
/// When this process may not: only the first of a guest may.
pub fn set_clock(now: Duration) -> io::Result<()> {
    clock_settime(ClockId::CLOCK_REALTIME, TimeSpec::from_duration(now))?;
    Ok(())
}

/// Makes the kernel's next random numbers depend on `seed`.
///
/// The kernel throws away what it has drawn ahead on each processor when it is
/// seeded anew (Linux v6.1, `drivers/char/random.c`, `crng_reseed`), so that
/// nothing drawn before the snapshot is dealt out after. QEMU's `vmgenid` device makes
/// the kernel do the same (`add_vmfork_randomness`), by ACPI methods that a
/// restored guest interprets first.
///
/// # Errors
///
/// When the device is not there, or this process may not.
pub fn seed(seed: [u8; 32]) -> io::Result<()> {
    let device = OpenOptions::new().write(true).open("/dev/urandom")?;
    let entropy = Entropy {
        bits: 256,
        bytes: 32,
        pool: seed,
    };
    // SAFETY: the kernel reads the two counts and then as many bytes as the
    // second says, all of which the structure holds.
    unsafe { add_entropy(device.as_raw_fd(), (&raw const entropy).cast()) }?;
    // SAFETY: the request takes no argument.
    unsafe { reseed(device.as_raw_fd()) }?;
    Ok(())
}
