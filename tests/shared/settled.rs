//! Replaces the parts of explanations that differ between runs.

use std::collections::BTreeSet;

/// Replaces source ports, the kernel release, and the function of a reverse path filter drop.
pub fn normalized(text: &str) -> String {
    let mut settled = text.to_owned();
    let release = nix::sys::utsname::uname().expect("a kernel");
    settled = settled.replace(&*release.release().to_string_lossy(), "RELEASE");
    // The compiler may inline the function into others, so its name varies.
    for (start, _) in text.match_indices("IP_RPFILTER in ") {
        let rest = &text[start + "IP_RPFILTER in ".len()..];
        let is_part = |each: char| each.is_ascii_alphanumeric() || "_.".contains(each);
        let function = rest.split(|each| !is_part(each)).next().unwrap_or_default();
        settled = settled.replace(function, "FUNCTION");
    }
    // Ports from the range in which the kernel picks source ports.
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
