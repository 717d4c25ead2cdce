//! Compresses files of a report.

use std::io::{self, Read as _, Write};

use flate2::Compression;
use flate2::read::GzDecoder;
use flate2::write::GzEncoder;

/// Returns what `write` writes, compressed.
///
/// # Errors
///
/// Returns the error of `write`.
pub(crate) fn compressed(
    write: impl FnOnce(&mut dyn Write) -> io::Result<()>,
) -> io::Result<Vec<u8>> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
    write(&mut encoder)?;
    encoder.finish()
}

/// Returns at most `limit` bytes of a compressed file.
///
/// # Errors
///
/// Returns an error if the file is not compressed, or damaged.
pub(crate) fn decompressed(file: &[u8], limit: usize) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let limit = u64::try_from(limit).unwrap_or(u64::MAX);
    GzDecoder::new(file).take(limit).read_to_end(&mut bytes)?;
    Ok(bytes)
}
