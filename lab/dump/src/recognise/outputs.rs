//! Recognises output of programs that svclab does not read, so that messages name the program and
//! what the output may affect.

/// Output of a program that svclab does not read.
#[derive(Debug, PartialEq, Eq)]
pub struct UnreadOutput {
    /// Command that prints the output.
    pub command: &'static str,
    /// Possible effect of its content on packets.
    pub affects: &'static str,
}

const XFRM: UnreadOutput = UnreadOutput {
    command: "ip xfrm",
    affects: "packets are not encrypted",
};
const IFCONFIG: UnreadOutput = UnreadOutput {
    command: "ifconfig",
    affects: "interfaces and addresses need the output of `ip addr`",
};
const LISTING: UnreadOutput = UnreadOutput {
    command: "iptables -L",
    affects: "rules need the output of `iptables-save`, because a listing does not show all matches",
};
const SETS: UnreadOutput = UnreadOutput {
    command: "ipset list",
    affects: "sets need the output of `ipset save`",
};
const VIRTUAL_SERVERS: UnreadOutput = UnreadOutput {
    command: "ipvsadm -Ln",
    affects: "virtual servers need the output of `ipvsadm -Sn`",
};
const JSON: UnreadOutput = UnreadOutput {
    command: "ip -json",
    affects: "the state needs the output without the option `-json`",
};
const NFT_JSON: UnreadOutput = UnreadOutput {
    command: "nft -j list ruleset",
    affects: "the tables need the output without the option `-j`",
};

/// Returns the output that a line belongs to. `None` if no such program prints the line.
pub(super) fn detect_line(line: &str) -> Option<&'static UnreadOutput> {
    let mut words = line.split_ascii_whitespace();
    let first = words.next()?;
    let second = words.next().unwrap_or_default();
    let has = |word: &str| line.split_ascii_whitespace().any(|own| own == word);
    match first {
        "src" if has("dst") => Some(&XFRM),
        "Chain" if line.ends_with(')') && (has("references)") || has("(policy")) => Some(&LISTING),
        "Type:" if second.contains(':') => Some(&SETS),
        "IP" if line.starts_with("IP Virtual Server version ") => Some(&VIRTUAL_SERVERS),
        _ if second.starts_with("flags=") && line.contains(" mtu ") => Some(&IFCONFIG),
        _ => None,
    }
}

/// Returns the output that a JSON text is.
pub(super) fn detect_json(text: &str) -> Option<&'static UnreadOutput> {
    let text = text.trim_ascii_start();
    if text.starts_with("{\"nftables\"") || text.starts_with("{ \"nftables\"") {
        return Some(&NFT_JSON);
    }
    let begin: String = text
        .chars()
        .filter(|c| !c.is_ascii_whitespace())
        .take(16)
        .collect();
    let keys = [
        "[{\"ifindex\"",
        "[{\"mac\"",
        "[{\"dst\"",
        "[{\"type\"",
        "[{\"priority\"",
    ];
    keys.iter()
        .any(|key| begin.starts_with(key))
        .then_some(&JSON)
}
