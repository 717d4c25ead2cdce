//! The files in a tarball, compressed by gzip or not, as `scripts/collect-node` writes
//! it.

use std::io::{self, Read};

use flate2::read::GzDecoder;

use super::limits::{MAX_BYTES, MAX_FILES};

/// A file in a tarball.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Packed {
    /// Its path in the tarball.
    pub path: String,
    /// What is in it.
    pub bytes: Vec<u8>,
}

/// Why a tarball cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum TarballError {
    /// It ends before it should.
    #[error("the tarball is cut off: it ends within {0}; collect it again")]
    CutOff(String),
    /// Its headers are no tarball's.
    #[error("this is no tarball: the header at byte {0} has another sum than it says")]
    Not(u64),
    /// More files than a dump has, or larger ones.
    #[error(
        "the tarball holds more than {MAX_FILES} files, or one of more than {} MiB: it is not a dump",
        MAX_BYTES >> 20
    )]
    Large,
    /// Decompression failed, or the system did.
    #[error("the tarball cannot be read: {0}")]
    Io(#[from] io::Error),
}

/// A tarball is made of blocks (POSIX.1-1988, `ustar`).
const BLOCK: usize = 512;

/// Whether a file that begins so is a tarball.
#[must_use]
pub fn is_tarball(begins: &[u8]) -> bool {
    begins.starts_with(b"\x1f\x8b") || begins.get(257..262) == Some(b"ustar")
}

/// The plain files in a tarball, in their order.
///
/// # Errors
///
/// See [`TarballError`].
pub fn files(bytes: &[u8]) -> Result<Vec<Packed>, TarballError> {
    if bytes.starts_with(b"\x1f\x8b") {
        read(GzDecoder::new(bytes))
    } else {
        read(bytes)
    }
}

fn read(mut from: impl Read) -> Result<Vec<Packed>, TarballError> {
    let mut files: Vec<Packed> = Vec::new();
    let mut at = 0;
    let mut last = "its first header".to_owned();
    loop {
        let mut header = [0; BLOCK];
        fill(&mut from, &mut header, &last)?;
        if header.iter().all(|byte| *byte == 0) {
            return Ok(files);
        }
        if Some(sum(&header)) != number(&header[148..156]) {
            return Err(TarballError::Not(at));
        }
        let size = number(&header[124..136]).ok_or(TarballError::Not(at))?;
        let size = usize::try_from(size).ok().filter(|size| *size <= MAX_BYTES);
        let size = size.ok_or(TarballError::Large)?;
        let path = path(&header);
        last.clone_from(&path);
        let padded = size.next_multiple_of(BLOCK);
        let mut bytes = vec![0; padded];
        fill(&mut from, &mut bytes, &last)?;
        bytes.truncate(size);
        at += u64::try_from(BLOCK + padded).unwrap_or(u64::MAX);
        if matches!(header[156], b'0' | 0) {
            if files.len() == MAX_FILES {
                return Err(TarballError::Large);
            }
            files.push(Packed { path, bytes });
        }
    }
}

fn fill(from: &mut impl Read, into: &mut [u8], last: &str) -> Result<(), TarballError> {
    from.read_exact(into).map_err(|error| match error.kind() {
        io::ErrorKind::UnexpectedEof => TarballError::CutOff(last.to_owned()),
        _ => TarballError::Io(error),
    })
}

fn path(header: &[u8; BLOCK]) -> String {
    let text = |bytes: &[u8]| {
        let end = bytes.iter().position(|byte| *byte == 0);
        String::from_utf8_lossy(&bytes[..end.unwrap_or(bytes.len())]).into_owned()
    };
    let (name, prefix) = (text(&header[..100]), text(&header[345..500]));
    if prefix.is_empty() || &header[257..263] != b"ustar\0" {
        name
    } else {
        format!("{prefix}/{name}")
    }
}

/// An octal number.
fn number(bytes: &[u8]) -> Option<u64> {
    let text = std::str::from_utf8(bytes).ok()?;
    u64::from_str_radix(text.trim_matches(['\0', ' ']), 8).ok()
}

/// The sum of a header, its own field being blank.
fn sum(header: &[u8; BLOCK]) -> u64 {
    let bytes = header.iter().enumerate().map(|(at, byte)| {
        if (148..156).contains(&at) {
            u64::from(b' ')
        } else {
            u64::from(*byte)
        }
    });
    bytes.sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tarball() -> Vec<u8> {
        let mut header = [0; BLOCK];
        header[..12].copy_from_slice(b"node-1/nft\0\0");
        header[124..136].copy_from_slice(b"00000000003\0");
        header[257..263].copy_from_slice(b"ustar\0");
        header[156] = b'0';
        let sum = sum(&header);
        header[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
        let mut all = header.to_vec();
        all.extend_from_slice(b"abc");
        all.resize(BLOCK * 4, 0);
        all
    }

    #[test]
    fn files_are_read() {
        let files = files(&tarball()).unwrap();
        let file = Packed {
            path: "node-1/nft".to_owned(),
            bytes: b"abc".to_vec(),
        };
        assert_eq!(files, [file]);
        assert!(is_tarball(&tarball()));
    }

    #[test]
    fn what_is_no_whole_tarball_is_refused() {
        let whole = tarball();
        let mut other = whole.clone();
        other[0] = b'x';
        let told: Vec<String> = [&whole[..100], &whole[..600], &other, &[0x1f, 0x8b, 8, 0]]
            .iter()
            .map(|bytes| files(bytes).unwrap_err().to_string())
            .collect();
        insta::assert_snapshot!(told.join("\n"));
    }
}
