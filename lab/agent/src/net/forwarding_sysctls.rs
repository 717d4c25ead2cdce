//! Reads the sysctls that decide whether a namespace accepts or forwards a packet (Linux v6.12,
//! `net/ipv4/fib_frontend.c`, `fib_validate_source`, and `net/ipv4/route.c`,
//! `ip_route_input_slow`).

use std::collections::BTreeMap;
use std::fs;

use crate::net::netns::NetNs;
use crate::runtime::failure;
use svclab_model::protocol::Failure;

/// Sysctls to read of each interface and of `all`.
const SYSCTLS: [&str; 4] = ["accept_local", "forwarding", "route_localnet", "rp_filter"];

/// Returns the values by sysctl name. As in `sysctl`, a dot in an interface name becomes a slash.
/// Sysctls that the kernel lacks are omitted.
pub(crate) fn read<'n>(
    ns: &NetNs,
    name: &str,
    interfaces: impl Iterator<Item = &'n str>,
) -> Result<BTreeMap<String, String>, Failure> {
    let read = || {
        let mut values = BTreeMap::new();
        for interface in interfaces.chain(["all"]) {
            for setting in SYSCTLS {
                let file = format!("/proc/sys/net/ipv4/conf/{interface}/{setting}");
                if let Ok(value) = fs::read_to_string(file) {
                    let interface = interface.replace('.', "/");
                    let key = format!("net.ipv4.conf.{interface}.{setting}");
                    values.insert(key, value.trim().to_owned());
                }
            }
        }
        values
    };
    ns.enter(read)
        .map_err(|error| failure::cannot_enter(name, &error))
}
