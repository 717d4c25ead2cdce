//! Names the programs that an agent runs and the Debian packages that provide them.

use crate::plan::Backend;

/// Returns the program name for an address family and backend, for example `ip6tables-legacy-save`.
/// `family` is 4 or 6, `verb` is `restore` or `save`.
#[must_use]
pub fn iptables_program(family: u8, backend: Backend, verb: &str) -> String {
    format!("{}-{verb}", iptables_command(family, backend))
}

/// Returns the name of the program that changes single rules: `ip6tables-legacy`. `family` is 4 or 6.
#[must_use]
pub fn iptables_command(family: u8, backend: Backend) -> String {
    let word = if family == 6 { "ip6tables" } else { "iptables" };
    format!("{word}-{}", backend.name())
}

/// Returns the Debian package that provides a program. `None` if labs do not call the program.
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
