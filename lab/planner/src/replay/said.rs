//! Extracts the reason from the output of a program that rejected its input.

use svclab_model::protocol::{IP_ADDR, IP_ROUTE, IP_RULE, IPVSADM, Rejected, SYSCTL};

/// Whether the agent itself applied the item by netlink or sysctl.
fn is_agents(program: &str) -> bool {
    [SYSCTL, IP_ROUTE, IP_RULE, IP_ADDR, IPVSADM].contains(&program)
}

/// Returns the reason in one line, without program name, version and usage hints.
pub fn because(rejected: &Rejected) -> String {
    let Rejected { program, said, .. } = rejected;
    let lines = said.lines().map(|line| {
        let line = match line.split_once("): ") {
            Some((head, rest)) if head.contains(" v1.") => rest,
            _ => line,
        };
        let line = line.trim();
        match line
            .strip_prefix("line ")
            .and_then(|rest| rest.split_once(": "))
        {
            Some((number, rest)) if number.bytes().all(|byte| byte.is_ascii_digit()) => rest,
            _ => line,
        }
    });
    let means = |line: &&str| {
        let empty = [
            "Error occurred",
            "Try `",
            "iptables-restore: line",
            "ip6tables-restore: line",
        ];
        !line.is_empty()
            && !line.ends_with("):")
            && !empty.iter().any(|begins| line.starts_with(begins))
    };
    let said = lines.filter(means).find(|line| *line != "(nf_tables)");
    let said = said.map(|line| match line.rsplit_once("Error: ") {
        Some((_, rest)) => rest,
        None => line,
    });
    let said = said.map(|line| match line.split_once(": Error in line ") {
        Some((_, rest)) => rest.split_once(": ").map_or(rest, |(_, fault)| fault),
        None => line,
    });
    let said = said.map(|line| match line.split_once(": rule in chain ") {
        Some((fault, _)) => fault,
        None => line,
    });
    match said {
        Some(said) if is_agents(program) => said.to_owned(),
        Some(said) => format!("{program} says: {said}"),
        None => format!("{program} refuses it"),
    }
}

/// Returns the quoted word after one of the prefixes: ``Couldn't load match `geoip'``.
pub fn named<'s>(said: &'s str, begins: &[&str]) -> Option<&'s str> {
    begins.iter().find_map(|begins| {
        let (_, rest) = said.split_once(begins)?;
        let rest = rest.trim_start_matches(['`', '\'', '"', ' ']);
        let end = rest.find(['\'', '`', '"', ' ', ':'])?;
        rest.get(..end).filter(|name| !name.is_empty())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_fault_itself_is_told() {
        let told: Vec<String> = [
            ("iptables-nft-restore", "iptables-nft-restore v1.8.9 (nf_tables): Couldn't load match `geoip':No such file or directory\n\nError occurred at line: 3\nTry `iptables-nft-restore -h' or"),
            ("iptables-nft-restore", "iptables-nft-restore v1.8.9 (nf_tables): \nline 3: RULE_APPEND failed (Too many links): rule in chain A"),
            ("iptables-legacy-restore", "iptables-restore: line 7 failed"),
            ("ipset", "ipset v7.17: Error in line 1: Syntax error: typename 'hash:ip,foo' is unknown"),
            ("nft", "/dev/stdin:6:3-5: Error: No symbol type information\n\t\tfoo bar drop\n\t\t^^^"),
            ("sysctl", "cannot set net.ipv4.ip_forward = 7x in node-1: Invalid argument (os error 22)"),
        ]
        .map(|(program, said)| {
            because(&Rejected {
                program: program.to_owned(),
                said: said.to_owned(),
                ..Rejected::default()
            })
        })
        .into();
        assert_eq!(
            told,
            [
                "iptables-nft-restore says: Couldn't load match `geoip':No such file or directory",
                "iptables-nft-restore says: RULE_APPEND failed (Too many links)",
                "iptables-legacy-restore refuses it",
                "ipset says: Syntax error: typename 'hash:ip,foo' is unknown",
                "nft says: No symbol type information",
                "cannot set net.ipv4.ip_forward = 7x in node-1: Invalid argument (os error 22)",
            ]
        );
    }

    #[test]
    fn what_is_named_in_quotes_is_found() {
        let load = ["Couldn't load match", "Chain '"];
        assert_eq!(
            named("Couldn't load match `geoip':No", &load),
            Some("geoip")
        );
        assert_eq!(named("Chain 'X' does not exist", &load), Some("X"));
        assert_eq!(named("Set XX doesn't exist.", &["Set "]), Some("XX"));
        assert_eq!(named("line 3 failed", &load), None);
    }
}
