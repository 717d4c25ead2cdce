//! The input of one `ipset restore`: `create` lines and `add` lines, and how
//! those of several components become one.

pub mod saved;

use std::fmt;

use indexmap::{IndexMap, IndexSet};
use serde::{Deserialize, Serialize};

/// The longest name the kernel takes, `IPSET_MAXNAMELEN` less the final nought
/// (`include/uapi/linux/netfilter/ipset/ip_set.h`, v6.12).
pub const MAX_NAME: usize = 31;

/// A kind of set, by what one entry is made of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum SetType {
    /// Addresses.
    HashIp,
    /// Networks.
    HashNet,
    /// Address, protocol and port: `10.0.0.1,tcp:80`.
    HashIpPort,
    /// Address, protocol and port, address: `10.0.0.1,tcp:80,10.0.0.2`.
    HashIpPortIp,
    /// Address, protocol and port, network: `10.0.0.1,tcp:80,10.1.0.0/16`.
    HashIpPortNet,
    /// Ports from the first to the last, both included.
    BitmapPort(u16, u16),
}

impl fmt::Display for SetType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::HashIp => f.write_str("hash:ip"),
            Self::HashNet => f.write_str("hash:net"),
            Self::HashIpPort => f.write_str("hash:ip,port"),
            Self::HashIpPortIp => f.write_str("hash:ip,port,ip"),
            Self::HashIpPortNet => f.write_str("hash:ip,port,net"),
            Self::BitmapPort(first, last) => write!(f, "bitmap:port range {first}-{last}"),
        }
    }
}

/// Which addresses a set holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Family {
    /// IPv4.
    Inet,
    /// IPv6.
    Inet6,
}

impl fmt::Display for Family {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Inet => "inet",
            Self::Inet6 => "inet6",
        })
    }
}

/// One set and what is in it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Set {
    kind: SetType,
    family: Option<Family>,
    hashsize: Option<u32>,
    maxelem: Option<u32>,
    comment: bool,
    entries: IndexSet<String>,
}

impl Set {
    /// An empty set of addresses of `family`. A bitmap of ports has no family
    /// and drops it.
    #[must_use]
    pub fn new(kind: SetType, family: Family) -> Self {
        let family = match kind {
            SetType::BitmapPort(..) => None,
            _ => Some(family),
        };
        Self {
            kind,
            family,
            hashsize: None,
            maxelem: None,
            comment: false,
            entries: IndexSet::new(),
        }
    }

    /// Sets the initial size of the hash, in buckets; without it the kernel's
    /// default, 1024, holds.
    #[must_use]
    pub fn hashsize(mut self, buckets: u32) -> Self {
        self.hashsize = Some(buckets);
        self
    }

    /// Sets how many entries the set may hold; without it the kernel's default,
    /// 65536, holds.
    #[must_use]
    pub fn maxelem(mut self, entries: u32) -> Self {
        self.maxelem = Some(entries);
        self
    }

    /// Lets entries carry a comment.
    #[must_use]
    pub fn comment(mut self) -> Self {
        self.comment = true;
        self
    }

    /// Adds an entry, as `ipset add` reads it after the set's name. An entry
    /// that is there already stays as it is: `ipset restore` refuses a second
    /// `add` of the same.
    pub fn add(&mut self, entry: impl Into<String>) {
        self.entries.insert(entry.into());
    }

    /// The entries, in the order they were added.
    pub fn entries(&self) -> impl Iterator<Item = &str> {
        self.entries.iter().map(String::as_str)
    }

    /// What kind of set it is.
    #[must_use]
    pub fn kind(&self) -> SetType {
        self.kind
    }

    /// Whether both can be one set: everything but the entries is the same.
    fn is_like(&self, other: &Self) -> bool {
        self.kind == other.kind
            && self.family == other.family
            && self.hashsize == other.hashsize
            && self.maxelem == other.maxelem
            && self.comment == other.comment
    }
}

/// Why two sets cannot stand together on a node.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum IpsetError {
    /// The kernel would refuse the name.
    #[error("set name `{0}`: at most {MAX_NAME} bytes, without white space, and not empty")]
    Name(String),
    /// Two components want one name for different sets.
    #[error("set `{name}` is wanted as {wanted} and is already {standing}")]
    Conflict {
        /// The set's name.
        name: String,
        /// What stands under the name.
        standing: SetType,
        /// What was to stand under it.
        wanted: SetType,
    },
}

/// What one or several components hand to `ipset restore`: every `create`
/// first, then every `add`, in the order the sets were first named.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct IpsetScript {
    sets: IndexMap<String, Set>,
}

impl IpsetScript {
    /// A script that makes no set.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Puts a set under a name. The same set again brings its entries along.
    ///
    /// # Errors
    ///
    /// A name the kernel refuses, or one that stands for another kind of set.
    pub fn put(&mut self, name: impl Into<String>, set: Set) -> Result<(), IpsetError> {
        let name = name.into();
        if name.is_empty() || name.len() > MAX_NAME || name.contains(char::is_whitespace) {
            return Err(IpsetError::Name(name));
        }
        match self.sets.get_mut(&name) {
            None => {
                self.sets.insert(name, set);
            }
            Some(standing) if standing.is_like(&set) => standing.entries.extend(set.entries),
            Some(standing) => {
                return Err(IpsetError::Conflict {
                    name,
                    standing: standing.kind,
                    wanted: set.kind,
                });
            }
        }
        Ok(())
    }

    /// Adds what a component that started later makes.
    ///
    /// # Errors
    ///
    /// A set that already stands as another kind; what came before it is added.
    pub fn append(&mut self, later: Self) -> Result<(), IpsetError> {
        later
            .sets
            .into_iter()
            .try_for_each(|(name, set)| self.put(name, set))
    }

    /// The set of that name.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&Set> {
        self.sets.get(name)
    }

    /// The sets by name, in the order they were first named.
    pub fn sets(&self) -> impl Iterator<Item = (&str, &Set)> {
        self.sets.iter().map(|(name, set)| (name.as_str(), set))
    }

    /// Whether there is nothing to make.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.sets.is_empty()
    }
}

impl fmt::Display for IpsetScript {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (name, set) in &self.sets {
            write!(f, "create {name} {}", set.kind)?;
            if let Some(family) = set.family {
                write!(f, " family {family}")?;
            }
            if let Some(buckets) = set.hashsize {
                write!(f, " hashsize {buckets}")?;
            }
            if let Some(entries) = set.maxelem {
                write!(f, " maxelem {entries}")?;
            }
            if set.comment {
                f.write_str(" comment")?;
            }
            writeln!(f)?;
        }
        for (name, set) in &self.sets {
            for entry in &set.entries {
                writeln!(f, "add {name} {entry}")?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn writes_creates_before_adds() {
        let mut addresses = Set::new(SetType::HashIpPort, Family::Inet)
            .hashsize(1024)
            .maxelem(65536);
        addresses.add("10.0.0.1,tcp:80");
        addresses.add("10.0.0.1,tcp:80");
        let mut ports = Set::new(SetType::BitmapPort(0, 65535), Family::Inet);
        ports.add("30080");
        let mut script = IpsetScript::new();
        script.put("A", addresses).expect("A");
        script.put("B", ports).expect("B");
        assert_eq!(
            script.to_string(),
            "create A hash:ip,port family inet hashsize 1024 maxelem 65536\n\
             create B bitmap:port range 0-65535\n\
             add A 10.0.0.1,tcp:80\n\
             add B 30080\n"
        );
    }

    #[test]
    fn appending_joins_equal_sets_and_refuses_others() {
        let one = |kind, entry: &str| {
            let mut set = Set::new(kind, Family::Inet);
            set.add(entry);
            let mut script = IpsetScript::new();
            script.put("S", set).expect("a fresh name");
            script
        };
        let mut script = one(SetType::HashNet, "10.0.0.0/8");
        script
            .append(one(SetType::HashNet, "172.16.0.0/12"))
            .expect("the same kind");
        assert_eq!(
            script.get("S").map(|set| set.entries().collect::<Vec<_>>()),
            Some(vec!["10.0.0.0/8", "172.16.0.0/12"])
        );
        assert!(matches!(
            script.append(one(SetType::HashIp, "10.0.0.1")),
            Err(IpsetError::Conflict { .. })
        ));
    }

    #[test]
    fn refuses_names_the_kernel_refuses() {
        let set = || Set::new(SetType::HashIp, Family::Inet);
        let mut script = IpsetScript::new();
        assert!(script.put("x".repeat(MAX_NAME), set()).is_ok());
        for name in [String::new(), "x".repeat(MAX_NAME + 1), "a b".to_owned()] {
            assert!(matches!(script.put(name, set()), Err(IpsetError::Name(_))));
        }
    }
}
