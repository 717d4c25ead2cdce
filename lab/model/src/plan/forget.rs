//! Selects the UDP conntrack entries that kube-proxy deletes.

use std::fmt;
use std::net::{IpAddr, SocketAddr};

use serde::{Deserialize, Serialize};

use crate::evidence::ConntrackEntry;

/// IP protocol number of UDP.
const UDP: u8 = 17;

/// Filter for UDP conntrack entries to delete. An entry must match all fields.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ConntrackFilter {
    /// Whether the filter matches IPv6 entries. Otherwise, it matches IPv4 entries.
    pub v6: bool,
    /// Original destination address of the flow, before DNAT. `None` matches any address.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub destination: Option<IpAddr>,
    /// Original destination port of the flow, before DNAT. `None` matches any port.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub port: Option<u16>,
    /// Required source of the replies.
    #[serde(default, skip_serializing_if = "ReplySource::is_anyone")]
    pub reply_source: ReplySource,
}

/// Condition on the source address of a flow's replies.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum ReplySource {
    /// Any reply source matches.
    #[default]
    Any,
    /// The flow was rewritten to this address.
    Address(IpAddr),
    /// The reply source is none of these addresses.
    NotAddresses(Vec<IpAddr>),
    /// The reply source is none of these addresses with ports.
    NotSockets(Vec<SocketAddr>),
}

impl ReplySource {
    fn is_anyone(&self) -> bool {
        *self == Self::Any
    }
}

impl ConntrackFilter {
    /// Whether the filter matches a conntrack entry.
    #[must_use]
    pub fn matches(&self, entry: &ConntrackEntry) -> bool {
        let (to, from) = (entry.original.destination, entry.reply.source);
        entry.protocol == UDP
            && to.is_ipv6() == self.v6
            && self.destination.is_none_or(|wanted| wanted == to.ip())
            && self.port.is_none_or(|wanted| wanted == to.port())
            && match &self.reply_source {
                ReplySource::Any => true,
                ReplySource::Address(address) => from.ip() == *address && from.ip() != to.ip(),
                ReplySource::NotAddresses(addresses) => !addresses.contains(&from.ip()),
                ReplySource::NotSockets(sockets) => !sockets.contains(&from),
            }
    }
}

/// Formats the filter as `conntrack -D` arguments, with a remark for conditions that `conntrack`
/// cannot express.
impl fmt::Display for ConntrackFilter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("conntrack -D -p udp")?;
        if self.v6 {
            f.write_str(" -f ipv6")?;
        }
        if let Some(destination) = self.destination {
            write!(f, " --orig-dst {destination}")?;
        }
        if let Some(port) = self.port {
            write!(f, " --orig-port-dst {port}")?;
        }
        let listed = |items: Vec<String>| items.join(", ");
        match &self.reply_source {
            ReplySource::Any => Ok(()),
            ReplySource::Address(one) => write!(f, " --dst-nat {one}"),
            ReplySource::NotAddresses(some) => write!(
                f,
                ", unless answered by {}",
                listed(some.iter().map(ToString::to_string).collect())
            ),
            ReplySource::NotSockets(some) => write!(
                f,
                ", unless answered by {}",
                listed(some.iter().map(ToString::to_string).collect())
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::evidence::AddressPair;

    fn entry(protocol: u8, to: &str, answered_by: &str) -> ConntrackEntry {
        let client: SocketAddr = "10.244.1.5:4000".parse().unwrap();
        ConntrackEntry {
            namespace: "node-1".to_owned(),
            protocol,
            original: AddressPair {
                source: client,
                destination: to.parse().unwrap(),
            },
            reply: AddressPair {
                source: answered_by.parse().unwrap(),
                destination: client,
            },
            mark: 0,
            status: 0,
            state: None,
            expires: None,
        }
    }

    fn filter(by: ReplySource) -> ConntrackFilter {
        ConntrackFilter {
            v6: false,
            destination: Some("10.96.0.10".parse().unwrap()),
            port: None,
            reply_source: by,
        }
    }

    #[test]
    fn filter_by_destination_matches_only_udp_flows_to_it() {
        let any_reply = filter(ReplySource::Any);
        let to = "10.96.0.10:53";
        assert!(any_reply.matches(&entry(17, to, "10.244.2.7:53")));
        assert!(!any_reply.matches(&entry(6, to, "10.244.2.7:53")));
        assert!(!any_reply.matches(&entry(17, "10.96.0.11:53", "10.244.2.7:53")));
        let other_port = ConntrackFilter {
            port: Some(54),
            ..any_reply
        };
        assert!(!other_port.matches(&entry(17, to, "10.244.2.7:53")));
    }

    #[test]
    fn filter_by_reply_source_matches_only_that_source() {
        let to = "10.96.0.10:53";
        let (old, new) = (
            entry(17, to, "10.244.2.7:53"),
            entry(17, to, "10.244.2.8:53"),
        );
        let rewritten_to = filter(ReplySource::Address("10.244.2.7".parse().unwrap()));
        assert!(rewritten_to.matches(&old) && !rewritten_to.matches(&new));
        // `--dst-nat` does not match a flow without DNAT.
        let without_dnat = filter(ReplySource::Address("10.96.0.10".parse().unwrap()));
        assert!(!without_dnat.matches(&entry(17, to, to)));
        let not_address = filter(ReplySource::NotAddresses(vec![
            "10.244.2.8".parse().unwrap(),
        ]));
        assert!(not_address.matches(&old) && !not_address.matches(&new));
        let not_socket = filter(ReplySource::NotSockets(vec![
            "10.244.2.8:54".parse().unwrap(),
        ]));
        assert!(not_socket.matches(&new));
    }

    #[test]
    fn filter_display_renders_conntrack_command() {
        let command = filter(ReplySource::Address("10.244.2.7".parse().unwrap())).to_string();
        assert_eq!(
            command,
            "conntrack -D -p udp --orig-dst 10.96.0.10 --dst-nat 10.244.2.7"
        );
        let filter = ConntrackFilter {
            v6: true,
            destination: None,
            port: Some(30053),
            reply_source: ReplySource::NotSockets(vec!["[fd00::8]:53".parse().unwrap()]),
        };
        assert_eq!(
            filter.to_string(),
            "conntrack -D -p udp -f ipv6 --orig-port-dst 30053, unless answered by [fd00::8]:53"
        );
    }
}
