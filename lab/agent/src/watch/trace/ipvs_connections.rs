//! Reads the connections of IPVS from `/proc/net/ip_vs_conn` (Linux v6.12,
//! `net/netfilter/ipvs/ip_vs_conn.c`, `ip_vs_conn_seq_show`).

use std::fs;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use crate::net::netns::NetNs;
use svclab_model::evidence::IpvsConnection;

/// File with the connections. `/proc/net` would show those of the process's first thread.
const CONNECTIONS_FILE: &str = "/proc/thread-self/net/ip_vs_conn";

/// Returns every IPVS connection of a namespace, or none if the kernel has no IPVS.
pub(super) fn read_connections(ns: &NetNs, name: &str) -> io::Result<Vec<IpvsConnection>> {
    match ns.enter(|| fs::read_to_string(CONNECTIONS_FILE))? {
        Ok(text) => Ok(text
            .lines()
            .filter_map(|line| parse_connection(line, name))
            .collect()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        Err(error) => Err(error),
    }
}

/// Parses a line with protocol, client, virtual server and real server. Addresses and ports are
/// hexadecimal; IPv6 addresses have their usual form.
fn parse_connection(line: &str, name: &str) -> Option<IpvsConnection> {
    let mut columns = line.split_whitespace();
    let protocol = parse_protocol(columns.next()?)?;
    let mut socket = || {
        let (address, port) = (columns.next()?, columns.next()?);
        let port = u16::from_str_radix(port, 16).ok()?;
        Some(SocketAddr::new(parse_host(address)?, port))
    };
    let (client, server, real) = (socket()?, socket()?, socket()?);
    Some(IpvsConnection {
        namespace: name.to_owned(),
        protocol,
        client,
        virtual_server: server,
        real_server: real,
        state: columns.next()?.to_owned(),
        expires: columns.next()?.parse().ok()?,
    })
}

fn parse_host(word: &str) -> Option<IpAddr> {
    if word.contains(':') {
        return Some(word.parse::<Ipv6Addr>().ok()?.into());
    }
    let number = u32::from_str_radix(word, 16).ok()?;
    (word.len() == 8).then(|| Ipv4Addr::from(number).into())
}

/// Returns a protocol by its name in `ip_vs_proto_name`. `IP` marks the template of a persistent
/// service by mark, which covers a client's traffic of any protocol.
fn parse_protocol(word: &str) -> Option<u8> {
    match word {
        "IP" => Some(0),
        "ICMP" => Some(1),
        "TCP" => Some(6),
        "UDP" => Some(17),
        "ICMPv6" => Some(58),
        "SCTP" => Some(132),
        name => name.strip_prefix("IP_")?.parse().ok(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "\
Pro FromIP   FPrt ToIP     TPrt DestIP   DPrt State       Expires PEName PEData
TCP CB007109 C350 C6336432 0050 C0A8010B 7530 ESTABLISHED     899
IP  C0A8010B 0000 00000007 0000 0A000001 0000 NONE            179
UDP fd00:0000:0000:0000:0000:0000:0000:0009 C350 fd00:0000:0000:0000:0000:0000:0000:0032 0035 fd00:0000:0000:0000:0000:0000:0000:0002 14E9 UDP             299
";

    #[test]
    fn ipvs_connection_lines_are_parsed() {
        let read: Vec<_> = TEXT
            .lines()
            .filter_map(|line| parse_connection(line, "fabric"))
            .map(|each| {
                let IpvsConnection {
                    protocol,
                    client,
                    virtual_server: server,
                    real_server: real,
                    ..
                } = each;
                format!("{protocol} {client} {server} {real}")
            })
            .collect();
        assert_eq!(
            read,
            [
                "6 203.0.113.9:50000 198.51.100.50:80 192.168.1.11:30000",
                "0 192.168.1.11:0 0.0.0.7:0 10.0.0.1:0",
                "17 [fd00::9]:50000 [fd00::32]:53 [fd00::2]:5353",
            ]
        );
    }

    #[test]
    fn ipvs_invalid_line_is_skipped() {
        for line in [
            "",
            "TCP",
            "TCP CB007109 C350 C6336432 0050 C0A8010B",
            "TCP 1 1 1 1 1 1",
            "X CB007109 C350 CB007109 C350 CB007109 C350 NONE 1",
        ] {
            assert_eq!(parse_connection(line, "fabric"), None, "{line}");
        }
    }
}
