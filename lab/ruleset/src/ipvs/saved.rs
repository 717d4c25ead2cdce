//! Parses the output of `ipvsadm -Sn`: virtual servers and their real servers.

use std::net::{IpAddr, SocketAddr};
use std::ops::Range;

use indexmap::IndexMap;

use crate::Protocol;
use crate::ipvs::{Forwarding, Persistence, VirtualServerKey};
use crate::text::problem::{Problem, ProblemKind};
use crate::text::{Field, Line, Text, fields, lines};
use crate::tool::Format;

/// Virtual servers in printed order.
pub type Servers = IndexMap<VirtualServerKey, SavedVirtualServer>;

/// Program that printed a virtual server. Later sources print more properties.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum ServerSource {
    /// The file `/proc/net/ip_vs`. It lacks scheduler flags, persistence engines, one-packet
    /// scheduling of IPv6, connection thresholds and parameters of tunnels.
    Proc,
    /// `ipvsadm -Ln`, which lacks connection thresholds and parameters of tunnels.
    Listing,
    /// `ipvsadm -Sn`, which prints all properties.
    Saved,
}

/// Virtual server as `ipvsadm -Sn`, `ipvsadm -Ln` or `/proc/net/ip_vs` prints it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SavedVirtualServer {
    /// Program that printed the virtual server.
    pub source: ServerSource,
    /// Name of the scheduler in the kernel: `rr`.
    pub scheduler: Text,
    /// Flags of the scheduler: `sh-port`. `None` without flags, or if the source lacks them.
    pub flags: Option<Text>,
    /// Persistence timeout. `None` without persistence.
    pub persistence: Option<Persistence>,
    /// Mask that groups clients for persistence, or a prefix length for IPv6.
    pub netmask: Option<Text>,
    /// Persistence engine, which identifies clients: `sip`. `None` without an engine, or if the
    /// source lacks it.
    pub engine: Option<Text>,
    /// Whether IPVS schedules each packet separately.
    pub one_packet: bool,
    /// Real servers in printed order, which is sorted and differs from the kernel's order (ipvsadm
    /// 1.31, `print_service_entry`).
    pub servers: IndexMap<SocketAddr, SavedRealServer>,
    /// Line number, from 1.
    pub line: u32,
}

impl SavedVirtualServer {
    /// Creates a virtual server without options and without real servers.
    pub(super) fn new(source: ServerSource, scheduler: Text, line: u32) -> Self {
        Self {
            source,
            scheduler,
            flags: None,
            persistence: None,
            netmask: None,
            engine: None,
            one_packet: false,
            servers: IndexMap::new(),
            line,
        }
    }

    /// Returns the names of the flags of the scheduler, sorted. ipvsadm prints numbers for
    /// schedulers whose flags it does not know (ipvsadm 1.29, `ipvsadm.c`, `print_sched_flags`).
    #[must_use]
    pub fn flag_names(&self) -> Vec<String> {
        let scheduler = &*self.scheduler;
        let has_names = matches!(scheduler, "sh" | "mh");
        let flags = self.flags.as_deref().unwrap_or_default().split(',');
        let flags = flags.map(str::trim).filter(|flag| !flag.is_empty());
        let mut names: Vec<String> = flags
            .map(|flag| match flag {
                "flag-1" if has_names => format!("{scheduler}-fallback"),
                "flag-2" if has_names => format!("{scheduler}-port"),
                flag => flag.to_owned(),
            })
            .collect();
        names.sort_unstable();
        names
    }
}

/// Real server as `ipvsadm -Sn` prints it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SavedRealServer {
    /// Weight. A real server of weight 0 gets no new connections.
    pub weight: u32,
    /// Forwarding method to the real server.
    pub forwarding: Forwarding,
    /// `--tun-…` options of a tunnel, as printed. `None` for other methods.
    pub tunnel: Option<Text>,
    /// Upper and lower connection threshold. Above the upper one, the real server gets no new
    /// connections until it is below the lower one. 0 means no threshold.
    pub thresholds: (u32, u32),
    /// Line number, from 1.
    pub line: u32,
}

/// Parses the output of `ipvsadm -Sn`. Lines that cannot be parsed are skipped and added to
/// `problems`.
#[must_use]
pub fn parse(text: &Text, problems: &mut Vec<Problem>) -> Servers {
    let mut servers = Servers::new();
    for line in lines(text).filter(|line| !line.text.starts_with('#')) {
        let mut words = WordCursor {
            line,
            rest: fields(line).collect::<Vec<_>>().into_iter().peekable(),
        };
        let command = words.rest.next().map(|word| word.text);
        let read = match command {
            Some("-A" | "--add-service") => add_service(text, &mut words, &mut servers),
            Some("-a" | "--add-server") => add_server(text, &mut words, &mut servers),
            _ => Err(words.line_problem()),
        };
        problems.extend(read.err());
    }
    servers
}

struct WordCursor<'t> {
    line: Line<'t>,
    rest: std::iter::Peekable<std::vec::IntoIter<Field<'t>>>,
}

impl<'t> WordCursor<'t> {
    fn line_problem(&self) -> Problem {
        let range = self.line.start..self.line.end();
        Problem::new(ProblemKind::UnknownLine(Format::VirtualServers), range)
    }

    fn next_value(&mut self, option: Field<'t>) -> Result<Field<'t>, Problem> {
        let lacks = || {
            Problem::new(
                ProblemKind::MissingValue(option.text.to_owned()),
                option.range(),
            )
        };
        self.rest.next().ok_or_else(lacks)
    }

    fn next_number(&mut self, option: Field<'t>) -> Result<u32, Problem> {
        let value = self.next_value(option)?;
        let number = value.text.parse();
        number.map_err(|_| invalid_value(value.text, value.range(), "a number"))
    }

    /// Parses the virtual server of a line: `-t 10.0.0.1:80`, `-f 5 -6`.
    fn virtual_server(&mut self) -> Result<(VirtualServerKey, Range<usize>), Problem> {
        let Some(option) = self.rest.next() else {
            return Err(self.line_problem());
        };
        let protocol = match option.text {
            "-t" | "--tcp-service" => Protocol::Tcp,
            "-u" | "--udp-service" => Protocol::Udp,
            "--sctp-service" => Protocol::Sctp,
            "-f" | "--fwmark-service" => {
                let mark = self.next_number(option)?;
                let six = |word: &Field<'_>| matches!(word.text, "-6" | "--ipv6");
                let v6 = self.rest.next_if(six).is_some();
                let end = option.range().end;
                return Ok((
                    VirtualServerKey::FwMark { mark, is_v6: v6 },
                    option.start..end,
                ));
            }
            _ => return Err(self.line_problem()),
        };
        let value = self.next_value(option)?;
        let key = VirtualServerKey::of_socket(protocol, parse_socket(value)?);
        Ok((key, option.start..value.range().end))
    }
}

fn invalid_value(value: &str, range: Range<usize>, expected: &'static str) -> Problem {
    let value = value.to_owned();
    Problem::new(ProblemKind::InvalidValue { value, expected }, range)
}

fn unknown_word(word: Field<'_>) -> Problem {
    let wrong = ProblemKind::UnknownWord {
        word: word.text.to_owned(),
    };
    Problem::new(wrong, word.range())
}

/// Parses an address with a port. A real server of a mark may have no port.
pub(super) fn parse_socket(word: Field<'_>) -> Result<SocketAddr, Problem> {
    let bare = || Some(SocketAddr::new(word.text.parse::<IpAddr>().ok()?, 0));
    word.text.parse().ok().or_else(bare).ok_or_else(|| {
        let wanted = "a numeric address and port; save with `ipvsadm -Sn`";
        invalid_value(word.text, word.range(), wanted)
    })
}

fn add_service(
    text: &Text,
    words: &mut WordCursor<'_>,
    servers: &mut Servers,
) -> Result<(), Problem> {
    let (key, range) = words.virtual_server()?;
    let scheduler = Text::new("wlc");
    let mut server = SavedVirtualServer::new(ServerSource::Saved, scheduler, words.line.number);
    while let Some(word) = words.rest.next() {
        match word.text {
            "-s" | "--scheduler" => server.scheduler = text.slice(words.next_value(word)?.range()),
            "-b" | "--sched-flags" => {
                server.flags = Some(text.slice(words.next_value(word)?.range()));
            }
            "-p" | "--persistent" => {
                server.persistence = Some(Persistence::Seconds(words.next_number(word)?));
            }
            "-M" | "--netmask" => {
                server.netmask = Some(text.slice(words.next_value(word)?.range()));
            }
            // Some versions save these options without dashes.
            "--pe" | "pe" => server.engine = Some(text.slice(words.next_value(word)?.range())),
            "-o" | "--ops" | "ops" => server.one_packet = true,
            _ => return Err(unknown_word(word)),
        }
    }
    insert_virtual_server(servers, key, server, range)
}

fn add_server(
    text: &Text,
    words: &mut WordCursor<'_>,
    servers: &mut Servers,
) -> Result<(), Problem> {
    let (key, range) = words.virtual_server()?;
    let mut to = None;
    let mut server = SavedRealServer {
        weight: 1,
        forwarding: Forwarding::Route,
        tunnel: None,
        thresholds: (0, 0),
        line: words.line.number,
    };
    let mut tunnel: Option<Range<usize>> = None;
    while let Some(word) = words.rest.next() {
        match word.text {
            "-r" | "--real-server" => {
                let value = words.next_value(word)?;
                to = Some((parse_socket(value)?, value.range()));
            }
            "-m" | "--masquerading" => server.forwarding = Forwarding::Masquerade,
            "-g" | "--gatewaying" => server.forwarding = Forwarding::Route,
            "-i" | "--ipip" => server.forwarding = Forwarding::Tunnel,
            "-w" | "--weight" => server.weight = words.next_number(word)?,
            "-x" | "--u-threshold" => server.thresholds.0 = words.next_number(word)?,
            "-y" | "--l-threshold" => server.thresholds.1 = words.next_number(word)?,
            "--tun-type" | "--tun-port" => {
                let end = words.next_value(word)?.range().end;
                tunnel = Some(tunnel.map_or(word.start, |known| known.start)..end);
            }
            "--tun-nocsum" | "--tun-csum" | "--tun-remcsum" => {
                let start = tunnel.map_or(word.start, |known| known.start);
                tunnel = Some(start..word.range().end);
            }
            _ => return Err(unknown_word(word)),
        }
    }
    server.tunnel = tunnel.map(|range| text.slice(range));
    let Some((to, place)) = to else {
        return Err(Problem::new(
            ProblemKind::MissingValue("-r".to_owned()),
            range,
        ));
    };
    let Some(virtual_server) = servers.get_mut(&key) else {
        let wrong = ProblemKind::MissingParent(
            "this real server is for a virtual server that no earlier line adds",
        );
        return Err(Problem::new(wrong, range));
    };
    insert_real_server(virtual_server, to, server, place)
}

/// Adds a virtual server. `range` is the position of its key.
pub(super) fn insert_virtual_server(
    servers: &mut Servers,
    key: VirtualServerKey,
    server: SavedVirtualServer,
    range: Range<usize>,
) -> Result<(), Problem> {
    if let Some(existing) = servers.get(&key) {
        let item = format!("virtual server `{key}`");
        let line = existing.line;
        return Err(Problem::new(ProblemKind::Duplicate { item, line }, range));
    }
    servers.insert(key, server);
    Ok(())
}

/// Adds a real server to a virtual server. `range` is the position of its address.
pub(super) fn insert_real_server(
    virtual_server: &mut SavedVirtualServer,
    address: SocketAddr,
    server: SavedRealServer,
    range: Range<usize>,
) -> Result<(), Problem> {
    if let Some(existing) = virtual_server.servers.get(&address) {
        let item = format!("real server `{address}` of this virtual server");
        let line = existing.line;
        return Err(Problem::new(ProblemKind::Duplicate { item, line }, range));
    }
    virtual_server.servers.insert(address, server);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parse_ipvsadm_output_returns_virtual_servers() {
        let text = "-A -t 10.0.0.1:80 -s rr\n-a -t 10.0.0.1:80 -r 10.1.0.1:8080 -m -w 1\n\
                    -A -u [fd00::1]:53 -s sh -b sh-port -p 300 -M 64\n\
                    -a -u [fd00::1]:53 -r [fd00::2]:53 -i -w 0 --tun-type gue --tun-port 6080 --tun-nocsum\n\
                    -A -f 5 -6 -s wrr --pe sip --ops\n-a -f 5 -6 -r [fd00::2]:0 -g -w 3\n\
                    -A --sctp-service 10.0.0.1:99 -s mh -b mh-fallback,mh-port\n";
        let mut problems = Vec::new();
        let servers = parse(&Text::new(text), &mut problems);
        assert_eq!(problems, []);
        assert_eq!(servers.len(), 4);
        let mark = &servers[&VirtualServerKey::FwMark {
            mark: 5,
            is_v6: true,
        }];
        assert!(mark.one_packet);
        assert_eq!(mark.engine.as_deref(), Some("sip"));
        assert_eq!(mark.servers.len(), 1);
        let udp = &servers[1];
        assert_eq!(
            (udp.persistence, udp.netmask.as_deref()),
            (Some(Persistence::Seconds(300)), Some("64"))
        );
        let tunnel = udp.servers[0].tunnel.as_deref();
        assert_eq!(tunnel, Some("--tun-type gue --tun-port 6080 --tun-nocsum"));
        assert_eq!(udp.servers[0].forwarding, Forwarding::Tunnel);
    }

    #[test]
    fn parse_invalid_lines_reports_positions() {
        let text = "-A -t 10.0.0.1:http -s rr\n-a -t 10.0.0.1:80 -r 10.1.0.1:80 -m -w 1\n\
                    -A -t 10.0.0.1:80 -s rr\n-A -t 10.0.0.1:80 -s rr\n\
                    -a -t 10.0.0.1:80 -r 10.1.0.1:80 -m -w one\n-a -t 10.0.0.1:80 -m\n\
                    -a -t 10.0.0.1:80 -r 10.1.0.1:80 -m\n-a -t 10.0.0.1:80 -r 10.1.0.1:80 -m\n\
                    TCP  10.0.0.1:80 rr\n-A -t 10.0.0.2:80 -q\n";
        let mut problems = Vec::new();
        let _ = parse(&Text::new(text), &mut problems);
        let places: Vec<&str> = problems.iter().map(|p| &text[p.range.clone()]).collect();
        assert_eq!(
            places,
            [
                "10.0.0.1:http",
                "-t 10.0.0.1:80",
                "-t 10.0.0.1:80",
                "one",
                "-t 10.0.0.1:80",
                "10.1.0.1:80",
                "TCP  10.0.0.1:80 rr",
                "-q"
            ]
        );
    }
}
