//! Deserializes maps with names as keys, with a limit on the number of entries. A short entry takes
//! 30 times as much memory as it has bytes in a message, so the limit bounds the memory of a
//! message.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::fmt;
use std::marker::PhantomData;

use serde::de::{Error, MapAccess, Visitor};
use serde::{Deserialize, Deserializer};

thread_local! {
    /// Number of further entries that deserialization accepts. `None` is unlimited.
    static REMAINING_ENTRIES: Cell<Option<usize>> = const { Cell::new(None) };
}

/// Runs a deserialization whose maps may have at most `max_entries` entries in total.
#[cfg(any(test, feature = "framing"))]
pub fn with_max_entries<T>(max_entries: usize, deserialize: impl FnOnce() -> T) -> T {
    REMAINING_ENTRIES.set(Some(max_entries));
    let read = deserialize();
    REMAINING_ENTRIES.set(None);
    read
}

/// Deserializes a map by name.
///
/// # Errors
///
/// Returns an error if the value is not such a map or has too many entries.
pub fn flat<'de, D: Deserializer<'de>, V: Deserialize<'de>>(
    deserializer: D,
) -> Result<BTreeMap<String, V>, D::Error> {
    Counted::deserialize(deserializer).map(|Counted(map)| map)
}

/// Deserializes a map of maps, by two names.
///
/// # Errors
///
/// Returns an error if the value is not such a map or has too many entries.
pub fn nested<'de, D: Deserializer<'de>, V: Deserialize<'de>>(
    deserializer: D,
) -> Result<BTreeMap<String, BTreeMap<String, V>>, D::Error> {
    let Counted(maps) = Counted::<Counted<V>>::deserialize(deserializer)?;
    let maps = maps.into_iter();
    Ok(maps.map(|(name, Counted(map))| (name, map)).collect())
}

/// Map whose entries count towards the limit.
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
            if let Some(left) = REMAINING_ENTRIES.get() {
                let left = left.checked_sub(1);
                REMAINING_ENTRIES.set(Some(
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
    #[serde(rename_all = "camelCase")]
    struct TestMaps {
        #[serde(deserialize_with = "flat")]
        flat: BTreeMap<String, u64>,
        #[serde(deserialize_with = "nested")]
        nested: BTreeMap<String, BTreeMap<String, i64>>,
    }

    #[test]
    fn with_max_entries_exceeded_returns_error() {
        let text = r#"{"flat":{"a":1},"nested":{"b":{"c":2,"d":3},"e":{}}}"#;
        let read = || serde_json::from_str::<TestMaps>(text);
        for entries in 0..5 {
            let error = with_max_entries(entries, read).unwrap_err().to_string();
            assert!(error.starts_with("too many names"), "{error}");
        }
        let whole = with_max_entries(5, read).unwrap();
        assert_eq!(whole.flat["a"], 1);
        assert_eq!(whole.nested["b"]["d"], 3);
        // Without `with_max_entries`, the number of entries is unlimited.
        assert!(read().is_ok());
    }
}
