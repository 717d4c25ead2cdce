use super::decode::decode;
use super::header::{ChecksumState, Header, TcpOption};
use data_encoding::HEXLOWER_PERMISSIVE;
use proptest::prelude::*;

const ETHERNET: &str = "0a5800000002 0a5800000001 0800";

/// SYN from 10.0.1.2 to 10.0.2.2:80 with all options that Linux sends; its checksum is correct.
const SYN: &str = "4500003c 1c464000 40060773 0a000102 0a000202 \
                   a18a0050 00000001 00000000 a002ffff 00000000 \
                   020405b4 0402080a 00000007 00000000 01030307";

fn bytes(parts: &[&str]) -> Vec<u8> {
    let text = parts.concat().replace(char::is_whitespace, "");
    HEXLOWER_PERMISSIVE
        .decode(text.as_bytes())
        .expect("hexadecimal")
}

/// Returns the result for each checksum.
fn states(headers: &[Header]) -> Vec<ChecksumState> {
    let checksums = headers.iter().filter_map(|header| match header {
        Header::Ipv4(header) => Some(header.checksum),
        Header::Tcp(header) => Some(header.checksum),
        Header::Udp { checksum, .. } => Some(*checksum),
        Header::Icmp(message) | Header::Icmpv6(message) => Some(message.checksum),
        _ => None,
    });
    checksums.map(|checksum| checksum.state).collect()
}

/// Returns the SYN with another checksum of TCP.
fn syn(checksum: u16) -> Vec<u8> {
    let mut frame = bytes(&[ETHERNET, SYN]);
    frame[50..52].copy_from_slice(&checksum.to_be_bytes());
    frame
}

/// Returns the SYN with its correct checksum.
fn correct_syn() -> Vec<u8> {
    let correct = (0..=u16::MAX).find(|checksum| {
        let headers = decode(&syn(*checksum));
        states(&headers).last() == Some(&ChecksumState::Correct)
    });
    syn(correct.expect("a checksum"))
}

#[test]
fn decode_syn_has_all_fields() {
    insta::assert_json_snapshot!(decode(&correct_syn()));
}

#[test]
fn decode_checksum_states_are_distinguished() {
    // 0x0a00 + 0x0102 + 0x0a00 + 0x0202 + 6 + 40: the pseudo-header alone.
    let partial = states(&decode(&syn(0x1732)));
    assert_eq!(partial, [ChecksumState::Correct, ChecksumState::Partial]);
    let wrong = states(&decode(&syn(0x1733)));
    assert_eq!(wrong, [ChecksumState::Correct, ChecksumState::Wrong]);
    let frame = correct_syn();
    let truncated = states(&decode(&frame[..frame.len() - 1]));
    assert_eq!(truncated, [ChecksumState::Correct]);
    let mut other_header = frame.clone();
    // Another TTL.
    other_header[22] = 63;
    let changed = states(&decode(&other_header));
    assert_eq!(changed, [ChecksumState::Wrong, ChecksumState::Correct]);
    // Padding is not part of the packet.
    let padded = [frame, vec![0xff; 6]].concat();
    let padded = states(&decode(&padded));
    assert_eq!(padded, [ChecksumState::Correct; 2]);
}

#[test]
fn decode_tunnels_have_inner_headers() {
    let inner = bytes(&[ETHERNET, SYN]);
    let length = inner.len() + 8 + 8;
    let ip = |protocol: &str, length: usize| {
        format!(
            "4500{:04x} 00000000 40{protocol}0000 c0a8320b c0a8320c",
            20 + length
        )
    };
    let vxlan = [
        bytes(&[
            ETHERNET,
            &ip("11", length),
            "3039 2118",
            &format!("{length:04x}"),
            "0000",
        ]),
        bytes(&["08000000 00000100"]),
        inner,
    ]
    .concat();
    insta::assert_debug_snapshot!(names(&decode(&vxlan)), @r#"
    [
        "ethernet",
        "ipv4",
        "udp",
        "vxlan",
        "ethernet",
        "ipv4",
        "tcp",
    ]
    "#);
    let ipip = bytes(&[ETHERNET, &ip("04", 60), SYN]);
    assert_eq!(names(&decode(&ipip)), ["ethernet", "ipv4", "ipv4", "tcp"]);
}

#[test]
fn decode_tunnel_checksum_counts_finished_inner_one() {
    // Captured on the interface `eth0` of a node, with flannel.
    let mut frame = bytes(&[
        "0a5803ea0623 0a5806479a98 0800",
        "4500006e 2d7d0000 3f1136d8 0a0a010b 0a0a020c",
        "84272118 005a1523 08000000 00000100",
        "0a58f2bc549f 0a58ae812015 0800",
        "4500003c 1b914000 40061164 0a0a010b c0a8420a",
        "cecf1f90 890a1277 00000000 a002faf0 0df60000",
        "020405b4 0402080a 1810a1cb 00000000 0103030a",
    ]);
    let partial = ChecksumState::Partial;
    let correct = ChecksumState::Correct;
    assert_eq!(
        states(&decode(&frame)),
        [correct, partial, correct, partial]
    );
    // Another VNI.
    frame[48] = 2;
    let changed = states(&decode(&frame));
    assert_eq!(changed, [correct, ChecksumState::Wrong, correct, partial]);
}

#[test]
fn decode_icmp_error_has_headers_of_quoted_packet() {
    let message = bytes(&["0304 0000 0000 05dc", SYN]);
    let ip = format!(
        "4500{:04x} 00000000 40010000 0a000202 0a000102",
        20 + message.len()
    );
    let frame = [bytes(&[ETHERNET, &ip]), message].concat();
    let headers = decode(&frame);
    assert_eq!(names(&headers), ["ethernet", "ipv4", "icmp", "ipv4", "tcp"]);
    let Header::Icmp(message) = &headers[2] else {
        panic!("{headers:?}");
    };
    assert_eq!(
        (message.kind, message.code, message.mtu),
        (3, 4, Some(1500))
    );
    assert_eq!(
        states(&headers)[1..],
        [
            ChecksumState::Wrong,
            ChecksumState::Correct,
            ChecksumState::Wrong
        ]
    );
    // RFC 792 requires only 8 bytes of the quoted payload.
    let headers = decode(&frame[..14 + 20 + 8 + 20 + 8]);
    let last = headers.last().expect("a header");
    assert!(
        matches!(last, Header::NotDecoded { reason, length: 8 } if reason.contains("incomplete")),
        "{last:?}"
    );
}

#[test]
fn decode_unknown_headers_are_named() {
    let arp = decode(&bytes(&["ffffffffffff 0a5800000001 0806", "0001"]));
    let last = |headers: &[Header]| format!("{:?}", headers.last());
    assert!(last(&arp).contains("Arp"), "{arp:?}");
    // A fragment that is not the first.
    let mut frame = bytes(&[ETHERNET, SYN]);
    frame[21] = 1;
    assert!(last(&decode(&frame)).contains("fragment"));
    assert!(last(&decode(&[])).contains("Ethernet"));
    // A tunnel in a tunnel, without end.
    let mut deep = bytes(&[ETHERNET]);
    for length in (1..=100_u16).rev() {
        let length = format!("{:04x}", length * 20);
        deep.extend(bytes(&[
            "4500",
            &length,
            "00000000 40040000 0a000102 0a000202",
        ]));
    }
    let headers = decode(&deep);
    assert!(headers.len() < 30, "{}", headers.len());
    assert!(last(&headers).contains("further headers"));
}

#[test]
fn decode_malformed_options_are_listed() {
    let options = |text: &str| {
        let mut frame = correct_syn();
        frame.truncate(54);
        frame.extend(bytes(&[text]));
        let headers = decode(&frame);
        let header = headers.iter().find_map(|header| match header {
            Header::Tcp(header) => Some(header.options.clone()),
            _ => None,
        });
        header.expect("TCP")
    };
    let other = |kind, length| TcpOption::Other { kind, length };
    // An MSS of 1 byte, and an option of 253 bytes.
    let found = options("020305 fdff 0000 0000000000000000000000000000");
    assert_eq!(found[0], other(2, 1));
    assert_eq!(found[1..].len(), 1, "{found:?}");
    // Selective acknowledgments, and what follows the end of the list.
    let found = options("050a 00000001 00000009 01 00 020405b4 00000000");
    assert_eq!(found, [TcpOption::Sack(vec![(1, 9)])]);
}

fn names(headers: &[Header]) -> Vec<String> {
    let names = headers.iter().map(|header| {
        let value = serde_json::to_value(header).expect("JSON");
        value["protocol"].as_str().expect("a name").to_owned()
    });
    names.collect()
}

proptest! {
    /// A frame is decoded whichever bytes it has.
    #[test]
    fn decode_any_bytes_end(
        changes in prop::collection::vec((0_usize..200, any::<u8>()), 0..6),
        length in 0_usize..200,
        data in prop::collection::vec(any::<u8>(), 0..80),
    ) {
        let mut frame = [bytes(&[ETHERNET, SYN]), data].concat();
        for (index, byte) in changes {
            if let Some(place) = frame.get_mut(index) {
                *place = byte;
            }
        }
        frame.truncate(length);
        let headers = decode(&frame);
        prop_assert!(!headers.is_empty());
        let text = serde_json::to_string(&headers).expect("JSON");
        let again: Vec<Header> = serde_json::from_str(&text).expect("headers");
        prop_assert_eq!(headers, again);
    }
}
