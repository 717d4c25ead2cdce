//! Which packets a kernel drops in traced namespaces, where and why, by its own
//! account.

mod bpf;
mod btf;
mod program;
mod symbols;

use std::collections::{HashMap, HashSet};
use std::fs::{self, File};
use std::io::{self, BufReader};
use std::os::fd::{AsRawFd, OwnedFd};
use std::rc::Rc;

use nix::time::{ClockId, clock_gettime};

use super::Traced;
use crate::evidence::{Dropped, Drops};
use bpf::{Number, Ring};
use btf::Btf;
use program::{
    INTERFACE, NAMESPACE, NETWORK, Offsets, PACKET, PLACE, PROTOCOL, REASON, TAIL, TIME,
};

/// The kernel's description of its types, and its functions.
const TYPES: &str = "/sys/kernel/btf/vmlinux";
const FUNCTIONS: &str = "/proc/kallsyms";

/// Room for drops, in bytes: some twenty thousand.
const ROOM: u32 = 4 << 20;

/// What the kernel calls its reasons begins so.
const PREFIX: &str = "SKB_DROP_REASON_";

/// Reasons that are none: nothing was dropped.
const NONE: [&str; 2] = ["SKB_NOT_DROPPED_YET", "SKB_CONSUMED"];

thread_local! {
    /// What this kernel says of itself, which it says once.
    static KERNEL: std::cell::OnceCell<Result<Rc<Described>, String>> = const { std::cell::OnceCell::new() };
}

/// What is asked of a kernel's description.
struct Described {
    offsets: Offsets,
    reasons: HashMap<u32, String>,
}

/// A kernel that tells of every packet it drops, until this is dropped.
pub struct Tracer {
    kernel: Rc<Described>,
    ring: Ring,
    lost: Number,
    /// By how much the time of day was ahead of the steady clock when it began.
    ahead: i128,
    _attached: [OwnedFd; 4],
}

impl Tracer {
    /// Begins to trace.
    ///
    /// # Errors
    ///
    /// Why this cannot be done here, in words.
    pub fn begin() -> Result<Self, String> {
        // Whether it is allowed is asked first: it costs nothing.
        let ring = bpf::ring(ROOM).map_err(|error| refused(&error))?;
        let kernel = described()?;
        Self::attach(kernel, ring).map_err(|error| refused(&error))
    }

    fn attach(kernel: Rc<Described>, ring: OwnedFd) -> io::Result<Self> {
        let lost = bpf::number()?;
        let program = program::program(&kernel.offsets, ring.as_raw_fd(), lost.as_raw_fd());
        let program = bpf::load(&program)?;
        let ahead = nanoseconds(ClockId::CLOCK_REALTIME)? - nanoseconds(ClockId::CLOCK_MONOTONIC)?;
        Ok(Self {
            kernel,
            ring: Ring::new(&ring, ROOM.try_into().map_err(io::Error::other)?)?,
            lost: Number::new(&lost)?,
            ahead,
            _attached: [bpf::attach(&program)?, program, ring, lost],
        })
    }

    /// Says what was dropped so far in traced namespaces.
    pub fn drops(&self, traced: &[Traced]) -> Drops {
        let places: HashMap<u32, &Traced> = traced
            .iter()
            .filter_map(|each| Some((u32::try_from(each.ns.number()).ok()?, each)))
            .collect();
        let mut dropped = Vec::new();
        let mut functions = HashSet::new();
        while let Some(record) = self.ring.next() {
            let Some((place, each)) = self.one(&record, &places) else {
                continue;
            };
            functions.insert(place);
            dropped.push((place, each));
        }
        let functions = File::open(FUNCTIONS)
            .and_then(|list| symbols::functions(BufReader::new(list), functions.into_iter()))
            .unwrap_or_default();
        let mut dropped: Vec<Dropped> = dropped
            .into_iter()
            .map(|(place, each)| Dropped {
                place: functions.get(&place).cloned(),
                ..each
            })
            .collect();
        dropped.sort_by_key(|each| each.time);
        Drops::Watched {
            lost: self.lost.get(),
            dropped,
        }
    }

    /// A record, without its place, and the address of that; none of another
    /// namespace or of what is no IP packet, and of what was not dropped.
    fn one(&self, record: &[u8], places: &HashMap<u32, &Traced>) -> Option<(u64, Dropped)> {
        let traced = places.get(&word(record, NAMESPACE)?)?;
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
        let interface = traced.interfaces.get(&word(record, INTERFACE)?);
        let dropped = Dropped {
            time: u64::try_from(time).unwrap_or(0),
            namespace: traced.name.clone(),
            interface: interface.cloned(),
            reason,
            place: None,
            packet,
        };
        Some((long(record, PLACE)?, dropped))
    }
}

fn described() -> Result<Rc<Described>, String> {
    KERNEL.with(|kernel| kernel.get_or_init(describe).clone())
}

fn describe() -> Result<Rc<Described>, String> {
    let bytes = fs::read(TYPES)
        .map_err(|error| format!("this kernel does not describe its types in {TYPES}: {error}"))?;
    let btf = Btf::new(bytes)
        .ok_or_else(|| format!("this kernel's description of its types in {TYPES} is not known"))?;
    let lacks = || "this kernel describes packets in a way that is not known".to_owned();
    let reasons = btf.names("skb_drop_reason");
    if reasons.is_empty() {
        return Err(
            "this kernel gives no reasons for what it drops; Linux 5.17 is the first that does"
                .to_owned(),
        );
    }
    Ok(Rc::new(Described {
        offsets: Offsets::of(&btf).ok_or_else(lacks)?,
        reasons,
    }))
}

fn refused(error: &io::Error) -> String {
    format!("the kernel does not let svclab trace what it drops: {error}")
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
