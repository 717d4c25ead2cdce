//! Defines IPVS virtual servers with their real servers, and renders them as `ipvsadm` input.

pub mod listed;
mod persistence;
pub mod proc;
pub mod saved;

use std::fmt;
use std::net::{IpAddr, SocketAddr};

use serde::{Deserialize, Serialize};

pub use persistence::Persistence;

use crate::Protocol;

/// Packets that a virtual server receives.
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
#[serde(rename_all = "camelCase", rename_all_fields = "camelCase", tag = "by")]
pub enum VirtualServerKey {
    /// Packets to an address and port.
    Address {
        /// Transport protocol of the packets.
        protocol: Protocol,
        /// Destination address of the packets.
        address: IpAddr,
        /// Destination port of the packets.
        port: u16,
    },
    /// Packets with a netfilter mark.
    FwMark {
        /// Value of the mark.
        mark: u32,
        /// Whether the virtual server receives IPv6 packets. Otherwise, it receives IPv4 packets.
        is_v6: bool,
    },
}

impl VirtualServerKey {
    const fn of_socket(protocol: Protocol, to: SocketAddr) -> Self {
        Self::Address {
            protocol,
            address: to.ip(),
            port: to.port(),
        }
    }
}

/// Timeouts of idle IPVS connections, in seconds. 0 keeps the value of the kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Timeouts {
    /// Timeout of a TCP connection, in seconds.
    pub tcp: u32,
    /// Timeout of a TCP connection after a FIN, in seconds.
    pub tcp_fin: u32,
    /// Timeout of UDP, in seconds.
    pub udp: u32,
}

/// Formats the timeouts as a line for `ipvsadm -R`.
impl fmt::Display for Timeouts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "--set {} {} {}", self.tcp, self.tcp_fin, self.udp)
    }
}

/// IPVS virtual server.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct VirtualServer {
    /// Packets that the virtual server receives.
    pub key: VirtualServerKey,
    /// Name of the scheduler in the kernel: `rr`.
    pub scheduler: String,
    /// Persistence timeout in seconds: a client keeps its real server for this time. Absent without
    /// persistence.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub persistence: Option<u32>,
    /// Flags of the scheduler.
    #[serde(default, skip_serializing_if = "SchedulerFlags::is_none")]
    pub flags: SchedulerFlags,
    /// Real servers in order of addition.
    pub servers: Vec<RealServer>,
}

/// Flags of the hashing schedulers `sh` and `mh`.
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
#[serde(rename_all = "camelCase")]
pub struct SchedulerFlags {
    /// Whether another real server is used if the selected one accepts no connections.
    pub fallback: bool,
    /// Whether the hash includes the source port.
    pub hash_port: bool,
}

impl SchedulerFlags {
    /// Whether no flag is set.
    #[must_use]
    pub const fn is_none(&self) -> bool {
        !self.fallback && !self.hash_port
    }
}

/// Real server of a virtual server.
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
#[serde(rename_all = "camelCase")]
pub struct RealServer {
    /// Address and port of the real server.
    pub address: SocketAddr,
    /// Weight. A real server of weight 0 gets no new connections.
    pub weight: u32,
    /// Forwarding method to the real server.
    #[serde(default)]
    pub method: Forwarding,
}

/// Forwarding method of IPVS.
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
    /// Masquerading (`-m`): IPVS rewrites the destination.
    #[default]
    Masquerade,
    /// Direct routing (`-g`): IPVS does not change the packet.
    Route,
    /// Tunnelling (`-i`): IPVS encapsulates the packet.
    Tunnel,
}

impl fmt::Display for VirtualServerKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Address {
                protocol,
                address,
                port,
            } => {
                let option = match protocol {
                    Protocol::Tcp => "-t",
                    Protocol::Udp => "-u",
                    Protocol::Sctp => "--sctp-service",
                };
                write!(f, "{option} {}", SocketAddr::new(*address, *port))
            }
            Self::FwMark { mark, is_v6: false } => write!(f, "-f {mark}"),
            Self::FwMark { mark, is_v6: true } => write!(f, "-f {mark} -6"),
        }
    }
}

/// Formats the virtual server as lines that `ipvsadm -Sn` prints and `ipvsadm -R` reads.
///
/// ipvsadm from 1.30 on adds `--tun-type ipip` to real servers with tunnelling. Older versions do
/// not accept that option.
impl fmt::Display for VirtualServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "-A {} -s {}", self.key, self.scheduler)?;
        if let Some(seconds) = self.persistence {
            write!(f, " -p {seconds}")?;
        }
        let flags = [
            (self.flags.fallback, "fallback"),
            (self.flags.hash_port, "port"),
        ];
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
            let forwarding = match server.method {
                Forwarding::Masquerade => "-m",
                Forwarding::Route => "-g",
                Forwarding::Tunnel => "-i",
            };
            // A mark has no port. Its real servers keep the port of the packet.
            writeln!(
                f,
                "-a {} -r {} {forwarding} -w {}",
                self.key, server.address, server.weight
            )?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn virtual_server_display_matches_ipvsadm_output() {
        let server = VirtualServer {
            key: VirtualServerKey::Address {
                protocol: Protocol::Tcp,
                address: "10.20.0.1".parse().unwrap(),
                port: 443,
            },
            scheduler: "rr".to_owned(),
            persistence: Some(10800),
            flags: SchedulerFlags::default(),
            servers: vec![RealServer {
                address: "10.19.9.120:6443".parse().unwrap(),
                weight: 1,
                method: Forwarding::Masquerade,
            }],
        };
        assert_eq!(
            server.to_string(),
            "-A -t 10.20.0.1:443 -s rr -p 10800\n-a -t 10.20.0.1:443 -r 10.19.9.120:6443 -m -w 1\n"
        );
    }
}
