//! Keeps attached programs for the next trace: to attach and detach them takes the kernel longer than
//! a trace of a few connections.

use std::collections::HashMap;
use std::io;
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::sync::{Mutex, PoisonError};

use super::bpf;
use super::copies::Copies;
use super::kernel::{KernelTypes, kernel_types};
use super::program::{COPIES, FORMAT, Handles};
use super::ring::Ring;
use super::trace_error::TraceError;

/// Size of the ring in bytes: about 17,000 drops, each recorded by two copies of the program.
const RING_BYTES: u32 = 8 << 20;

/// Minimum number of namespaces that attached programs can trace. An entry takes memory only while
/// its namespace is traced.
const MIN_CAPACITY: u32 = 1024;

/// Maximum number of attached programs that are kept. Each has a ring of its own, in a guest too, whose
/// memory is scarce.
const MAX_IDLE: usize = 2;

/// Attached programs that trace no namespace.
static IDLE: Mutex<Vec<Attached>> = Mutex::new(Vec::new());

/// Programs that are attached to the kernel's drop tracepoint, with their maps. They record nothing
/// until [`Attached::trace`].
#[derive(Debug)]
pub(super) struct Attached {
    pub(super) types: &'static KernelTypes,
    pub(super) ring: Ring,
    pub(super) copies: Copies,
    /// Owner of each traced namespace.
    owners: OwnedFd,
    /// Maximum number of namespaces.
    capacity: u32,
}

impl Attached {
    /// Returns programs for `count` namespaces: kept ones, or new ones. The first call reads the
    /// kernel's type information, which has some megabytes.
    pub(super) fn take(count: usize) -> Result<Self, TraceError> {
        let needed = u32::try_from(count).unwrap_or(u32::MAX);
        let mut idle = IDLE.lock().unwrap_or_else(PoisonError::into_inner);
        let kept = idle.iter().position(|kept| kept.capacity >= needed);
        if let Some(index) = kept {
            return Ok(idle.swap_remove(index));
        }
        drop(idle);
        // Permission is checked first, because the check costs little.
        let lost = bpf::create_numbers(COPIES).map_err(|error| TraceError::refused(&error))?;
        let types = kernel_types()?;
        let capacity = needed.max(MIN_CAPACITY);
        Self::attach(types, capacity, &lost).map_err(|error| TraceError::refused(&error))
    }

    fn attach(types: &'static KernelTypes, capacity: u32, lost: &OwnedFd) -> io::Result<Self> {
        let ring = bpf::create_ring(RING_BYTES)?;
        let owners = bpf::create_number_map(capacity)?;
        let format = bpf::create_bytes(FORMAT)?;
        let handles = Handles {
            ring: ring.as_raw_fd(),
            lost: lost.as_raw_fd(),
            owners: owners.as_raw_fd(),
            format: format.as_raw_fd(),
        };
        // The programs hold their maps. Descriptors of the other maps are not needed, and a
        // descriptor that does not exist cannot leak.
        let copies = Copies::attach(&types.offsets, handles, lost)?;
        Ok(Self {
            types,
            ring: Ring::new(&ring, RING_BYTES.try_into().map_err(io::Error::other)?)?,
            copies,
            owners,
            capacity,
        })
    }

    /// Starts to record the drops of namespaces, by inode number, that belong to `owner`.
    pub(super) fn trace(&self, namespaces: &HashMap<u32, String>, owner: u32) -> io::Result<()> {
        // Records of an earlier trace.
        while self.ring.next().is_some() {}
        let mut numbers = namespaces.keys();
        numbers.try_for_each(|number| bpf::update(&self.owners, *number, &owner.to_ne_bytes()))
    }

    /// Stops to record, and keeps the programs for the next trace.
    pub(super) fn keep(self, namespaces: &HashMap<u32, String>) {
        let mut numbers = namespaces.keys();
        if numbers.any(|number| bpf::delete(&self.owners, *number).is_err()) {
            return;
        }
        let mut idle = IDLE.lock().unwrap_or_else(PoisonError::into_inner);
        if idle.len() < MAX_IDLE {
            idle.push(self);
        }
    }
}
