//! Generates the BPF program that the kernel runs for every dropped packet. For packets in the
//! selected namespaces the program records the time, the function, the reason and the start of the
//! packet. Of other packets it reads only the namespace.
//!
//! The program is attached to the raw tracepoint `kfree_skb`, whose arguments are the packet, the
//! code location and the reason (Linux v6.12, `include/trace/events/skb.h`; since 5.17). The
//! offsets of the packet's parts come from the kernel's type information. The kernel formats the
//! location as a function name (`lib/vsprintf.c`, `%ps`), so that no address leaves the kernel.
//!
//! The kernel skips a program that already runs on the same processor, as when an interrupt drops a
//! packet while the program handles another one (Linux v6.12, `kernel/trace/bpf_trace.c`,
//! `__bpf_trace_run`). Therefore two copies of the program are attached. They run one after the
//! other, and an interrupt during one of them skips that copy only.

use super::btf::Btf;

/// Number of bytes of the packet that are recorded.
pub(super) const MAX_PACKET_BYTES: usize = 128;

/// Maximum number of bytes of a function's name and of an interface's name.
const FUNCTION_SIZE: usize = 64;
const INTERFACE_SIZE: usize = 16;

/// Offsets of the fields of a record.
pub(super) const TIME: usize = 0;
pub(super) const NAMESPACE: usize = 8;
pub(super) const REASON: usize = 12;
pub(super) const TAIL: usize = 16;
pub(super) const NETWORK: usize = 20;
pub(super) const PROTOCOL: usize = 22;
pub(super) const INTERFACE: usize = 24;
pub(super) const FUNCTION: usize = INTERFACE + INTERFACE_SIZE;
pub(super) const PACKET: usize = FUNCTION + FUNCTION_SIZE;
pub(super) const COPY: usize = PACKET + MAX_PACKET_BYTES;
pub(super) const SIZE: usize = COPY + 8;

/// Number of copies of the program.
pub(super) const COPIES: u8 = 2;

/// Format of the location: the name of its function.
pub(super) const FORMAT: [u8; 8] = *b"%ps\0\0\0\0\0";

/// Kernel functions that the program calls (`enum bpf_func_id`).
const HELPER_MAP_LOOKUP: i32 = 1;
const HELPER_TIME: i32 = 5;
const HELPER_PROBE_READ: i32 = 113;
const HELPER_RING_OUTPUT: i32 = 130;
const HELPER_PRINT: i32 = 165;

/// Stack offsets of the record, and below it of a pointer, a key, a number, the location and the
/// expected owner.
const RECORD: i16 = -240;
const POINTER: i16 = -248;
const KEY: i16 = -256;
const NUMBER: i16 = -264;
const LOCATION: i16 = -272;
const OWNER: i16 = -280;

/// Register with the end of the stack.
const STACK: u8 = 10;

/// Offsets in bytes of the parts of a packet and of the structures that it refers to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Offsets {
    device: i32,
    socket: i32,
    route: i32,
    head: i32,
    tail: i32,
    network: i32,
    protocol: i32,
    device_name: i32,
    device_net: i32,
    socket_net: i32,
    route_device: i32,
    net_inode: i32,
    net_owner: i32,
    owner_inode: i32,
}

impl Offsets {
    /// Reads the offsets from a kernel's type information. Returns `None` if a member is missing.
    pub(super) fn from_btf(btf: &Btf) -> Option<Self> {
        let offset = |structure, path: &[&str]| i32::try_from(btf.offset(structure, path)?).ok();
        Some(Self {
            device: offset("sk_buff", &["dev"])?,
            socket: offset("sk_buff", &["sk"])?,
            route: offset("sk_buff", &["_skb_refdst"])?,
            head: offset("sk_buff", &["head"])?,
            tail: offset("sk_buff", &["tail"])?,
            network: offset("sk_buff", &["network_header"])?,
            protocol: offset("sk_buff", &["protocol"])?,
            device_name: offset("net_device", &["name"])?,
            device_net: offset("net_device", &["nd_net", "net"])?,
            socket_net: offset("sock", &["__sk_common", "skc_net", "net"])?,
            route_device: offset("dst_entry", &["dev"])?,
            net_inode: offset("net", &["ns", "inum"])?,
            net_owner: offset("net", &["user_ns"])?,
            owner_inode: offset("user_namespace", &["ns", "inum"])?,
        })
    }
}

/// Descriptors of the maps that the program uses.
#[derive(Debug, Clone, Copy)]
pub(super) struct Handles {
    /// Ring that receives the records.
    pub ring: i32,
    /// Counters of the records that did not fit into the ring, by copy of the program.
    pub lost: i32,
    /// Inode numbers of the user namespaces that own the traced namespaces, by inode number of the
    /// namespace.
    pub owners: i32,
    /// Map with [`FORMAT`].
    pub format: i32,
}

/// Instruction in the kernel's encoding.
pub(super) type Instruction = [u8; 8];

fn instruction(code: u8, to: u8, from: u8, offset: i16, number: i32) -> Instruction {
    let mut bytes = [code, from << 4 | to, 0, 0, 0, 0, 0, 0];
    bytes[2..4].copy_from_slice(&offset.to_ne_bytes());
    bytes[4..].copy_from_slice(&number.to_ne_bytes());
    bytes
}

/// List of instructions, with jumps whose targets are set later.
#[derive(Default)]
struct Assembler(Vec<Instruction>);

impl Assembler {
    fn emit(&mut self, code: u8, to: u8, from: u8, offset: i16, number: i32) {
        self.0.push(instruction(code, to, from, offset, number));
    }

    /// Emits `to = from`.
    fn copy(&mut self, to: u8, from: u8) {
        self.emit(0xbf, to, from, 0, 0);
    }

    /// Emits `to = number`.
    fn set(&mut self, to: u8, number: i32) {
        self.emit(0xb7, to, 0, 0, number);
    }

    /// Emits `to += number`.
    fn add(&mut self, to: u8, number: i32) {
        self.emit(0x07, to, 0, 0, number);
    }

    /// Emits a load of 8 bytes at `from + offset` into `to`.
    fn load(&mut self, to: u8, from: u8, offset: i16) {
        self.emit(0x79, to, from, offset, 0);
    }

    fn call(&mut self, function: i32) {
        self.emit(0x85, 0, 0, 0, function);
    }

    /// Emits `to = ` a map.
    fn map(&mut self, to: u8, descriptor: i32) {
        self.emit(0x18, to, 1, 0, descriptor);
        self.emit(0, 0, 0, 0, 0);
    }

    /// Emits a copy of `size` bytes at `base + offset` to the stack at `to`. Unreadable bytes
    /// become 0.
    fn read(&mut self, to: i16, size: i32, base: u8, offset: i32) {
        self.copy(1, STACK);
        self.add(1, to.into());
        self.set(2, size);
        self.copy(3, base);
        self.add(3, offset);
        self.call(HELPER_PROBE_READ);
    }

    /// Emits `to = ` the address of a map's value.
    fn map_value(&mut self, to: u8, descriptor: i32) {
        self.emit(0x18, to, 2, 0, descriptor);
        self.emit(0, 0, 0, 0, 0);
    }

    /// Emits `to = ` the pointer at `base + offset`.
    fn follow(&mut self, to: u8, base: u8, offset: i32) {
        self.read(POINTER, 8, base, offset);
        self.load(to, STACK, POINTER);
    }

    /// Emits a jump on whether `register` is 0. Returns the position of the jump.
    fn jump(&mut self, code: u8, register: u8) -> usize {
        self.emit(code, register, 0, 0, 0);
        self.0.len() - 1
    }

    /// Sets the target of a jump to the next instruction.
    fn set_target(&mut self, jump: usize) {
        let distance = i16::try_from(self.0.len() - jump - 1).unwrap_or(i16::MAX);
        self.0[jump][2..4].copy_from_slice(&distance.to_ne_bytes());
    }
}

const JUMP_IF_ZERO: u8 = 0x15;
const JUMP_IF_NOT_ZERO: u8 = 0x55;
const JUMP: u8 = 0x05;

/// Returns the stack offset of a record's field.
fn field_on_stack(field: usize) -> i16 {
    RECORD + i16::try_from(field).unwrap_or(0)
}

/// Generates a copy of the program, with its number. It records drops in the namespaces of the map of
/// owners, if a namespace belongs to the user namespace that the map names.
pub(super) fn program(offsets: &Offsets, handles: Handles, copy: u8) -> Vec<Instruction> {
    let (packet, device, net) = (7, 8, 9);
    let mut code = Assembler::default();
    let mut exits = Vec::new();
    code.copy(6, 1);
    code.load(packet, 6, 0);
    // The packet's interface, socket or route leads to its namespace. While the packet is in a
    // socket's queue, the interface field contains other data, which does not lead to a namespace.
    code.follow(device, packet, offsets.device);
    let no_device = code.jump(JUMP_IF_ZERO, device);
    code.follow(net, device, offsets.device_net);
    let by_device = read_namespace_number(&mut code, net, offsets);
    code.set_target(no_device);
    code.set(device, 0);
    code.follow(net, packet, offsets.socket);
    let no_socket = code.jump(JUMP_IF_ZERO, net);
    code.follow(net, net, offsets.socket_net);
    let by_socket = read_namespace_number(&mut code, net, offsets);
    code.set_target(no_socket);
    code.follow(device, packet, offsets.route);
    // The lower bits of the pointer are flags.
    code.emit(0x57, device, 0, 0, -8);
    exits.push(code.jump(JUMP_IF_ZERO, device));
    code.follow(device, device, offsets.route_device);
    exits.push(code.jump(JUMP_IF_ZERO, device));
    code.follow(net, device, offsets.device_net);
    let by_route = read_namespace_number(&mut code, net, offsets);
    exits.push(code.jump(JUMP, 0));
    for found in [by_device, by_socket, by_route] {
        code.set_target(found);
    }
    code.map(1, handles.owners);
    code.copy(2, STACK);
    code.add(2, NUMBER.into());
    code.call(HELPER_MAP_LOOKUP);
    exits.push(code.jump(JUMP_IF_ZERO, 0));
    code.emit(0x61, 1, 0, 0, 0);
    code.emit(0x63, STACK, 1, OWNER, 0);
    code.follow(net, net, offsets.net_owner);
    code.read(KEY, 4, net, offsets.owner_inode);
    code.emit(0x61, 1, STACK, KEY, 0);
    code.emit(0x61, 2, STACK, OWNER, 0);
    // The comparison uses 32 bits.
    code.emit(0x5e, 1, 2, 0, 0);
    exits.push(code.0.len() - 1);

    for each in (0..SIZE).step_by(8) {
        code.emit(0x7a, STACK, 0, field_on_stack(each), 0);
    }
    code.emit(0x72, STACK, 0, field_on_stack(COPY), copy.into());
    code.emit(0x61, 1, STACK, NUMBER, 0);
    code.emit(0x63, STACK, 1, field_on_stack(NAMESPACE), 0);
    code.load(1, 6, 16);
    code.emit(0x63, STACK, 1, field_on_stack(REASON), 0);
    code.call(HELPER_TIME);
    code.emit(0x7b, STACK, 0, field_on_stack(TIME), 0);
    code.read(field_on_stack(TAIL), 4, packet, offsets.tail);
    code.read(field_on_stack(NETWORK), 2, packet, offsets.network);
    code.read(field_on_stack(PROTOCOL), 2, packet, offsets.protocol);
    let nameless = code.jump(JUMP_IF_ZERO, device);
    let name = INTERFACE_SIZE.try_into().unwrap_or(0);
    code.read(field_on_stack(INTERFACE), name, device, offsets.device_name);
    code.set_target(nameless);
    code.load(1, 6, 8);
    code.emit(0x7b, STACK, 1, LOCATION, 0);
    code.copy(1, STACK);
    code.add(1, field_on_stack(FUNCTION).into());
    code.set(2, FUNCTION_SIZE.try_into().unwrap_or(0));
    code.map_value(3, handles.format);
    code.copy(4, STACK);
    code.add(4, LOCATION.into());
    code.set(5, 8);
    code.call(HELPER_PRINT);
    code.follow(net, packet, offsets.head);
    code.emit(0x69, 1, STACK, field_on_stack(NETWORK), 0);
    code.emit(0x0f, net, 1, 0, 0);
    code.read(
        field_on_stack(PACKET),
        MAX_PACKET_BYTES.try_into().unwrap_or(0),
        net,
        0,
    );
    code.map(1, handles.ring);
    code.copy(2, STACK);
    code.add(2, RECORD.into());
    code.set(3, SIZE.try_into().unwrap_or(0));
    code.set(4, 0);
    code.call(HELPER_RING_OUTPUT);
    exits.push(code.jump(JUMP_IF_ZERO, 0));
    code.emit(0x62, STACK, 0, KEY, copy.into());
    code.map(1, handles.lost);
    code.copy(2, STACK);
    code.add(2, KEY.into());
    code.call(HELPER_MAP_LOOKUP);
    exits.push(code.jump(JUMP_IF_ZERO, 0));
    code.set(1, 1);
    // Atomic addition.
    code.emit(0xdb, 0, 1, 0, 0);
    for jump in exits {
        code.set_target(jump);
    }
    code.set(0, 0);
    code.emit(0x95, 0, 0, 0, 0);
    code.0
}

/// Emits code that reads a namespace's inode number, and a jump if the number is not 0.
fn read_namespace_number(code: &mut Assembler, net: u8, offsets: &Offsets) -> usize {
    code.read(NUMBER, 4, net, offsets.net_inode);
    code.emit(0x61, 1, STACK, NUMBER, 0);
    code.jump(JUMP_IF_NOT_ZERO, 1)
}
