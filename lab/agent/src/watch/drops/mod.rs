//! Traces the packets that the kernel drops in selected namespaces, with the kernel's function and
//! reason.
//!
//! Tracing requires `CAP_BPF` and `CAP_PERFMON` in the initial user namespace. The tracer runs in
//! the agent of a guest and, on the host, in the front end if the front end has the privileges. An
//! agent on the host receives no descriptor of the ring, the maps or the program. Therefore the
//! agent cannot read, fill, extend or keep any of them. The front end verifies the namespaces that
//! the agent reports.

mod bpf;
mod btf;
mod copies;
mod kernel;
mod program;
mod ring;
mod trace_error;

use std::collections::HashMap;
use std::io;
use std::os::fd::{AsRawFd as _, OwnedFd};

use nix::time::{ClockId, clock_gettime};

use copies::{Copies, RecordedDrops};
use kernel::{KernelTypes, kernel_types};
use program::{
    COPIES, COPY, FORMAT, FUNCTION, Handles, INTERFACE, NAMESPACE, NETWORK, PACKET, PROTOCOL,
    REASON, TAIL, TIME,
};
use ring::Ring;
use svclab_model::evidence::{DropEvidence, DroppedPacket};

pub use trace_error::TraceError;

/// Size of the ring in bytes: about 17,000 drops, each recorded by two copies of the program.
const RING_BYTES: u32 = 8 << 20;

/// Prefix of the kernel's drop reasons.
const REASON_PREFIX: &str = "SKB_DROP_REASON_";

/// Reasons that do not mark a drop.
const NOT_A_DROP: [&str; 2] = ["SKB_NOT_DROPPED_YET", "SKB_CONSUMED"];

/// Namespaces whose drops are traced.
#[derive(Debug, Clone, Default)]
pub struct Scope {
    /// Names of network namespaces, by inode number.
    pub namespaces: HashMap<u32, String>,
    /// Inode number of the user namespace that owns all of them. A network namespace with another
    /// owner is ignored, even if its inode number matches.
    pub owner_user_namespace: u32,
}

/// Trace of the packets that the kernel drops in some namespaces. Dropping the value ends the
/// trace.
#[derive(Debug)]
pub struct DropTracer {
    types: &'static KernelTypes,
    namespaces: HashMap<u32, String>,
    ring: Ring,
    copies: Copies,
    recorded: RecordedDrops,
    /// Offset from the monotonic clock to the wall clock at the start.
    wall_offset: i128,
}

impl DropTracer {
    /// Starts a trace. The first call reads the kernel's type information, which has some
    /// megabytes.
    ///
    /// # Errors
    ///
    /// When drops cannot be traced on this kernel.
    pub fn start(scope: Scope) -> Result<Self, TraceError> {
        // Permission is checked first, because the check costs little.
        let lost = bpf::create_numbers(COPIES).map_err(|error| TraceError::refused(&error))?;
        let kernel = kernel_types()?;
        Self::attach(kernel, scope, &lost).map_err(|error| TraceError::refused(&error))
    }

    fn attach(kernel: &'static KernelTypes, scope: Scope, lost: &OwnedFd) -> io::Result<Self> {
        let Scope {
            namespaces,
            owner_user_namespace: owner,
        } = scope;
        let ring = bpf::create_ring(RING_BYTES)?;
        let set = bpf::create_set(namespaces.keys().copied())?;
        let format = bpf::create_bytes(FORMAT)?;
        let handles = Handles {
            ring: ring.as_raw_fd(),
            lost: lost.as_raw_fd(),
            namespaces: set.as_raw_fd(),
            format: format.as_raw_fd(),
        };
        // The programs hold their maps. Descriptors of the maps are not needed, and a descriptor
        // that does not exist cannot leak.
        let copies = Copies::attach(&kernel.offsets, handles, owner, lost)?;
        let wall_offset =
            nanoseconds(ClockId::CLOCK_REALTIME)? - nanoseconds(ClockId::CLOCK_MONOTONIC)?;
        Ok(Self {
            types: kernel,
            namespaces,
            ring: Ring::new(&ring, RING_BYTES.try_into().map_err(io::Error::other)?)?,
            copies,
            recorded: RecordedDrops::default(),
            wall_offset,
        })
    }

    /// Returns the drops since the previous call, and the total number of drops without a record.
    #[must_use]
    pub fn drops(&mut self) -> DropEvidence {
        let mut dropped = Vec::new();
        while let Some(record) = self.ring.next() {
            if self.recorded.insert(&record) {
                dropped.extend(self.parse_record(&record));
            }
        }
        dropped.sort_by_key(|each: &DroppedPacket| each.time);
        match self.copies.count_missed() {
            Ok(missed) => DropEvidence::Watched { missed, dropped },
            Err(error) => DropEvidence::Uncertain(TraceError::refused(&error).describe()),
        }
    }

    /// Parses a record. Returns `None` for a packet that is not an IP packet, or that was not
    /// dropped.
    fn parse_record(&self, record: &[u8]) -> Option<DroppedPacket> {
        let namespace = self.namespaces.get(&read_u32(record, NAMESPACE)?)?;
        let number = read_u32(record, REASON)?;
        let reason = match self.types.reasons.get(&number) {
            Some(name) if NOT_A_DROP.contains(&name.as_str()) => return None,
            Some(name) => name.strip_prefix(REASON_PREFIX).unwrap_or(name).to_owned(),
            None => number.to_string(),
        };
        let version = match record.get(PROTOCOL..)?.first_chunk()? {
            [0x08, 0x00] => 4,
            [0x86, 0xdd] => 6,
            _ => return None,
        };
        let begin = u32::from(read_u16(record, NETWORK)?);
        let length = read_u32(record, TAIL)?.saturating_sub(begin);
        let length = usize::try_from(length).ok()?;
        let packet = record.get(PACKET..COPY)?;
        let packet = &packet[..length.min(packet.len())];
        // Before the kernel has located the IP header, the start of the packet is unknown.
        let packet = if packet.first().is_some_and(|first| first >> 4 == version) {
            packet.to_vec()
        } else {
            Vec::new()
        };
        let time = i128::from(read_u64(record, TIME)?) + self.wall_offset;
        let function = c_text(record.get(FUNCTION..PACKET)?);
        let place = function.and_then(|place| Some(base_name(&place)?.to_owned()));
        Some(DroppedPacket {
            time: u64::try_from(time).unwrap_or(0),
            namespace: namespace.clone(),
            interface: c_text(record.get(INTERFACE..FUNCTION)?),
            reason,
            function: place,
            packet,
        })
    }
}

/// Returns a function's name without its module (`nft_do_chain [nf_tables]`) and without compiler
/// suffixes (`ip_rcv_finish_core.constprop.0`).
fn base_name(function: &str) -> Option<&str> {
    function.split([' ', '.']).next()
}

/// Returns the text before the first zero byte, or `None` if the text is empty.
fn c_text(bytes: &[u8]) -> Option<String> {
    let text = bytes.split(|byte| *byte == 0).next()?;
    (!text.is_empty()).then(|| String::from_utf8_lossy(text).into_owned())
}

fn nanoseconds(clock: ClockId) -> io::Result<i128> {
    let time = clock_gettime(clock)?;
    Ok(i128::from(time.tv_sec()) * 1_000_000_000 + i128::from(time.tv_nsec()))
}

fn read_u32(record: &[u8], offset: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(*record.get(offset..)?.first_chunk()?))
}

fn read_u16(record: &[u8], offset: usize) -> Option<u16> {
    Some(u16::from_ne_bytes(*record.get(offset..)?.first_chunk()?))
}

fn read_u64(record: &[u8], offset: usize) -> Option<u64> {
    Some(u64::from_ne_bytes(*record.get(offset..)?.first_chunk()?))
}
