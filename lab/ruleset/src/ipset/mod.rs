//! Builds the input of `ipset restore`: `create` lines and `add` lines. Merges the sets of several
//! components.

pub mod listed;
pub mod saved;

use std::fmt;

use indexmap::{IndexMap, IndexSet};
use serde::{Deserialize, Serialize};

use crate::Family;
use crate::input::ProgramInput as _;
use crate::text::Text;
use crate::text::attributes::{Attribute, Attributes};
use saved::{EntryOptions, SavedSet, Sets};

/// Maximum length of a set name in bytes: `IPSET_MAXNAMELEN` without the final NUL
/// (`include/uapi/linux/netfilter/ipset/ip_set.h`, v6.12).
pub const MAX_NAME_LENGTH: usize = 31;

/// Type of a set, which defines the form of its entries.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum SetType {
    /// `hash:ip`: addresses.
    HashIp,
    /// `hash:net`: networks.
    HashNet,
    /// `hash:ip,port`: address, protocol and port (`10.0.0.1,tcp:80`).
    HashIpPort,
    /// `hash:ip,port,ip`: address, protocol and port, address (`10.0.0.1,tcp:80,10.0.0.2`).
    HashIpPortIp,
    /// `hash:ip,port,net`: address, protocol and port, network (`10.0.0.1,tcp:80,10.1.0.0/16`).
    HashIpPortNet,
    /// `bitmap:port`: ports from the first to the last, inclusive.
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

/// Set with its entries.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Set {
    kind: SetType,
    family: Option<Family>,
    hashsize: Option<u32>,
    maxelem: Option<u32>,
    comment: bool,
    entries: IndexSet<String>,
}

impl Set {
    /// Creates an empty set for addresses of `family`. `bitmap:port` has no family and ignores it.
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

    /// Sets the initial size of the hash, in buckets. The default of the kernel is 1024.
    #[must_use]
    pub fn with_hashsize(mut self, buckets: u32) -> Self {
        self.hashsize = Some(buckets);
        self
    }

    /// Sets the maximum number of entries. The default of the kernel is 65536.
    #[must_use]
    pub fn with_maxelem(mut self, entries: u32) -> Self {
        self.maxelem = Some(entries);
        self
    }

    /// Enables comments for the entries.
    #[must_use]
    pub fn with_comments(mut self) -> Self {
        self.comment = true;
        self
    }

    /// Adds an entry without options: `10.0.0.1,tcp:80`. A duplicate entry has no
    /// effect, because `ipset restore` rejects a second `add` of the same entry.
    pub fn add(&mut self, entry: impl Into<String>) {
        self.entries.insert(entry.into());
    }

    /// Returns the entries in order of addition.
    pub fn entries(&self) -> impl Iterator<Item = &str> {
        self.entries.iter().map(String::as_str)
    }

    /// Returns the type of the set.
    #[must_use]
    pub fn kind(&self) -> SetType {
        self.kind
    }

    /// Returns the set as `ipset save` prints it.
    fn saved(&self) -> SavedSet {
        let kind = self.kind.to_string();
        let (kind, range) = match kind.split_once(" range ") {
            Some((kind, range)) => (kind, Some(range)),
            None => (kind.as_str(), None),
        };
        let attribute = |name: &str, value: Option<String>| Attribute {
            name: Text::new(name),
            value: value.map(Text::new),
        };
        let values = [
            ("range", range.map(str::to_owned)),
            ("family", self.family.map(|family| family.inet().to_owned())),
            ("hashsize", self.hashsize.map(|buckets| buckets.to_string())),
            ("maxelem", self.maxelem.map(|entries| entries.to_string())),
        ];
        let values = values.into_iter().filter(|(_, value)| value.is_some());
        let mut options: Vec<Attribute> =
            values.map(|(name, value)| attribute(name, value)).collect();
        if self.comment {
            options.push(attribute("comment", None));
        }
        let no_options = || EntryOptions {
            options: Attributes::default(),
            line: 0,
        };
        SavedSet {
            kind: Text::new(kind),
            options: Attributes(options),
            entries: self
                .entries
                .iter()
                .map(|entry| (entry.clone(), no_options()))
                .collect(),
            line: 0,
        }
    }

    /// Whether both sets are equal apart from their entries, so that they can be merged.
    fn is_compatible(&self, other: &Self) -> bool {
        self.kind == other.kind
            && self.family == other.family
            && self.hashsize == other.hashsize
            && self.maxelem == other.maxelem
            && self.comment == other.comment
    }
}

/// Error for sets that a node cannot have.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum IpsetError {
    /// The kernel would reject the name.
    #[error("set name `{0}` is not 1 to {MAX_NAME_LENGTH} bytes without whitespace")]
    InvalidName(String),
    /// Two components use one name for different sets.
    #[error("cannot add set `{name}` ({requested}): a different set ({existing}) has this name")]
    Conflict {
        /// Name of the set.
        name: String,
        /// Type and options of the existing set.
        existing: String,
        /// Type and options of the set to add.
        requested: String,
    },
}

/// Input of `ipset restore` from one or more components. All `create` lines precede all `add`
/// lines. Sets are in the order of first use.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct IpsetScript {
    sets: IndexMap<String, Set>,
}

impl IpsetScript {
    /// Creates a script without sets.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a set. If an equal set has the name, the entries are merged.
    ///
    /// # Errors
    ///
    /// Returns an error if the kernel would reject the name, or if a different set has the name.
    pub fn add_set(&mut self, name: impl Into<String>, set: Set) -> Result<(), IpsetError> {
        let name = name.into();
        if name.is_empty() || name.len() > MAX_NAME_LENGTH || name.contains(char::is_whitespace) {
            return Err(IpsetError::InvalidName(name));
        }
        match self.sets.get_mut(&name) {
            None => {
                self.sets.insert(name, set);
            }
            Some(existing) if existing.is_compatible(&set) => existing.entries.extend(set.entries),
            Some(existing) => {
                return Err(IpsetError::Conflict {
                    name,
                    existing: existing.saved().creation(),
                    requested: set.saved().creation(),
                });
            }
        }
        Ok(())
    }

    /// Adds the sets of a component that starts later.
    ///
    /// # Errors
    ///
    /// Returns an error if a different set has the name of a set. The sets before that set are
    /// added.
    pub fn append(&mut self, later: Self) -> Result<(), IpsetError> {
        later
            .sets
            .into_iter()
            .try_for_each(|(name, set)| self.add_set(name, set))
    }

    /// Returns the set with a name. `None` if there is none.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&Set> {
        self.sets.get(name)
    }

    /// Returns the sets with their names, in the order of first use.
    pub fn sets(&self) -> impl Iterator<Item = (&str, &Set)> {
        self.sets.iter().map(|(name, set)| (name.as_str(), set))
    }

    /// Returns the sets as `ipset save` prints them.
    #[must_use]
    pub fn saved(&self) -> Sets {
        let sets = self.sets.iter();
        sets.map(|(name, set)| (name.clone(), set.saved()))
            .collect()
    }

    /// Whether the script creates no set.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.sets.is_empty()
    }
}

impl fmt::Display for IpsetScript {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.saved().render())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ipset_script_display_writes_creates_before_adds() {
        let mut addresses = Set::new(SetType::HashIpPort, Family::V4)
            .with_hashsize(1024)
            .with_maxelem(65536);
        addresses.add("10.0.0.1,tcp:80");
        addresses.add("10.0.0.1,tcp:80");
        let mut ports = Set::new(SetType::BitmapPort(0, 65535), Family::V4);
        ports.add("30080");
        let mut script = IpsetScript::new();
        script.add_set("A", addresses).expect("valid set");
        script.add_set("B", ports).expect("valid set");
        assert_eq!(
            script.to_string(),
            "create A hash:ip,port family inet hashsize 1024 maxelem 65536\n\
             create B bitmap:port range 0-65535\n\
             add A 10.0.0.1,tcp:80\n\
             add B 30080\n"
        );
    }

    #[test]
    fn ipset_script_append_merges_equal_sets_only() {
        let single_set = |kind, entry: &str| {
            let mut set = Set::new(kind, Family::V4);
            set.add(entry);
            let mut script = IpsetScript::new();
            script.add_set("S", set).expect("valid set");
            script
        };
        let mut script = single_set(SetType::HashNet, "10.0.0.0/8");
        script
            .append(single_set(SetType::HashNet, "172.16.0.0/12"))
            .expect("equal set types");
        assert_eq!(
            script.get("S").map(|set| set.entries().collect::<Vec<_>>()),
            Some(vec!["10.0.0.0/8", "172.16.0.0/12"])
        );
        let small = Set::new(SetType::HashNet, Family::V4).with_maxelem(8);
        let mut other_size = IpsetScript::new();
        other_size.add_set("S", small).expect("valid set");
        let errors = [single_set(SetType::HashIp, "10.0.0.1"), other_size]
            .map(|other| script.append(other).unwrap_err().to_string());
        insta::assert_snapshot!(errors.join("\n"), @r"
        cannot add set `S` (hash:ip family inet): a different set (hash:net family inet) has this name
        cannot add set `S` (hash:net family inet maxelem 8): a different set (hash:net family inet) has this name
        ");
    }

    #[test]
    fn ipset_script_invalid_name_returns_error() {
        let set = || Set::new(SetType::HashIp, Family::V4);
        let mut script = IpsetScript::new();
        assert!(script.add_set("x".repeat(MAX_NAME_LENGTH), set()).is_ok());
        for name in [
            String::new(),
            "x".repeat(MAX_NAME_LENGTH + 1),
            "a b".to_owned(),
        ] {
            assert!(matches!(
                script.add_set(name, set()),
                Err(IpsetError::InvalidName(_))
            ));
        }
    }
}
