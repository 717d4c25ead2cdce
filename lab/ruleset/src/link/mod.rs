//! Parses the output of `ip addr`: interfaces with their addresses.

pub mod kind;

use std::collections::HashMap;
use std::collections::hash_map::Entry as MapEntry;

use indexmap::IndexMap;
use ipnetwork::IpNetwork;

use crate::text::attributes::{Attributes, Grammar, ValueKind};
use crate::text::problem::{Problem, ProblemKind};
use crate::text::{Field, Line, Text, fields, lines};
use crate::tool::Format;

/// Interfaces by name, in printed order.
pub type Links = IndexMap<String, Link>;

/// Interface as `ip addr` prints it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Link {
    /// Name after the `@`: the peer or the lower interface. `None` without one.
    pub linked_to: Option<Text>,
    /// Flags as printed: `UP`, `NOARP`, …
    pub flags: Vec<Text>,
    /// `mtu`, `qdisc`, `master`, `state`, …
    pub attributes: Attributes,
    /// Type of the link layer (`ether`) with the attributes after its address, such as the
    /// broadcast address.
    pub link_layer: Option<(Text, Attributes)>,
    /// Link-layer address. `None` if none is printed.
    pub mac: Option<Text>,
    /// Alternative names and aliases.
    pub other_names: Vec<Text>,
    /// Addresses in printed order. The kernel uses the first address of a scope as a source.
    pub addresses: Vec<Address>,
    /// Line number of the first line, from 1.
    pub line: u32,
}

/// Address of an interface.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Address {
    /// Address with its prefix length.
    pub network: IpNetwork,
    /// Address as printed. With a `peer`, the text has no prefix length.
    pub source_text: Text,
    /// `peer`, `brd`, `scope`, `secondary`, `dynamic`, …
    pub attributes: Attributes,
    /// Label, which is another interface name for this address: `eth0:1`. `None` without a label.
    pub label: Option<Text>,
    /// Valid and preferred lifetime.
    pub lifetime: Attributes,
    /// Line number, from 1.
    pub line: u32,
}

/// Attributes of an interface (iproute2 6.1, `ip/ipaddress.c`).
const LINK: Grammar = &[
    ("mtu", ValueKind::Number),
    ("qdisc", ValueKind::Word),
    ("master", ValueKind::Word),
    ("vrf", ValueKind::Word),
    ("state", ValueKind::Word),
    ("mode", ValueKind::Word),
    ("group", ValueKind::Word),
    ("qlen", ValueKind::Number),
    ("event", ValueKind::Word),
];

/// Attributes after the link-layer address.
const LAYER: Grammar = &[
    ("brd", ValueKind::Word),
    ("peer", ValueKind::Word),
    ("link-netnsid", ValueKind::Word),
    ("link-netns", ValueKind::Word),
    ("permaddr", ValueKind::Word),
    ("new-ifindex", ValueKind::Word),
    ("new-netnsid", ValueKind::Word),
];

/// Attributes of an address.
const ADDRESS: Grammar = &[
    ("peer", ValueKind::Word),
    ("brd", ValueKind::Word),
    ("any", ValueKind::Word),
    ("scope", ValueKind::Word),
    ("metric", ValueKind::Number),
    ("proto", ValueKind::Word),
    ("secondary", ValueKind::None),
    ("temporary", ValueKind::None),
    ("dynamic", ValueKind::None),
    ("tentative", ValueKind::None),
    ("optimistic", ValueKind::None),
    ("deprecated", ValueKind::None),
    ("dadfailed", ValueKind::None),
    ("nodad", ValueKind::None),
    ("home", ValueKind::None),
    ("mngtmpaddr", ValueKind::None),
    ("noprefixroute", ValueKind::None),
    ("autojoin", ValueKind::None),
    ("stable-privacy", ValueKind::None),
    ("permanent", ValueKind::None),
];

const LIFETIME: Grammar = &[
    ("valid_lft", ValueKind::Lifetime),
    ("preferred_lft", ValueKind::Lifetime),
];

/// Parses the output of `ip addr`. Lines that cannot be parsed are skipped and added to `problems`.
#[must_use]
pub fn parse(text: &Text, problems: &mut Vec<Problem>) -> Links {
    let mut links = Links::new();
    // Whether the last interface was valid. Otherwise, its further lines are skipped.
    let mut is_valid_link = true;
    let mut addresses = AddressLines::new();
    for line in lines(text).filter(|line| !line.text.starts_with('#')) {
        if !line.indented {
            addresses.clear();
            let read = parse_link(text, line, &mut links);
            is_valid_link = read.is_ok();
            problems.extend(read.err());
        } else if is_valid_link {
            problems.extend(parse_detail(text, line, &mut links, &mut addresses).err());
        }
    }
    links
}

/// Lines of the addresses of an interface. One address can have several peers.
type AddressLines = HashMap<(IpNetwork, Option<String>), u32>;

fn line_problem(line: Line<'_>) -> Problem {
    Problem::new(
        ProblemKind::UnknownLine(Format::Links),
        line.start..line.end(),
    )
}

/// Parses the first line of an interface: `4: kube-ipvs0@x: <BROADCAST,NOARP> mtu 1500 …`.
fn parse_link(text: &Text, line: Line<'_>, links: &mut Links) -> Result<(), Problem> {
    let mut words = fields(line);
    let (Some(index), Some(name), Some(flags)) = (words.next(), words.next(), words.next()) else {
        return Err(line_problem(line));
    };
    let is_index = |text: &str| {
        text.strip_suffix(':')
            .is_some_and(|number| number.parse::<u32>().is_ok())
    };
    let (Some(full_name), true) = (name.text.strip_suffix(':'), is_index(index.text)) else {
        return Err(line_problem(line));
    };
    let Some(inside) = flags
        .text
        .strip_prefix('<')
        .and_then(|flags| flags.strip_suffix('>'))
    else {
        return Err(line_problem(line));
    };
    let (short, tied) = match full_name.split_once('@') {
        Some((short, tied)) => (short, Some(tied)),
        None => (full_name, None),
    };
    let mut flag_start = flags.start + 1;
    let flags = inside
        .split(',')
        .map(|flag| {
            let range = flag_start..flag_start + flag.len();
            flag_start = range.end + 1;
            text.slice(range)
        })
        .collect();
    let attributes = Attributes::parse(text, &mut words, LINK)?;
    if let Some(existing) = links.get(short) {
        let wrong = ProblemKind::Duplicate {
            item: format!("interface `{short}`"),
            line: existing.line,
        };
        return Err(Problem::new(wrong, name.range()));
    }
    let end = name.start + full_name.len();
    let new_link = Link {
        linked_to: tied.map(|tied| text.slice(end - tied.len()..end)),
        flags,
        attributes,
        link_layer: None,
        mac: None,
        other_names: Vec::new(),
        addresses: Vec::new(),
        line: line.number,
    };
    links.insert(short.to_owned(), new_link);
    Ok(())
}

/// Parses a further line of the last interface.
fn parse_detail(
    text: &Text,
    line: Line<'_>,
    links: &mut Links,
    addresses: &mut AddressLines,
) -> Result<(), Problem> {
    let Some((_, current)) = links.last_mut() else {
        return Err(line_problem(line));
    };
    let mut words = fields(line).peekable();
    let Some(first) = words.next() else {
        return Ok(());
    };
    match first.text {
        "inet" | "inet6" => {
            let address = parse_address(text, line, first, &mut words)?;
            let peer = address.attributes.get("peer").map(str::to_owned);
            match addresses.entry((address.network, peer)) {
                MapEntry::Vacant(free) => free.insert(line.number),
                MapEntry::Occupied(taken) => {
                    let wrong = ProblemKind::Duplicate {
                        item: format!("address `{}`", address.source_text),
                        line: *taken.get(),
                    };
                    return Err(Problem::new(wrong, address.source_text.range()));
                }
            };
            current.addresses.push(address);
        }
        "valid_lft" => {
            let lifetime = Attributes::parse(text, &mut fields(line), LIFETIME)?;
            match current.addresses.last_mut() {
                Some(address) if address.lifetime.0.is_empty() => address.lifetime = lifetime,
                _ => {
                    let wrong =
                        ProblemKind::MissingParent("this lifetime does not follow an address");
                    return Err(Problem::new(wrong, line.start..line.end()));
                }
            }
        }
        "altname" | "alias" => {
            current
                .other_names
                .extend(words.map(|word| text.slice(word.range())));
        }
        layer => {
            let Some(kind) = layer.strip_prefix("link/") else {
                return Err(line_problem(line));
            };
            if current.link_layer.is_some() || !current.addresses.is_empty() {
                let wrong =
                    ProblemKind::MissingParent("this link layer does not follow an interface");
                return Err(Problem::new(wrong, line.start..line.end()));
            }
            let is_address = |word: &Field<'_>| !LAYER.iter().any(|(name, _)| *name == word.text);
            current.mac = words
                .next_if(is_address)
                .map(|word| text.slice(word.range()));
            let attributes = Attributes::parse(text, &mut words, LAYER)?;
            let end = first.range().end;
            current.link_layer = Some((text.slice(end - kind.len()..end), attributes));
        }
    }
    Ok(())
}

fn parse_address<'t>(
    text: &Text,
    line: Line<'t>,
    first: Field<'t>,
    words: &mut impl Iterator<Item = Field<'t>>,
) -> Result<Address, Problem> {
    let Some(written) = words.next() else {
        return Err(line_problem(line));
    };
    let invalid_value = |word: Field<'_>| {
        let wrong = ProblemKind::InvalidValue {
            value: word.text.to_owned(),
            expected: "an address of this family",
        };
        Problem::new(wrong, word.range())
    };
    let network: IpNetwork = written.text.parse().map_err(|_| invalid_value(written))?;
    if network.is_ipv6() != (first.text == "inet6") {
        return Err(invalid_value(written));
    }
    let mut attribute_words: Vec<Field<'_>> = words.collect();
    // The label is the last word and has no keyword.
    let label = attribute_words
        .pop_if(|last| first.text == "inet" && !ADDRESS.iter().any(|(name, _)| *name == last.text));
    // After `scope`, the last word is the scope, so the address has no label.
    let label = match (label, attribute_words.last()) {
        (Some(label), Some(last)) if last.text == "scope" => {
            attribute_words.push(label);
            None
        }
        (label, _) => label,
    };
    Ok(Address {
        network,
        source_text: text.slice(written.range()),
        attributes: Attributes::parse(text, &mut attribute_words.into_iter(), ADDRESS)?,
        label: label.map(|label| text.slice(label.range())),
        lifetime: Attributes::default(),
        line: line.number,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Output of iproute2 6.1.
    const TEXT: &str = "\
2: p0@eth0: <BROADCAST,MULTICAST,UP,LOWER_UP> mtu 1500 qdisc noqueue master br0 state UP group default qlen 1000
    link/ether 12:50:5e:de:10:aa brd ff:ff:ff:ff:ff:ff link-netnsid 0
    altname enp0s3
    inet6 fe80::1050:5eff:fede:10aa/64 scope link tentative 
       valid_lft forever preferred_lft forever
3: eth0: <NO-CARRIER,UP> mtu 1500 qdisc noqueue state UP group default qlen 1000
    link/ether 26:7d:8a:6f:c2:6a brd ff:ff:ff:ff:ff:ff
    inet 10.0.0.1/24 brd 10.0.0.255 scope global eth0:1
       valid_lft forever preferred_lft forever
    inet 10.9.9.9 peer 10.9.9.10/32 scope global eth0
       valid_lft forever preferred_lft forever
    inet 10.1.1.1/24 scope global dynamic eth0
       valid_lft 1000sec preferred_lft 100sec
4: tun0: <POINTOPOINT> mtu 1500 qdisc noop state DOWN group default qlen 500
    link/none 
";

    #[test]
    fn parse_iproute2_output_returns_links() {
        let mut problems = Vec::new();
        let links = parse(&Text::new(TEXT), &mut problems);
        assert_eq!(problems, []);
        let p0 = &links["p0"];
        assert_eq!(p0.linked_to.as_deref(), Some("eth0"));
        assert_eq!(p0.attributes.get("master"), Some("br0"));
        assert!(p0.addresses[0].attributes.has("tentative"));
        let eth0 = &links["eth0"];
        assert_eq!(
            eth0.flags.iter().map(|f| &**f).collect::<Vec<_>>(),
            ["NO-CARRIER", "UP"]
        );
        assert_eq!(eth0.addresses[0].label.as_deref(), Some("eth0:1"));
        assert_eq!(
            eth0.addresses[1].attributes.get("peer"),
            Some("10.9.9.10/32")
        );
        assert_eq!(eth0.addresses[2].lifetime.get("valid_lft"), Some("1000sec"));
        assert_eq!(links["tun0"].mac, None);
    }

    #[test]
    fn parse_invalid_lines_reports_positions() {
        let text = "    inet 10.0.0.1/8\n2: eth0: <UP> mtu many\n    inet 10.0.0.1/8 scope global\n\
                    3: eth1: <UP> mtu 1500\n    inet 10.0.0.1/33 scope global eth1\n\
                    \x20   inet fd00::1/64 scope global\n    inet 10.0.0.1/8 scoop global\n\
                    \x20   valid_lft soon preferred_lft forever\n    vlan id 5\n3: eth1: <UP> mtu 1500\n\
                    \x20   inet 10.0.0.2/8 scope global eth1\nhello\n";
        let mut problems = Vec::new();
        let _ = parse(&Text::new(text), &mut problems);
        let places: Vec<&str> = problems.iter().map(|p| &text[p.range.clone()]).collect();
        assert_eq!(
            places,
            [
                "inet 10.0.0.1/8",
                "many",
                "10.0.0.1/33",
                "fd00::1/64",
                "scoop",
                "soon",
                "vlan id 5",
                "eth1:",
                "hello"
            ]
        );
    }
}
