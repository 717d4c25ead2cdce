//! What rules need: the modules of their tables, matches and targets.
//!
//! Which request makes which kernel load what was recorded in guests (see
//! `tests/recorded/modules`); the tests hold this file against those records.

use std::collections::HashSet;

use super::{Needs, quoted};
use svclab_model::plan::{Backend, Namespace};
use svclab_ruleset::iptables::words;

/// Targets that are words of the tables themselves.
const VERDICTS: [&str; 3] = ["ACCEPT", "DROP", "RETURN"];

/// Adds what the rules of one family need. A line that cannot be divided into
/// words is left for its program to refuse.
pub fn look(needs: &mut Needs, namespace: &Namespace, backend: Backend, family: u8, text: &str) {
    let mut look = Look {
        needs,
        namespace: &namespace.name,
        backend,
        prefix: if family == 6 { "ip6" } else { "ip" },
        chains: HashSet::new(),
    };
    look.base();
    for line in text.lines().map(str::trim) {
        if let Some(table) = line.strip_prefix('*') {
            look.chains.clear();
            look.table(line, table);
        } else if let Some(chain) = line.strip_prefix(':') {
            look.chains.extend(chain.split_whitespace().next());
        } else if line.starts_with('-') {
            look.rule(line);
        }
    }
}

/// One text on its way through.
struct Look<'a> {
    needs: &'a mut Needs,
    namespace: &'a str,
    backend: Backend,
    /// `ip` or `ip6`, with which the kernel begins the names it asks for.
    prefix: &'static str,
    /// The chains that the table declares: a jump there is no target.
    chains: HashSet<&'a str>,
}

impl<'a> Look<'a> {
    fn need(&mut self, module: &str, kind: &str, line: &str) {
        self.needs
            .module(module, self.namespace, || quoted(kind, line));
    }

    /// What the program asks for whatever it is to load.
    fn base(&mut self) {
        let modules: &[&str] = match (self.backend, self.prefix) {
            // Up to Linux 5.17 every rule's counter was a module of its own.
            (Backend::Nft, _) => &["nfnetlink", "nf_tables", "nft_counter"],
            (Backend::Legacy, "ip6") => &["ip6_tables"],
            (Backend::Legacy, _) => &["ip_tables"],
        };
        let (prefix, backend) = (self.prefix, self.backend.word());
        for module in modules {
            self.needs.module(module, self.namespace, || {
                format!("the rules of {prefix}tables-{backend}")
            });
        }
    }

    fn table(&mut self, line: &str, table: &str) {
        match self.backend {
            // The other kinds of chain are part of nf_tables (Linux v6.12,
            // `net/netfilter/nft_chain_filter.c`).
            Backend::Nft if table == "nat" => {
                let family = if self.prefix == "ip6" { 10 } else { 2 };
                self.need(&format!("nft-chain-{family}-nat"), "table", line);
            }
            Backend::Nft => {}
            Backend::Legacy => {
                self.need(&format!("{}table_{table}", self.prefix), "table", line);
            }
        }
    }

    fn rule(&mut self, line: &'a str) {
        let Some(words) = words::split(line) else {
            return;
        };
        let mut words = words.iter().map(String::as_str);
        let (mut protocol, mut implied, mut explicit) = (None, false, false);
        while let Some(word) = words.next() {
            match word {
                "-N" | "--new-chain" => {
                    // The line itself outlives the words made of it.
                    self.chains.extend(line.split_whitespace().nth(1));
                    return;
                }
                "-p" | "--protocol" | "--proto" => protocol = words.next(),
                "-m" | "--match" => {
                    if let Some(name) = words.next() {
                        explicit |= protocol.is_some_and(|protocol| spoken(protocol) == Some(name));
                        self.extension(name, line);
                    }
                }
                "-j" | "--jump" => {
                    if let Some(name) = words.next()
                        && !VERDICTS.contains(&name)
                        && !self.chains.contains(name)
                    {
                        self.extension(name, line);
                    }
                }
                "--comment" | "--log-prefix" | "--nflog-prefix" | "--string" => {
                    words.next();
                }
                _ => implied |= is_of_a_protocol(word),
            }
        }
        // `-p tcp --dport 80` means `-p tcp -m tcp --dport 80`.
        if implied
            && !explicit
            && let Some(name) = protocol.and_then(spoken)
        {
            self.extension(name, line);
        }
    }

    /// A match or target. The kernel asks for it by the name of its family
    /// (Linux v6.12, `net/netfilter/x_tables.c`, `xt_request_find_match`,
    /// `xt_request_find_target`); so does `nft_compat` on behalf of iptables-nft,
    /// which asks for the revisions of an extension even when it then puts it
    /// into the words of `nf_tables` (`nfnl_compat_get_rcu`; iptables v1.8.9,
    /// `iptables/nft.c`, `nft_compatible_revision`).
    fn extension(&mut self, name: &str, line: &str) {
        let name = in_the_kernel(name);
        if self.backend == Backend::Nft {
            self.need("nft_compat", "rule", line);
        }
        let module = format!("{}t_{name}", self.prefix);
        self.need(&module, "rule", line);
        let more: &[&str] = match (name, self.backend, self.prefix) {
            ("limit", Backend::Nft, _) => &["nft_limit"],
            ("NFLOG", Backend::Nft, _) => &["nft_log", "nfnetlink_log"],
            ("NFLOG", Backend::Legacy, _) => &["nfnetlink_log"],
            // Who writes to the kernel's log, by protocol family.
            ("LOG" | "TRACE", _, "ip6") => &["nf-logger-10-0"],
            ("LOG" | "TRACE", ..) => &["nf-logger-2-0"],
            // `net/netfilter/xt_physdev.c`, `physdev_mt_check`.
            ("physdev", ..) => &["br_netfilter"],
            _ => &[],
        };
        for module in more {
            self.need(module, "rule", line);
        }
    }
}

/// What the kernel calls an extension that the programs have another name for.
fn in_the_kernel(name: &str) -> &str {
    match name {
        "state" => "conntrack",
        "NOTRACK" => "CT",
        "icmpv6" | "ipv6-icmp" => "icmp6",
        other => other,
    }
}

/// The match that speaks of a protocol's own fields.
fn spoken(protocol: &str) -> Option<&'static str> {
    Some(match protocol {
        "tcp" | "6" => "tcp",
        "udp" | "17" => "udp",
        "icmp" | "1" => "icmp",
        "icmpv6" | "ipv6-icmp" | "58" => "icmp6",
        "sctp" | "132" => "sctp",
        "dccp" | "33" => "dccp",
        _ => return None,
    })
}

/// Options that only a protocol's own match has.
fn is_of_a_protocol(word: &str) -> bool {
    [
        "--dport",
        "--sport",
        "--destination-port",
        "--source-port",
        "--tcp-flags",
        "--syn",
        "--tcp-option",
        "--icmp-type",
        "--icmpv6-type",
        "--chunk-types",
        "--dccp-types",
    ]
    .contains(&word)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn modules(backend: Backend, family: u8, text: &str) -> Vec<String> {
        let mut needs = Needs::default();
        look(&mut needs, &Namespace::default(), backend, family, text);
        needs.modules().map(|(name, _)| name.to_owned()).collect()
    }

    #[test]
    fn a_jump_to_a_chain_of_the_table_is_no_target() {
        let text = "*nat\n:KUBE-SVC-X - [0:0]\n-N LATER\n-A PREROUTING -j KUBE-SVC-X\n-A PREROUTING -j LATER\n-A PREROUTING -j DROP\nCOMMIT\n*filter\n-A INPUT -j LATER\n";
        assert_eq!(
            modules(Backend::Legacy, 4, text),
            [
                "ip_tables",
                "iptable_nat",
                "iptable_filter",
                // Not a chain of this table.
                "ipt_LATER"
            ]
        );
    }

    #[test]
    fn what_stands_in_a_comment_is_no_match() {
        let text = "*filter\n-A INPUT -m comment --comment \"-m\" -j ACCEPT\n";
        assert_eq!(
            modules(Backend::Legacy, 6, text),
            ["ip6_tables", "ip6table_filter", "ip6t_comment"]
        );
    }

    #[test]
    fn a_port_implies_its_protocols_match() {
        let of = |rule: &str| modules(Backend::Nft, 4, &format!("*filter\n{rule}\n")).split_off(3);
        assert_eq!(of("-A INPUT -p tcp -j DROP"), [""; 0]);
        assert_eq!(
            of("-A INPUT -p 17 --dport 53 -j DROP"),
            ["nft_compat", "ipt_udp"]
        );
        assert_eq!(
            of("-A INPUT -p tcp -m tcp --dport 53 -j DROP"),
            ["nft_compat", "ipt_tcp"]
        );
    }
}
