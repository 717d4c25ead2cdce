//! Finds the sysctls that control whether a packet is accepted or forwarded.

use super::{Hop, SysctlValue, ingress_interface};
use svclab_model::evidence::StageEvidence;

/// Returns the sysctls that control a drop reason or a drop counter, as they were for the ingress
/// interface.
///
/// For the reverse path filter, the stricter of the values of the interface and of `all` applies
/// (Linux v6.12, `include/linux/inetdevice.h`, `IN_DEV_RPFILTER`). An interface that does not
/// forward treats packets for other addresses as errors (`net/ipv4/route.c`, `ip_error`). The
/// namespace accepts its own addresses as sources, and 127.0.0.0/8 from other interfaces than `lo`,
/// if the interface or `all` permits this (`IN_DEV_ACCEPT_LOCAL`, `IN_DEV_NET_ROUTE_LOCALNET`).
///
/// For IPv6, one value for all interfaces controls forwarding (`net/ipv6/ip6_output.c`,
/// `ip6_forward`), and an interface or all can have IPv6 disabled (`net/ipv6/ip6_input.c`,
/// `ip6_rcv_core`).
pub(super) fn controlling_sysctls(
    evidence: &StageEvidence,
    hop: &Hop,
    cause: &str,
) -> Vec<SysctlValue> {
    let Some(ingress) = ingress_interface(hop) else {
        return Vec::new();
    };
    let interface = ingress.interface.replace('.', "/");
    let is_v6 = hop.before.destination.is_ipv6();
    let (setting, interfaces, decides): (_, &[&str], fn(&str) -> bool) = match cause {
        "IP_INADDRERRORS" | "Ip6InAddrErrors" if is_v6 => {
            ("forwarding", &["all"], |value| value == "0")
        }
        "IPV6DISABLED" => ("disable_ipv6", &["all", &interface], |value| value != "0"),
        _ if is_v6 => return Vec::new(),
        "IP_RPFILTER" | "TcpExtIPReversePathFilter" => {
            ("rp_filter", &["all", &interface], |value| value != "0")
        }
        "IP_INADDRERRORS" | "IP_INNOROUTES" | "IpInAddrErrors" | "IpExtInNoRoutes" => {
            ("forwarding", &[&interface], |value| value == "0")
        }
        "IP_LOCAL_SOURCE" => ("accept_local", &[&interface], |value| value == "0"),
        "IP_LOCALNET" => ("route_localnet", &[&interface], |value| value == "0"),
        _ => return Vec::new(),
    };
    let family = if is_v6 { "ipv6" } else { "ipv4" };
    let sysctls = evidence.sysctls.get(&hop.namespace);
    interfaces
        .iter()
        .filter_map(|interface_name| {
            let name = format!("net.{family}.conf.{interface_name}.{setting}");
            let value = sysctls?.get(&name).filter(|value| decides(value))?;
            Some(SysctlValue {
                value: value.clone(),
                name,
            })
        })
        .collect()
}
