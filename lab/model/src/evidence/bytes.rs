//! Serializes bytes as base64 text.

use data_encoding::BASE64;
use serde::{Deserialize, Deserializer, Serializer};

/// Serializes bytes as base64 text.
///
/// # Errors
///
/// Returns the errors of the serializer.
pub fn serialize<S: Serializer>(bytes: &[u8], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(&BASE64.encode(bytes))
}

/// Deserializes bytes from base64 text.
///
/// # Errors
///
/// Returns an error if the value is not base64 text.
pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<u8>, D::Error> {
    let text = String::deserialize(deserializer)?;
    BASE64
        .decode(text.as_bytes())
        .map_err(serde::de::Error::custom)
}

/// Serializes optional bytes as base64 text or null.
pub mod optional {
    use super::{BASE64, Deserialize, Deserializer, Serializer};

    /// Serializes optional bytes as base64 text or null.
    ///
    /// # Errors
    ///
    /// Returns the errors of the serializer.
    pub fn serialize<S: Serializer>(
        bytes: &Option<Vec<u8>>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        match bytes {
            Some(bytes) => serializer.serialize_some(&BASE64.encode(bytes)),
            None => serializer.serialize_none(),
        }
    }

    /// Deserializes optional bytes from base64 text or null.
    ///
    /// # Errors
    ///
    /// Returns an error if the value is neither base64 text nor null.
    pub fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Option<Vec<u8>>, D::Error> {
        Option::<String>::deserialize(deserializer)?
            .map(|text| BASE64.decode(text.as_bytes()))
            .transpose()
            .map_err(serde::de::Error::custom)
    }
}
