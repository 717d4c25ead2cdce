//! Makes the `bpf(2)` system calls that run a program at the kernel's drop tracepoint (Linux v6.12,
//! `include/uapi/linux/bpf.h`).

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

use nix::libc;

use super::program::Instruction;

/// Commands (`enum bpf_cmd`).
const CREATE_MAP: libc::c_long = 0;
const UPDATE: libc::c_long = 2;
const LOAD: libc::c_long = 5;
const OPEN_TRACEPOINT: libc::c_long = 17;
const FREEZE: libc::c_long = 22;

/// Types of maps and programs.
const HASH: u32 = 1;
const ARRAY: u32 = 2;
const RING: u32 = 27;
const RAW_TRACEPOINT: u32 = 17;

/// Flags of a map: mappable into memory, read-only for programs, and without preallocation.
const SHARED: u32 = 1 << 10;
const ONLY_READ: u32 = 1 << 7;
const AS_NEEDED: u32 = 1;

fn bpf(command: libc::c_long, attributes: &mut [u64]) -> io::Result<i32> {
    // SAFETY: the kernel reads exactly the given number of bytes of attributes, and the memory that
    // they point to outlives the call.
    let answer = unsafe {
        libc::syscall(
            libc::SYS_bpf,
            command,
            attributes.as_mut_ptr(),
            size_of_val(attributes),
        )
    };
    if answer < 0 {
        return Err(io::Error::last_os_error());
    }
    i32::try_from(answer).map_err(io::Error::other)
}

/// Makes a call that returns a descriptor.
fn made(command: libc::c_long, attributes: &mut [u64]) -> io::Result<OwnedFd> {
    let fd = bpf(command, attributes)?;
    // SAFETY: the kernel has just created the descriptor for this process.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Returns a descriptor as the kernel's attribute type.
fn number_of(fd: &OwnedFd) -> io::Result<u32> {
    u32::try_from(fd.as_raw_fd()).map_err(io::Error::other)
}

/// Returns two 4-byte numbers as adjacent in memory.
fn pair(first: u32, second: u32) -> u64 {
    let mut both = [0; 8];
    both[..4].copy_from_slice(&first.to_ne_bytes());
    both[4..].copy_from_slice(&second.to_ne_bytes());
    u64::from_ne_bytes(both)
}

/// Creates a ring buffer of `size` bytes, a power of two and a multiple of the page size.
pub fn ring(size: u32) -> io::Result<OwnedFd> {
    made(CREATE_MAP, &mut [pair(RING, 0), pair(0, size), 0])
}

/// Creates a map with one 8-byte number that can be mapped into memory.
pub fn number() -> io::Result<OwnedFd> {
    made(
        CREATE_MAP,
        &mut [pair(ARRAY, 4), pair(8, 1), pair(SHARED, 0)],
    )
}

/// Creates a frozen map with 8 bytes.
pub fn text(bytes: [u8; 8]) -> io::Result<OwnedFd> {
    let map = made(
        CREATE_MAP,
        &mut [pair(ARRAY, 4), pair(8, 1), pair(ONLY_READ, 0)],
    )?;
    put(&map, 0, &bytes)?;
    freeze(map)
}

/// Creates a frozen hash set of numbers for a program's lookups.
pub fn set(numbers: impl ExactSizeIterator<Item = u32>) -> io::Result<OwnedFd> {
    let most = u32::try_from(numbers.len().max(1)).map_err(io::Error::other)?;
    let flags = ONLY_READ | AS_NEEDED;
    let map = made(
        CREATE_MAP,
        &mut [pair(HASH, 4), pair(1, most), pair(flags, 0)],
    )?;
    for number in numbers {
        put(&map, number, &[1])?;
    }
    freeze(map)
}

fn put(map: &OwnedFd, key: u32, value: &[u8]) -> io::Result<()> {
    let mut attributes = [
        pair(number_of(map)?, 0),
        (&raw const key).expose_provenance() as u64,
        value.as_ptr().expose_provenance() as u64,
        0,
    ];
    bpf(UPDATE, &mut attributes).map(drop)
}

fn freeze(map: OwnedFd) -> io::Result<OwnedFd> {
    bpf(FREEZE, &mut [pair(number_of(&map)?, 0)])?;
    Ok(map)
}

/// Loads a program into the kernel, which verifies it.
pub fn load(program: &[Instruction]) -> io::Result<OwnedFd> {
    let count = u32::try_from(program.len()).map_err(io::Error::other)?;
    let license = c"GPL";
    let mut attributes = [
        pair(RAW_TRACEPOINT, count),
        program.as_ptr().expose_provenance() as u64,
        license.as_ptr().expose_provenance() as u64,
        0,
        0,
        0,
    ];
    made(LOAD, &mut attributes)
}

/// Attaches a program to the tracepoint. Closing the returned descriptor detaches the program.
pub fn attach(program: &OwnedFd) -> io::Result<OwnedFd> {
    let name = c"kfree_skb";
    let program = number_of(program)?;
    let mut attributes = [name.as_ptr().expose_provenance() as u64, pair(program, 0)];
    made(OPEN_TRACEPOINT, &mut attributes)
}
