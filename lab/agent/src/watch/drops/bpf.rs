//! Makes the `bpf(2)` system calls that run a program at the kernel's drop tracepoint (Linux v6.12,
//! `include/uapi/linux/bpf.h`).

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

use nix::libc;

use super::program::Instruction;

/// Commands (`enum bpf_cmd`).
const CREATE_MAP: libc::c_long = 0;
const UPDATE_ELEMENT: libc::c_long = 2;
const DELETE_ELEMENT: libc::c_long = 3;
const LOAD_PROGRAM: libc::c_long = 5;
const GET_INFO: libc::c_long = 15;
const OPEN_TRACEPOINT: libc::c_long = 17;
const FREEZE_MAP: libc::c_long = 22;

/// Types of maps and programs.
const MAP_TYPE_HASH: u32 = 1;
const MAP_TYPE_ARRAY: u32 = 2;
const MAP_TYPE_RING: u32 = 27;
const PROGRAM_TYPE_RAW_TRACEPOINT: u32 = 17;

/// Flags of a map: mappable into memory, read-only for programs, and without preallocation.
const FLAG_MAPPABLE: u32 = 1 << 10;
const FLAG_READ_ONLY: u32 = 1 << 7;
const FLAG_NO_PREALLOC: u32 = 1;

fn bpf(command: libc::c_long, attributes: &mut [u64]) -> io::Result<i32> {
    // SAFETY: the kernel reads exactly the given number of bytes of attributes, and the memory that
    // they point to outlives the call.
    let result = unsafe {
        libc::syscall(
            libc::SYS_bpf,
            command,
            attributes.as_mut_ptr(),
            size_of_val(attributes),
        )
    };
    if result < 0 {
        return Err(io::Error::last_os_error());
    }
    i32::try_from(result).map_err(io::Error::other)
}

/// Makes a call that returns a descriptor.
fn create(command: libc::c_long, attributes: &mut [u64]) -> io::Result<OwnedFd> {
    let fd = bpf(command, attributes)?;
    // SAFETY: the kernel has just created the descriptor for this process.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Returns a descriptor as the kernel's attribute type.
fn fd_number(fd: &OwnedFd) -> io::Result<u32> {
    u32::try_from(fd.as_raw_fd()).map_err(io::Error::other)
}

/// Returns two 4-byte numbers as adjacent in memory.
fn u32_pair(first: u32, second: u32) -> u64 {
    let mut bytes = [0; 8];
    bytes[..4].copy_from_slice(&first.to_ne_bytes());
    bytes[4..].copy_from_slice(&second.to_ne_bytes());
    u64::from_ne_bytes(bytes)
}

/// Creates a ring buffer of `size` bytes, a power of two and a multiple of the page size.
pub(super) fn create_ring(size: u32) -> io::Result<OwnedFd> {
    create(
        CREATE_MAP,
        &mut [u32_pair(MAP_TYPE_RING, 0), u32_pair(0, size), 0],
    )
}

/// Creates an array of `count` 8-byte numbers that can be mapped into memory.
pub(super) fn create_numbers(count: u8) -> io::Result<OwnedFd> {
    create(
        CREATE_MAP,
        &mut [
            u32_pair(MAP_TYPE_ARRAY, 4),
            u32_pair(8, count.into()),
            u32_pair(FLAG_MAPPABLE, 0),
        ],
    )
}

/// Creates a frozen map with 8 bytes.
pub(super) fn create_bytes(bytes: [u8; 8]) -> io::Result<OwnedFd> {
    let map = create(
        CREATE_MAP,
        &mut [
            u32_pair(MAP_TYPE_ARRAY, 4),
            u32_pair(8, 1),
            u32_pair(FLAG_READ_ONLY, 0),
        ],
    )?;
    update(&map, 0, &bytes)?;
    freeze(map)
}

/// Creates a map of up to `capacity` 4-byte numbers by 4-byte keys, which programs cannot change.
pub(super) fn create_number_map(capacity: u32) -> io::Result<OwnedFd> {
    let flags = FLAG_READ_ONLY | FLAG_NO_PREALLOC;
    create(
        CREATE_MAP,
        &mut [
            u32_pair(MAP_TYPE_HASH, 4),
            u32_pair(4, capacity),
            u32_pair(flags, 0),
        ],
    )
}

/// Sets a value of a map. `value` has the size of the map's values.
pub(super) fn update(map: &OwnedFd, key: u32, value: &[u8]) -> io::Result<()> {
    let mut attributes = [
        u32_pair(fd_number(map)?, 0),
        (&raw const key).expose_provenance() as u64,
        value.as_ptr().expose_provenance() as u64,
        0,
    ];
    bpf(UPDATE_ELEMENT, &mut attributes).map(drop)
}

/// Removes a key of a map.
pub(super) fn delete(map: &OwnedFd, key: u32) -> io::Result<()> {
    let mut attributes = [
        u32_pair(fd_number(map)?, 0),
        (&raw const key).expose_provenance() as u64,
    ];
    bpf(DELETE_ELEMENT, &mut attributes).map(drop)
}

fn freeze(map: OwnedFd) -> io::Result<OwnedFd> {
    bpf(FREEZE_MAP, &mut [u32_pair(fd_number(&map)?, 0)])?;
    Ok(map)
}

/// Loads a program into the kernel, which verifies it.
pub(super) fn load(program: &[Instruction]) -> io::Result<OwnedFd> {
    let count = u32::try_from(program.len()).map_err(io::Error::other)?;
    let license = c"GPL";
    let mut attributes = [
        u32_pair(PROGRAM_TYPE_RAW_TRACEPOINT, count),
        program.as_ptr().expose_provenance() as u64,
        license.as_ptr().expose_provenance() as u64,
        0,
        0,
        0,
    ];
    create(LOAD_PROGRAM, &mut attributes)
}

/// Attaches a program to the tracepoint. Closing the returned descriptor detaches the program.
pub(super) fn attach(program: &OwnedFd) -> io::Result<OwnedFd> {
    let name = c"kfree_skb";
    let program = fd_number(program)?;
    let mut attributes = [
        name.as_ptr().expose_provenance() as u64,
        u32_pair(program, 0),
    ];
    create(OPEN_TRACEPOINT, &mut attributes)
}

/// Returns how often the kernel did not run a program because it already ran on the same processor.
/// Linux before 5.12, which has no drop reasons either, does not report this.
pub(super) fn count_skipped(program: &OwnedFd) -> io::Result<u64> {
    /// Bytes of `struct bpf_prog_info` up to its field `recursion_misses`, in 8-byte words.
    const WORDS: usize = 208 / 8;
    let mut info = [0_u64; WORDS + 1];
    let size = u32::try_from(size_of_val(&info)).map_err(io::Error::other)?;
    let mut attributes = [
        u32_pair(fd_number(program)?, size),
        info.as_mut_ptr().expose_provenance() as u64,
    ];
    bpf(GET_INFO, &mut attributes)?;
    Ok(info[WORDS])
}
