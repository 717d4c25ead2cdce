//! Finds the sysctls that control whether a packet is accepted or forwarded.

use super::{Hop, Setting, came_by};
use svclab_model::evidence::Evidence;

/// Returns the sysctls that control a drop reason or a drop counter, as they were for the ingress
/// interface.
///
/// For the reverse path filter, the stricter of the values of the interface and of `all` applies
/// (Linux v6.12, `include/linux/inetdevice.h`, `IN_DEV_RPFILTER`). An interface that does not
/// forward treats packets for other addresses as errors (`net/ipv4/route.c`, `ip_error`).
pub fn deciding(evidence: &Evidence, hop: &Hop, word: &str) -> Vec<Setting> {
    let Some(came) = came_by(hop) else {
        return Vec::new();
    };
    let interface = came.interface.replace('.', "/");
    let (setting, of, decides): (_, &[&str], fn(&str) -> bool) = match word {
        "IP_RPFILTER" | "TcpExtIPReversePathFilter" => {
            ("rp_filter", &["all", &interface], |value| value != "0")
        }
        "IP_INADDRERRORS" | "IP_INNOROUTES" | "IpInAddrErrors" | "IpExtInNoRoutes" => {
            ("forwarding", &[&interface], |value| value == "0")
        }
        _ => return Vec::new(),
    };
    let held = evidence.settings.get(&hop.namespace);
    of.iter()
        .filter_map(|of| {
            let name = format!("net.ipv4.conf.{of}.{setting}");
            let value = held?.get(&name).filter(|value| decides(value))?;
            Some(Setting {
                value: value.clone(),
                name,
            })
        })
        .collect()
}
