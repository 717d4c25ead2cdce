//! Reads memory shared with the kernel: the ring buffer and the counters of BPF programs.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use nix::libc;

/// Flags in a record's length: being written, and discarded.
const BUSY: u32 = 1 << 31;
const DISCARDED: u32 = 1 << 30;

/// Bytes of a record's header: the length and a number.
const HEADER_BYTES: usize = 8;

/// Memory shared with the kernel.
#[derive(Debug)]
struct SharedMemory {
    begin: NonNull<u8>,
    length: usize,
}

// SAFETY: the memory belongs to the process and not to a thread. The memory is accessed only
// through atomics, except for bytes that do not change.
unsafe impl Send for SharedMemory {}

impl SharedMemory {
    fn new(fd: &OwnedFd, length: usize, offset: usize, write: bool) -> io::Result<Self> {
        let protection = libc::PROT_READ | if write { libc::PROT_WRITE } else { 0 };
        let offset = libc::off_t::try_from(offset).map_err(io::Error::other)?;
        // SAFETY: the mapping replaces no other mapping, and maps only the memory of the BPF map.
        let begin = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                length,
                protection,
                libc::MAP_SHARED,
                fd.as_raw_fd(),
                offset,
            )
        };
        if begin == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let begin = NonNull::new(begin.cast());
        let begin = begin.ok_or_else(|| io::Error::other("mmap returned the address 0"))?;
        Ok(Self { begin, length })
    }

    /// Returns a number in the memory, which the kernel may change.
    #[expect(
        clippy::cast_ptr_alignment,
        reason = "the mapping starts at a page boundary, and the offset is checked"
    )]
    fn u64_at(&self, offset: usize) -> &AtomicU64 {
        assert!(
            offset + 8 <= self.length && offset.is_multiple_of(8),
            "offset unaligned or outside the shared memory"
        );
        // SAFETY: the number is inside the mapping, aligned, and lives as long as `self`.
        unsafe { &*self.begin.as_ptr().add(offset).cast::<AtomicU64>() }
    }

    #[expect(clippy::cast_ptr_alignment, reason = "as above")]
    fn u32_at(&self, offset: usize) -> &AtomicU32 {
        assert!(
            offset + 4 <= self.length && offset.is_multiple_of(4),
            "offset unaligned or outside the shared memory"
        );
        // SAFETY: as above.
        unsafe { &*self.begin.as_ptr().add(offset).cast::<AtomicU32>() }
    }

    /// Copies bytes of the memory. The kernel must not change them before the read position
    /// advances.
    fn bytes(&self, offset: usize, length: usize) -> Vec<u8> {
        assert!(
            offset + length <= self.length,
            "range outside the shared memory"
        );
        // SAFETY: the bytes are inside the mapping and do not change.
        unsafe { std::slice::from_raw_parts(self.begin.as_ptr().add(offset), length) }.to_vec()
    }
}

impl Drop for SharedMemory {
    fn drop(&mut self) {
        // SAFETY: the mapping has this length, and no reference to it exists.
        unsafe { libc::munmap(self.begin.as_ptr().cast(), self.length) };
    }
}

/// Reader of a ring buffer (Linux v6.12, `Documentation/bpf/ringbuf.rst` and
/// `kernel/bpf/ringbuf.c`). The buffer consists of the read position, the write position, and the
/// data mapped twice in sequence, so that no record is split.
#[derive(Debug)]
pub(super) struct Ring {
    read_position: SharedMemory,
    data: SharedMemory,
    page: usize,
    size: usize,
}

impl Ring {
    pub(super) fn new(fd: &OwnedFd, size: usize) -> io::Result<Self> {
        let page = page_size()?;
        Ok(Self {
            read_position: SharedMemory::new(fd, page, 0, true)?,
            data: SharedMemory::new(fd, page + 2 * size, page, false)?,
            page,
            size,
        })
    }

    /// Returns the next record, or `None` when all records were read.
    pub(super) fn next(&self) -> Option<Vec<u8>> {
        loop {
            let read = self.read_position.u64_at(0).load(Ordering::Acquire);
            if read >= self.data.u64_at(0).load(Ordering::Acquire) {
                return None;
            }
            let offset = self.page + usize::try_from(read).ok()? % self.size;
            let header = self.data.u32_at(offset).load(Ordering::Acquire);
            if header & BUSY != 0 {
                return None;
            }
            let length = usize::try_from(header & !DISCARDED).ok()?;
            let record = self
                .data
                .bytes(offset + HEADER_BYTES, length.min(self.size));
            let next = read + u64::try_from((HEADER_BYTES + length).next_multiple_of(8)).ok()?;
            self.read_position.u64_at(0).store(next, Ordering::Release);
            if header & DISCARDED == 0 {
                return Some(record);
            }
        }
    }
}

/// Counters that programs increment.
#[derive(Debug)]
pub(super) struct Counters {
    memory: SharedMemory,
    count: usize,
}

impl Counters {
    pub(super) fn new(fd: &OwnedFd, count: u8) -> io::Result<Self> {
        Ok(Self {
            memory: SharedMemory::new(fd, page_size()?, 0, false)?,
            count: count.into(),
        })
    }

    pub(super) fn get(&self, index: usize) -> u64 {
        assert!(index < self.count, "a counter that does not exist");
        self.memory.u64_at(8 * index).load(Ordering::Acquire)
    }
}

fn page_size() -> io::Result<usize> {
    // SAFETY: the call reads a constant of the system.
    let size = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    usize::try_from(size).map_err(io::Error::other)
}
