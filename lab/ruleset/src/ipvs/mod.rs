//! IPVS: virtual servers and the real servers behind them, as `ipvsadm -Sn`
//! prints them.

pub mod saved;

use std::fmt;
use std::net::{IpAddr, SocketAddr};

use serde::{Deserialize, Serialize};

/// What IPVS takes packets for.
#[derive(
    Debug,
    Clone,
    Copy,
    PartialEq,
    Eq,
    Hash,
    PartialOrd,
    Ord,
    Serialize,
    Deserialize,
    schemars::JsonSchema,
)]
#[serde(rename_all = "camelCase", tag = "by")]
pub enum Virtual {
    /// Packets to an address and port.
    Address {
        /// TCP, UDP or SCTP.
        protocol: Transport,
        /// The address.
        address: IpAddr,
        /// The port.
        port: u16,
    },
    /// Packets that netfilter marked so.
    FwMark {
        /// The mark.
        mark: u32,
        /// Whether it is IPv6 packets.
        v6: bool,
    },
}

/// What IPVS balances.
#[derive(
    Debug,
    Clone,
    Copy,
    PartialEq,
    Eq,
    Hash,
    PartialOrd,
    Ord,
    Serialize,
    Deserialize,
    schemars::JsonSchema,
)]
#[serde(rename_all = "lowercase")]
pub enum Transport {
    /// `-t`
    Tcp,
    /// `-u`
    Udp,
    /// `--sctp-service`
    Sctp,
}

/// How long IPVS remembers connections that say nothing, in seconds; 0 leaves
/// what the kernel has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Timeouts {
    /// A TCP connection.
    pub tcp: u32,
    /// A TCP connection after a FIN.
    pub tcp_fin: u32,
    /// UDP.
    pub udp: u32,
}

/// As `ipvsadm` takes it, line ended.
impl fmt::Display for Timeouts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "--set {} {} {}", self.tcp, self.tcp_fin, self.udp)
    }
}

/// A virtual server.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct VirtualServer {
    /// What it takes packets for.
    pub takes: Virtual,
    /// Its scheduler by the kernel's name: `rr`.
    pub scheduler: String,
    /// For how long a client stays with its real server, in seconds; not at all
    /// without it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub persistence: Option<u32>,
    /// What its scheduler heeds besides.
    #[serde(default, skip_serializing_if = "SchedulerFlags::is_none")]
    pub flags: SchedulerFlags,
    /// Its real servers, in the order they are added.
    pub servers: Vec<RealServer>,
}

/// What the hashing schedulers `sh` and `mh` heed besides addresses.
#[derive(
    Debug,
    Clone,
    Copy,
    PartialEq,
    Eq,
    Hash,
    PartialOrd,
    Ord,
    Default,
    Serialize,
    Deserialize,
    schemars::JsonSchema,
)]
#[serde(default)]
pub struct SchedulerFlags {
    /// Where the real server that is hashed to takes nothing, another does.
    pub fallback: bool,
    /// The source's port is hashed, too.
    pub port: bool,
}

impl SchedulerFlags {
    /// Whether none is set.
    #[must_use]
    pub const fn is_none(&self) -> bool {
        !self.fallback && !self.port
    }
}

/// A real server.
#[derive(
    Debug,
    Clone,
    Copy,
    PartialEq,
    Eq,
    Hash,
    PartialOrd,
    Ord,
    Serialize,
    Deserialize,
    schemars::JsonSchema,
)]
pub struct RealServer {
    /// Where packets go.
    pub to: SocketAddr,
    /// Its share; 0 takes no new connections.
    pub weight: u32,
    /// How packets are sent there.
    #[serde(default)]
    pub forwarding: Forwarding,
}

/// How IPVS sends a packet to a real server.
#[derive(
    Debug,
    Clone,
    Copy,
    PartialEq,
    Eq,
    Hash,
    PartialOrd,
    Ord,
    Default,
    Serialize,
    Deserialize,
    schemars::JsonSchema,
)]
#[serde(rename_all = "lowercase")]
pub enum Forwarding {
    /// `-m`: its destination is rewritten.
    #[default]
    Masquerade,
    /// `-g`: it is sent as it is.
    Route,
    /// `-i`: it is wrapped.
    Tunnel,
}

impl fmt::Display for Virtual {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Address {
                protocol,
                address,
                port,
            } => {
                let option = match protocol {
                    Transport::Tcp => "-t",
                    Transport::Udp => "-u",
                    Transport::Sctp => "--sctp-service",
                };
                write!(f, "{option} {}", SocketAddr::new(*address, *port))
            }
            Self::FwMark { mark, v6: false } => write!(f, "-f {mark}"),
            Self::FwMark { mark, v6: true } => write!(f, "-f {mark} -6"),
        }
    }
}

/// As `ipvsadm -Sn` prints it and `ipvsadm -R` reads it, lines ended; from 1.30
/// on it adds `--tun-type ipip` to real servers by tunnel, which older ones do
/// not read.
impl fmt::Display for VirtualServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "-A {} -s {}", self.takes, self.scheduler)?;
        if let Some(seconds) = self.persistence {
            write!(f, " -p {seconds}")?;
        }
        let flags = [(self.flags.fallback, "fallback"), (self.flags.port, "port")];
        let flags: Vec<String> = flags
            .into_iter()
            .filter(|(set, _)| *set)
            .map(|(_, word)| format!("{}-{word}", self.scheduler))
            .collect();
        if !flags.is_empty() {
            write!(f, " -b {}", flags.join(","))?;
        }
        writeln!(f)?;
        for server in &self.servers {
            let forwarding = match server.forwarding {
                Forwarding::Masquerade => "-m",
                Forwarding::Route => "-g",
                Forwarding::Tunnel => "-i",
            };
            // A mark has no port, and its real servers keep the packet's own.
            writeln!(
                f,
                "-a {} -r {} {forwarding} -w {}",
                self.takes, server.to, server.weight
            )?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn virtual_servers_read_as_ipvsadm_prints_them() {
        let server = VirtualServer {
            takes: Virtual::Address {
                protocol: Transport::Tcp,
                address: "10.20.0.1".parse().unwrap(),
                port: 443,
            },
            scheduler: "rr".to_owned(),
            persistence: Some(10800),
            flags: SchedulerFlags::default(),
            servers: vec![RealServer {
                to: "10.19.9.120:6443".parse().unwrap(),
                weight: 1,
                forwarding: Forwarding::Masquerade,
            }],
        };
        assert_eq!(
            server.to_string(),
            "-A -t 10.20.0.1:443 -s rr -p 10800\n-a -t 10.20.0.1:443 -r 10.19.9.120:6443 -m -w 1\n"
        );
    }
}
