//! Maps by name. A short entry of one takes 30 times as much memory as it has bytes in a
//! message, so a message may have so many of them and no more.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::fmt;
use std::marker::PhantomData;

use serde::de::{Error, MapAccess, Visitor};
use serde::{Deserialize, Deserializer};

thread_local! {
    /// How many entries may still be read; `None` for any number.
    static LEFT: Cell<Option<usize>> = const { Cell::new(None) };
}

/// Reads something whose maps by name have so many entries together at most.
#[cfg(any(test, feature = "framing"))]
pub fn within<T>(entries: usize, read: impl FnOnce() -> T) -> T {
    LEFT.set(Some(entries));
    let read = read();
    LEFT.set(None);
    read
}

/// Reads what there is by a name.
///
/// # Errors
///
/// When it is no map of such values, or has too many entries.
pub fn flat<'de, D: Deserializer<'de>, V: Deserialize<'de>>(
    deserializer: D,
) -> Result<BTreeMap<String, V>, D::Error> {
    Counted::deserialize(deserializer).map(|Counted(map)| map)
}

/// Reads what there is by two names.
///
/// # Errors
///
/// When it is no map of maps of such values, or has too many entries.
pub fn nested<'de, D: Deserializer<'de>, V: Deserialize<'de>>(
    deserializer: D,
) -> Result<BTreeMap<String, BTreeMap<String, V>>, D::Error> {
    let Counted(maps) = Counted::<Counted<V>>::deserialize(deserializer)?;
    let maps = maps.into_iter();
    Ok(maps.map(|(name, Counted(map))| (name, map)).collect())
}

/// A map whose entries count.
struct Counted<V>(BTreeMap<String, V>);

impl<'de, V: Deserialize<'de>> Deserialize<'de> for Counted<V> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(Entries(PhantomData))
    }
}

struct Entries<V>(PhantomData<V>);

impl<'de, V: Deserialize<'de>> Visitor<'de> for Entries<V> {
    type Value = Counted<V>;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a map")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut read = BTreeMap::new();
        while let Some((name, value)) = map.next_entry()? {
            if let Some(left) = LEFT.get() {
                let left = left.checked_sub(1);
                LEFT.set(Some(
                    left.ok_or_else(|| A::Error::custom("too many names"))?,
                ));
            }
            read.insert(name, value);
        }
        Ok(Counted(read))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, Deserialize)]
    struct Read {
        #[serde(deserialize_with = "flat")]
        flat: BTreeMap<String, u64>,
        #[serde(deserialize_with = "nested")]
        nested: BTreeMap<String, BTreeMap<String, i64>>,
    }

    #[test]
    fn maps_with_too_many_entries_are_refused() {
        let text = r#"{"flat":{"a":1},"nested":{"b":{"c":2,"d":3},"e":{}}}"#;
        let read = || serde_json::from_str::<Read>(text);
        for entries in 0..5 {
            let refused = within(entries, read).unwrap_err().to_string();
            assert!(refused.starts_with("too many names"), "{refused}");
        }
        let whole = within(5, read).unwrap();
        assert_eq!(whole.flat["a"], 1);
        assert_eq!(whole.nested["b"]["d"], 3);
        // What is no message of an agent's may have any number.
        assert!(read().is_ok());
    }
}
