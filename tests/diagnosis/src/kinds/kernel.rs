//! Faults in sysctls, queueing disciplines, policies of `xfrm` and conntrack.

use super::{Kind, kind};
use crate::draw::{Draw, Drawn, commands};
use crate::fault::Culprit;
use crate::mode::Mode;

const AREA: &str = "kernel settings";

pub(super) const KINDS: [Kind; 26] = [
    kind("sysctl-rp-filter", AREA, Mode::ALL, rp_filter),
    kind("sysctl-ip-forward", AREA, Mode::ALL, |draw| {
        sysctl(draw, "net.ipv4.ip_forward", "0")
    }),
    kind("sysctl-forwarding-bridge", AREA, Mode::ALL, |draw| {
        sysctl(draw, "net.ipv4.conf.cni0.forwarding", "0")
    }),
    kind("sysctl-forwarding-uplink", AREA, Mode::ALL, |draw| {
        sysctl(draw, "net.ipv4.conf.eth0.forwarding", "0")
    }),
    kind("sysctl-bridge-call-iptables", AREA, Mode::ALL, |draw| {
        sysctl(draw, "net.bridge.bridge-nf-call-iptables", "0")
    }),
    kind("sysctl-default-ttl", AREA, Mode::ALL, |draw| {
        sysctl(draw, "net.ipv4.ip_default_ttl", "1")
    }),
    kind("sysctl-conntrack-max", AREA, Mode::ALL, |draw| {
        sysctl(draw, "net.netfilter.nf_conntrack_max", "1")
    }),
    kind("sysctl-conntrack-timeout-tcp", AREA, Mode::ALL, |draw| {
        sysctl(draw, "net.netfilter.nf_conntrack_tcp_timeout_syn_sent", "0")
    }),
    kind("sysctl-conntrack-timeout-udp", AREA, Mode::ALL, |draw| {
        sysctl(draw, "net.netfilter.nf_conntrack_udp_timeout", "0")
    }),
    kind("sysctl-tcp-be-liberal", AREA, Mode::ALL, |draw| {
        sysctl(draw, "net.netfilter.nf_conntrack_tcp_be_liberal", "1")
    }),
    kind("sysctl-tcp-loose", AREA, Mode::ALL, |draw| {
        sysctl(draw, "net.netfilter.nf_conntrack_tcp_loose", "0")
    }),
    kind("sysctl-conntrack-checksum", AREA, Mode::ALL, |draw| {
        sysctl(draw, "net.netfilter.nf_conntrack_checksum", "0")
    }),
    kind("sysctl-accept-local", AREA, Mode::ALL, |draw| {
        sysctl(draw, "net.ipv4.conf.all.accept_local", "1")
    }),
    kind("sysctl-route-localnet", AREA, Mode::ALL, |draw| {
        sysctl(draw, "net.ipv4.conf.all.route_localnet", "0")
    }),
    kind("sysctl-arp-ignore", AREA, Mode::ALL, |draw| {
        sysctl(draw, "net.ipv4.conf.all.arp_ignore", "8")
    }),
    kind("sysctl-arp-announce", AREA, Mode::ALL, |draw| {
        sysctl(draw, "net.ipv4.conf.all.arp_announce", "2")
    }),
    kind("sysctl-src-valid-mark", AREA, Mode::ALL, |draw| {
        sysctl(draw, "net.ipv4.conf.all.src_valid_mark", "1")
    }),
    kind("sysctl-port-range", AREA, Mode::ALL, port_range),
    kind("qdisc-full", AREA, Mode::ALL, |draw| {
        qdisc(draw, "bfifo limit 1", "bfifo")
    }),
    kind("qdisc-slow", AREA, Mode::ALL, |draw| {
        qdisc(draw, "tbf rate 8bit burst 10 latency 1ms", "tbf")
    }),
    kind("qdisc-netem", AREA, Mode::ALL, |draw| {
        qdisc(draw, "netem loss 100%", "netem")
    }),
    kind("tc-filter-drop", AREA, Mode::ALL, filter),
    kind("xfrm-block", AREA, Mode::ALL, xfrm),
    kind("conntrack-stale-udp", AREA, Mode::ALL, stale_udp),
    kind("conntrack-stale-tcp", AREA, Mode::ALL, stale_tcp),
    kind("conntrack-untranslated", AREA, Mode::ALL, untranslated),
];

fn sysctl(draw: &mut Draw<'_>, name: &str, value: &str) -> Drawn {
    let node = draw.node()?;
    let mut culprit = Culprit::sysctl(&node.name, name);
    if name.ends_with("ip_forward") {
        // `ip_forward` sets `forwarding` of every interface (Linux v6.12, net/ipv4/devinet.c,
        // inet_forward_change).
        culprit = culprit
            .or_exact(["net.ipv4.conf.all.forwarding"])
            .or_near(["*forwarding"]);
    }
    Ok(commands(
        &node.name,
        &[format!("sysctl -w {name}={value}")],
        vec![culprit],
    ))
}

/// Network of the lab's caller outside the cluster.
const OUTSIDE: &str = "198.51.100.0/24";

fn rp_filter(draw: &mut Draw<'_>) -> Drawn {
    let node = draw.client_node()?;
    let routes = node.routes();
    let uplink = routes.iter().find(|route| route.destination == "default");
    let uplink = &uplink.ok_or("the node has no default route")?.rest;
    let name = "net.ipv4.conf.all.rp_filter";
    // Replies have a mark that selects the right route. The lookup of a source address has no mark
    // unless `src_valid_mark` is set (Linux v6.12, net/ipv4/fib_frontend.c,
    // __fib_validate_source), so that only the filter drops packets.
    let all = [
        format!("ip route add default {uplink} table 100"),
        format!("ip rule add fwmark 0x77/0xff to {OUTSIDE} lookup 100 pref 500"),
        "iptables -t mangle -A PREROUTING ! -i eth0 -j MARK --set-xmark 0x77/0xff".to_owned(),
        format!("ip route add {OUTSIDE} dev cni0"),
        format!("sysctl -w {name}=1"),
    ];
    let culprits = vec![
        Culprit::sysctl(&node.name, name),
        Culprit::route(&node.name, OUTSIDE),
    ];
    Ok(commands(&node.name, &all, culprits))
}

fn port_range(draw: &mut Draw<'_>) -> Drawn {
    let node = draw.client_node()?;
    let name = "net.ipv4.ip_local_reserved_ports";
    let command = format!("sysctl -w {name}=40000-40499");
    Ok(commands(
        &node.name,
        &[command],
        vec![Culprit::sysctl(&node.name, name)],
    ))
}

fn qdisc(draw: &mut Draw<'_>, setting: &str, name: &str) -> Drawn {
    let node = draw.node()?;
    let device = draw.pick_text(&["cni0", "eth0", "flannel.1"]);
    let command = format!("tc qdisc add dev {device} root {setting}");
    Ok(commands(
        &node.name,
        &[command],
        vec![Culprit::qdisc(&node.name, device, name)],
    ))
}

fn filter(draw: &mut Draw<'_>) -> Drawn {
    let node = draw.node()?;
    let device = draw.pick_text(&["cni0", "eth0", "flannel.1"]);
    let all = [
        format!("tc qdisc add dev {device} clsact"),
        format!("tc filter add dev {device} ingress matchall action drop"),
    ];
    let culprit = Culprit::qdisc(&node.name, device, "filter*");
    Ok(commands(&node.name, &all, vec![culprit]))
}

fn xfrm(draw: &mut Draw<'_>) -> Drawn {
    let node = draw.client_node()?;
    let endpoint = draw.endpoint(node)?;
    let command = format!("ip xfrm policy add dst {endpoint}/32 dir out action block");
    let culprit = Culprit::xfrm(&node.name, &endpoint);
    Ok(commands(&node.name, &[command], vec![culprit]))
}

/// Connections of a node to a service, which differ in their source ports.
struct Flow {
    protocol: &'static str,
    service: &'static str,
    port: u16,
    /// Option of `conntrack` for the state.
    state: &'static str,
}

const UDP: Flow = Flow {
    protocol: "udp",
    service: "dns",
    port: 53,
    state: "",
};

const TCP: Flow = Flow {
    protocol: "tcp",
    service: "db",
    port: 80,
    state: "--state SYN_SENT",
};

/// Inserts a conntrack entry for each source port. `end` returns the options that determine the
/// reply, and the address that the entry shows, from the addresses of the node and the service.
fn insert_entries(
    draw: &mut Draw<'_>,
    flow: &Flow,
    end: impl Fn(&mut Draw<'_>, &str, &str) -> (String, String),
) -> Drawn {
    let node = draw.client_node()?;
    let node_address = node
        .addresses()
        .into_iter()
        .find(|(_, device)| device == "eth0");
    let caller = node_address.map_or_else(String::new, |(address, _)| address.replace("/24", ""));
    let services = draw.state.objects("Service");
    let address = services
        .filter(|object| object["metadata"]["name"] == flow.service)
        .find_map(|object| object["spec"]["clusterIP"].as_str())
        .ok_or("the lab lacks the service")?;
    let name = node.name.clone();
    let (reply, shown) = end(draw, &caller, address);
    let Flow {
        protocol,
        port,
        state,
        ..
    } = flow;
    let command = format!(
        "sh -c 'for port in $(seq 40000 40499); do conntrack -I -p {protocol} -s {caller} -d {address} \
         --sport $port --dport {port} {reply} -t 600 {state} || exit; done'"
    );
    let culprits = vec![Culprit::connection(&name, address, &shown)];
    let mut fault = commands(&name, &[command], culprits);
    fault.summary = format!("{name}: conntrack entries of {protocol} to {address} ({reply})");
    Ok(fault)
}

/// Entries that translate to an endpoint that no longer exists.
fn stale(draw: &mut Draw<'_>, flow: &Flow) -> Drawn {
    let source = draw.client_node()?.addresses().into_iter();
    let source = source
        .filter(|(_, device)| device == "flannel.1")
        .map(|(address, _)| address.replace("/32", ""))
        .next();
    let source = source.map_or_else(String::new, |source| format!(" --src-nat {source}"));
    insert_entries(draw, flow, |draw, _, _| {
        let gone = format!("10.244.2.{}", 200 + draw.random.below(50));
        (format!("--dst-nat {gone}:{}{source}", flow.port), gone)
    })
}

fn stale_udp(draw: &mut Draw<'_>) -> Drawn {
    stale(draw, &UDP)
}

fn stale_tcp(draw: &mut Draw<'_>) -> Drawn {
    stale(draw, &TCP)
}

/// Entries from before the service had rules.
fn untranslated(draw: &mut Draw<'_>) -> Drawn {
    insert_entries(draw, &UDP, |_, caller, address| {
        let ports = format!("--reply-port-src {} --reply-port-dst $port", UDP.port);
        (
            format!("-r {address} -q {caller} {ports}"),
            address.to_owned(),
        )
    })
}
