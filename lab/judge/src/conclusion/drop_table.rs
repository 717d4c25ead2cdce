//! Lists the drop reasons and kernel functions that a packet of a lab can meet, with the kind of
//! cause of each and its place in the sources of Linux.
//!
//! Reasons are those of `include/net/dropreason-core.h`, from v5.17 to v6.18. Where the kernel gives
//! no reason, the function that freed the packet names the cause. Functions are those that call
//! `kfree_skb`, from v5.10 on. A tag names a version that contains the source.

use super::drop_kind::DropKind;

/// Reason of the kernel when it gives none.
pub(super) const UNSPECIFIED: &str = "NOT_SPECIFIED";

/// Row of the table. A row with both names applies only to drops with both.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DropRow {
    /// Drop reason of the kernel. Without a reason, the row applies to drops for which the kernel
    /// gives no reason.
    pub reason: Option<&'static str>,
    /// Kernel function that freed the packet. `None` matches all functions.
    pub function: Option<&'static str>,
    /// Kind of cause.
    pub kind: DropKind,
    /// File and function in the sources of Linux, with a tag.
    pub source: &'static str,
}

/// Returns the row of a drop. A row with reason and function precedes a row with the reason alone.
/// Functions alone decide only if the kernel gives no reason.
#[must_use]
pub fn drop_row(reason: &str, function: Option<&str>) -> Option<&'static DropRow> {
    let find = |reason: Option<&str>, function: Option<&str>| {
        let mut rows = DROP_TABLE.iter();
        rows.find(|row| row.reason == reason && row.function == function)
    };
    let by_both = function.and_then(|function| find(Some(reason), Some(function)));
    let by_function = function.filter(|_| is_unspecified(reason));
    by_both
        .or_else(|| find(Some(reason), None))
        .or_else(|| find(None, Some(by_function?)))
}

/// Returns the kind of cause of a drop.
pub(super) fn drop_kind(reason: &str, function: Option<&str>) -> DropKind {
    match drop_row(reason, function) {
        Some(row) => row.kind,
        None if is_unspecified(reason) => DropKind::Unspecified,
        None => DropKind::Undescribed,
    }
}

/// Whether the kernel gives no reason. A kernel without names of reasons reports a number.
fn is_unspecified(reason: &str) -> bool {
    reason == UNSPECIFIED || reason.parse::<u32>().is_ok()
}

const fn reason(reason: &'static str, kind: DropKind, source: &'static str) -> DropRow {
    DropRow {
        reason: Some(reason),
        function: None,
        kind,
        source,
    }
}

const fn function(function: &'static str, kind: DropKind, source: &'static str) -> DropRow {
    DropRow {
        reason: None,
        function: Some(function),
        kind,
        source,
    }
}

const fn reason_in(
    reason: &'static str,
    function: &'static str,
    kind: DropKind,
    source: &'static str,
) -> DropRow {
    DropRow {
        reason: Some(reason),
        function: Some(function),
        kind,
        source,
    }
}

use DropKind as K;

/// All known drops: routing, IP, neighbours, bridges, netfilter, sockets, devices and tunnels.
#[rustfmt::skip]
pub const DROP_TABLE: &[DropRow] = &[
    // Routes.
    reason("IP_INNOROUTES", K::NoRoute, "net/ipv4/route.c, ip_error; net/ipv6/route.c, ip6_pkt_drop (v6.12)"),
    reason("IP_OUTNOROUTES", K::NoRoute, "net/ipv4/ip_output.c, __ip_queue_xmit; net/ipv6/route.c, ip6_pkt_drop (v6.12)"),
    reason("IP_INADDRERRORS", K::NotForwarding, "net/ipv4/route.c, ip_error; net/ipv6/ip6_output.c, ip6_forward (v6.12)"),
    reason("IP_RPFILTER", K::ReversePath, "net/ipv4/fib_frontend.c, __fib_validate_source (v6.12)"),
    reason("IP_LOCAL_SOURCE", K::LocalSource, "net/ipv4/fib_frontend.c, __fib_validate_source (v6.13)"),
    reason("IP_INVALID_SOURCE", K::InvalidSource, "net/ipv4/fib_frontend.c, __fib_validate_source; net/ipv4/route.c, ip_route_input_slow (v6.13)"),
    reason("IP_INVALID_DEST", K::InvalidDestination, "net/ipv4/route.c, ip_route_input_slow (v6.13)"),
    reason("IP_LOCALNET", K::LoopbackAddress, "net/ipv4/route.c, ip_route_input_slow (v6.13)"),
    function("ip_error", K::RouteRefused, "net/ipv4/route.c, ip_error: blackhole, unreachable and prohibit (v6.12)"),
    function("ip6_pkt_drop", K::NoRoute, "net/ipv6/route.c, ip6_pkt_drop (v5.10)"),
    function("ip6_pkt_discard", K::NoRoute, "net/ipv6/route.c, ip6_pkt_discard (v5.10)"),
    function("ip6_pkt_discard_out", K::NoRoute, "net/ipv6/route.c, ip6_pkt_discard_out (v5.10)"),
    function("ip6_pkt_prohibit", K::RouteRefused, "net/ipv6/route.c, ip6_pkt_prohibit (v5.10)"),
    function("ip6_pkt_prohibit_out", K::RouteRefused, "net/ipv6/route.c, ip6_pkt_prohibit_out (v5.10)"),
    function("dst_discard", K::RouteRefused, "include/net/dst.h, dst_discard: IPv6 blackhole (v5.10)"),
    function("dst_discard_out", K::RouteRefused, "net/core/dst.c, dst_discard_out: IPv6 blackhole (v5.10)"),
    function("ip_rcv_finish_core", K::RouteInput, "net/ipv4/ip_input.c, ip_rcv_finish_core (v6.12)"),
    function("ip_rcv_finish", K::RouteInput, "net/ipv4/ip_input.c, ip_rcv_finish (v5.10)"),
    // IP.
    reason_in("IP_INHDR", "ip_forward", K::TtlExpired, "net/ipv4/ip_forward.c, ip_forward (v6.12)"),
    reason_in("IP_INHDR", "ip6_forward", K::TtlExpired, "net/ipv6/ip6_output.c, ip6_forward (v6.12)"),
    reason("IP_INHDR", K::InvalidHeader, "net/ipv4/ip_input.c, ip_rcv_core; net/ipv6/ip6_input.c, ip6_rcv_core (v6.12)"),
    reason("TCP_MINTTL", K::TtlMinimum, "net/ipv4/tcp_ipv4.c, tcp_v4_rcv (v6.12)"),
    function("ip_forward", K::Forward, "net/ipv4/ip_forward.c, ip_forward (v5.10)"),
    function("ip6_forward", K::Forward, "net/ipv6/ip6_output.c, ip6_forward (v5.10)"),
    function("ip_rcv_core", K::IpInput, "net/ipv4/ip_input.c, ip_rcv_core (v5.10)"),
    function("ip_rcv", K::IpInput, "net/ipv4/ip_input.c, ip_rcv with ip_rcv_core inlined (v5.10)"),
    function("ip6_rcv_core", K::IpInput, "net/ipv6/ip6_input.c, ip6_rcv_core (v5.10)"),
    reason("IP_CSUM", K::Checksum, "net/ipv4/ip_input.c, ip_rcv_core (v6.12)"),
    reason("TCP_CSUM", K::Checksum, "net/ipv4/tcp_ipv4.c, tcp_v4_rcv (v6.12)"),
    reason("UDP_CSUM", K::Checksum, "net/ipv4/udp.c, __udp4_lib_rcv (v6.12)"),
    reason("ICMP_CSUM", K::Checksum, "net/ipv4/icmp.c, icmp_rcv (v6.12)"),
    reason("SKB_CSUM", K::Checksum, "net/core/dev.c, validate_xmit_skb (v6.12)"),
    reason("PKT_TOO_SMALL", K::Truncated, "net/ipv4/ip_input.c, ip_rcv_core (v6.12)"),
    reason("HDR_TRUNC", K::Truncated, "drivers/net/tun.c, tun_get_user (v6.12)"),
    reason("OTHERHOST", K::OtherHardwareAddress, "net/ipv4/ip_input.c, ip_rcv_core (v6.12)"),
    reason("UNICAST_IN_L2_MULTICAST", K::MulticastFrame, "net/ipv4/ip_input.c, ip_rcv_finish_core (v6.12)"),
    reason("IP_NOPROTO", K::UnknownProtocol, "net/ipv4/ip_input.c, ip_protocol_deliver_rcu (v6.12)"),
    reason("UNHANDLED_PROTO", K::UnknownProtocol, "net/core/dev.c, __netif_receive_skb_core (v6.12)"),
    reason("INVALID_PROTO", K::UnknownProtocol, "net/ipv4/icmp.c, icmp_rcv (v6.12)"),
    reason("IPV6DISABLED", K::Ipv6Disabled, "net/ipv6/ip6_input.c, ip6_rcv_core (v6.12)"),
    reason("IPV6_BAD_EXTHDR", K::InvalidHeader, "net/ipv6/ip6_input.c, ip6_rcv_core (v6.12)"),
    reason("PKT_TOO_BIG", K::TooBig, "net/ipv4/ip_forward.c, ip_forward; net/ipv6/ip6_output.c, ip6_forward (v6.12)"),
    function("ip_fragment", K::TooBig, "net/ipv4/ip_output.c, ip_fragment (v6.12)"),
    function("ip_finish_output_gso", K::TooBig, "net/ipv4/ip_output.c, ip_finish_output_gso (v6.12)"),
    function("ip6_fragment", K::TooBig, "net/ipv6/ip6_output.c, ip6_fragment (v6.12)"),
    reason("DUP_FRAG", K::Fragment, "net/ipv4/ip_fragment.c, ip_frag_queue (v6.12)"),
    reason("FRAG_REASM_TIMEOUT", K::Fragment, "net/ipv4/ip_fragment.c, ip_expire (v6.12)"),
    reason("FRAG_TOO_FAR", K::Fragment, "net/ipv4/ip_fragment.c, ip_frag_reinit (v6.12)"),
    function("ip_defrag", K::Fragment, "net/ipv4/ip_fragment.c, ip_defrag (v5.10)"),
    function("ip_expire", K::Fragment, "net/ipv4/ip_fragment.c, ip_expire (v5.10)"),
    // Neighbours.
    reason("NEIGH_FAILED", K::NeighbourFailed, "net/core/neighbour.c, __neigh_event_send (v6.12)"),
    reason("NEIGH_QUEUEFULL", K::NeighbourQueue, "net/core/neighbour.c, __neigh_event_send (v6.12)"),
    reason("NEIGH_DEAD", K::NeighbourFailed, "net/core/neighbour.c, __neigh_event_send (v6.12)"),
    reason("NEIGH_CREATEFAIL", K::NeighbourEntry, "net/ipv4/ip_output.c, ip_finish_output2 (v6.12)"),
    reason("NEIGH_HH_FILLFAIL", K::NeighbourEntry, "net/core/neighbour.c, neigh_resolve_output (v6.18)"),
    function("neigh_invalidate", K::NeighbourFailed, "net/core/neighbour.c, neigh_invalidate (v5.10)"),
    function("arp_error_report", K::NeighbourFailed, "net/ipv4/arp.c, arp_error_report (v5.10)"),
    function("ndisc_error_report", K::NeighbourFailed, "net/ipv6/ndisc.c, ndisc_error_report (v5.10)"),
    function("__neigh_event_send", K::NeighbourFailed, "net/core/neighbour.c, __neigh_event_send (v5.10)"),
    function("neigh_resolve_output", K::NeighbourEntry, "net/core/neighbour.c, neigh_resolve_output (v5.10)"),
    function("neigh_connected_output", K::NeighbourEntry, "net/core/neighbour.c, neigh_connected_output (v5.10)"),
    function("ip_finish_output2", K::NeighbourEntry, "net/ipv4/ip_output.c, ip_finish_output2 (v5.10)"),
    function("ip6_finish_output2", K::NeighbourEntry, "net/ipv6/ip6_output.c, ip6_finish_output2 (v5.10)"),
    // Bridges.
    reason("BRIDGE_INGRESS_STP_STATE", K::BridgePortState, "net/bridge/br_input.c, br_handle_frame (v6.14)"),
    reason_in("NO_TX_TARGET", "br_forward", K::BridgeNoPort, "net/bridge/br_forward.c, br_forward (v6.14)"),
    reason_in("NO_TX_TARGET", "br_flood", K::BridgeNoPort, "net/bridge/br_forward.c, br_flood (v6.14)"),
    reason_in("NO_TX_TARGET", "br_dev_xmit", K::BridgeNoPort, "net/bridge/br_forward.c, br_flood, inlined in net/bridge/br_device.c, br_dev_xmit (v6.18)"),
    reason_in("NO_TX_TARGET", "br_handle_frame_finish", K::BridgeNoPort, "net/bridge/br_forward.c, br_flood, inlined in net/bridge/br_input.c, br_handle_frame_finish (v6.18)"),
    reason_in("NO_TX_TARGET", "br_multicast_flood", K::BridgeNoPort, "net/bridge/br_forward.c, br_multicast_flood (v6.14)"),
    function("br_forward", K::BridgeNoPort, "net/bridge/br_forward.c, br_forward with should_deliver (v5.10)"),
    function("__br_forward", K::BridgeNoPort, "net/bridge/br_forward.c, __br_forward (v5.10)"),
    function("br_flood", K::BridgeNoPort, "net/bridge/br_forward.c, br_flood (v5.10)"),
    function("br_multicast_flood", K::BridgeNoPort, "net/bridge/br_forward.c, br_multicast_flood (v5.10)"),
    function("br_handle_frame", K::BridgeIngress, "net/bridge/br_input.c, br_handle_frame (v5.10)"),
    function("br_handle_frame_finish", K::BridgeIngress, "net/bridge/br_input.c, br_handle_frame_finish: port state, VLAN filter, locked port (v6.12)"),
    function("br_allowed_ingress", K::BridgeIngress, "net/bridge/br_vlan.c, br_allowed_ingress (v5.10)"),
    function("br_dev_queue_push_xmit", K::LinkRefused, "net/bridge/br_forward.c, br_dev_queue_push_xmit with is_skb_forwardable (v5.10)"),
    function("br_nf_pre_routing_finish", K::RouteInput, "net/bridge/br_netfilter_hooks.c, br_nf_pre_routing_finish (v5.10)"),
    function("br_nf_pre_routing_finish_ipv6", K::RouteInput, "net/bridge/br_netfilter_ipv6.c, br_nf_pre_routing_finish_ipv6 (v5.10)"),
    reason("LOCAL_MAC", K::SourceHardwareAddress, "net/bridge/br_input.c, br_handle_frame_finish (v6.14)"),
    reason("MAC_INVALID_SOURCE", K::SourceHardwareAddress, "net/bridge/br_input.c, br_handle_frame (v6.14)"),
    // Netfilter and IPVS.
    reason("NETFILTER_DROP", K::Netfilter, "net/netfilter/core.c, nf_hook_slow (v6.12)"),
    function("nf_hook_slow", K::Netfilter, "net/netfilter/core.c, nf_hook_slow (v5.10)"),
    function("nf_hook_slow_list", K::Netfilter, "net/netfilter/core.c, nf_hook_slow_list (v5.10)"),
    function("nf_queue", K::NetfilterQueue, "net/netfilter/nf_queue.c, nf_queue (v5.10)"),
    function("nft_do_chain", K::Netfilter, "net/netfilter/nf_tables_core.c, nft_do_chain (v6.12)"),
    function("ip_vs_nat_xmit", K::Ipvs, "net/netfilter/ipvs/ip_vs_xmit.c, ip_vs_nat_xmit (v5.10)"),
    function("ip_vs_nat_xmit_v6", K::Ipvs, "net/netfilter/ipvs/ip_vs_xmit.c, ip_vs_nat_xmit_v6 (v5.10)"),
    function("ip_vs_dr_xmit", K::Ipvs, "net/netfilter/ipvs/ip_vs_xmit.c, ip_vs_dr_xmit (v5.10)"),
    function("ip_vs_dr_xmit_v6", K::Ipvs, "net/netfilter/ipvs/ip_vs_xmit.c, ip_vs_dr_xmit_v6 (v5.10)"),
    function("ip_vs_tunnel_xmit", K::Ipvs, "net/netfilter/ipvs/ip_vs_xmit.c, ip_vs_tunnel_xmit (v5.10)"),
    function("ip_vs_bypass_xmit", K::Ipvs, "net/netfilter/ipvs/ip_vs_xmit.c, ip_vs_bypass_xmit (v5.10)"),
    function("ip_vs_null_xmit", K::Ipvs, "net/netfilter/ipvs/ip_vs_xmit.c, ip_vs_null_xmit (v5.10)"),
    // Sockets.
    reason("NO_SOCKET", K::NoSocket, "net/ipv4/tcp_ipv4.c, tcp_v4_rcv; net/ipv4/udp.c, __udp4_lib_rcv (v6.12)"),
    reason("SOCKET_BACKLOG", K::SocketBacklog, "net/ipv4/tcp_ipv4.c, tcp_add_backlog (v6.12)"),
    reason("SOCKET_RCVBUFF", K::SocketBuffer, "net/core/sock.c, sock_queue_rcv_skb_reason; net/ipv4/udp.c, __udp_queue_rcv_skb (v6.12)"),
    reason("PROTO_MEM", K::ProtocolMemory, "net/ipv4/udp.c, __udp_queue_rcv_skb; net/ipv4/tcp_input.c, tcp_data_queue (v6.12)"),
    reason("SOCKET_FILTER", K::SocketFilter, "net/ipv4/tcp_ipv4.c, tcp_v4_rcv (v6.12)"),
    reason("TCP_LISTEN_OVERFLOW", K::AcceptQueue, "net/ipv4/tcp_minisocks.c, tcp_check_req (v6.15)"),
    reason("TCP_FLAGS", K::TcpFlags, "net/ipv4/tcp_input.c, tcp_rcv_state_process (v6.12)"),
    reason("TCP_ZEROWINDOW", K::TcpWindow, "net/ipv4/tcp_input.c, tcp_data_queue (v6.12)"),
    reason("TCP_OVERWINDOW", K::TcpWindow, "net/ipv4/tcp_input.c, tcp_data_queue (v6.12)"),
    reason("TCP_INVALID_SEQUENCE", K::TcpWindow, "net/ipv4/tcp_input.c, tcp_validate_incoming (v6.12)"),
    reason("TCP_INVALID_END_SEQUENCE", K::TcpWindow, "net/ipv4/tcp_input.c, tcp_sequence (v6.18)"),
    reason("TCP_OLD_DATA", K::TcpDuplicate, "net/ipv4/tcp_input.c, tcp_data_queue (v6.12)"),
    reason("TCP_OLD_SEQUENCE", K::TcpDuplicate, "net/ipv4/tcp_input.c, tcp_sequence (v6.12)"),
    reason("TCP_OFOMERGE", K::TcpDuplicate, "net/ipv4/tcp_input.c, tcp_data_queue_ofo (v6.12)"),
    reason("TCP_OFO_DROP", K::TcpDuplicate, "net/ipv4/tcp_input.c, tcp_ofo_queue (v6.12)"),
    reason("TCP_OLD_ACK", K::TcpDuplicate, "net/ipv4/tcp_input.c, tcp_ack (v6.12)"),
    reason("TCP_RFC7323_PAWS", K::TcpTimestamp, "net/ipv4/tcp_input.c, tcp_validate_incoming (v6.12)"),
    reason("TCP_RFC7323_PAWS_ACK", K::TcpTimestamp, "net/ipv4/tcp_input.c, tcp_disordered_ack_check (v6.14)"),
    reason("TCP_RFC7323_TW_PAWS", K::TcpTimestamp, "net/ipv4/tcp_minisocks.c, tcp_timewait_state_process (v6.14)"),
    reason("TCP_RFC7323_TSECR", K::TcpTimestamp, "net/ipv4/tcp_minisocks.c, tcp_check_req (v6.15)"),
    reason("TCP_TOO_OLD_ACK", K::TcpAcknowledgment, "net/ipv4/tcp_input.c, tcp_ack (v6.12)"),
    reason("TCP_ACK_UNSENT_DATA", K::TcpAcknowledgment, "net/ipv4/tcp_input.c, tcp_ack (v6.12)"),
    reason("TCP_INVALID_ACK_SEQUENCE", K::TcpAcknowledgment, "net/ipv4/tcp_input.c, tcp_rcv_synsent_state_process (v6.9)"),
    reason("TCP_RESET", K::TcpReset, "net/ipv4/tcp_input.c, tcp_validate_incoming (v6.12)"),
    reason("TCP_INVALID_SYN", K::TcpSyn, "net/ipv4/tcp_input.c, tcp_validate_incoming (v6.12)"),
    reason("TCP_CLOSE", K::TcpClosed, "net/ipv4/tcp_input.c, tcp_rcv_state_process (v6.12)"),
    reason("TCP_ABORT_ON_DATA", K::TcpClosed, "net/ipv4/tcp_input.c, tcp_rcv_state_process (v6.9)"),
    reason("TCP_FASTOPEN", K::TcpFastOpen, "net/ipv4/tcp_input.c, tcp_rcv_state_process (v6.12)"),
    reason("TCP_OFO_QUEUE_PRUNE", K::TcpQueue, "net/ipv4/tcp_input.c, tcp_prune_ofo_queue (v6.12)"),
    reason("TCP_AUTH_HDR", K::TcpAuthentication, "net/ipv4/tcp.c, tcp_inbound_hash (v6.12)"),
    reason("TCP_MD5NOTFOUND", K::TcpAuthentication, "net/ipv4/tcp.c, tcp_inbound_md5_hash (v6.12)"),
    reason("TCP_MD5UNEXPECTED", K::TcpAuthentication, "net/ipv4/tcp.c, tcp_inbound_md5_hash (v6.12)"),
    reason("TCP_MD5FAILURE", K::TcpAuthentication, "net/ipv4/tcp.c, tcp_inbound_md5_hash (v6.12)"),
    reason("TCP_AONOTFOUND", K::TcpAuthentication, "net/ipv4/tcp_ao.c, tcp_inbound_ao_hash (v6.12)"),
    reason("TCP_AOUNEXPECTED", K::TcpAuthentication, "net/ipv4/tcp.c, tcp_inbound_hash (v6.12)"),
    reason("TCP_AOKEYNOTFOUND", K::TcpAuthentication, "net/ipv4/tcp_ao.c, tcp_inbound_ao_hash (v6.12)"),
    reason("TCP_AOFAILURE", K::TcpAuthentication, "net/ipv4/tcp_ao.c, tcp_ao_verify_hash (v6.12)"),
    function("tcp_v4_rcv", K::TcpState, "net/ipv4/tcp_ipv4.c, tcp_v4_rcv (v5.10)"),
    function("tcp_v6_rcv", K::TcpState, "net/ipv6/tcp_ipv6.c, tcp_v6_rcv (v5.10)"),
    function("tcp_v4_do_rcv", K::TcpState, "net/ipv4/tcp_ipv4.c, tcp_v4_do_rcv (v5.10)"),
    function("tcp_v6_do_rcv", K::TcpState, "net/ipv6/tcp_ipv6.c, tcp_v6_do_rcv (v5.10)"),
    function("tcp_rcv_state_process", K::TcpState, "net/ipv4/tcp_input.c, tcp_rcv_state_process (v5.10)"),
    function("tcp_rcv_established", K::TcpState, "net/ipv4/tcp_input.c, tcp_rcv_established (v5.10)"),
    function("tcp_validate_incoming", K::TcpState, "net/ipv4/tcp_input.c, tcp_validate_incoming (v5.10)"),
    function("udp_queue_rcv_one_skb", K::Ignored, "net/ipv4/udp.c, udp_queue_rcv_one_skb (v5.10)"),
    function("__udp4_lib_rcv", K::Ignored, "net/ipv4/udp.c, __udp4_lib_rcv (v5.10)"),
    function("__udp6_lib_rcv", K::Ignored, "net/ipv6/udp.c, __udp6_lib_rcv (v5.10)"),
    function("icmp_rcv", K::Ignored, "net/ipv4/icmp.c, icmp_rcv (v5.10)"),
    function("icmpv6_rcv", K::Ignored, "net/ipv6/icmp.c, icmpv6_rcv (v5.10)"),
    // Devices and queues.
    reason("QDISC_DROP", K::QueueDiscipline, "net/core/dev.c, __dev_xmit_skb (v6.12)"),
    reason("QDISC_OVERLIMIT", K::QueueDiscipline, "net/sched/sch_fq_codel.c, fq_codel_drop (v6.13)"),
    reason("QDISC_CONGESTED", K::QueueDiscipline, "net/sched/sch_codel.c, drop_func (v6.13)"),
    reason("CAKE_FLOOD", K::QueueDiscipline, "net/sched/sch_cake.c, cake_dequeue (v6.13)"),
    reason("FQ_BAND_LIMIT", K::QueueDiscipline, "net/sched/sch_fq.c, fq_enqueue (v6.13)"),
    reason("FQ_HORIZON_LIMIT", K::QueueDiscipline, "net/sched/sch_fq.c, fq_enqueue (v6.13)"),
    reason("FQ_FLOW_LIMIT", K::QueueDiscipline, "net/sched/sch_fq.c, fq_enqueue (v6.13)"),
    function("__dev_xmit_skb", K::QueueDiscipline, "net/core/dev.c, __dev_xmit_skb (v5.10)"),
    function("qdisc_drop", K::QueueDiscipline, "include/net/sch_generic.h, qdisc_drop (v5.10)"),
    reason("CPU_BACKLOG", K::CpuBacklog, "net/core/dev.c, enqueue_to_backlog (v6.12)"),
    function("enqueue_to_backlog", K::CpuBacklog, "net/core/dev.c, enqueue_to_backlog (v5.10)"),
    reason("TC_INGRESS", K::TrafficControl, "net/core/dev.c, sch_handle_ingress (v6.12)"),
    reason("TC_EGRESS", K::TrafficControl, "net/core/dev.c, sch_handle_egress (v6.12)"),
    reason("TC_COOKIE_ERROR", K::TrafficControl, "net/sched/cls_api.c, tcf_classify (v6.12)"),
    reason("TC_CHAIN_NOTFOUND", K::TrafficControl, "net/sched/cls_api.c, tcf_classify (v6.12)"),
    reason("TC_RECLASSIFY_LOOP", K::TrafficControl, "net/sched/cls_api.c, __tcf_classify (v6.12)"),
    function("sch_handle_ingress", K::TrafficControl, "net/core/dev.c, sch_handle_ingress (v5.10)"),
    function("sch_handle_egress", K::TrafficControl, "net/core/dev.c, sch_handle_egress (v5.10)"),
    reason("XDP", K::Xdp, "net/core/dev.c, do_xdp_generic (v6.12)"),
    function("do_xdp_generic", K::Xdp, "net/core/dev.c, do_xdp_generic (v5.10)"),
    function("netif_receive_generic_xdp", K::Xdp, "net/core/dev.c, netif_receive_generic_xdp (v5.10)"),
    function("veth_xdp_rcv_skb", K::Xdp, "drivers/net/veth.c, veth_xdp_rcv_skb (v5.10)"),
    reason("BPF_CGROUP_EGRESS", K::Bpf, "net/ipv4/ip_output.c, ip_finish_output (v6.12)"),
    reason("SECURITY_HOOK", K::SecurityModule, "net/ipv4/syncookies.c, cookie_v4_check (v6.9)"),
    reason("XFRM_POLICY", K::Ipsec, "net/ipv4/ip_forward.c, ip_forward; net/ipv4/ip_input.c, ip_protocol_deliver_rcu (v6.12)"),
    reason("DEV_READY", K::InterfaceDown, "drivers/net/tun.c, tun_net_xmit (v6.12)"),
    function("__dev_queue_xmit", K::InterfaceTransmit, "net/core/dev.c, __dev_queue_xmit (v5.10)"),
    function("__dev_direct_xmit", K::InterfaceTransmit, "net/core/dev.c, __dev_direct_xmit (v5.10)"),
    function("veth_xmit", K::LinkRefused, "drivers/net/veth.c, veth_xmit with is_skb_forwardable (v5.10)"),
    function("__dev_forward_skb", K::LinkRefused, "include/linux/netdevice.h, ____dev_forward_skb (v5.10)"),
    function("__dev_forward_skb2", K::LinkRefused, "include/linux/netdevice.h, ____dev_forward_skb (v6.12)"),
    function("blackhole_netdev_xmit", K::InterfaceRemoved, "drivers/net/loopback.c, blackhole_netdev_xmit (v5.10)"),
    reason("RECURSION_LIMIT", K::Recursion, "net/core/dev.c, __dev_queue_xmit (v6.18.44)"),
    reason("NOMEM", K::Memory, "drivers/net/tun.c, tun_net_xmit (v6.12)"),
    reason("FULL_RING", K::Memory, "drivers/net/tun.c, tun_net_xmit (v6.12)"),
    reason("PFMEMALLOC", K::Memory, "net/core/filter.c, sk_filter_trim_cap (v6.18)"),
    reason("SKB_GSO_SEG", K::Memory, "net/core/dev.c, validate_xmit_skb (v6.12)"),
    reason("TAP_FILTER", K::TapFilter, "drivers/net/tun.c, tun_net_xmit (v6.12)"),
    reason("TAP_TXFILTER", K::TapFilter, "drivers/net/tun.c, tun_net_xmit (v6.12)"),
    // Tunnels.
    reason("VXLAN_INVALID_HDR", K::VxlanHeader, "drivers/net/vxlan/vxlan_core.c, vxlan_rcv (v6.13)"),
    reason("VXLAN_VNI_NOT_FOUND", K::VxlanVni, "drivers/net/vxlan/vxlan_core.c, vxlan_rcv (v6.13)"),
    reason("VXLAN_ENTRY_EXISTS", K::VxlanEntry, "drivers/net/vxlan/vxlan_core.c, vxlan_snoop (v6.13)"),
    reason("VXLAN_NO_REMOTE", K::VxlanNoRemote, "drivers/net/vxlan/vxlan_core.c, vxlan_xmit (v6.13)"),
    reason("NO_TX_TARGET", K::VxlanNoRemote, "drivers/net/vxlan/vxlan_core.c, vxlan_xmit (v6.14)"),
    function("vxlan_rcv", K::VxlanVni, "drivers/net/vxlan/vxlan_core.c, vxlan_rcv (v5.10)"),
    function("vxlan_xmit", K::VxlanNoRemote, "drivers/net/vxlan/vxlan_core.c, vxlan_xmit (v5.10)"),
    function("vxlan_mdb_xmit", K::VxlanNoRemote, "drivers/net/vxlan/vxlan_mdb.c, vxlan_mdb_xmit (v6.12)"),
    function("vxlan_xmit_one", K::TunnelTransmit, "drivers/net/vxlan/vxlan_core.c, vxlan_xmit_one: no route, MTU (v5.10)"),
    function("ip_tunnel_xmit", K::TunnelTransmit, "net/ipv4/ip_tunnel.c, ip_tunnel_xmit: no route, recursion (v5.10)"),
    function("ip_md_tunnel_xmit", K::TunnelTransmit, "net/ipv4/ip_tunnel.c, ip_md_tunnel_xmit (v5.10)"),
    function("ipip_tunnel_xmit", K::TunnelTransmit, "net/ipv4/ipip.c, ipip_tunnel_xmit (v5.10)"),
    function("ipgre_xmit", K::TunnelTransmit, "net/ipv4/ip_gre.c, ipgre_xmit (v5.10)"),
    function("tunnel4_rcv", K::TunnelReceive, "net/ipv4/tunnel4.c, tunnel4_rcv (v5.10)"),
    function("ipip_tunnel_rcv", K::TunnelReceive, "net/ipv4/ipip.c, ipip_tunnel_rcv (v5.10)"),
    function("ip_tunnel_rcv", K::TunnelReceive, "net/ipv4/ip_tunnel.c, ip_tunnel_rcv (v5.10)"),
    function("gre_rcv", K::TunnelReceive, "net/ipv4/ip_gre.c, gre_rcv (v5.10)"),
    reason("IP_TUNNEL_ECN", K::TunnelEcn, "drivers/net/vxlan/vxlan_core.c, vxlan_rcv (v6.13)"),
    reason("TUNNEL_TXINFO", K::TunnelMetadata, "drivers/net/vxlan/vxlan_core.c, vxlan_xmit (v6.13)"),
    // Queues of closed sockets and removed interfaces.
    reason("QUEUE_PURGE", K::QueueRemoved, "include/linux/skbuff.h, skb_queue_purge (v6.12)"),
    reason("SOCKET_CLOSE", K::QueueRemoved, "net/unix/af_unix.c, unix_release_sock (v6.14)"),
];
