//! What is said of packets, without what differs from run to run.

use std::collections::BTreeSet;

/// Without the callers' ports, the host's kernel's release, and the function that a
/// packet was dropped in for its way back.
pub fn settled(text: &str) -> String {
    let mut settled = text.to_owned();
    let release = nix::sys::utsname::uname().expect("a kernel");
    settled = settled.replace(&*release.release().to_string_lossy(), "RELEASE");
    // Which function another one was made part of.
    for (at, _) in text.match_indices("IP_RPFILTER in ") {
        let rest = &text[at + "IP_RPFILTER in ".len()..];
        let is_part = |each: char| each.is_ascii_alphanumeric() || "_.".contains(each);
        let function = rest.split(|each| !is_part(each)).next().unwrap_or_default();
        settled = settled.replace(function, "FUNCTION");
    }
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
