//! Bytes in JSON: as base64.

use data_encoding::BASE64;
use serde::{Deserialize, Deserializer, Serializer};

/// Writes bytes as text.
///
/// # Errors
///
/// Those of the serializer.
pub fn serialize<S: Serializer>(bytes: &[u8], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(&BASE64.encode(bytes))
}

/// Reads bytes from text.
///
/// # Errors
///
/// When there is something else than base64.
pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<u8>, D::Error> {
    let text = String::deserialize(deserializer)?;
    BASE64
        .decode(text.as_bytes())
        .map_err(serde::de::Error::custom)
}

/// The same where there may be none.
pub mod maybe {
    use super::{BASE64, Deserialize, Deserializer, Serializer};

    /// Writes bytes as text, or nothing.
    ///
    /// # Errors
    ///
    /// Those of the serializer.
    pub fn serialize<S: Serializer>(
        bytes: &Option<Vec<u8>>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        match bytes {
            Some(bytes) => serializer.serialize_some(&BASE64.encode(bytes)),
            None => serializer.serialize_none(),
        }
    }

    /// Reads bytes from text, if there is any.
    ///
    /// # Errors
    ///
    /// When there is something else than base64.
    pub fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Option<Vec<u8>>, D::Error> {
        Option::<String>::deserialize(deserializer)?
            .map(|text| BASE64.decode(text.as_bytes()))
            .transpose()
            .map_err(serde::de::Error::custom)
    }
}
