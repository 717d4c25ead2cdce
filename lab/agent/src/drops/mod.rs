//! Which packets a kernel drops in some namespaces, where and why, by its own account.
//!
//! Who may ask is whoever has `CAP_BPF` and `CAP_PERFMON` in the first user namespace:
//! an agent that has a guest to itself, and on this host the front end, if it was
//! started so ([`crate::kernel`]). An agent on this host has no part in it: it gets
//! no descriptor of the ring, the maps or the program, so there is nothing that it
//! could read, fill, widen or keep alive with one; and what it says of namespaces is
//! looked at before it is believed.

mod bpf;
mod btf;
mod kernel;
mod program;
mod ring;
mod untraced;

use std::collections::HashMap;
use std::io;
use std::os::fd::{AsRawFd as _, OwnedFd};

use nix::time::{ClockId, clock_gettime};

use kernel::{Described, described};
use program::{
    FORMAT, FUNCTION, Handles, INTERFACE, NAMESPACE, NETWORK, PACKET, PROTOCOL, REASON, TAIL, TIME,
};
use ring::{Number, Ring};
use svclab_model::evidence::{Dropped, Drops};

pub use untraced::Untraced;

/// Room for drops, in bytes: some seventeen thousand.
const ROOM: u32 = 4 << 20;

/// What the kernel calls its reasons begins so.
const PREFIX: &str = "SKB_DROP_REASON_";

/// Reasons that are none: nothing was dropped.
const NONE: [&str; 2] = ["SKB_NOT_DROPPED_YET", "SKB_CONSUMED"];

/// Whose drops are traced.
#[derive(Debug, Clone, Default)]
pub struct Scope {
    /// Network namespaces' names by the kernel's numbers of them.
    pub namespaces: HashMap<u32, String>,
    /// The number of the user namespace that they all belong to. A network namespace
    /// of another is none of them, whatever its number.
    pub owner: u32,
}

/// A kernel that tells of every packet it drops in some namespaces, until this is
/// dropped.
#[derive(Debug)]
pub struct Tracer {
    kernel: &'static Described,
    namespaces: HashMap<u32, String>,
    ring: Ring,
    lost: Number,
    /// By how much the time of day was ahead of the steady clock when it began.
    ahead: i128,
    _attached: OwnedFd,
}

impl Tracer {
    /// Begins to trace. The first time reads the kernel's description of its types,
    /// some megabytes.
    ///
    /// # Errors
    ///
    /// Why this cannot be done here.
    pub fn begin(scope: Scope) -> Result<Self, Untraced> {
        // Whether it is allowed is asked first: it costs nothing.
        let lost = bpf::number().map_err(|error| Untraced::refused(&error))?;
        let kernel = described()?;
        Self::attach(kernel, scope, &lost).map_err(|error| Untraced::refused(&error))
    }

    fn attach(kernel: &'static Described, scope: Scope, lost: &OwnedFd) -> io::Result<Self> {
        let Scope { namespaces, owner } = scope;
        let ring = bpf::ring(ROOM)?;
        let set = bpf::set(namespaces.keys().copied())?;
        let format = bpf::text(FORMAT)?;
        let handles = Handles {
            ring: ring.as_raw_fd(),
            lost: lost.as_raw_fd(),
            namespaces: set.as_raw_fd(),
            format: format.as_raw_fd(),
        };
        // The program holds its maps, what attaches it holds the program, and nothing
        // else needs a descriptor: who has none cannot be made to give one away.
        let program = bpf::load(&program::program(&kernel.offsets, handles, owner))?;
        let ahead = nanoseconds(ClockId::CLOCK_REALTIME)? - nanoseconds(ClockId::CLOCK_MONOTONIC)?;
        Ok(Self {
            kernel,
            namespaces,
            ring: Ring::new(&ring, ROOM.try_into().map_err(io::Error::other)?)?,
            lost: Number::new(lost)?,
            ahead,
            _attached: bpf::attach(&program)?,
        })
    }

    /// Says what was dropped since it said so last; of what was left out, all.
    #[must_use]
    pub fn drops(&self) -> Drops {
        let records = std::iter::from_fn(|| self.ring.next());
        let mut dropped: Vec<Dropped> = records.filter_map(|record| self.one(&record)).collect();
        dropped.sort_by_key(|each| each.time);
        Drops::Watched {
            lost: self.lost.get(),
            dropped,
        }
    }

    /// A record; none of what is no IP packet, and of what was not dropped.
    fn one(&self, record: &[u8]) -> Option<Dropped> {
        let namespace = self.namespaces.get(&word(record, NAMESPACE)?)?;
        let number = word(record, REASON)?;
        let reason = match self.kernel.reasons.get(&number) {
            Some(name) if NONE.contains(&name.as_str()) => return None,
            Some(name) => name.strip_prefix(PREFIX).unwrap_or(name).to_owned(),
            None => number.to_string(),
        };
        let version = match record.get(PROTOCOL..)?.first_chunk()? {
            [0x08, 0x00] => 4,
            [0x86, 0xdd] => 6,
            _ => return None,
        };
        let begin = u32::from(short(record, NETWORK)?);
        let length = word(record, TAIL)?.saturating_sub(begin);
        let length = usize::try_from(length).ok()?;
        let packet = record.get(PACKET..)?;
        let packet = &packet[..length.min(packet.len())];
        // Where no one has said yet where the header is, nothing is known of it.
        let packet = if packet.first().is_some_and(|first| first >> 4 == version) {
            packet.to_vec()
        } else {
            Vec::new()
        };
        let time = i128::from(long(record, TIME)?) + self.ahead;
        let place = text(record.get(FUNCTION..PACKET)?);
        let place = place.and_then(|place| Some(plain(&place)?.to_owned()));
        Some(Dropped {
            time: u64::try_from(time).unwrap_or(0),
            namespace: namespace.clone(),
            interface: text(record.get(INTERFACE..FUNCTION)?),
            reason,
            place,
            packet,
        })
    }
}

/// A function's name without the module it is of (`nft_do_chain [nf_tables]`), and
/// without what its compiler has added (`ip_rcv_finish_core.constprop.0`).
fn plain(function: &str) -> Option<&str> {
    function.split([' ', '.']).next()
}

/// What stands before the first nought; nothing if that is nothing.
fn text(bytes: &[u8]) -> Option<String> {
    let text = bytes.split(|byte| *byte == 0).next()?;
    (!text.is_empty()).then(|| String::from_utf8_lossy(text).into_owned())
}

fn nanoseconds(clock: ClockId) -> io::Result<i128> {
    let time = clock_gettime(clock)?;
    Ok(i128::from(time.tv_sec()) * 1_000_000_000 + i128::from(time.tv_nsec()))
}

fn word(record: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(*record.get(at..)?.first_chunk()?))
}

fn short(record: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_ne_bytes(*record.get(at..)?.first_chunk()?))
}

fn long(record: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_ne_bytes(*record.get(at..)?.first_chunk()?))
}
