//! Parses the output of `ipvsadm -Ln` (ipvsadm 1.31, `ipvsadm.c`, `print_service_entry`). The listing
//! lacks thresholds and parameters of tunnels.

use super::saved::{
    SavedRealServer, SavedVirtualServer, ServerSource, Servers, insert_real_server,
    insert_virtual_server, parse_socket,
};
use super::{Forwarding, Persistence, VirtualServerKey};
use crate::Protocol;
use crate::text::problem::{Problem, ProblemKind};
use crate::text::{Field, Line, Text, fields, lines};
use crate::tool::Format;

/// Whether a text is a listing of `ipvsadm` or of the kernel, and not output of `ipvsadm -Sn`.
#[must_use]
pub fn is_listing(text: &str) -> bool {
    let mut lines = lines(text).filter(|line| !line.text.starts_with('#'));
    lines.next().is_some_and(|line| is_heading(line.text))
}

/// Whether a line is one of the first lines of the listing.
pub(super) fn is_heading(line: &str) -> bool {
    let mut headings = [
        "IP Virtual Server version ",
        "Prot LocalAddress:Port",
        "-> RemoteAddress:Port",
    ]
    .iter();
    headings.any(|heading| line.starts_with(heading))
}

/// Parses the output of `ipvsadm -Ln`. Lines that cannot be parsed are skipped and added to
/// `problems`.
#[must_use]
pub fn parse(text: &Text, problems: &mut Vec<Problem>) -> Servers {
    let mut servers = Servers::new();
    let lines = lines(text).filter(|line| !line.text.starts_with('#') && !is_heading(line.text));
    for line in lines {
        let words: Vec<Field<'_>> = fields(line).collect();
        let read = match words.split_first() {
            Some((first, rest)) if first.text == "->" => add_real_server(line, rest, &mut servers),
            Some((first, rest)) => add_virtual_server(text, line, *first, rest, &mut servers),
            None => Ok(()),
        };
        problems.extend(read.err());
    }
    servers
}

pub(super) fn line_problem(line: Line<'_>) -> Problem {
    let range = line.start..line.end();
    Problem::new(ProblemKind::UnknownLine(Format::VirtualServers), range)
}

/// Parses the protocol of a virtual server. `None` for a mark.
pub(super) fn parse_protocol(line: Line<'_>, word: Field<'_>) -> Result<Option<Protocol>, Problem> {
    Ok(match word.text {
        "TCP" => Some(Protocol::Tcp),
        "UDP" => Some(Protocol::Udp),
        "SCTP" => Some(Protocol::Sctp),
        "FWM" => None,
        _ => return Err(line_problem(line)),
    })
}

/// Parses `TCP  10.96.0.1:443 rr persistent 10800`.
fn add_virtual_server(
    text: &Text,
    line: Line<'_>,
    first: Field<'_>,
    words: &[Field<'_>],
    servers: &mut Servers,
) -> Result<(), Problem> {
    let protocol = parse_protocol(line, first)?;
    let (Some(value), mut words) = (words.first(), words.iter().skip(1).peekable()) else {
        return Err(line_problem(line));
    };
    let key = match protocol {
        Some(protocol) => VirtualServerKey::of_socket(protocol, parse_socket(*value)?),
        None => VirtualServerKey::FwMark {
            mark: value.text.parse().map_err(|_| line_problem(line))?,
            is_v6: words.next_if(|word| word.text == "IPv6").is_some(),
        },
    };
    let scheduler = words.next().ok_or_else(|| line_problem(line))?;
    let scheduler = text.slice(scheduler.range());
    let mut server = SavedVirtualServer::new(ServerSource::Listing, scheduler, line.number);
    while let Some(word) = words.next() {
        let mut value = || words.next().ok_or_else(|| line_problem(line));
        match word.text {
            "persistent" => {
                let seconds = value()?.text.parse();
                let seconds = seconds.map_err(|_| line_problem(line))?;
                server.persistence = Some(Persistence::Seconds(seconds));
            }
            "mask" => server.netmask = Some(text.slice(value()?.range())),
            "pe" => server.engine = Some(text.slice(value()?.range())),
            "ops" => server.one_packet = true,
            flags if flags.starts_with('(') && flags.ends_with(')') => {
                server.flags = Some(text.slice(word.start + 1..word.range().end - 1));
            }
            _ => return Err(line_problem(line)),
        }
    }
    insert_virtual_server(servers, key, server, value.range())
}

/// Parses `-> 10.244.1.9:8080  Masq  1  0  0`.
fn add_real_server(
    line: Line<'_>,
    words: &[Field<'_>],
    servers: &mut Servers,
) -> Result<(), Problem> {
    let [to, method, weight, ..] = words else {
        return Err(line_problem(line));
    };
    let forwarding = parse_forwarding(method.text).ok_or_else(|| line_problem(line))?;
    let address = parse_socket(*to)?;
    let server = SavedRealServer {
        weight: weight.text.parse().map_err(|_| line_problem(line))?,
        forwarding,
        tunnel: None,
        thresholds: (0, 0),
        line: line.number,
    };
    let Some((_, virtual_server)) = servers.last_mut() else {
        let wrong = ProblemKind::MissingParent("this real server does not follow a virtual server");
        return Err(Problem::new(wrong, line.start..line.end()));
    };
    insert_real_server(virtual_server, address, server, to.range())
}

/// Returns the forwarding method for its name in a listing (Linux v6.12, `include/net/ip_vs.h`,
/// `ip_vs_fwd_name`; ipvsadm 1.31, `ipvsadm.c`, `fwd_name`). `None` for other names.
pub(super) fn parse_forwarding(name: &str) -> Option<Forwarding> {
    Some(match name {
        "Masq" => Forwarding::Masquerade,
        "Tunnel" => Forwarding::Tunnel,
        // The kernel delivers to a local real server itself.
        "Route" | "Local" => Forwarding::Route,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::super::saved;
    use super::*;

    #[test]
    fn parse_listing_equals_saved_servers() {
        let listing = "\
IP Virtual Server version 1.2.1 (size=4096)
Prot LocalAddress:Port Scheduler Flags
  -> RemoteAddress:Port           Forward Weight ActiveConn InActConn
TCP  10.96.0.1:443 rr persistent 10800 mask 255.255.255.0
  -> 192.168.50.11:6443           Masq    1      0          0         
UDP  [fd00::10]:53 mh (mh-fallback,mh-port)
  -> [fd00:1::2]:53               Tunnel  0      0          0         
FWM  5 IPv6 wrr
";
        let saved = "-A -t 10.96.0.1:443 -s rr -p 10800 -M 255.255.255.0\n-a -t 10.96.0.1:443 -r 192.168.50.11:6443 -m -w 1\n\
                     -A -u [fd00::10]:53 -s mh -b mh-fallback,mh-port\n-a -u [fd00::10]:53 -r [fd00:1::2]:53 -i -w 0\n\
                     -A -f 5 -6 -s wrr\n";
        let read = |text: &str| {
            let mut problems = Vec::new();
            let parse = if is_listing(text) {
                parse
            } else {
                saved::parse
            };
            let mut servers = parse(&Text::new(text), &mut problems);
            assert_eq!(problems, []);
            for server in servers.values_mut() {
                server.source = ServerSource::Saved;
                server.line = 0;
                server.servers.values_mut().for_each(|real| real.line = 0);
            }
            servers
        };
        assert_eq!(read(listing), read(saved));
    }

    #[test]
    fn parse_invalid_listing_reports_positions() {
        let text = "Prot LocalAddress:Port Scheduler Flags\n  -> 10.0.0.1:80 Masq 1 0 0\nTCP  web:80 rr\n\
                    TCP  10.0.0.1:80 rr\n  -> 10.0.0.2:80 FullNat 1 0 0\n  -> 10.0.0.2:80 Masq 1 0 0\n  -> 10.0.0.2:80 Masq 1 0 0\n\
                    TCP  10.0.0.1:80 rr\nhello\n";
        let mut problems = Vec::new();
        let _ = parse(&Text::new(text), &mut problems);
        let places: Vec<&str> = problems.iter().map(|p| &text[p.range.clone()]).collect();
        assert_eq!(
            places,
            [
                "-> 10.0.0.1:80 Masq 1 0 0",
                "web:80",
                "-> 10.0.0.2:80 FullNat 1 0 0",
                "10.0.0.2:80",
                "10.0.0.1:80",
                "hello"
            ]
        );
    }
}
