//! Normalizes a rule, key or value of nftables, so that equivalent texts are equal. The variants
//! come from kube-proxy and from different versions of `nft`.
//!
//! - `mark` becomes `meta mark`; `and`, `or` and `xor` become `&`, `|` and `^`.
//! - Marks become numbers of eight hexadecimal digits.
//! - Networks lose their host bits; a single address loses its prefix length.
//! - The addresses of an anonymous set are merged to ranges and sorted, as the kernel does (`nft`
//!   calls this `auto-merge`). A set of one element becomes that element.
//! - `dnat ip addr . port to` becomes `dnat ip to`, which `nft` before v1.0.7 lists.
//! - Counters lose their values.
//! - Names of values become numbers, and times become seconds.

use std::net::IpAddr;

use ipnetwork::IpNetwork;

use super::tokens::tokenize;
use super::values::{ElementTypes, Word, element_with_numbers, with_numbers};
use crate::network::{format_network, full_prefix};

/// Expressions whose values are bits.
const FLAGS: [&str; 2] = ["flags", "status"];

/// Returns the canonical text. Returns the text unchanged if it cannot be split into words.
#[must_use]
pub fn canonical(text: &str) -> String {
    match tokenize(text) {
        Ok(words) => canonical_words(&with_numbers(&words)),
        Err(_) => text.to_owned(),
    }
}

/// Returns the canonical text of the key or value of an element of a set or map.
#[must_use]
pub(super) fn canonical_element(text: &str, types: &ElementTypes, is_value: bool) -> String {
    match tokenize(text) {
        Ok(words) => canonical_words(&element_with_numbers(&words, types, is_value)),
        Err(_) => text.to_owned(),
    }
}

fn canonical_words(words: &[Word<'_>]) -> String {
    let mut out: Vec<String> = Vec::with_capacity(words.len());
    let mut open: Vec<usize> = Vec::new();
    let mut rest = words;
    while let Some((word, after)) = rest.split_first() {
        rest = after;
        if word.is_unquoted("{") {
            open.push(out.len());
        } else if word.is_unquoted("}")
            && let Some(begun) = open.pop()
        {
            let inner = out.split_off(begun);
            let is_of_flags = out
                .last()
                .is_some_and(|last| FLAGS.contains(&last.as_str()));
            out.extend(canonical_set(&inner[1..], is_of_flags));
            continue;
        } else if word.is_unquoted("counter")
            && let [packets, _, bytes, _, after @ ..] = after
            && packets.is_unquoted("packets")
            && bytes.is_unquoted("bytes")
        {
            rest = after;
        } else if word.is_unquoted("addr")
            && let [dot, port, after @ ..] = after
            && dot.is_unquoted(".")
            && port.is_unquoted("port")
            && ends_with_nat(&out)
        {
            rest = after;
            continue;
        } else if word.is_unquoted("mark")
            && !out
                .last()
                .is_some_and(|last| last == "meta" || last == "ct")
        {
            out.push("meta".to_owned());
        }
        let word = canonical_word(word, &out);
        out.push(word);
    }
    out.join(" ")
}

/// Whether the words end with a NAT statement and an address family.
fn ends_with_nat(words: &[String]) -> bool {
    matches!(words, [.., statement, family]
        if matches!(statement.as_str(), "dnat" | "snat") && matches!(family.as_str(), "ip" | "ip6"))
}

/// Returns the canonical form of a word that follows the words in `before`.
fn canonical_word(word: &Word<'_>, before: &[String]) -> String {
    let text = &*word.text;
    if word.is_quoted {
        // Without quotes, a text could look like other words.
        let has_space = text.contains(char::is_whitespace);
        return if has_space {
            format!("\"{text}\"")
        } else {
            text.to_owned()
        };
    }
    let is_mark_operand = matches!(before, [.., meta, mark] if meta == "meta" && mark == "mark");
    match text {
        "and" if is_mark_operand => return "&".to_owned(),
        "or" if is_mark_operand => return "|".to_owned(),
        "xor" if is_mark_operand => return "^".to_owned(),
        _ => {}
    }
    let operator = ["&", "|", "^", "==", "!="];
    let last = before.last().map(String::as_str);
    if last.is_some_and(|last| operator.contains(&last)) || text.starts_with("0x") {
        let number = match text.strip_prefix("0x") {
            Some(digits) => u32::from_str_radix(digits, 16).ok(),
            None => text.parse::<u32>().ok(),
        };
        if let Some(number) = number {
            return format!("{number:#010x}");
        }
    }
    canonical_address(text).unwrap_or_else(|| text.to_owned())
}

/// Returns the canonical form of an address or network. `None` for other words.
fn canonical_address(text: &str) -> Option<String> {
    // Shortcut, because most words are no addresses.
    let first = text.as_bytes().first()?;
    if !first.is_ascii_hexdigit() && *first != b':' {
        return None;
    }
    if text.contains('/') {
        let network: IpNetwork = text.parse().ok()?;
        return Some(format_network(network));
    }
    let ip: IpAddr = text.parse().ok()?;
    Some(ip.to_string())
}

/// Returns the canonical form of an anonymous set, from the words between its braces. Sets of flags
/// keep their braces: a value in a set is exact, and one without is a bit that may be among others
/// (nftables v1.0.6, `src/evaluate.c`, `expr_evaluate_relational`).
fn canonical_set(inner: &[String], is_of_flags: bool) -> Vec<String> {
    let mut items: Vec<String> = inner
        .split(|word| word == ",")
        .map(|item| item.join(" "))
        .collect();
    if items.len() > 1
        && let Some(ranges) = merge_ranges(&items)
    {
        items = ranges;
    }
    items.sort_unstable();
    if let [item] = items.as_slice()
        && !item.contains(' ')
        && !is_of_flags
    {
        return vec![item.clone()];
    }
    vec![format!("{{ {} }}", items.join(", "))]
}

/// First and last address of a range, as numbers.
type Range = (u128, u128);

/// Merges addresses and networks to ranges. `None` if an item is neither.
fn merge_ranges(items: &[String]) -> Option<Vec<String>> {
    let mut v4_ranges = Vec::new();
    let mut v6_ranges = Vec::new();
    for item in items {
        let (first, last) = match item.split_once('-') {
            Some((first, last)) => (first.parse().ok()?, last.parse().ok()?),
            None => network_bounds(item)?,
        };
        match (first, last) {
            (IpAddr::V4(first), IpAddr::V4(last)) => {
                v4_ranges.push((first.to_bits().into(), last.to_bits().into()));
            }
            (IpAddr::V6(first), IpAddr::V6(last)) => {
                v6_ranges.push((first.to_bits(), last.to_bits()));
            }
            _ => return None,
        }
    }
    let v4_texts = join_ranges(v4_ranges).into_iter().map(|(first, last)| {
        let [first, last] = [first, last].map(|bits| u32::try_from(bits).unwrap_or(u32::MAX));
        format_range(
            std::net::Ipv4Addr::from_bits(first).into(),
            std::net::Ipv4Addr::from_bits(last).into(),
        )
    });
    let v6_texts = join_ranges(v6_ranges).into_iter().map(|(first, last)| {
        format_range(
            std::net::Ipv6Addr::from_bits(first).into(),
            std::net::Ipv6Addr::from_bits(last).into(),
        )
    });
    Some(v4_texts.chain(v6_texts).collect())
}

/// Returns the first and last address of a network. For a single address, both are equal.
fn network_bounds(text: &str) -> Option<(IpAddr, IpAddr)> {
    let network: IpNetwork = text.parse().ok()?;
    Some(match network {
        IpNetwork::V4(network) => (network.network().into(), network.broadcast().into()),
        IpNetwork::V6(network) => (network.network().into(), network.broadcast().into()),
    })
}

/// Sorts ranges, and joins ranges that overlap or touch.
fn join_ranges(mut ranges: Vec<Range>) -> Vec<Range> {
    ranges.sort_unstable();
    let mut joined: Vec<Range> = Vec::new();
    for (first, last) in ranges {
        match joined.last_mut() {
            Some((_, end)) if first <= end.saturating_add(1) => *end = last.max(*end),
            _ => joined.push((first, last)),
        }
    }
    joined
}

/// Formats a range as an address, a network, or its first and last address.
fn format_range(first: IpAddr, last: IpAddr) -> String {
    if first == last {
        return first.to_string();
    }
    let network = (0..full_prefix(first)).find_map(|prefix| {
        let network = IpNetwork::new(first, prefix).ok()?;
        let ends = network_bounds(&network.to_string())?;
        (ends == (first, last)).then(|| network.to_string())
    });
    network.unwrap_or_else(|| format!("{first}-{last}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Pairs of input for nft v1.0.6 and its listing.
    #[test]
    fn canonical_input_and_listing_are_equal() {
        for (written, listed) in [
            (
                "mark set mark or 0x00004000",
                "meta mark set meta mark | 0x00004000",
            ),
            (
                "mark and 0x4000 == 0 return",
                "meta mark & 0x00004000 == 0x00000000 return",
            ),
            (
                "mark and 0x4000 != 0 mark set mark xor 0x4000 masquerade fully-random",
                "meta mark & 0x00004000 != 0x00000000 meta mark set meta mark ^ 0x00004000 masquerade fully-random",
            ),
            (
                "meta l4proto tcp dnat ip addr . port to numgen random mod 2 map { 0 : 10.244.1.5 . 80 , 1 : 10.244.2.5 . 80 }",
                "meta l4proto tcp dnat ip to numgen random mod 2 map { 0 : 10.244.1.5 . 80, 1 : 10.244.2.5 . 80 }",
            ),
            (
                "ip saddr != { 10.1.2.3/32 } drop",
                "ip saddr != 10.1.2.3 drop",
            ),
            (
                "ip saddr != { 10.1.2.3/24 } drop",
                "ip saddr != 10.1.2.0/24 drop",
            ),
            (
                "ip saddr != { 10.0.0.0/24 , 10.0.1.0/24, 10.1.0.0/16, 10.1.2.0/24, 192.0.2.1 } drop",
                "ip saddr != { 10.0.0.0/23, 10.1.0.0/16, 192.0.2.1 } drop",
            ),
            (
                "ip saddr { 10.0.0.0/24, 10.0.1.0/24, 10.0.2.0/24 } drop",
                "ip saddr { 10.0.0.0-10.0.2.255 } drop",
            ),
            (
                "ip daddr { 10.96.0.0/16,10.97.0.0/16 } drop",
                "ip daddr { 10.96.0.0/15 } drop",
            ),
            (
                "ip6 saddr != { 2001:db8::/32, fd00:0::1, 2001:db8:1::/48 } drop",
                "ip6 saddr != { 2001:db8::/32, fd00::1 } drop",
            ),
            ("iif lo jump a", "iif \"lo\" jump a"),
            ("iifname != cali* jump a", "iifname != \"cali*\" jump a"),
            ("counter drop", "counter packets 5 bytes 300 drop"),
        ] {
            assert_eq!(canonical(written), canonical(listed), "{written}");
        }
    }

    #[test]
    fn canonical_different_meanings_stay_different() {
        for (left, right) in [
            ("ip saddr 10.0.0.0/24 drop", "ip saddr 10.0.0.0/25 drop"),
            (
                "ip saddr != { 10.0.0.1, 10.0.0.3 } drop",
                "ip saddr != { 10.0.0.1, 10.0.0.2 } drop",
            ),
            ("ct mark 0x1", "meta mark 0x1"),
            ("tcp dport { 80, 81 }", "tcp dport { 80, 82 }"),
            (
                "numgen random mod 2 vmap { 0 : goto a, 1 : goto b }",
                "numgen random mod 2 vmap { 0 : goto b, 1 : goto a }",
            ),
            ("dnat ip to 10.0.0.1", "dnat to 10.0.0.1"),
            ("update @a { ip saddr }", "update @a { ip daddr }"),
            ("log prefix \"IN drop\"", "log prefix \"IN\" drop"),
            ("tcp flags { syn } drop", "tcp flags syn drop"),
        ] {
            assert_ne!(canonical(left), canonical(right));
        }
    }

    #[test]
    fn canonical_arbitrary_text_is_stable() {
        for text in [
            "",
            "{",
            "}",
            "{ }",
            "{ { a } , }",
            "\"",
            "} {",
            "0x",
            "1-2",
            "{ 1-2, ::-1 }",
        ] {
            let once = canonical(text);
            assert_eq!(canonical(&once), once, "{text}");
        }
    }
}
