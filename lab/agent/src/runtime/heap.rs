//! Returns unused memory of this process to the kernel. The C library keeps freed memory per
//! thread, up to the size of the largest lab's evidence for each thread. A guest does not have that
//! much memory.

#[cfg(target_env = "gnu")]
use nix::libc::{M_ARENA_MAX, M_MMAP_THRESHOLD, c_int, malloc_trim, mallopt};

/// Minimum number of bytes of an allocation that the C library returns to the kernel when freed.
/// The value is the C library's default, which grows dynamically unless it is set.
#[cfg(target_env = "gnu")]
const MMAP_THRESHOLD: c_int = 128 << 10;

/// Makes all threads share freed memory, and returns large allocations when they are freed (glibc
/// manual, "Malloc Tunable Parameters").
#[cfg(target_env = "gnu")]
pub(crate) fn configure() {
    // SAFETY: no other thread runs yet, and both parameters and values are valid.
    unsafe {
        mallopt(M_ARENA_MAX, 1);
        mallopt(M_MMAP_THRESHOLD, MMAP_THRESHOLD);
    }
}

/// Returns all freed memory to the kernel, including memory between allocations.
#[cfg(target_env = "gnu")]
pub(crate) fn trim() {
    // SAFETY: the function accesses only free memory, and any thread may call it.
    unsafe { malloc_trim(0) };
}

/// Does nothing: other C libraries do not have these parameters.
#[cfg(not(target_env = "gnu"))]
pub fn configure() {}

/// Does nothing: other C libraries keep no memory that could be returned.
#[cfg(not(target_env = "gnu"))]
pub fn trim() {}
