//! The program that a kernel runs for every packet it drops: of packets in the
//! namespaces that it is for it writes down when, where, why, and how they begin. Of
//! all other packets it reads no more than whose they are.
//!
//! It hangs on the raw tracepoint `kfree_skb`, whose arguments are the packet, the
//! place and the reason (Linux v6.12, `include/trace/events/skb.h`; from 5.17 on).
//! Where the packet's parts are comes from the kernel's own description. The kernel
//! itself says which of its functions the place is in (`lib/vsprintf.c`, `%ps`): no
//! address leaves it.

use super::btf::Btf;

/// How much of the packet is written down, in bytes.
pub const SNAP: usize = 128;

/// How much of a function's name is, and of an interface's.
const FUNCTION_SIZE: usize = 64;
const INTERFACE_SIZE: usize = 16;

/// The record: what is where in it.
pub const TIME: usize = 0;
pub const NAMESPACE: usize = 8;
pub const REASON: usize = 12;
pub const TAIL: usize = 16;
pub const NETWORK: usize = 20;
pub const PROTOCOL: usize = 22;
pub const INTERFACE: usize = 24;
pub const FUNCTION: usize = INTERFACE + INTERFACE_SIZE;
pub const PACKET: usize = FUNCTION + FUNCTION_SIZE;
pub const SIZE: usize = PACKET + SNAP;

/// How the kernel is to write the place: its function's name.
pub const FORMAT: [u8; 8] = *b"%ps\0\0\0\0\0";

/// Functions of the kernel's for such programs (`enum bpf_func_id`).
const LOOK_UP: i32 = 1;
const TIME_NOW: i32 = 5;
const READ: i32 = 113;
const WRITE: i32 = 130;
const PRINT: i32 = 165;

/// Where the record is, from the end of the stack on, and behind it a pointer, a key,
/// a number and the place.
const RECORD: i16 = -232;
const POINTER: i16 = -240;
const KEY: i16 = -248;
const NUMBER: i16 = -256;
const PLACE: i16 = -264;

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
    name_of_device: i32,
    net_of_device: i32,
    net_of_socket: i32,
    device_of_route: i32,
    number_of_net: i32,
    owner_of_net: i32,
    number_of_owner: i32,
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
            name_of_device: at("net_device", &["name"])?,
            net_of_device: at("net_device", &["nd_net", "net"])?,
            net_of_socket: at("sock", &["__sk_common", "skc_net", "net"])?,
            device_of_route: at("dst_entry", &["dev"])?,
            number_of_net: at("net", &["ns", "inum"])?,
            owner_of_net: at("net", &["user_ns"])?,
            number_of_owner: at("user_namespace", &["ns", "inum"])?,
        })
    }
}

/// What the program works with: maps by their descriptors.
#[derive(Debug, Clone, Copy)]
pub struct Handles {
    /// The ring that it writes to.
    pub ring: i32,
    /// Where it counts what finds no room there.
    pub lost: i32,
    /// The numbers of the namespaces that it is for.
    pub namespaces: i32,
    /// [`FORMAT`].
    pub format: i32,
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

    /// `to = ` what a map holds.
    fn held(&mut self, to: u8, descriptor: i32) {
        self.put(0x18, to, 2, 0, descriptor);
        self.put(0, 0, 0, 0, 0);
    }

    /// `to = ` the pointer at `base + offset`.
    fn follow(&mut self, to: u8, base: u8, offset: i32) {
        self.read(POINTER, 8, base, offset);
        self.load(to, STACK, POINTER);
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

/// The program, for those namespaces of its set whose owner is the user namespace of
/// that number.
#[must_use]
pub fn program(offsets: &Offsets, handles: Handles, owner: u32) -> Vec<Instruction> {
    let (packet, device, net) = (7, 8, 9);
    let mut all = Writer::default();
    let mut nowhere = Vec::new();
    all.copy(6, 1);
    all.load(packet, 6, 0);
    // Its interface leads to its namespace, or its socket does, or its route. In a
    // socket's queue there is something else where the interface was, which leads
    // nowhere.
    all.follow(device, packet, offsets.device);
    let no_device = all.jump(IF_NOUGHT, device);
    all.follow(net, device, offsets.net_of_device);
    let by_device = number(&mut all, net, offsets);
    all.land(no_device);
    all.set(device, 0);
    all.follow(net, packet, offsets.socket);
    let no_socket = all.jump(IF_NOUGHT, net);
    all.follow(net, net, offsets.net_of_socket);
    let by_socket = number(&mut all, net, offsets);
    all.land(no_socket);
    all.follow(device, packet, offsets.route);
    // Its lower bits are flags.
    all.put(0x57, device, 0, 0, -8);
    nowhere.push(all.jump(IF_NOUGHT, device));
    all.follow(device, device, offsets.device_of_route);
    nowhere.push(all.jump(IF_NOUGHT, device));
    all.follow(net, device, offsets.net_of_device);
    let by_route = number(&mut all, net, offsets);
    nowhere.push(all.jump(ALWAYS, 0));
    for found in [by_device, by_socket, by_route] {
        all.land(found);
    }
    all.map(1, handles.namespaces);
    all.copy(2, STACK);
    all.add(2, NUMBER.into());
    all.call(LOOK_UP);
    nowhere.push(all.jump(IF_NOUGHT, 0));
    all.follow(net, net, offsets.owner_of_net);
    all.read(KEY, 4, net, offsets.number_of_owner);
    all.put(0x61, 1, STACK, KEY, 0);
    // Numbers of 32 bits are compared as such.
    all.put(0x56, 1, 0, 0, owner.cast_signed());
    nowhere.push(all.0.len() - 1);

    for each in (0..SIZE).step_by(8) {
        all.put(0x7a, STACK, 0, at(each), 0);
    }
    all.put(0x61, 1, STACK, NUMBER, 0);
    all.put(0x63, STACK, 1, at(NAMESPACE), 0);
    all.load(1, 6, 16);
    all.put(0x63, STACK, 1, at(REASON), 0);
    all.call(TIME_NOW);
    all.put(0x7b, STACK, 0, at(TIME), 0);
    all.read(at(TAIL), 4, packet, offsets.tail);
    all.read(at(NETWORK), 2, packet, offsets.network);
    all.read(at(PROTOCOL), 2, packet, offsets.protocol);
    let nameless = all.jump(IF_NOUGHT, device);
    let name = INTERFACE_SIZE.try_into().unwrap_or(0);
    all.read(at(INTERFACE), name, device, offsets.name_of_device);
    all.land(nameless);
    all.load(1, 6, 8);
    all.put(0x7b, STACK, 1, PLACE, 0);
    all.copy(1, STACK);
    all.add(1, at(FUNCTION).into());
    all.set(2, FUNCTION_SIZE.try_into().unwrap_or(0));
    all.held(3, handles.format);
    all.copy(4, STACK);
    all.add(4, PLACE.into());
    all.set(5, 8);
    all.call(PRINT);
    all.follow(net, packet, offsets.head);
    all.put(0x69, 1, STACK, at(NETWORK), 0);
    all.put(0x0f, net, 1, 0, 0);
    all.read(at(PACKET), SNAP.try_into().unwrap_or(0), net, 0);
    all.map(1, handles.ring);
    all.copy(2, STACK);
    all.add(2, RECORD.into());
    all.set(3, SIZE.try_into().unwrap_or(0));
    all.set(4, 0);
    all.call(WRITE);
    nowhere.push(all.jump(IF_NOUGHT, 0));
    all.put(0x62, STACK, 0, KEY, 0);
    all.map(1, handles.lost);
    all.copy(2, STACK);
    all.add(2, KEY.into());
    all.call(LOOK_UP);
    nowhere.push(all.jump(IF_NOUGHT, 0));
    all.set(1, 1);
    // Added to in one go.
    all.put(0xdb, 0, 1, 0, 0);
    for jump in nowhere {
        all.land(jump);
    }
    all.set(0, 0);
    all.put(0x95, 0, 0, 0, 0);
    all.0
}

/// Reads a namespace's number, and jumps if it has one.
fn number(all: &mut Writer, net: u8, offsets: &Offsets) -> usize {
    all.read(NUMBER, 4, net, offsets.number_of_net);
    all.put(0x61, 1, STACK, NUMBER, 0);
    all.jump(IF_NOT_NOUGHT, 1)
}
