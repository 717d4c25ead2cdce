//! Parses the output of `ipvsadm -Sn`: virtual servers and their real servers.

use std::net::{IpAddr, SocketAddr};
use std::ops::Range;

use indexmap::IndexMap;

use crate::ipvs::{Forwarding, Transport, Virtual};
use crate::text::problem::{Problem, Wrong};
use crate::text::{Field, Line, Text, fields, lines};
use crate::tool::Format;

/// Virtual servers in printed order.
pub type Servers = IndexMap<Virtual, VirtualServer>;

/// Virtual server as `ipvsadm -Sn` prints it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VirtualServer {
    /// Name of the scheduler in the kernel: `rr`.
    pub scheduler: Text,
    /// Flags of the scheduler: `sh-port`. `None` without flags.
    pub flags: Option<Text>,
    /// Persistence timeout in seconds. `None` without persistence.
    pub persistence: Option<u32>,
    /// Mask that groups clients for persistence, or a prefix length for IPv6.
    pub netmask: Option<Text>,
    /// Persistence engine, which identifies clients: `sip`.
    pub engine: Option<Text>,
    /// Whether IPVS schedules each packet separately.
    pub one_packet: bool,
    /// Real servers in printed order, which is sorted and differs from the kernel's order (ipvsadm
    /// 1.31, `print_service_entry`).
    pub servers: IndexMap<SocketAddr, RealServer>,
    /// Line number, from 1.
    pub line: u32,
}

/// Real server as `ipvsadm -Sn` prints it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RealServer {
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
pub fn read(text: &Text, problems: &mut Vec<Problem>) -> Servers {
    let mut servers = Servers::new();
    for line in lines(text).filter(|line| !line.text.starts_with('#')) {
        let mut words = Words {
            line,
            rest: fields(line).collect::<Vec<_>>().into_iter().peekable(),
        };
        let command = words.rest.next().map(|word| word.text);
        let read = match command {
            Some("-A" | "--add-service") => add_service(text, &mut words, &mut servers),
            Some("-a" | "--add-server") => add_server(text, &mut words, &mut servers),
            _ => Err(words.whole()),
        };
        problems.extend(read.err());
    }
    servers
}

struct Words<'t> {
    line: Line<'t>,
    rest: std::iter::Peekable<std::vec::IntoIter<Field<'t>>>,
}

impl<'t> Words<'t> {
    fn whole(&self) -> Problem {
        let at = self.line.start..self.line.end();
        Problem::new(Wrong::Line(Format::Servers), at)
    }

    fn value(&mut self, of: Field<'t>) -> Result<Field<'t>, Problem> {
        let lacks = || Problem::new(Wrong::Lacks(of.text.to_owned()), of.range());
        self.rest.next().ok_or_else(lacks)
    }

    fn number(&mut self, of: Field<'t>) -> Result<u32, Problem> {
        let value = self.value(of)?;
        let number = value.text.parse();
        number.map_err(|_| bad(value.text, value.range(), "a number"))
    }

    /// Parses the virtual server of a line: `-t 10.0.0.1:80`, `-f 5 -6`.
    fn virtual_server(&mut self) -> Result<(Virtual, Range<usize>), Problem> {
        let Some(option) = self.rest.next() else {
            return Err(self.whole());
        };
        let protocol = match option.text {
            "-t" | "--tcp-service" => Transport::Tcp,
            "-u" | "--udp-service" => Transport::Udp,
            "--sctp-service" => Transport::Sctp,
            "-f" | "--fwmark-service" => {
                let mark = self.number(option)?;
                let six = |word: &Field<'_>| matches!(word.text, "-6" | "--ipv6");
                let v6 = self.rest.next_if(six).is_some();
                let end = option.range().end;
                return Ok((Virtual::FwMark { mark, v6 }, option.start..end));
            }
            _ => return Err(self.whole()),
        };
        let value = self.value(option)?;
        let to = socket(value)?;
        let takes = Virtual::Address {
            protocol,
            address: to.ip(),
            port: to.port(),
        };
        Ok((takes, option.start..value.range().end))
    }
}

fn bad(value: &str, at: Range<usize>, wanted: &'static str) -> Problem {
    let value = value.to_owned();
    Problem::new(Wrong::Value { value, wanted }, at)
}

fn unknown(word: Field<'_>) -> Problem {
    let wrong = Wrong::Word {
        word: word.text.to_owned(),
    };
    Problem::new(wrong, word.range())
}

/// Parses an address with a port. A real server of a mark may have no port.
fn socket(word: Field<'_>) -> Result<SocketAddr, Problem> {
    let bare = || Some(SocketAddr::new(word.text.parse::<IpAddr>().ok()?, 0));
    word.text.parse().ok().or_else(bare).ok_or_else(|| {
        let wanted = "an address and a port in numbers; save with `ipvsadm -Sn`";
        bad(word.text, word.range(), wanted)
    })
}

fn add_service(text: &Text, words: &mut Words<'_>, servers: &mut Servers) -> Result<(), Problem> {
    let (takes, at) = words.virtual_server()?;
    let mut server = VirtualServer {
        scheduler: Text::new("wlc"),
        flags: None,
        persistence: None,
        netmask: None,
        engine: None,
        one_packet: false,
        servers: IndexMap::new(),
        line: words.line.number,
    };
    while let Some(word) = words.rest.next() {
        match word.text {
            "-s" | "--scheduler" => server.scheduler = text.piece(words.value(word)?.range()),
            "-b" | "--sched-flags" => server.flags = Some(text.piece(words.value(word)?.range())),
            "-p" | "--persistent" => server.persistence = Some(words.number(word)?),
            "-M" | "--netmask" => server.netmask = Some(text.piece(words.value(word)?.range())),
            // Some versions save these options without dashes.
            "--pe" | "pe" => server.engine = Some(text.piece(words.value(word)?.range())),
            "-o" | "--ops" | "ops" => server.one_packet = true,
            _ => return Err(unknown(word)),
        }
    }
    if let Some(known) = servers.get(&takes) {
        let what = format!("the virtual server {takes}");
        let line = known.line;
        return Err(Problem::new(Wrong::Twice { what, line }, at));
    }
    servers.insert(takes, server);
    Ok(())
}

fn add_server(text: &Text, words: &mut Words<'_>, servers: &mut Servers) -> Result<(), Problem> {
    let (takes, at) = words.virtual_server()?;
    let mut to = None;
    let mut server = RealServer {
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
                let value = words.value(word)?;
                to = Some((socket(value)?, value.range()));
            }
            "-m" | "--masquerading" => server.forwarding = Forwarding::Masquerade,
            "-g" | "--gatewaying" => server.forwarding = Forwarding::Route,
            "-i" | "--ipip" => server.forwarding = Forwarding::Tunnel,
            "-w" | "--weight" => server.weight = words.number(word)?,
            "-x" | "--u-threshold" => server.thresholds.0 = words.number(word)?,
            "-y" | "--l-threshold" => server.thresholds.1 = words.number(word)?,
            "--tun-type" | "--tun-port" => {
                let end = words.value(word)?.range().end;
                tunnel = Some(tunnel.map_or(word.start, |known| known.start)..end);
            }
            "--tun-nocsum" | "--tun-csum" | "--tun-remcsum" => {
                let start = tunnel.map_or(word.start, |known| known.start);
                tunnel = Some(start..word.range().end);
            }
            _ => return Err(unknown(word)),
        }
    }
    server.tunnel = tunnel.map(|range| text.piece(range));
    let Some((to, place)) = to else {
        return Err(Problem::new(Wrong::Lacks("-r".to_owned()), at));
    };
    let Some(known) = servers.get_mut(&takes) else {
        let wrong =
            Wrong::Homeless("a real server of a virtual server that no line before it adds");
        return Err(Problem::new(wrong, at));
    };
    if let Some(known) = known.servers.get(&to) {
        let what = format!("the real server {to} of this virtual server");
        let line = known.line;
        return Err(Problem::new(Wrong::Twice { what, line }, place));
    }
    known.servers.insert(to, server);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_that_ipvsadm_saves_is_read() {
        let text = "-A -t 10.0.0.1:80 -s rr\n-a -t 10.0.0.1:80 -r 10.1.0.1:8080 -m -w 1\n\
                    -A -u [fd00::1]:53 -s sh -b sh-port -p 300 -M 64\n\
                    -a -u [fd00::1]:53 -r [fd00::2]:53 -i -w 0 --tun-type gue --tun-port 6080 --tun-nocsum\n\
                    -A -f 5 -6 -s wrr --pe sip --ops\n-a -f 5 -6 -r [fd00::2]:0 -g -w 3\n\
                    -A --sctp-service 10.0.0.1:99 -s mh -b mh-fallback,mh-port\n";
        let mut problems = Vec::new();
        let servers = read(&Text::new(text), &mut problems);
        assert_eq!(problems, []);
        assert_eq!(servers.len(), 4);
        let mark = &servers[&Virtual::FwMark { mark: 5, v6: true }];
        assert!(mark.one_packet);
        assert_eq!(mark.engine.as_deref(), Some("sip"));
        assert_eq!(mark.servers.len(), 1);
        let udp = &servers[1];
        assert_eq!(
            (udp.persistence, udp.netmask.as_deref()),
            (Some(300), Some("64"))
        );
        let tunnel = udp.servers[0].tunnel.as_deref();
        assert_eq!(tunnel, Some("--tun-type gue --tun-port 6080 --tun-nocsum"));
        assert_eq!(udp.servers[0].forwarding, Forwarding::Tunnel);
    }

    #[test]
    fn what_is_wrong_is_pointed_at() {
        let text = "-A -t 10.0.0.1:http -s rr\n-a -t 10.0.0.1:80 -r 10.1.0.1:80 -m -w 1\n\
                    -A -t 10.0.0.1:80 -s rr\n-A -t 10.0.0.1:80 -s rr\n\
                    -a -t 10.0.0.1:80 -r 10.1.0.1:80 -m -w one\n-a -t 10.0.0.1:80 -m\n\
                    -a -t 10.0.0.1:80 -r 10.1.0.1:80 -m\n-a -t 10.0.0.1:80 -r 10.1.0.1:80 -m\n\
                    TCP  10.0.0.1:80 rr\n-A -t 10.0.0.2:80 -q\n";
        let mut problems = Vec::new();
        let _ = read(&Text::new(text), &mut problems);
        let places: Vec<&str> = problems.iter().map(|p| &text[p.at.clone()]).collect();
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
