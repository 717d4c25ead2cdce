//! Sets the clock and the random seed of a guest, as received from the front end that connects.
//!
//! A guest restored from a snapshot has the clock and the random state of the snapshot, as does
//! every other clone of that guest.

use std::fs::OpenOptions;
use std::io;
use std::os::fd::AsRawFd as _;
use std::time::Duration;

use nix::sys::time::TimeSpec;
use nix::time::{ClockId, clock_settime};

/// `struct rand_pool_info` with room for 32 bytes (Linux v6.12, `include/uapi/linux/random.h`).
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
/// When this process lacks the privilege, which only the first process of a guest has.
pub(crate) fn set_clock(now: Duration) -> io::Result<()> {
    clock_settime(ClockId::CLOCK_REALTIME, TimeSpec::from_duration(now))?;
    Ok(())
}

/// Adds `seed` to the kernel's random state.
///
/// When the kernel is reseeded, it discards the random numbers that each processor has buffered
/// (Linux v6.1, `drivers/char/random.c`, `crng_reseed`). Therefore no number from before the
/// snapshot is used afterwards. QEMU's `vmgenid` device has the same effect
/// (`add_vmfork_randomness`), but a restored guest must first interpret ACPI methods.
///
/// # Errors
///
/// When the device does not exist, or this process lacks the privilege.
pub(crate) fn seed(seed: [u8; 32]) -> io::Result<()> {
    let device = OpenOptions::new().write(true).open("/dev/urandom")?;
    let entropy = Entropy {
        bits: 256,
        bytes: 32,
        pool: seed,
    };
    // SAFETY: the kernel reads the two counts and as many further bytes as the second count states.
    // The structure contains all of them.
    unsafe { add_entropy(device.as_raw_fd(), (&raw const entropy).cast()) }?;
    // SAFETY: the request has no argument.
    unsafe { reseed(device.as_raw_fd()) }?;
    Ok(())
}
