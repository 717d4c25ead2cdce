//! Memory that this process has no more use for. The C library keeps it, for each thread
//! apart, and in time as much for each as the largest lab's evidence took; a guest has
//! not so much.

#[cfg(target_env = "gnu")]
use nix::libc::{M_ARENA_MAX, M_MMAP_THRESHOLD, c_int, malloc_trim, mallopt};

/// From how many bytes on a piece is the kernel's again as soon as it is free. It is the
/// C library's own bound, which it raises as it goes unless it is told.
#[cfg(target_env = "gnu")]
const LARGE: c_int = 128 << 10;

/// Has threads share what they free, and large pieces given back at once (glibc manual,
/// "Malloc Tunable Parameters").
#[cfg(target_env = "gnu")]
pub fn share() {
    // SAFETY: no other thread runs yet, and both are numbers that it takes.
    unsafe {
        mallopt(M_ARENA_MAX, 1);
        mallopt(M_MMAP_THRESHOLD, LARGE);
    }
}

/// Gives back to the kernel what was freed, which lies between what is in use.
#[cfg(target_env = "gnu")]
pub fn give_back() {
    // SAFETY: it looks at nothing but what is free, and any thread may call it.
    unsafe { malloc_trim(0) };
}

/// Other C libraries have no such numbers.
#[cfg(not(target_env = "gnu"))]
pub fn share() {}

/// Other C libraries keep nothing that could be given back at once.
#[cfg(not(target_env = "gnu"))]
pub fn give_back() {}
