//! The settings that decide whether a packet is taken in or passed on.

use super::{Hop, Setting, came_by};
use svclab_model::evidence::Evidence;

/// Those that decide on what a kernel gives that reason for, or counts so, as they were
/// for the interface by which the packet came: the reverse path filter is the stricter
/// of the interface's and everybody's, and only `all` of them together let it through
/// (Linux v6.12, `include/linux/inetdevice.h`, `IN_DEV_RPFILTER`); what does not forward
/// takes what is not its own for wrong (`net/ipv4/route.c`, `ip_error`).
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
