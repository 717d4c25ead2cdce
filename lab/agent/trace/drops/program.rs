//! The program that a kernel runs for every packet it drops: it writes down when,
//! where, why, in which namespace, and how the packet begins.
//!
//! It hangs on the raw tracepoint `kfree_skb`, whose arguments are the packet, the
//! place and the reason (Linux v6.12, `include/trace/events/skb.h`; from 5.17 on).
//! Where the packet's parts are comes from the kernel's own description.

use super::btf::Btf;

/// How much of the packet is written down, in bytes.
pub const SNAP: usize = 128;

/// The record: what is where in it.
pub const TIME: usize = 0;
pub const PLACE: usize = 8;
pub const REASON: usize = 16;
pub const NAMESPACE: usize = 20;
pub const INTERFACE: usize = 24;
pub const TAIL: usize = 28;
pub const NETWORK: usize = 32;
pub const PROTOCOL: usize = 34;
pub const PACKET: usize = 40;
pub const SIZE: usize = PACKET + SNAP;

/// Functions of the kernel's for such programs (`enum bpf_func_id`).
const LOOK_UP: i32 = 1;
const TIME_NOW: i32 = 5;
const READ: i32 = 113;
const WRITE: i32 = 130;

/// Where the record is, from the end of the stack on, and behind it a pointer and a
/// key.
const RECORD: i16 = -168;
const POINTER: i16 = -176;
const KEY: i16 = -184;

/// The end of the stack.
const STACK: u8 = 10;

/// Where parts of a packet and of what it leads to are, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Offsets {
    device: i32,
    socket: i32,
    route: i32,
    head: i32,
    tail: i32,
    network: i32,
    protocol: i32,
    index_of_device: i32,
    net_of_device: i32,
    net_of_socket: i32,
    device_of_route: i32,
    number_of_net: i32,
}

impl Offsets {
    /// As this kernel describes them; none where it has not got one of them.
    #[must_use]
    pub fn of(btf: &Btf) -> Option<Self> {
        let at = |structure, path: &[&str]| i32::try_from(btf.offset(structure, path)?).ok();
        Some(Self {
            device: at("sk_buff", &["dev"])?,
            socket: at("sk_buff", &["sk"])?,
            route: at("sk_buff", &["_skb_refdst"])?,
            head: at("sk_buff", &["head"])?,
            tail: at("sk_buff", &["tail"])?,
            network: at("sk_buff", &["network_header"])?,
            protocol: at("sk_buff", &["protocol"])?,
            index_of_device: at("net_device", &["ifindex"])?,
            net_of_device: at("net_device", &["nd_net", "net"])?,
            net_of_socket: at("sock", &["__sk_common", "skc_net", "net"])?,
            device_of_route: at("dst_entry", &["dev"])?,
            number_of_net: at("net", &["ns", "inum"])?,
        })
    }
}

/// One instruction, as the kernel reads it.
pub type Instruction = [u8; 8];

fn instruction(code: u8, to: u8, from: u8, offset: i16, number: i32) -> Instruction {
    let mut bytes = [code, from << 4 | to, 0, 0, 0, 0, 0, 0];
    bytes[2..4].copy_from_slice(&offset.to_ne_bytes());
    bytes[4..].copy_from_slice(&number.to_ne_bytes());
    bytes
}

/// Instructions, and jumps that wait for where they lead.
#[derive(Default)]
struct Writer(Vec<Instruction>);

impl Writer {
    fn put(&mut self, code: u8, to: u8, from: u8, offset: i16, number: i32) {
        self.0.push(instruction(code, to, from, offset, number));
    }

    /// `to = from`.
    fn copy(&mut self, to: u8, from: u8) {
        self.put(0xbf, to, from, 0, 0);
    }

    /// `to = number`.
    fn set(&mut self, to: u8, number: i32) {
        self.put(0xb7, to, 0, 0, number);
    }

    /// `to += number`.
    fn add(&mut self, to: u8, number: i32) {
        self.put(0x07, to, 0, 0, number);
    }

    /// `to = ` eight bytes at `from + offset`.
    fn load(&mut self, to: u8, from: u8, offset: i16) {
        self.put(0x79, to, from, offset, 0);
    }

    fn call(&mut self, function: i32) {
        self.put(0x85, 0, 0, 0, function);
    }

    /// `to = ` a map.
    fn map(&mut self, to: u8, descriptor: i32) {
        self.put(0x18, to, 1, 0, descriptor);
        self.put(0, 0, 0, 0, 0);
    }

    /// `size` bytes at `base + offset`, put on the stack at `to`. What cannot be read
    /// is nought.
    fn read(&mut self, to: i16, size: i32, base: u8, offset: i32) {
        self.copy(1, STACK);
        self.add(1, to.into());
        self.set(2, size);
        self.copy(3, base);
        self.add(3, offset);
        self.call(READ);
    }

    /// A jump if `of` is (or is not) nought, and where it stands.
    fn jump(&mut self, code: u8, of: u8) -> usize {
        self.put(code, of, 0, 0, 0);
        self.0.len() - 1
    }

    /// Has a jump lead to what comes next.
    fn land(&mut self, jump: usize) {
        let over = i16::try_from(self.0.len() - jump - 1).unwrap_or(i16::MAX);
        self.0[jump][2..4].copy_from_slice(&over.to_ne_bytes());
    }
}

const IF_NOUGHT: u8 = 0x15;
const IF_NOT_NOUGHT: u8 = 0x55;
const ALWAYS: u8 = 0x05;

/// What is at a place of the record, on the stack.
fn at(place: usize) -> i16 {
    RECORD + i16::try_from(place).unwrap_or(0)
}

/// The program, which writes to the ring with one descriptor and counts what finds no
/// room there in the map with the other.
#[must_use]
pub fn program(offsets: &Offsets, ring: i32, lost: i32) -> Vec<Instruction> {
    let (packet, reached) = (7, 8);
    let mut all = Writer::default();
    all.copy(6, 1);
    for each in (0..SIZE).step_by(8) {
        all.put(0x7a, STACK, 0, at(each), 0);
    }
    all.load(packet, 6, 0);
    all.load(1, 6, 8);
    all.put(0x7b, STACK, 1, at(PLACE), 0);
    all.load(1, 6, 16);
    all.put(0x63, STACK, 1, at(REASON), 0);
    all.call(TIME_NOW);
    all.put(0x7b, STACK, 0, at(TIME), 0);
    all.read(at(TAIL), 4, packet, offsets.tail);
    all.read(at(NETWORK), 2, packet, offsets.network);
    all.read(at(PROTOCOL), 2, packet, offsets.protocol);
    // Its interface leads to the namespace, or its socket does, or its route.
    all.read(POINTER, 8, packet, offsets.device);
    all.load(reached, STACK, POINTER);
    let by_device = all.jump(IF_NOT_NOUGHT, reached);
    all.read(POINTER, 8, packet, offsets.socket);
    all.load(reached, STACK, POINTER);
    let by_route = all.jump(IF_NOUGHT, reached);
    all.read(POINTER, 8, reached, offsets.net_of_socket);
    all.load(reached, STACK, POINTER);
    let found = all.jump(ALWAYS, 0);
    all.land(by_route);
    all.read(POINTER, 8, packet, offsets.route);
    all.load(reached, STACK, POINTER);
    // Its lower bits are flags.
    all.put(0x57, reached, 0, 0, -8);
    let nowhere = all.jump(IF_NOUGHT, reached);
    all.read(POINTER, 8, reached, offsets.device_of_route);
    all.load(reached, STACK, POINTER);
    all.land(by_device);
    all.read(at(INTERFACE), 4, reached, offsets.index_of_device);
    all.read(POINTER, 8, reached, offsets.net_of_device);
    all.load(reached, STACK, POINTER);
    all.land(found);
    all.read(at(NAMESPACE), 4, reached, offsets.number_of_net);
    all.read(POINTER, 8, packet, offsets.head);
    all.load(reached, STACK, POINTER);
    all.put(0x69, 1, STACK, at(NETWORK), 0);
    all.put(0x0f, reached, 1, 0, 0);
    all.read(at(PACKET), SNAP.try_into().unwrap_or(0), reached, 0);
    all.map(1, ring);
    all.copy(2, STACK);
    all.add(2, RECORD.into());
    all.set(3, SIZE.try_into().unwrap_or(0));
    all.set(4, 0);
    all.call(WRITE);
    let written = all.jump(IF_NOUGHT, 0);
    all.put(0x62, STACK, 0, KEY, 0);
    all.map(1, lost);
    all.copy(2, STACK);
    all.add(2, KEY.into());
    all.call(LOOK_UP);
    let missing = all.jump(IF_NOUGHT, 0);
    all.set(1, 1);
    // Added to in one go.
    all.put(0xdb, 0, 1, 0, 0);
    for jump in [nowhere, written, missing] {
        all.land(jump);
    }
    all.set(0, 0);
    all.put(0x95, 0, 0, 0, 0);
    all.0
}
