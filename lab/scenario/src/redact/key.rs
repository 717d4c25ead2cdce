//! Secret key. The new value of a text depends only on the key and on the text. The function `prf`
//! of `scripts/collect-node` returns the same hashes.

use std::fmt::Write as _;

use sha2::{Digest as _, Sha256};

/// Minimum length of a key in bytes. A shorter key could be guessed from known values.
pub const MIN_KEY_BYTES: usize = 16;

/// Error of a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum KeyError {
    /// The key has fewer than [`MIN_KEY_BYTES`] bytes.
    #[error("shorter than {MIN_KEY_BYTES} bytes")]
    TooShort,
}

/// Secret key that determines all new values.
#[derive(Clone)]
pub struct RedactionKey {
    /// SHA-256 of the bytes of the key, in hexadecimal digits.
    secret: String,
}

impl RedactionKey {
    /// Creates a key from the bytes of its file.
    ///
    /// # Errors
    ///
    /// Returns [`KeyError::TooShort`] for fewer than [`MIN_KEY_BYTES`] bytes.
    pub fn new(bytes: &[u8]) -> Result<Self, KeyError> {
        if bytes.len() < MIN_KEY_BYTES {
            return Err(KeyError::TooShort);
        }
        let secret = hex(&Sha256::digest(bytes));
        Ok(Self { secret })
    }

    /// Returns the hash that determines the new value of a text.
    pub(super) fn hash(&self, text: &str) -> [u8; 32] {
        let mut hasher = Sha256::new();
        hasher.update(self.secret.as_bytes());
        hasher.update(b"\n");
        hasher.update(text.as_bytes());
        hasher.finalize().into()
    }
}

pub(super) fn hex(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len() * 2);
    for byte in bytes {
        let _ = write!(text, "{byte:02x}");
    }
    text
}
