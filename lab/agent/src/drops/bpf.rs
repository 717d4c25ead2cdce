//! What is asked of a kernel to run a program for its drops: `bpf(2)` (Linux v6.12,
//! `include/uapi/linux/bpf.h`).

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

use nix::libc;

use super::program::Instruction;

/// What can be asked (`enum bpf_cmd`).
const CREATE_MAP: libc::c_long = 0;
const UPDATE: libc::c_long = 2;
const LOAD: libc::c_long = 5;
const OPEN_TRACEPOINT: libc::c_long = 17;
const FREEZE: libc::c_long = 22;

/// Kinds of maps and programs.
const HASH: u32 = 1;
const ARRAY: u32 = 2;
const RING: u32 = 27;
const RAW_TRACEPOINT: u32 = 17;

/// A map's flags: its memory can be shared, programs only read it, and it takes up
/// no more than is in it.
const SHARED: u32 = 1 << 10;
const ONLY_READ: u32 = 1 << 7;
const AS_NEEDED: u32 = 1;

fn bpf(command: libc::c_long, attributes: &mut [u64]) -> io::Result<i32> {
    // SAFETY: the kernel reads as many bytes of attributes as it is told there are,
    // and what they point to lives as long as the caller's own.
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

/// The same for what is answered with a descriptor.
fn made(command: libc::c_long, attributes: &mut [u64]) -> io::Result<OwnedFd> {
    let fd = bpf(command, attributes)?;
    // SAFETY: the kernel has just made it, for us alone.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// A descriptor as the kernel takes it.
fn number_of(fd: &OwnedFd) -> io::Result<u32> {
    u32::try_from(fd.as_raw_fd()).map_err(io::Error::other)
}

/// Two numbers of four bytes, as they stand in memory.
fn pair(first: u32, second: u32) -> u64 {
    let mut both = [0; 8];
    both[..4].copy_from_slice(&first.to_ne_bytes());
    both[4..].copy_from_slice(&second.to_ne_bytes());
    u64::from_ne_bytes(both)
}

/// A ring of that many bytes, a power of two and of whole pages.
pub fn ring(size: u32) -> io::Result<OwnedFd> {
    made(CREATE_MAP, &mut [pair(RING, 0), pair(0, size), 0])
}

/// One number, to be shared.
pub fn number() -> io::Result<OwnedFd> {
    made(
        CREATE_MAP,
        &mut [pair(ARRAY, 4), pair(8, 1), pair(SHARED, 0)],
    )
}

/// Eight bytes that nobody changes any more.
pub fn text(bytes: [u8; 8]) -> io::Result<OwnedFd> {
    let map = made(
        CREATE_MAP,
        &mut [pair(ARRAY, 4), pair(8, 1), pair(ONLY_READ, 0)],
    )?;
    put(&map, 0, &bytes)?;
    freeze(map)
}

/// Numbers that a program looks up, and that nobody adds to any more.
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

/// Has the kernel check a program and keep it.
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

/// Has the kernel run a program at the tracepoint until the descriptor is closed.
pub fn attach(program: &OwnedFd) -> io::Result<OwnedFd> {
    let name = c"kfree_skb";
    let program = number_of(program)?;
    let mut attributes = [name.as_ptr().expose_provenance() as u64, pair(program, 0)];
    made(OPEN_TRACEPOINT, &mut attributes)
}
