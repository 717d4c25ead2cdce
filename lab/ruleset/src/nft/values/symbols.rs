//! Names of values that `nft` also prints as numbers: with `-n`, `-p` and without `-S`.
//!
//! The names are those of nftables v1.0.6 (`src/datatype.c`, `src/ct.c`, `src/meta.c`, `src/proto.c`,
//! `src/exthdr.c` and `src/fib.c`), and the protocols of `/etc/protocols`.

/// Services of `/etc/services` with their ports (Debian netbase 6.4).
const SERVICES: &str = include_str!("services.txt");

/// Type of values with names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ValueType {
    /// State of a connection.
    CtState,
    /// Status bits of a connection.
    CtStatus,
    /// Direction of a packet.
    CtDirection,
    /// Events of a connection.
    CtEvent,
    /// Address family.
    Family,
    /// Protocol of the payload of IP.
    Protocol,
    /// Flags of TCP.
    TcpFlags,
    /// Protocol of the payload of Ethernet.
    EtherType,
    /// Receivers of a packet.
    PacketType,
    /// Kind of the link layer.
    LinkLayer,
    /// Day of the week.
    Day,
    /// Code point of differentiated services.
    Dscp,
    /// Type of ICMP.
    IcmpType,
    /// Code of ICMP.
    IcmpCode,
    /// Type of ICMP for IPv6.
    Icmpv6Type,
    /// Code of ICMP for IPv6.
    Icmpv6Code,
    /// Code of a rejection for both address families.
    IcmpxCode,
    /// Type of IGMP.
    IgmpType,
    /// Type of a route.
    RouteType,
    /// Type of DCCP.
    DccpType,
    /// Type of a mobility header.
    MobilityType,
    /// Operation of ARP.
    ArpOperation,
    /// Bits of congestion notification.
    Ecn,
    /// Group of interfaces.
    LinkGroup,
    /// Port of a transport protocol.
    Service,
    /// Values without other notations.
    Other,
}

impl ValueType {
    /// Returns the type with a name in a declaration of a set: `inet_proto`.
    pub(super) fn from_name(name: &str) -> Self {
        match name {
            "ct_state" => Self::CtState,
            "ct_status" => Self::CtStatus,
            "ct_dir" => Self::CtDirection,
            "ct_event" => Self::CtEvent,
            "nf_proto" => Self::Family,
            "inet_proto" => Self::Protocol,
            "inet_service" => Self::Service,
            "tcp_flag" => Self::TcpFlags,
            "ether_type" => Self::EtherType,
            "pkt_type" => Self::PacketType,
            "iface_type" => Self::LinkLayer,
            "day" => Self::Day,
            "dscp" => Self::Dscp,
            "ecn" => Self::Ecn,
            "icmp_type" => Self::IcmpType,
            "icmp_code" => Self::IcmpCode,
            "icmpv6_type" => Self::Icmpv6Type,
            "icmpv6_code" => Self::Icmpv6Code,
            "icmpx_code" => Self::IcmpxCode,
            "igmp_type" => Self::IgmpType,
            "fib_addrtype" => Self::RouteType,
            "dccp_pkttype" => Self::DccpType,
            "mh_type" => Self::MobilityType,
            "arp_op" => Self::ArpOperation,
            "devgroup" => Self::LinkGroup,
            _ => Self::Other,
        }
    }

    /// Returns names and numbers, alternating.
    const fn names(self) -> &'static str {
        match self {
            Self::CtState => "invalid 1 new 8 established 2 related 4 untracked 64",
            Self::CtStatus => {
                "expected 1 seen-reply 2 assured 4 confirmed 8 snat 16 dnat 32 dying 512"
            }
            Self::CtDirection => "original 0 reply 1",
            Self::CtEvent => {
                "new 1 related 2 destroy 4 reply 8 assured 16 protoinfo 32 helper 64 mark 128 \
                 seqadj 256 secmark 512 label 1024"
            }
            Self::Family => "ipv4 2 ipv6 10",
            Self::Protocol => {
                "ip 0 icmp 1 igmp 2 ggp 3 ipencap 4 st 5 tcp 6 egp 8 igp 9 pup 12 udp 17 hmp 20 \
                 xns-idp 22 rdp 27 iso-tp4 29 dccp 33 xtp 36 ddp 37 idpr-cmtp 38 ipv6 41 \
                 ipv6-route 43 ipv6-frag 44 idrp 45 rsvp 46 gre 47 esp 50 ah 51 skip 57 ipv6-icmp \
                 58 ipv6-nonxt 59 ipv6-opts 60 rspf 73 vmtp 81 eigrp 88 ospf 89 ax.25 93 ipip 94 \
                 etherip 97 encap 98 pim 103 ipcomp 108 vrrp 112 l2tp 115 isis 124 sctp 132 fc \
                 133 mobility-header 135 udplite 136 mpls-in-ip 137 manet 138 hip 139 shim6 140 \
                 wesp 141 rohc 142 ethernet 143 icmpv6 58 mptcp 262 hopopt 0"
            }
            Self::TcpFlags => "fin 1 syn 2 rst 4 psh 8 ack 16 urg 32 ecn 64 cwr 128",
            Self::EtherType => "ip 2048 arp 2054 ip6 34525 8021q 33024 8021ad 34984 vlan 33024",
            Self::PacketType => "host 0 unicast 0 broadcast 1 multicast 2 other 3",
            Self::LinkLayer => "ether 1 ppp 512 ipip 768 ipip6 769 loopback 772 sit 776 ipgre 778",
            Self::Day => "Sunday 0 Monday 1 Tuesday 2 Wednesday 3 Thursday 4 Friday 5 Saturday 6",
            Self::Dscp => {
                "cs0 0 cs1 8 cs2 16 cs3 24 cs4 32 cs5 40 cs6 48 cs7 56 df 0 be 0 lephb 1 af11 10 \
                 af12 12 af13 14 af21 18 af22 20 af23 22 af31 26 af32 28 af33 30 af41 34 af42 36 \
                 af43 38 va 44 ef 46"
            }
            Self::IcmpType => {
                "echo-reply 0 destination-unreachable 3 source-quench 4 redirect 5 echo-request 8 \
                 router-advertisement 9 router-solicitation 10 time-exceeded 11 parameter-problem \
                 12 timestamp-request 13 timestamp-reply 14 info-request 15 info-reply 16 \
                 address-mask-request 17 address-mask-reply 18"
            }
            Self::IcmpCode => {
                "net-unreachable 0 host-unreachable 1 prot-unreachable 2 port-unreachable 3 \
                 net-prohibited 9 host-prohibited 10 admin-prohibited 13 frag-needed 4"
            }
            Self::Icmpv6Type => {
                "destination-unreachable 1 packet-too-big 2 time-exceeded 3 parameter-problem 4 \
                 echo-request 128 echo-reply 129 mld-listener-query 130 mld-listener-report 131 \
                 mld-listener-done 132 mld-listener-reduction 132 nd-router-solicit 133 \
                 nd-router-advert 134 nd-neighbor-solicit 135 nd-neighbor-advert 136 nd-redirect \
                 137 router-renumbering 138 ind-neighbor-solicit 141 ind-neighbor-advert 142 \
                 mld2-listener-report 143"
            }
            Self::Icmpv6Code => {
                "no-route 0 admin-prohibited 1 addr-unreachable 3 port-unreachable 4 policy-fail \
                 5 reject-route 6"
            }
            Self::IcmpxCode => {
                "port-unreachable 1 admin-prohibited 3 no-route 0 host-unreachable 2"
            }
            Self::IgmpType => {
                "membership-query 17 membership-report-v1 18 membership-report-v2 22 \
                 membership-report-v3 34 leave-group 23"
            }
            Self::RouteType => {
                "unspec 0 unicast 1 local 2 broadcast 3 anycast 4 multicast 5 blackhole 6 \
                 unreachable 7 prohibit 8"
            }
            Self::DccpType => {
                "request 0 response 1 data 2 ack 3 dataack 4 closereq 5 close 6 reset 7 sync 8 \
                 syncack 9"
            }
            Self::MobilityType => {
                "binding-refresh-request 0 home-test-init 1 careof-test-init 2 home-test 3 \
                 careof-test 4 binding-update 5 binding-acknowledgement 6 binding-error 7 \
                 fast-binding-update 8 fast-binding-acknowledgement 9 fast-binding-advertisement \
                 10 experimental-mobility-header 11 home-agent-switch-message 12"
            }
            Self::ArpOperation => {
                "request 1 reply 2 rrequest 3 rreply 4 inrequest 8 inreply 9 nak 10"
            }
            Self::Ecn => "not-ect 0 ect1 1 ect0 2 ce 3",
            Self::LinkGroup => "default 0",
            Self::Service => SERVICES,
            Self::Other => "",
        }
    }

    /// Returns the number of a value. `None` if the text is not a value with a number.
    pub(super) fn number(self, text: &str, is_quoted: bool) -> Option<u64> {
        // Names of services are always in quotes, and other values without quotes are ports.
        if self == Self::Other || (self == Self::Service && !is_quoted) {
            return None;
        }
        let parsed = match text.strip_prefix("0x") {
            Some(digits) => u64::from_str_radix(digits, 16).ok(),
            None => text.parse().ok(),
        };
        parsed.or_else(|| {
            let mut words = self.names().split_ascii_whitespace();
            words.find(|word| *word == text)?;
            words.next()?.parse().ok()
        })
    }
}
