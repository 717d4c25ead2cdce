//! Selects the UDP conntrack entries that kube-proxy deletes.

use std::fmt;
use std::net::{IpAddr, SocketAddr};

use serde::{Deserialize, Serialize};

use crate::evidence::Connection;

/// IP protocol number of UDP.
const UDP: u8 = 17;

/// Filter for UDP conntrack entries to delete. An entry must match all fields.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Forget {
    /// Whether the filter matches IPv6 entries. Otherwise, it matches IPv4 entries.
    pub v6: bool,
    /// Original destination address of the flow, before DNAT. `None` matches any address.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub destination: Option<IpAddr>,
    /// Original destination port of the flow, before DNAT. `None` matches any port.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub port: Option<u16>,
    /// Required source of the replies.
    #[serde(default, skip_serializing_if = "AnsweredBy::is_anyone")]
    pub by: AnsweredBy,
}

/// Condition on the source address of a flow's replies.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum AnsweredBy {
    /// Any reply source matches.
    #[default]
    Anyone,
    /// The flow was rewritten to this address.
    One(IpAddr),
    /// The reply source is none of these addresses.
    NoneOf(Vec<IpAddr>),
    /// The reply source is none of these addresses with ports.
    NoPortOf(Vec<SocketAddr>),
}

impl AnsweredBy {
    fn is_anyone(&self) -> bool {
        *self == Self::Anyone
    }
}

impl Forget {
    /// Whether the filter matches a conntrack entry.
    #[must_use]
    pub fn takes(&self, entry: &Connection) -> bool {
        let (to, from) = (entry.original.destination, entry.reply.source);
        entry.protocol == UDP
            && to.is_ipv6() == self.v6
            && self.destination.is_none_or(|wanted| wanted == to.ip())
            && self.port.is_none_or(|wanted| wanted == to.port())
            && match &self.by {
                AnsweredBy::Anyone => true,
                AnsweredBy::One(one) => from.ip() == *one && from.ip() != to.ip(),
                AnsweredBy::NoneOf(some) => !some.contains(&from.ip()),
                AnsweredBy::NoPortOf(some) => !some.contains(&from),
            }
    }
}

/// Formats the filter as `conntrack -D` arguments, with a remark for conditions that `conntrack`
/// cannot express.
impl fmt::Display for Forget {
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
        let listed = |all: Vec<String>| all.join(", ");
        match &self.by {
            AnsweredBy::Anyone => Ok(()),
            AnsweredBy::One(one) => write!(f, " --dst-nat {one}"),
            AnsweredBy::NoneOf(some) => write!(
                f,
                ", unless answered by {}",
                listed(some.iter().map(ToString::to_string).collect())
            ),
            AnsweredBy::NoPortOf(some) => write!(
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
    use crate::evidence::Flow;

    fn entry(protocol: u8, to: &str, answered_by: &str) -> Connection {
        let client: SocketAddr = "10.244.1.5:4000".parse().unwrap();
        Connection {
            namespace: "node-1".to_owned(),
            protocol,
            original: Flow {
                source: client,
                destination: to.parse().unwrap(),
            },
            reply: Flow {
                source: answered_by.parse().unwrap(),
                destination: client,
            },
            mark: 0,
            status: 0,
            state: None,
            expires: None,
        }
    }

    fn forget(by: AnsweredBy) -> Forget {
        Forget {
            v6: false,
            destination: Some("10.96.0.10".parse().unwrap()),
            port: None,
            by,
        }
    }

    #[test]
    fn only_flows_of_udp_to_that_address_are_forgotten() {
        let all = forget(AnsweredBy::Anyone);
        let to = "10.96.0.10:53";
        assert!(all.takes(&entry(17, to, "10.244.2.7:53")));
        assert!(!all.takes(&entry(6, to, "10.244.2.7:53")));
        assert!(!all.takes(&entry(17, "10.96.0.11:53", "10.244.2.7:53")));
        let of_a_port = Forget {
            port: Some(54),
            ..all
        };
        assert!(!of_a_port.takes(&entry(17, to, "10.244.2.7:53")));
    }

    #[test]
    fn who_answers_decides() {
        let to = "10.96.0.10:53";
        let (old, new) = (
            entry(17, to, "10.244.2.7:53"),
            entry(17, to, "10.244.2.8:53"),
        );
        let one = forget(AnsweredBy::One("10.244.2.7".parse().unwrap()));
        assert!(one.takes(&old) && !one.takes(&new));
        // `--dst-nat` does not match a flow without DNAT.
        let own = forget(AnsweredBy::One("10.96.0.10".parse().unwrap()));
        assert!(!own.takes(&entry(17, to, to)));
        let others = forget(AnsweredBy::NoneOf(vec!["10.244.2.8".parse().unwrap()]));
        assert!(others.takes(&old) && !others.takes(&new));
        let ports = forget(AnsweredBy::NoPortOf(vec!["10.244.2.8:54".parse().unwrap()]));
        assert!(ports.takes(&new));
    }

    #[test]
    fn it_is_told_as_a_command() {
        let told = forget(AnsweredBy::One("10.244.2.7".parse().unwrap())).to_string();
        assert_eq!(
            told,
            "conntrack -D -p udp --orig-dst 10.96.0.10 --dst-nat 10.244.2.7"
        );
        let told = Forget {
            v6: true,
            destination: None,
            port: Some(30053),
            by: AnsweredBy::NoPortOf(vec!["[fd00::8]:53".parse().unwrap()]),
        };
        assert_eq!(
            told.to_string(),
            "conntrack -D -p udp -f ipv6 --orig-port-dst 30053, unless answered by [fd00::8]:53"
        );
    }
}
