//! Decodes numbers of bytes.

use std::fmt;
use std::num::NonZeroU32;

use bytesize::ByteSize;
use schemars::{Schema, SchemaGenerator, json_schema};
use serde::de::{self, Deserializer, Visitor};

/// Decodes a number of bytes such as `1400`, `100k` or `64KiB`.
pub(crate) fn bytes<'de, D>(deserializer: D) -> Result<Option<NonZeroU32>, D::Error>
where
    D: Deserializer<'de>,
{
    struct BytesVisitor;

    impl Visitor<'_> for BytesVisitor {
        type Value = NonZeroU32;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("a number of bytes, such as 1400 or 100k")
        }

        fn visit_u64<E: de::Error>(self, bytes: u64) -> Result<NonZeroU32, E> {
            let bytes = u32::try_from(bytes).ok().and_then(NonZeroU32::new);
            bytes
                .ok_or_else(|| E::custom("a number of bytes must be positive, and less than 4 GiB"))
        }

        fn visit_str<E: de::Error>(self, text: &str) -> Result<NonZeroU32, E> {
            let bytes: ByteSize = text.parse().map_err(|_| {
                E::custom(format!(
                    "`{text}` is not a number of bytes; write for example 1400, 100k or 64KiB"
                ))
            })?;
            self.visit_u64(bytes.as_u64())
        }
    }

    deserializer.deserialize_any(BytesVisitor).map(Some)
}

/// Returns the schema of a number of bytes.
pub(crate) fn schema(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": ["integer", "string"],
        "minimum": 1,
    })
}
