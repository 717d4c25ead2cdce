//! Extracts the reason from the output of a program that rejected its input.

use svclab_model::protocol::{IP_ADDR, IP_ROUTE, IP_RULE, IPVSADM, RejectedInput, SYSCTL};

/// Whether the agent itself applied the item by netlink or sysctl.
fn is_applied_by_agent(program: &str) -> bool {
    [SYSCTL, IP_ROUTE, IP_RULE, IP_ADDR, IPVSADM].contains(&program)
}

/// Returns the reason in one line, without program name, version and usage hints.
pub fn rejection_reason(rejected: &RejectedInput) -> String {
    let RejectedInput {
        program,
        message: said,
        ..
    } = rejected;
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
    let has_content = |line: &&str| {
        let hint_prefixes = [
            "Error occurred",
            "Try `",
            "iptables-restore: line",
            "ip6tables-restore: line",
        ];
        !line.is_empty()
            && !line.ends_with("):")
            && !hint_prefixes.iter().any(|begins| line.starts_with(begins))
    };
    let reason_line = lines
        .filter(has_content)
        .find(|line| *line != "(nf_tables)");
    let reason_line = reason_line.map(|line| match line.rsplit_once("Error: ") {
        Some((_, rest)) => rest,
        None => line,
    });
    let reason_line = reason_line.map(|line| match line.split_once(": Error in line ") {
        Some((_, rest)) => rest.split_once(": ").map_or(rest, |(_, fault)| fault),
        None => line,
    });
    let reason_line = reason_line.map(|line| match line.split_once(": rule in chain ") {
        Some((fault, _)) => fault,
        None => line,
    });
    match reason_line {
        Some(reason) if is_applied_by_agent(program) => reason.to_owned(),
        Some(reason) => format!("{program} rejects it: {reason}"),
        None => format!("{program} rejects it"),
    }
}

/// Returns the quoted word after one of the prefixes: ``Couldn't load match `geoip'``.
pub fn quoted_word<'s>(output: &'s str, prefixes: &[&str]) -> Option<&'s str> {
    prefixes.iter().find_map(|prefix| {
        let (_, rest) = output.split_once(prefix)?;
        let rest = rest.trim_start_matches(['`', '\'', '"', ' ']);
        let end = rest.find(['\'', '`', '"', ' ', ':'])?;
        rest.get(..end).filter(|name| !name.is_empty())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rejection_reason_omits_program_and_hints() {
        let reasons: Vec<String> = [
            ("iptables-nft-restore", "iptables-nft-restore v1.8.9 (nf_tables): Couldn't load match `geoip':No such file or directory\n\nError occurred at line: 3\nTry `iptables-nft-restore -h' or"),
            ("iptables-nft-restore", "iptables-nft-restore v1.8.9 (nf_tables): \nline 3: RULE_APPEND failed (Too many links): rule in chain A"),
            ("iptables-legacy-restore", "iptables-restore: line 7 failed"),
            ("ipset", "ipset v7.17: Error in line 1: Syntax error: typename 'hash:ip,foo' is unknown"),
            ("nft", "/dev/stdin:6:3-5: Error: No symbol type information\n\t\tfoo bar drop\n\t\t^^^"),
            ("sysctl", "cannot set net.ipv4.ip_forward = 7x in node-1: Invalid argument (os error 22)"),
        ]
        .map(|(program, output)| {
            rejection_reason(&RejectedInput {
                program: program.to_owned(),
                message: output.to_owned(),
                ..RejectedInput::default()
            })
        })
        .into();
        assert_eq!(
            reasons,
            [
                "iptables-nft-restore rejects it: Couldn't load match `geoip':No such file or directory",
                "iptables-nft-restore rejects it: RULE_APPEND failed (Too many links)",
                "iptables-legacy-restore rejects it",
                "ipset rejects it: Syntax error: typename 'hash:ip,foo' is unknown",
                "nft rejects it: No symbol type information",
                "cannot set net.ipv4.ip_forward = 7x in node-1: Invalid argument (os error 22)",
            ]
        );
    }

    #[test]
    fn quoted_word_after_prefix_is_returned() {
        let prefixes = ["Couldn't load match", "Chain '"];
        assert_eq!(
            quoted_word("Couldn't load match `geoip':No", &prefixes),
            Some("geoip")
        );
        assert_eq!(
            quoted_word("Chain 'X' does not exist", &prefixes),
            Some("X")
        );
        assert_eq!(quoted_word("Set XX doesn't exist.", &["Set "]), Some("XX"));
        assert_eq!(quoted_word("line 3 failed", &prefixes), None);
    }
}
