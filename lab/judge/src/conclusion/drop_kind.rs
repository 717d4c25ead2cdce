//! Defines the kinds of causes for which a kernel drops a packet.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Declares [`DropKind`], and the list of its values.
macro_rules! kinds {
    ($($(#[$doc:meta])* $kind:ident,)*) => {
        /// Kind of cause for which a kernel drops a packet.
        #[derive(
            Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
        )]
        #[serde(rename_all = "camelCase")]
        pub enum DropKind {
            $($(#[$doc])* $kind,)*
        }

        impl DropKind {
            /// All kinds.
            pub const ALL: &[Self] = &[$(Self::$kind,)*];
        }
    };
}

kinds! {
    /// No route leads to the destination.
    NoRoute,
    /// A blackhole, unreachable or prohibit route, or such a routing rule, refused the packet.
    RouteRefused,
    /// The packet is addressed to another machine, and the namespace does not forward.
    NotForwarding,
    /// The reverse path filter refused the source.
    ReversePath,
    /// The source is an address of the namespace itself.
    LocalSource,
    /// The source is no valid unicast address, or its route is not a unicast route.
    InvalidSource,
    /// The destination is no valid address.
    InvalidDestination,
    /// An address of 127.0.0.0/8 came from another interface than `lo`.
    LoopbackAddress,
    /// A packet from or to `::1` came from another interface than `lo` (Linux v6.12,
    /// `net/ipv6/ip6_input.c`, `ip6_rcv_core`, and `include/net/ipv6.h`, `rt6_need_strict`).
    Ipv6Loopback,
    /// The route lookup of a received packet failed without a reason.
    RouteInput,
    /// The TTL or hop limit expired.
    TtlExpired,
    /// The TTL is below the minimum of the socket.
    TtlMinimum,
    /// The TTL expired, or the header is invalid.
    TtlOrHeader,
    /// The kernel refused to forward the packet without a reason.
    Forward,
    /// The IP header is invalid.
    InvalidHeader,
    /// The IP header is invalid, or the frame was addressed to another interface.
    IpInput,
    /// A checksum is wrong.
    Checksum,
    /// The packet is shorter than its headers state.
    Truncated,
    /// A fragment could not be reassembled.
    Fragment,
    /// The frame was addressed to the hardware address of another interface.
    OtherHardwareAddress,
    /// A multicast or broadcast frame contained a unicast packet.
    MulticastFrame,
    /// No protocol handler accepts the packet.
    UnknownProtocol,
    /// IPv6 is disabled.
    Ipv6Disabled,
    /// The packet is larger than the MTU.
    TooBig,
    /// The packet is larger than the MTU of a link, or the link is down.
    LinkRefused,
    /// The neighbour did not reply.
    NeighbourFailed,
    /// The queue of packets that wait for a neighbour is full.
    NeighbourQueue,
    /// The neighbour entry could not be created.
    NeighbourEntry,
    /// The bridge port is not in the forwarding state.
    BridgePortState,
    /// The bridge refused the frame on ingress.
    BridgeIngress,
    /// The bridge had no port to which it could send the frame.
    BridgeNoPort,
    /// The source hardware address of the frame is invalid or local.
    SourceHardwareAddress,
    /// Netfilter dropped the packet.
    Netfilter,
    /// No program reads the queue to which a rule sent the packet.
    NetfilterQueue,
    /// IPVS could not send the packet to a real server.
    Ipvs,
    /// No socket listens.
    NoSocket,
    /// No connection matches the ICMP error.
    NoConnection,
    /// The backlog queue of the socket is full.
    SocketBacklog,
    /// The receive buffer of the socket is full.
    SocketBuffer,
    /// The memory limit of the protocol is reached.
    ProtocolMemory,
    /// A filter of the socket dropped the packet.
    SocketFilter,
    /// The accept queue of the listening socket is full.
    AcceptQueue,
    /// The TCP flags are invalid.
    TcpFlags,
    /// The TCP sequence number is outside of the receive window.
    TcpWindow,
    /// The TCP data was received before.
    TcpDuplicate,
    /// The TCP timestamp is older than an earlier one.
    TcpTimestamp,
    /// The TCP acknowledgment number is invalid.
    TcpAcknowledgment,
    /// The TCP reset is invalid.
    TcpReset,
    /// The TCP SYN is unexpected.
    TcpSyn,
    /// The TCP socket is closed.
    TcpClosed,
    /// The TCP signature is missing or wrong.
    TcpAuthentication,
    /// The TCP queue for segments out of order is full.
    TcpQueue,
    /// The TCP Fast Open request was refused.
    TcpFastOpen,
    /// The TCP socket refused the segment without a reason.
    TcpState,
    /// A socket or protocol ignored the datagram without a reason.
    Ignored,
    /// The queueing discipline of the interface dropped the packet.
    QueueDiscipline,
    /// The receive queue of a CPU is full.
    CpuBacklog,
    /// A tc filter dropped the packet.
    TrafficControl,
    /// An XDP program dropped the packet.
    Xdp,
    /// A BPF program of a cgroup dropped the packet.
    Bpf,
    /// A Linux security module dropped the packet.
    SecurityModule,
    /// An `IPsec` policy refused the packet.
    Ipsec,
    /// The interface is down.
    InterfaceDown,
    /// The interface is down, or packets loop between interfaces.
    InterfaceTransmit,
    /// The interface was removed.
    InterfaceRemoved,
    /// The packet passed through too many nested interfaces.
    Recursion,
    /// The kernel or a ring of a device had no memory.
    Memory,
    /// A VXLAN header is invalid.
    VxlanHeader,
    /// No VXLAN interface has the VNI.
    VxlanVni,
    /// The VXLAN forwarding entry conflicts with the packet.
    VxlanEntry,
    /// The VXLAN interface has no remote address for the frame.
    VxlanNoRemote,
    /// The tunnel interface could not send the packet.
    TunnelTransmit,
    /// No tunnel interface accepts the packet.
    TunnelReceive,
    /// The ECN bits of the inner and outer header contradict each other.
    TunnelEcn,
    /// The packet has no metadata for the tunnel.
    TunnelMetadata,
    /// A filter of a tun or tap device dropped the packet.
    TapFilter,
    /// The queue was removed in which the packet waited.
    QueueRemoved,
    /// The kernel gives no reason.
    Unspecified,
    /// The kernel gives a reason that svclab does not describe.
    Undescribed,
}
