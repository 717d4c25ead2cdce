//! Generates the BPF program that the kernel runs for every dropped packet. For packets in the
//! selected namespaces the program records the time, the function, the reason and the start of the
//! packet. Of other packets it reads only the namespace.
//!
//! The program is attached to the raw tracepoint `kfree_skb`, whose arguments are the packet, the
//! code location and the reason (Linux v6.12, `include/trace/events/skb.h`; since 5.17). The
//! offsets of the packet's parts come from the kernel's type information. The kernel formats the
//! location as a function name (`lib/vsprintf.c`, `%ps`), so that no address leaves the kernel.

use super::btf::Btf;

/// Number of bytes of the packet that are recorded.
pub const SNAP: usize = 128;

/// Maximum number of bytes of a function's name and of an interface's name.
const FUNCTION_SIZE: usize = 64;
const INTERFACE_SIZE: usize = 16;

/// Offsets of the fields of a record.
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

/// Format of the location: the name of its function.
pub const FORMAT: [u8; 8] = *b"%ps\0\0\0\0\0";

/// Kernel functions that the program calls (`enum bpf_func_id`).
const LOOK_UP: i32 = 1;
const TIME_NOW: i32 = 5;
const READ: i32 = 113;
const WRITE: i32 = 130;
const PRINT: i32 = 165;

/// Stack offsets of the record, and below it of a pointer, a key, a number and the location.
const RECORD: i16 = -232;
const POINTER: i16 = -240;
const KEY: i16 = -248;
const NUMBER: i16 = -256;
const PLACE: i16 = -264;

/// Register with the end of the stack.
const STACK: u8 = 10;

/// Offsets in bytes of the parts of a packet and of the structures that it refers to.
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
    /// Reads the offsets from a kernel's type information. Returns `None` if a member is missing.
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

/// Descriptors of the maps that the program uses.
#[derive(Debug, Clone, Copy)]
pub struct Handles {
    /// Ring that receives the records.
    pub ring: i32,
    /// Counter of the records that did not fit into the ring.
    pub lost: i32,
    /// Set of the namespaces' inode numbers.
    pub namespaces: i32,
    /// Map with [`FORMAT`].
    pub format: i32,
}

/// Instruction in the kernel's encoding.
pub type Instruction = [u8; 8];

fn instruction(code: u8, to: u8, from: u8, offset: i16, number: i32) -> Instruction {
    let mut bytes = [code, from << 4 | to, 0, 0, 0, 0, 0, 0];
    bytes[2..4].copy_from_slice(&offset.to_ne_bytes());
    bytes[4..].copy_from_slice(&number.to_ne_bytes());
    bytes
}

/// List of instructions, with jumps whose targets are set later.
#[derive(Default)]
struct Writer(Vec<Instruction>);

impl Writer {
    fn put(&mut self, code: u8, to: u8, from: u8, offset: i16, number: i32) {
        self.0.push(instruction(code, to, from, offset, number));
    }

    /// Emits `to = from`.
    fn copy(&mut self, to: u8, from: u8) {
        self.put(0xbf, to, from, 0, 0);
    }

    /// Emits `to = number`.
    fn set(&mut self, to: u8, number: i32) {
        self.put(0xb7, to, 0, 0, number);
    }

    /// Emits `to += number`.
    fn add(&mut self, to: u8, number: i32) {
        self.put(0x07, to, 0, 0, number);
    }

    /// Emits a load of 8 bytes at `from + offset` into `to`.
    fn load(&mut self, to: u8, from: u8, offset: i16) {
        self.put(0x79, to, from, offset, 0);
    }

    fn call(&mut self, function: i32) {
        self.put(0x85, 0, 0, 0, function);
    }

    /// Emits `to = ` a map.
    fn map(&mut self, to: u8, descriptor: i32) {
        self.put(0x18, to, 1, 0, descriptor);
        self.put(0, 0, 0, 0, 0);
    }

    /// Emits a copy of `size` bytes at `base + offset` to the stack at `to`. Unreadable bytes
    /// become 0.
    fn read(&mut self, to: i16, size: i32, base: u8, offset: i32) {
        self.copy(1, STACK);
        self.add(1, to.into());
        self.set(2, size);
        self.copy(3, base);
        self.add(3, offset);
        self.call(READ);
    }

    /// Emits `to = ` the address of a map's value.
    fn held(&mut self, to: u8, descriptor: i32) {
        self.put(0x18, to, 2, 0, descriptor);
        self.put(0, 0, 0, 0, 0);
    }

    /// Emits `to = ` the pointer at `base + offset`.
    fn follow(&mut self, to: u8, base: u8, offset: i32) {
        self.read(POINTER, 8, base, offset);
        self.load(to, STACK, POINTER);
    }

    /// Emits a jump on whether register `of` is 0. Returns the position of the jump.
    fn jump(&mut self, code: u8, of: u8) -> usize {
        self.put(code, of, 0, 0, 0);
        self.0.len() - 1
    }

    /// Sets the target of a jump to the next instruction.
    fn land(&mut self, jump: usize) {
        let over = i16::try_from(self.0.len() - jump - 1).unwrap_or(i16::MAX);
        self.0[jump][2..4].copy_from_slice(&over.to_ne_bytes());
    }
}

const IF_NOUGHT: u8 = 0x15;
const IF_NOT_NOUGHT: u8 = 0x55;
const ALWAYS: u8 = 0x05;

/// Returns the stack offset of a record's field.
fn at(place: usize) -> i16 {
    RECORD + i16::try_from(place).unwrap_or(0)
}

/// Generates the program. It records drops in the namespaces of its set that belong to the user
/// namespace with inode number `owner`.
#[must_use]
pub fn program(offsets: &Offsets, handles: Handles, owner: u32) -> Vec<Instruction> {
    let (packet, device, net) = (7, 8, 9);
    let mut all = Writer::default();
    let mut nowhere = Vec::new();
    all.copy(6, 1);
    all.load(packet, 6, 0);
    // The packet's interface, socket or route leads to its namespace. While the packet is in a
    // socket's queue, the interface field contains other data, which does not lead to a namespace.
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
    // The lower bits of the pointer are flags.
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
    // The comparison uses 32 bits.
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
    // Atomic addition.
    all.put(0xdb, 0, 1, 0, 0);
    for jump in nowhere {
        all.land(jump);
    }
    all.set(0, 0);
    all.put(0x95, 0, 0, 0, 0);
    all.0
}

/// Emits code that reads a namespace's inode number, and a jump if the number is not 0.
fn number(all: &mut Writer, net: u8, offsets: &Offsets) -> usize {
    all.read(NUMBER, 4, net, offsets.number_of_net);
    all.put(0x61, 1, STACK, NUMBER, 0);
    all.jump(IF_NOT_NOUGHT, 1)
}
