//! Parses the output of `ip addr`: interfaces with their addresses.

pub mod kind;
mod oneline;

pub use oneline::has_only_addressed_links;

use std::collections::HashMap;
use std::collections::hash_map::Entry as MapEntry;

use indexmap::IndexMap;
use ipnetwork::IpNetwork;

use crate::text::attributes::{Attribute, Attributes, Grammar, ValueKind};
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
    /// Whether the output has the link layers of other interfaces, but not of this one. `ip addr`
    /// prints one for each interface, `ip -4 addr` and `ip -6 addr` print none (iproute2 7.1,
    /// `ip/ipaddress.c`, `print_linkinfo`).
    pub lacks_link_layer: bool,
    /// Link-layer address. `None` if none is printed.
    pub mac: Option<Text>,
    /// Alternative names and aliases.
    pub other_names: Vec<Text>,
    /// Addresses in printed order. The kernel uses the first address of a scope as a source.
    pub addresses: Vec<Address>,
    /// Line number of the first line, from 1.
    pub line: u32,
}

impl Link {
    /// Whether the interface has a flag, such as `UP`.
    #[must_use]
    pub fn has_flag(&self, name: &str) -> bool {
        self.flags.iter().any(|flag| &**flag == name)
    }

    /// Returns the addresses that are valid beyond the link.
    pub fn global_addresses(&self) -> impl Iterator<Item = IpNetwork> + '_ {
        let is_global = |address: &&Address| address.attributes.get("scope") == Some("global");
        let addresses = self.addresses.iter().filter(is_global);
        addresses.map(|address| address.network)
    }

    /// Returns the hardware address to which other hosts send frames. `None` without one, and for
    /// an interface that has no global address or does not resolve neighbours.
    #[must_use]
    pub fn neighbour_address(&self) -> Option<&str> {
        let is_ethernet = self
            .link_layer
            .as_ref()
            .is_some_and(|(kind, _)| &**kind == "ether");
        let receives =
            is_ethernet && !self.has_flag("NOARP") && self.global_addresses().next().is_some();
        self.mac.as_deref().filter(|_| receives)
    }

    /// Whether only the addresses are known, because `ip -o addr` prints no flags and attributes.
    #[must_use]
    pub fn is_partial(&self) -> bool {
        self.attributes.0.is_empty()
    }

    /// Whether all attributes that are set are printed. The kernel sends each interface with its
    /// queueing discipline, but not to `ip -6 addr` (Linux v6.12, `net/core/rtnetlink.c`,
    /// `rtnl_fill_ifinfo`; `net/ipv6/addrconf.c`, `inet6_fill_ifinfo`).
    #[must_use]
    pub fn is_complete(&self) -> bool {
        self.attributes.has("qdisc")
    }
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

/// Attributes after the link-layer address (iproute2 7.1, `ip/ipaddress.c`, `print_linkinfo`).
const LAYER: Grammar = &[
    ("brd", ValueKind::Word),
    ("peer", ValueKind::Word),
    ("link-netnsid", ValueKind::Word),
    ("link-netns", ValueKind::Word),
    ("permaddr", ValueKind::Word),
    ("new-ifindex", ValueKind::Word),
    ("new-netns", ValueKind::Word),
    ("new-netnsid", ValueKind::Word),
    ("protodown", ValueKind::Word),
    ("protodown_reason", ValueKind::Word),
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

/// Parses the output of `ip addr`, also with the options `-d`, `-s` and `-o`. Lines that cannot be
/// parsed are skipped and added to `problems`.
#[must_use]
pub fn parse(text: &Text, problems: &mut Vec<Problem>) -> Links {
    parse_lines(text, problems, false)
}

/// Parses the interfaces in the output of `ip link` or `ip -d link`, without the lines that only
/// [`kind::parse`] reads.
fn parse_headings(text: &Text, problems: &mut Vec<Problem>) -> Links {
    parse_lines(text, problems, true)
}

/// Parses interfaces. `is_detailed` states that lines of any kind can follow an interface;
/// otherwise, they can if `ip -d` printed the interface.
fn parse_lines(text: &Text, problems: &mut Vec<Problem>, is_detailed: bool) -> Links {
    let mut links = Links::new();
    // Whether the last interface was valid. Otherwise, its further lines are skipped.
    let mut is_valid_link = true;
    let mut has_details = is_detailed;
    let mut current = 0;
    let mut addresses = AddressLines::new();
    for line in lines(text).filter(|line| !line.text.starts_with('#')) {
        // With `-o`, a backslash replaces each line end (iproute2 6.1, `lib/utils.c`, `_SL_`).
        for line in split_at_backslashes(line) {
            if line.indented {
                has_details |= is_detailed_layer(line.text);
                let is_other = has_details && is_detail(line.text);
                if is_valid_link && !is_other && !is_statistics(line.text) {
                    problems.extend(
                        parse_detail(text, line, &mut links, current, &mut addresses).err(),
                    );
                }
                continue;
            }
            has_details = is_detailed;
            let read = if let Some((name, address)) = oneline::split_address(line) {
                let entry = links.entry(name.text.to_owned());
                current = entry.index();
                entry.or_insert_with(|| oneline::unknown_link(line.number));
                parse_address_line(text, address, &mut links, current, &mut addresses)
            } else {
                current = links.len();
                parse_link(text, line, &mut links)
            };
            is_valid_link = read.is_ok();
            problems.extend(read.err());
        }
    }
    if links.values().any(|link| link.link_layer.is_some()) {
        for link in links.values_mut() {
            link.lacks_link_layer = link.link_layer.is_none();
        }
    }
    links
}

/// Splits a line of `ip -o` into the lines that `ip` prints without the option.
fn split_at_backslashes(line: Line<'_>) -> impl Iterator<Item = Line<'_>> {
    let mut start = line.start;
    line.text.split('\\').enumerate().map(move |(index, part)| {
        let text = part.trim_ascii_start();
        let indent = part.len() - text.len();
        let part_start = start + indent;
        start += part.len() + 1;
        Line {
            text: text.trim_ascii_end(),
            start: part_start,
            indented: index > 0 || line.indented,
            ..line
        }
    })
}

/// First words of the lines that belong to [`Link`].
const OWN_LINES: [&str; 5] = ["inet", "inet6", "valid_lft", "altname", "alias"];

/// Whether a line of `ip -d` is about the kind of an interface.
fn is_detail(line: &str) -> bool {
    let first = line.split_ascii_whitespace().next().unwrap_or_default();
    !first.starts_with("link/") && !OWN_LINES.contains(&first)
}

/// Whether a line has the link-layer address of an interface with details, after which `ip -d`
/// prints the kind (iproute2 7.1, `ip/ipaddress.c`, `print_linkinfo`).
fn is_detailed_layer(line: &str) -> bool {
    line.starts_with("link/")
        && line
            .split_ascii_whitespace()
            .any(|word| word == "promiscuity")
}

/// Whether a line lists a virtual function or a loaded program, which `ip link` prints without
/// `-d`, too (iproute2 7.1, `ip/ipaddress.c`, `print_vfinfo`; `ip/iplink_xdp.c`,
/// `xdp_dump_prog_one`).
fn is_function_or_program(first_word: &str) -> bool {
    first_word == "vf" || first_word.starts_with("prog/")
}

/// Whether a detail line has counters, or is the heading of counters, that `ip -s` prints. With
/// `-h`, counters have units: `1.5M` (iproute2 7.1, `ip/ipaddress.c`, `print_num`).
fn is_statistics(line: &str) -> bool {
    let mut words = line.split_ascii_whitespace();
    let is_heading = matches!(words.next(), Some("RX:" | "TX:" | "RX" | "TX"));
    let is_counter = |word: &str| {
        let number = word.trim_end_matches(|c| "KMGTPEki".contains(c));
        let mut characters = number.chars();
        !number.is_empty() && characters.all(|c| c.is_ascii_digit() || c == '.')
    };
    is_heading || line.split_ascii_whitespace().all(is_counter)
}

/// Lines of the addresses of each interface, by the position of the interface. One address can have
/// several peers.
type AddressLines = HashMap<(usize, IpNetwork, Option<String>), u32>;

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
    let mut programs = Vec::new();
    // A program is a word of its own. The value of an attribute can begin with `xdp`, too.
    let mut is_value = false;
    let mut words = words.filter(|word| {
        let is_program = !is_value && word.text.starts_with("xdp");
        is_value = !is_value && LINK.iter().any(|(name, _)| *name == word.text);
        if is_program {
            programs.push(xdp_program(text, *word));
        }
        !is_program
    });
    let mut attributes = Attributes::parse(text, &mut words, LINK)?;
    attributes.0.extend(programs);
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
        lacks_link_layer: false,
        mac: None,
        other_names: Vec::new(),
        addresses: Vec::new(),
        line: line.number,
    };
    links.insert(short.to_owned(), new_link);
    Ok(())
}

/// Returns the attribute of an XDP program: `xdp`, `xdpgeneric/id:15` (iproute2 7.1,
/// `ip/iplink_xdp.c`, `xdp_dump`). Only `ip addr` prints the number of the program.
fn xdp_program(text: &Text, word: Field<'_>) -> Attribute {
    let range = word.range();
    let (mode, number) = match word.text.split_once("/id:") {
        Some((mode, number)) => (mode, Some(text.slice(range.end - number.len()..range.end))),
        None => (word.text, None),
    };
    Attribute {
        name: text.slice(range.start..range.start + mode.len()),
        value: number,
    }
}

/// Parses a further line of an interface.
fn parse_detail(
    text: &Text,
    line: Line<'_>,
    links: &mut Links,
    index: usize,
    addresses: &mut AddressLines,
) -> Result<(), Problem> {
    let mut words = fields(line).peekable();
    let Some(first) = words.next() else {
        return Ok(());
    };
    if matches!(first.text, "inet" | "inet6") {
        return parse_address_line(text, line, links, index, addresses);
    }
    let Some((_, current)) = links.get_index_mut(index) else {
        return Err(line_problem(line));
    };
    match first.text {
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
                return if is_function_or_program(layer) {
                    Ok(())
                } else {
                    Err(line_problem(line))
                };
            };
            if current.link_layer.is_some() || !current.addresses.is_empty() {
                let wrong =
                    ProblemKind::MissingParent("this link layer does not follow an interface");
                return Err(Problem::new(wrong, line.start..line.end()));
            }
            let is_address = |word: &Field<'_>| {
                let is_attribute = LAYER.iter().any(|(name, _)| *name == word.text);
                !is_attribute && word.text != "promiscuity"
            };
            current.mac = words
                .next_if(is_address)
                .map(|word| text.slice(word.range()));
            // `ip -d` prints `promiscuity` and details of the interface after these attributes.
            let mut words = words.take_while(|word| word.text != "promiscuity");
            let attributes = Attributes::parse(text, &mut words, LAYER)?;
            let end = first.range().end;
            current.link_layer = Some((text.slice(end - kind.len()..end), attributes));
        }
    }
    Ok(())
}

/// Parses the line of an address, and adds the address to an interface.
fn parse_address_line(
    text: &Text,
    line: Line<'_>,
    links: &mut Links,
    index: usize,
    addresses: &mut AddressLines,
) -> Result<(), Problem> {
    let mut words = fields(line);
    let (Some(first), Some((_, current))) = (words.next(), links.get_index_mut(index)) else {
        return Err(line_problem(line));
    };
    let address = parse_address(text, line, first, &mut words)?;
    let peer = address.attributes.get("peer").map(str::to_owned);
    match addresses.entry((index, address.network, peer)) {
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
mod tests;
