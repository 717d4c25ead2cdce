//! Compresses files of a report.

use std::io::{self, BufWriter, IntoInnerError, Read as _, Write};

use flate2::Compression;
use flate2::read::GzDecoder;
use flate2::write::GzEncoder;

/// Size of a write to the encoder, in bytes.
const BUFFER: usize = 64 << 10;

/// Returns what `write` writes, compressed.
///
/// # Errors
///
/// Returns the error of `write`.
pub(crate) fn compressed(
    write: impl FnOnce(&mut dyn Write) -> io::Result<()>,
) -> io::Result<Vec<u8>> {
    let encoder = GzEncoder::new(Vec::new(), Compression::default());
    // The encoder clears 32 KiB of memory for each write, and serializers write single words.
    let mut buffered = BufWriter::with_capacity(BUFFER, encoder);
    write(&mut buffered)?;
    let encoder = buffered.into_inner().map_err(IntoInnerError::into_error)?;
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
