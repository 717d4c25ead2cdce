//! The headers of the shown packets are those that tshark finds in the capture of the case.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use serde_json::Value;

/// Fields of a packet with their values, from the outermost header on.
type Fields = BTreeMap<&'static str, Vec<String>>;

/// Fields of tshark that are compared.
const FIELDS: [&str; 56] = [
    "eth.src",
    "eth.dst",
    "eth.type",
    "ip.src",
    "ip.dst",
    "ip.proto",
    "ip.ttl",
    "ip.len",
    "ip.id",
    "ip.dsfield.dscp",
    "ip.dsfield.ecn",
    "ip.flags.df",
    "ip.flags.mf",
    "ip.frag_offset",
    "ip.checksum",
    "ip.checksum.status",
    "ipv6.src",
    "ipv6.dst",
    "ipv6.nxt",
    "ipv6.hlim",
    "ipv6.plen",
    "ipv6.tclass",
    "ipv6.flow",
    "tcp.srcport",
    "tcp.dstport",
    "tcp.seq_raw",
    "tcp.ack_raw",
    "tcp.flags",
    "tcp.window_size_value",
    "tcp.checksum",
    "tcp.checksum.status",
    "tcp.option_kind",
    "tcp.options.mss_val",
    "tcp.options.wscale.shift",
    "tcp.options.timestamp.tsval",
    "tcp.options.timestamp.tsecr",
    "udp.srcport",
    "udp.dstport",
    "udp.length",
    "udp.checksum",
    "udp.checksum.status",
    "vxlan.vni",
    "icmp.type",
    "icmp.code",
    "icmp.ident",
    "icmp.seq",
    "icmp.mtu",
    "icmp.checksum",
    "icmp.checksum.status",
    "icmpv6.type",
    "icmpv6.code",
    "icmpv6.echo.identifier",
    "icmpv6.echo.sequence_number",
    "icmpv6.mtu",
    "icmpv6.checksum",
    "icmpv6.checksum.status",
];

/// Flags of a TCP header, from the lowest bit on.
const FLAGS: [&str; 8] = ["FIN", "SYN", "RST", "PSH", "ACK", "URG", "ECE", "CWR"];

/// Names of protocols that the headers of a case have.
pub type Protocols = BTreeMap<String, usize>;

/// Compares the headers of an evidence file with a capture, and counts the protocols.
pub fn check(case: &str, evidence: &Value, capture: &Path) -> Protocols {
    let packets = read_with_tshark(capture);
    let starts = first_packets(evidence);
    let frames = evidence["frames"].as_array().expect("frames");
    assert!(!frames.is_empty(), "{case}");
    let mut protocols = Protocols::new();
    for frame in frames {
        let index = |name: &str| {
            let number = frame[name]
                .as_u64()
                .and_then(|number| usize::try_from(number).ok());
            number.expect("an index")
        };
        let number = starts[index("stage")] + index("captured");
        let headers = frame["headers"].as_array().expect("headers");
        let own = own_fields(headers);
        assert_eq!(
            own,
            packets[number],
            "{case}, packet {}: {frame:#}",
            number + 1
        );
        for header in headers {
            *protocols.entry(text(&header["protocol"])).or_default() += 1;
        }
    }
    protocols
}

/// Returns the index in the capture of the first packet of each stage. The packets of a step come
/// before.
fn first_packets(evidence: &Value) -> Vec<usize> {
    let count = |list: &Value| list.as_array().map_or(0, Vec::len);
    let mut next = 0;
    let stages = evidence["evidence"]["stages"].as_array().expect("stages");
    let starts = stages.iter().map(|stage| {
        let start = next + count(&stage["step"]["packets"]);
        next = start + count(&stage["packets"]);
        start
    });
    starts.collect()
}

fn read_with_tshark(capture: &Path) -> Vec<Fields> {
    let output = Command::new("tshark")
        .args(["-n", "-T", "fields", "-E", "separator=/t"])
        .args(["-E", "occurrence=a", "-E", "aggregator=,"])
        // flannel uses the kernel's VXLAN port, not the registered one.
        .args(["-d", "udp.port==8472,vxlan"])
        .args([
            "-o",
            "ip.check_checksum:TRUE",
            "-o",
            "tcp.check_checksum:TRUE",
        ])
        .args(["-o", "udp.check_checksum:TRUE", "-o", "ip.defragment:FALSE"])
        .args(FIELDS.iter().flat_map(|field| ["-e", field]))
        .arg("-r")
        .arg(capture)
        .output()
        .expect("tshark is installed");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");
    let text = String::from_utf8(output.stdout).expect("UTF-8");
    text.lines().map(fields_of_line).collect()
}

fn fields_of_line(line: &str) -> Fields {
    let values = line.split('\t').map(|values| {
        let values = values.split(',').filter(|value| !value.is_empty());
        values.map(normalized).collect::<Vec<_>>()
    });
    let mut fields: Fields = FIELDS.into_iter().zip(values).collect();
    // Padding of options.
    if let Some(kinds) = fields.get_mut("tcp.option_kind") {
        kinds.retain(|kind| !["0", "1"].contains(&kind.as_str()));
    }
    fields.retain(|_, values| !values.is_empty());
    fields
}

/// Renders numbers in decimal.
fn normalized(value: &str) -> String {
    let number = value.strip_prefix("0x");
    let number = number.and_then(|digits| u64::from_str_radix(digits, 16).ok());
    number.map_or_else(|| value.to_owned(), |number| number.to_string())
}

/// Returns the fields of decoded headers.
fn own_fields(headers: &[Value]) -> Fields {
    let mut fields = Fields::new();
    let mut is_quoted = false;
    for header in headers {
        is_quoted |= header["protocol"] == "icmp" && header["identifier"].is_null();
        let names: &[(&str, &str)] = match header["protocol"].as_str().expect("a name") {
            "ethernet" => &[
                ("eth.src", "source"),
                ("eth.dst", "destination"),
                ("eth.type", "etherType"),
            ],
            "ipv4" => &[
                ("ip.src", "source"),
                ("ip.dst", "destination"),
                ("ip.proto", "payload"),
                ("ip.ttl", "ttl"),
                ("ip.len", "length"),
                ("ip.id", "identification"),
                ("ip.dsfield.dscp", "dscp"),
                ("ip.dsfield.ecn", "ecn"),
                ("ip.flags.df", "dontFragment"),
                ("ip.flags.mf", "moreFragments"),
                ("ip.frag_offset", "fragmentOffset"),
                ("ip.checksum", "checksum"),
            ],
            "ipv6" => &[
                ("ipv6.src", "source"),
                ("ipv6.dst", "destination"),
                ("ipv6.nxt", "payload"),
                ("ipv6.hlim", "hopLimit"),
                ("ipv6.plen", "payloadLength"),
                ("ipv6.tclass", "trafficClass"),
                ("ipv6.flow", "flowLabel"),
            ],
            "tcp" => &[
                ("tcp.srcport", "sourcePort"),
                ("tcp.dstport", "destinationPort"),
                ("tcp.seq_raw", "sequence"),
                ("tcp.ack_raw", "acknowledgment"),
                ("tcp.flags", "flags"),
                ("tcp.window_size_value", "window"),
                ("tcp.checksum", "checksum"),
            ],
            "udp" => &[
                ("udp.srcport", "sourcePort"),
                ("udp.dstport", "destinationPort"),
                ("udp.length", "length"),
                ("udp.checksum", "checksum"),
            ],
            "icmp" => &[
                ("icmp.type", "type"),
                ("icmp.code", "code"),
                ("icmp.ident", "identifier"),
                ("icmp.seq", "sequence"),
                ("icmp.mtu", "mtu"),
                ("icmp.checksum", "checksum"),
            ],
            "icmpv6" => &[
                ("icmpv6.type", "type"),
                ("icmpv6.code", "code"),
                ("icmpv6.echo.identifier", "identifier"),
                ("icmpv6.echo.sequence_number", "sequence"),
                ("icmpv6.mtu", "mtu"),
                ("icmpv6.checksum", "checksum"),
            ],
            "vxlan" => &[("vxlan.vni", "vni")],
            "data" => &[],
            other => panic!("no field for {other}: {header}"),
        };
        // tshark does not list the sequence number of a segment that an error of IPv4 quotes.
        let compared = names
            .iter()
            .filter(|(name, _)| !(is_quoted && *name == "tcp.seq_raw"));
        for (name, key) in compared {
            add(&mut fields, name, &header[*key]);
        }
        for option in header["options"].as_array().into_iter().flatten() {
            add_option(&mut fields, option);
        }
    }
    fields
}

/// Adds a value, and the state of a checksum to the field for states.
fn add(fields: &mut Fields, name: &'static str, value: &Value) {
    let value = match value {
        Value::Null => return,
        Value::Bool(is_set) => u8::from(*is_set).to_string(),
        Value::Array(flags) => {
            let bit = |flag: &Value| FLAGS.iter().position(|name| flag == name).expect("a flag");
            let bits = flags.iter().map(|flag| 1_u64 << bit(flag));
            bits.sum::<u64>().to_string()
        }
        Value::Object(checksum) => {
            let state = match checksum["state"].as_str().expect("a state") {
                // tshark does not distinguish these.
                "wrong" | "partial" => "0",
                "correct" => "1",
                "notVerified" => "2",
                "absent" => "3",
                other => panic!("{other}"),
            };
            let status = FIELDS.iter().find(|field| {
                field
                    .strip_suffix(".status")
                    .is_some_and(|field| field == name)
            });
            let status = status.expect("a field");
            fields.entry(status).or_default().push(state.to_owned());
            checksum["value"].to_string()
        }
        Value::Number(number) => number.to_string(),
        Value::String(text) => text.clone(),
    };
    fields.entry(name).or_default().push(value);
}

fn add_option(fields: &mut Fields, option: &Value) {
    let mut add = |name, value: &Value| add(fields, name, value);
    if let Some(size) = option.get("mss") {
        add("tcp.option_kind", &2.into());
        add("tcp.options.mss_val", size);
    } else if let Some(shift) = option.get("windowScale") {
        add("tcp.option_kind", &3.into());
        add("tcp.options.wscale.shift", shift);
    } else if let Some(timestamps) = option.get("timestamps") {
        add("tcp.option_kind", &8.into());
        add("tcp.options.timestamp.tsval", &timestamps["value"]);
        add("tcp.options.timestamp.tsecr", &timestamps["echo"]);
    } else if option == "sackPermitted" {
        add("tcp.option_kind", &4.into());
    } else {
        panic!("no field for {option}");
    }
}

fn text(value: &Value) -> String {
    value.as_str().expect("a text").to_owned()
}
