//! Parses `/proc/net/ip_vs` (Linux v6.12, `net/netfilter/ipvs/ip_vs_ctl.c`, `ip_vs_info_seq_show`).
//! Addresses of IPv4, ports, marks and netmasks are hexadecimal.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use super::listed::{is_heading, line_problem, parse_forwarding, parse_protocol};
use super::saved::{
    SavedRealServer, SavedVirtualServer, ServerSource, Servers, insert_real_server,
    insert_virtual_server,
};
use super::{Persistence, VirtualServerKey};
use crate::text::problem::{Problem, ProblemKind};
use crate::text::{Field, Line, Text, fields, lines};

/// Second line of the headings. `ipvsadm` aligns its columns with more spaces (ipvsadm 1.31,
/// `ipvsadm.c`, `print_title`).
const HEADING: &str = "-> RemoteAddress:Port Forward Weight ActiveConn InActConn";

/// Whether a listing is `/proc/net/ip_vs`, and not output of `ipvsadm -Ln`.
#[must_use]
pub fn is_proc(text: &str) -> bool {
    lines(text).any(|line| line.text == HEADING)
        || lines(text).any(|line| {
            let mut words = line.text.split_ascii_whitespace().skip(1);
            words.next().is_some_and(|to| parse_v4(to).is_some())
        })
}

/// Parses `/proc/net/ip_vs`. Lines that cannot be parsed are skipped and added to `problems`.
#[must_use]
pub fn parse(text: &Text, problems: &mut Vec<Problem>) -> Servers {
    let mut servers = Servers::new();
    let mut current: Option<OpenServer> = None;
    let content = lines(text).filter(|line| !line.text.starts_with('#') && !is_heading(line.text));
    for line in content {
        let words: Vec<Field<'_>> = fields(line).collect();
        match words.split_first() {
            Some((first, rest)) if first.text == "->" => {
                problems.extend(add_real_server(line, rest, current.as_mut()).err());
            }
            Some((first, rest)) => {
                problems.extend(
                    current
                        .take()
                        .and_then(|open| open.close(&mut servers).err()),
                );
                match parse_virtual_server(text, line, *first, rest) {
                    Ok(open) => current = Some(open),
                    Err(problem) => problems.push(problem),
                }
            }
            None => {}
        }
    }
    problems.extend(current.and_then(|open| open.close(&mut servers).err()));
    if let Some(server) = servers.values().next() {
        let line = lines(text).find(|line| line.number == server.line);
        problems.extend(line.map(not_printed));
    }
    servers
}

/// Returns the warning about the properties that the kernel does not print.
fn not_printed(line: Line<'_>) -> Problem {
    let missing = ProblemKind::NotPrinted {
        source_name: "/proc/net/ip_vs",
        properties: "scheduler flags, persistence engines, thresholds and tunnel options",
        command: "ipvsadm -Sn",
    };
    Problem::new(missing, line.start..line.end())
}

/// Virtual server whose real servers are not all parsed.
struct OpenServer {
    key: VirtualServerKey,
    server: SavedVirtualServer,
    /// Netmask as a number. `None` without persistence.
    mask: Option<u32>,
    range: std::ops::Range<usize>,
}

impl OpenServer {
    /// Adds the virtual server. The family of a mark is that of its real servers, because the
    /// kernel does not print it.
    fn close(mut self, servers: &mut Servers) -> Result<(), Problem> {
        let has_v6 = self.server.servers.keys().any(SocketAddr::is_ipv6);
        if let VirtualServerKey::FwMark { is_v6, .. } = &mut self.key {
            *is_v6 = has_v6;
        }
        let is_v6 = match self.key {
            VirtualServerKey::Address { address, .. } => address.is_ipv6(),
            VirtualServerKey::FwMark { is_v6, .. } => is_v6,
        };
        self.server.netmask = self
            .mask
            .and_then(|mask| netmask(mask, is_v6))
            .map(Text::new);
        insert_virtual_server(servers, self.key, self.server, self.range)
    }
}

/// Parses `TCP  0A600001:01BB rr persistent 2700000 FFFFFFFF`.
fn parse_virtual_server(
    text: &Text,
    line: Line<'_>,
    first: Field<'_>,
    words: &[Field<'_>],
) -> Result<OpenServer, Problem> {
    let [value, scheduler, options @ ..] = words else {
        return Err(line_problem(line));
    };
    let protocol = parse_protocol(line, first)?;
    let key = match protocol {
        Some(protocol) => VirtualServerKey::of_socket(protocol, parse_socket(*value)?),
        None => VirtualServerKey::FwMark {
            mark: parse_hex(value.text, 8).ok_or_else(|| line_problem(line))?,
            is_v6: false,
        },
    };
    let scheduler = text.slice(scheduler.range());
    let mut server = SavedVirtualServer::new(ServerSource::Proc, scheduler, line.number);
    let mut mask = None;
    let mut options = options.iter();
    while let Some(option) = options.next() {
        match option.text {
            "ops" => server.one_packet = true,
            "persistent" => {
                let (Some(ticks), Some(value)) = (options.next(), options.next()) else {
                    return Err(line_problem(line));
                };
                let ticks = ticks.text.parse().map_err(|_| line_problem(line))?;
                mask = Some(parse_hex(value.text, 8).ok_or_else(|| line_problem(line))?);
                server.persistence = Some(Persistence::Ticks(ticks));
            }
            _ => return Err(line_problem(line)),
        }
    }
    Ok(OpenServer {
        key,
        server,
        mask,
        range: value.range(),
    })
}

/// Returns the mask as `ipvsadm` prints it. `None` for the mask of single addresses. A mask of IPv6
/// is a prefix length, whose bytes a little-endian kernel prints in reverse order.
fn netmask(mask: u32, is_v6: bool) -> Option<String> {
    if is_v6 {
        let length = mask.min(mask.swap_bytes());
        (length != 128).then(|| length.to_string())
    } else {
        (mask != u32::MAX).then(|| Ipv4Addr::from_bits(mask).to_string())
    }
}

/// Parses `-> C0A8010A:192B      Masq    1      3          0`.
fn add_real_server(
    line: Line<'_>,
    words: &[Field<'_>],
    current: Option<&mut OpenServer>,
) -> Result<(), Problem> {
    let [to, method, weight, _, _] = words else {
        return Err(line_problem(line));
    };
    let address = parse_socket(*to)?;
    let server = SavedRealServer {
        weight: weight.text.parse().map_err(|_| line_problem(line))?,
        forwarding: parse_forwarding(method.text).ok_or_else(|| line_problem(line))?,
        tunnel: None,
        thresholds: (0, 0),
        line: line.number,
    };
    let Some(open) = current else {
        let wrong = ProblemKind::MissingParent("this real server does not follow a virtual server");
        return Err(Problem::new(wrong, line.start..line.end()));
    };
    insert_real_server(&mut open.server, address, server, to.range())
}

/// Parses an address of `/proc/net/ip_vs` with its port.
fn parse_socket(word: Field<'_>) -> Result<SocketAddr, Problem> {
    let parsed = parse_v4(word.text).or_else(|| parse_v6(word.text));
    parsed.ok_or_else(|| {
        let wrong = ProblemKind::InvalidValue {
            value: word.text.to_owned(),
            expected: "a hexadecimal address and port, as in `/proc/net/ip_vs`",
        };
        Problem::new(wrong, word.range())
    })
}

/// Parses `0A600001:01BB`.
fn parse_v4(word: &str) -> Option<SocketAddr> {
    let (address, port) = word.split_once(':')?;
    let address = IpAddr::V4(Ipv4Addr::from_bits(parse_hex(address, 8)?));
    Some(SocketAddr::new(address, parse_port(port)?))
}

/// Parses `[fd00:0000:0000:0000:0000:0000:0000:0010]:0035`.
fn parse_v6(word: &str) -> Option<SocketAddr> {
    let (address, port) = word.strip_prefix('[')?.split_once("]:")?;
    let address: Ipv6Addr = address.parse().ok()?;
    Some(SocketAddr::new(address.into(), parse_port(port)?))
}

fn parse_port(text: &str) -> Option<u16> {
    u16::try_from(parse_hex(text, 4)?).ok()
}

/// Parses a hexadecimal number with a fixed number of digits.
fn parse_hex(text: &str, digits: usize) -> Option<u32> {
    let is_number = text.len() == digits && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    is_number.then(|| u32::from_str_radix(text, 16).ok())?
}

#[cfg(test)]
mod tests {
    use super::super::{listed, saved};
    use super::*;

    const HEADINGS: &str = "IP Virtual Server version 1.2.1 (size=4096)
Prot LocalAddress:Port Scheduler Flags
  -> RemoteAddress:Port Forward Weight ActiveConn InActConn
";

    fn parse_valid(text: &str) -> Servers {
        let mut problems = Vec::new();
        let servers = parse(&Text::new(text), &mut problems);
        assert!(
            matches!(
                problems.as_slice(),
                [Problem {
                    kind: ProblemKind::NotPrinted { .. },
                    ..
                }]
            ),
            "{problems:?}"
        );
        servers
    }

    #[test]
    fn parse_kernel_listing_equals_saved_servers() {
        let text = format!(
            "{HEADINGS}\
TCP  0A600001:01BB rr  persistent 2700000 FFFFFF00
  -> C0A8320B:192B      Masq    1      3          0         
UDP  [fd00:0000:0000:0000:0000:0000:0000:0010]:0035 wrr persistent 75000 40000000
  -> [fd00:0001:0000:0000:0000:0000:0000:0002]:0035      Tunnel  0      0          0         
UDP  0A600001:0035 rr ops 
  -> C0A8320B:0035      Local   1      0          0         
SCTP  0A600001:0063 lc  persistent 90000 FFFFFFFF
FWM  0000000A wrr 
  -> [fd00:0001:0000:0000:0000:0000:0000:0002]:0000      Route   3      0          0         
"
        );
        assert!(listed::is_listing(&text) && is_proc(&text));
        let expected = "\
-A -t 10.96.0.1:443 -s rr -p 10800 -M 255.255.255.0
-a -t 10.96.0.1:443 -r 192.168.50.11:6443 -m -w 1
-A -u [fd00::10]:53 -s wrr -p 300 -M 64
-a -u [fd00::10]:53 -r [fd00:1::2]:53 -i -w 0
-A -u 10.96.0.1:53 -s rr --ops
-a -u 10.96.0.1:53 -r 192.168.50.11:53 -g -w 1
-A --sctp-service 10.96.0.1:99 -s lc -p 360
-A -f 10 -6 -s wrr
-a -f 10 -6 -r [fd00:1::2]:0 -g -w 3
";
        let mut problems = Vec::new();
        let mut expected = saved::parse(&Text::new(expected), &mut problems);
        assert_eq!(problems, []);
        let mut servers = parse_valid(&text);
        for server in servers.values_mut().chain(expected.values_mut()) {
            server.source = ServerSource::Saved;
            let seconds = server.persistence.map(Persistence::seconds);
            server.persistence = seconds.map(Persistence::Seconds);
            server.line = 0;
            server.servers.values_mut().for_each(|real| real.line = 0);
        }
        assert_eq!(servers, expected);
    }

    #[test]
    fn is_proc_listing_of_ipvsadm_is_not() {
        let listing = "IP Virtual Server version 1.2.1 (size=4096)
Prot LocalAddress:Port Scheduler Flags
  -> RemoteAddress:Port           Forward Weight ActiveConn InActConn
TCP  10.96.0.1:443 rr
";
        assert!(!is_proc(listing));
        assert!(is_proc("TCP  0A600001:01BB rr \n"));
        assert!(is_proc(HEADINGS));
    }

    #[test]
    fn parse_invalid_kernel_listing_reports_positions() {
        let text = format!(
            "{HEADINGS}  -> C0A8320B:192B Masq 1 0 0
TCP  10.96.0.1:443 rr
TCP  0A600001:01BB rr persistent 1
TCP  0A600001:01BB rr
  -> C0A8320B:192B FullNat 1 0 0
  -> C0A8320B:192B Masq 1 0 0
  -> C0A8320B:192B Masq 1 0 0
TCP  0A600001:01BB wrr
hello world
"
        );
        let mut problems = Vec::new();
        let _ = parse(&Text::new(text.as_str()), &mut problems);
        problems.retain(|problem| !matches!(problem.kind, ProblemKind::NotPrinted { .. }));
        problems.sort_by_key(|problem| problem.range.start);
        let places: Vec<&str> = problems.iter().map(|p| &text[p.range.clone()]).collect();
        assert_eq!(
            places,
            [
                "-> C0A8320B:192B Masq 1 0 0",
                "10.96.0.1:443",
                "TCP  0A600001:01BB rr persistent 1",
                "-> C0A8320B:192B FullNat 1 0 0",
                "C0A8320B:192B",
                "0A600001:01BB",
                "hello world"
            ]
        );
    }
}
