//! Reading the settings that decide whether a namespace takes a packet in or passes it
//! on (Linux v6.12, `net/ipv4/fib_frontend.c`, `fib_validate_source`, and
//! `net/ipv4/route.c`, `ip_route_input_slow`).

use std::collections::BTreeMap;
use std::fs;

use super::failure;
use super::netns::NetNs;
use svclab_model::protocol::Failure;

/// Of each interface, and of `all`.
const SETTINGS: [&str; 2] = ["forwarding", "rp_filter"];

/// Each by its name, with a slash for a dot in an interface's name, as `sysctl` has it.
/// What this kernel lacks is left out.
///
/// # Errors
///
/// When the namespace cannot be entered.
pub fn read<'n>(
    ns: &NetNs,
    name: &str,
    interfaces: impl Iterator<Item = &'n str>,
) -> Result<BTreeMap<String, String>, Failure> {
    let read = || {
        let mut read = BTreeMap::new();
        for interface in interfaces.chain(["all"]) {
            for setting in SETTINGS {
                let file = format!("/proc/sys/net/ipv4/conf/{interface}/{setting}");
                if let Ok(value) = fs::read_to_string(file) {
                    let interface = interface.replace('.', "/");
                    let key = format!("net.ipv4.conf.{interface}.{setting}");
                    read.insert(key, value.trim().to_owned());
                }
            }
        }
        read
    };
    ns.enter(read)
        .map_err(|error| failure::entering(name, &error))
}
