//! The programs that an agent runs, and the packages that they are in.

use crate::plan::Backend;

/// The program of that family and backend: `ip6tables-legacy-save`. `family` is
/// 4 or 6, `verb` is `restore` or `save`.
#[must_use]
pub fn iptables_program(family: u8, backend: Backend, verb: &str) -> String {
    let word = if family == 6 { "ip6tables" } else { "iptables" };
    format!("{word}-{}-{verb}", backend.word())
}

/// The Debian package that a program is in, of those that labs are known to call.
#[must_use]
pub fn package(program: &str) -> Option<&'static str> {
    match program {
        "ipset" => Some("ipset"),
        "ipvsadm" => Some("ipvsadm"),
        "nft" => Some("nftables"),
        "conntrack" => Some("conntrack"),
        "ip" | "bridge" | "tc" => Some("iproute2"),
        "sysctl" => Some("procps"),
        name if name.starts_with("iptables") || name.starts_with("ip6tables") => Some("iptables"),
        _ => None,
    }
}
