//! What is said of packets, without what differs from run to run.

use std::collections::BTreeSet;

/// Without the callers' ports and the host's kernel's release.
pub fn settled(text: &str) -> String {
    let mut settled = text.to_owned();
    let release = nix::sys::utsname::uname().expect("a kernel");
    settled = settled.replace(&*release.release().to_string_lossy(), "RELEASE");
    // Of the ports that a kernel chooses from.
    let ports: BTreeSet<&str> = text
        .split(':')
        .skip(1)
        .map(|rest| {
            rest.split(|each: char| !each.is_ascii_digit())
                .next()
                .unwrap_or("")
        })
        .filter(|port| port.parse::<u16>().is_ok_and(|port| port >= 32768))
        .collect();
    for port in ports {
        settled = settled.replace(&format!(":{port}"), ":PORT");
    }
    settled
}
