//! Reads the sysctls that decide what happens to packets: those that control whether a namespace
//! accepts or forwards a packet (Linux v6.12, `net/ipv4/fib_frontend.c`, `fib_validate_source`,
//! `net/ipv4/route.c`, `ip_route_input_slow`, `net/ipv6/ip6_input.c`, `ip6_rcv_core`, and
//! `net/ipv6/ip6_output.c`, `ip6_forward`), and those that differ from the plan.

use std::collections::BTreeMap;

use crate::net::netns::NetNs;
use crate::net::sysctl;
use crate::runtime::failure;
use svclab_model::evidence::KERNEL_DEFAULTS;
use svclab_model::plan::Namespace;
use svclab_model::protocol::Failure;

/// Sysctls to read of each interface and of `all`, by family.
const INTERFACE_SYSCTLS: [(&str, &str); 6] = [
    ("ipv4", "accept_local"),
    ("ipv4", "forwarding"),
    ("ipv4", "route_localnet"),
    ("ipv4", "rp_filter"),
    ("ipv6", "disable_ipv6"),
    ("ipv6", "forwarding"),
];

/// Returns the values by sysctl name. As in `sysctl`, a dot in an interface name becomes a slash.
/// Sysctls that the kernel lacks are omitted.
pub(crate) fn read<'n>(
    ns: &NetNs,
    plan: &Namespace,
    interfaces: impl Iterator<Item = &'n str>,
) -> Result<BTreeMap<String, String>, Failure> {
    let read_value = |key: &str| {
        // The kernel separates several values with tabs.
        let value = sysctl::read_value(key).ok()?;
        Some(value.split_whitespace().collect::<Vec<_>>().join(" "))
    };
    let read = || {
        let mut values = BTreeMap::new();
        for interface in interfaces.chain(["all"]) {
            let interface = interface.replace('.', "/");
            for (family, setting) in INTERFACE_SYSCTLS {
                let key = format!("net.{family}.conf.{interface}.{setting}");
                values.extend(read_value(&key).map(|value| (key, value)));
            }
        }
        for (key, _) in KERNEL_DEFAULTS {
            values.extend(read_value(key).map(|value| (key.to_owned(), value)));
        }
        // A later value of a plan replaces an earlier one.
        let planned: BTreeMap<&str, &str> = plan
            .sysctls
            .iter()
            .map(|sysctl| (&*sysctl.key, &*sysctl.value))
            .collect();
        for (key, planned) in planned {
            if values.contains_key(key) {
                continue;
            }
            let differing = read_value(key).filter(|value| value != planned);
            values.extend(differing.map(|value| (key.to_owned(), value)));
        }
        values
    };
    ns.enter(read)
        .map_err(|error| failure::cannot_enter(&plan.name, &error))
}
