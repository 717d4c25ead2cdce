//! The files in a tarball, compressed by gzip or not, as `scripts/collect-node` writes
//! it.

use std::io::{self, Read};

use flate2::read::GzDecoder;

use super::limits::{MAX_BYTES, MAX_FILES, MAX_UNPACKED};

/// A file in a tarball.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Packed {
    /// Its path in the tarball, which names it and nothing else: nothing is written there.
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
    Not(usize),
    /// More files than a dump has, or larger ones.
    #[error(
        "the tarball holds more than {MAX_FILES} files, one of more than {} MiB, or more than {} MiB in all: it is not a dump",
        MAX_BYTES >> 20,
        MAX_UNPACKED >> 20
    )]
    Large,
    /// A file of a dump is a link to another.
    #[error(
        "{path} in the tarball is a link to {to}, and links are not followed: pack the file itself, with `tar -h`"
    )]
    Link {
        /// The link.
        path: String,
        /// Where it leads.
        to: String,
    },
    /// A file of a dump is there twice.
    #[error(
        "{0} is twice in the tarball, and which of the two is right is not known: collect it again"
    )]
    Twice(String),
    /// Decompression failed, or the system did.
    #[error("the tarball cannot be read: {0}")]
    Io(#[from] io::Error),
}

/// A tarball is made of blocks (POSIX.1-1988, `ustar`).
const BLOCK: usize = 512;

/// What a header is of: a file, a link, a symbolic link; what is said of the next one, by
/// pax (POSIX.1-2001) and by GNU tar.
const PLAIN: u8 = b'0';
const LINK: u8 = b'1';
const SYMBOLIC: u8 = b'2';
const EXTENDED: u8 = b'x';
const LONG: u8 = b'L';

/// Whether a file that begins so is a tarball.
#[must_use]
pub fn is_tarball(begins: &[u8]) -> bool {
    begins.starts_with(b"\x1f\x8b") || begins.get(257..262) == Some(b"ustar")
}

/// The plain files in a tarball that are `wanted` by their paths, in their order; and the
/// paths of the others.
///
/// # Errors
///
/// See [`TarballError`].
pub fn files(
    bytes: &[u8],
    wanted: impl Fn(&str) -> bool,
) -> Result<(Vec<Packed>, Vec<String>), TarballError> {
    if bytes.starts_with(b"\x1f\x8b") {
        read(GzDecoder::new(bytes), wanted)
    } else {
        read(bytes, wanted)
    }
}

fn read(
    mut from: impl Read,
    wanted: impl Fn(&str) -> bool,
) -> Result<(Vec<Packed>, Vec<String>), TarballError> {
    let mut files: Vec<Packed> = Vec::new();
    let mut others = Vec::new();
    let mut at = 0;
    let mut last = "its first header".to_owned();
    // A path that was too long for its header stands before it.
    let mut long: Option<String> = None;
    loop {
        let mut header = [0; BLOCK];
        fill(&mut from, &mut header, &last)?;
        if header.iter().all(|byte| *byte == 0) {
            return Ok((files, others));
        }
        if Some(sum(&header)) != number(&header[148..156]) {
            return Err(TarballError::Not(at));
        }
        let size = number(&header[124..136]).ok_or(TarballError::Not(at))?;
        let size = usize::try_from(size).ok().filter(|size| *size <= MAX_BYTES);
        let size = size.ok_or(TarballError::Large)?;
        let kind = header[156];
        let is_before = matches!(kind, LONG | EXTENDED);
        let path = match long.take() {
            Some(long) if !is_before => long,
            _ => path(&header),
        };
        last.clone_from(&path);
        let padded = size.next_multiple_of(BLOCK);
        at += BLOCK + padded;
        if at > MAX_UNPACKED || files.len() + others.len() == MAX_FILES {
            return Err(TarballError::Large);
        }
        let kept = is_before || (matches!(kind, PLAIN | 0) && wanted(&path));
        let bytes = contents(&mut from, size, padded, kept, &last)?;
        match kind {
            LONG => long = Some(text(&bytes)),
            EXTENDED => long = extended(&bytes),
            LINK | SYMBOLIC if wanted(&path) => {
                let to = text(&header[157..257]);
                return Err(TarballError::Link { path, to });
            }
            PLAIN | 0 if kept && files.iter().any(|known| known.path == path) => {
                return Err(TarballError::Twice(path));
            }
            PLAIN | 0 if kept => files.push(Packed { path, bytes }),
            PLAIN | 0 => others.push(path),
            _ => {}
        }
    }
}

/// What is in a file, if it is kept.
fn contents(
    from: &mut impl Read,
    size: usize,
    padded: usize,
    kept: bool,
    last: &str,
) -> Result<Vec<u8>, TarballError> {
    let mut bytes = Vec::new();
    let mut left = padded;
    let mut block = [0; BLOCK];
    while left > 0 {
        fill(from, &mut block, last)?;
        left -= BLOCK;
        if kept {
            bytes.extend_from_slice(&block);
        }
    }
    bytes.truncate(size);
    Ok(bytes)
}

/// The path that the header behind this one has: `30 path=…` (POSIX.1-2001, pax).
fn extended(bytes: &[u8]) -> Option<String> {
    let records = std::str::from_utf8(bytes).ok()?;
    let path = records
        .lines()
        .find_map(|line| line.split_once(' ')?.1.strip_prefix("path="));
    path.map(printable)
}

fn fill(from: &mut impl Read, into: &mut [u8], last: &str) -> Result<(), TarballError> {
    from.read_exact(into).map_err(|error| match error.kind() {
        io::ErrorKind::UnexpectedEof => TarballError::CutOff(last.to_owned()),
        _ => TarballError::Io(error),
    })
}

/// Up to the byte that ends it.
fn text(bytes: &[u8]) -> String {
    let end = bytes.iter().position(|byte| *byte == 0);
    printable(&String::from_utf8_lossy(
        &bytes[..end.unwrap_or(bytes.len())],
    ))
}

/// Names are printed, and whoever made the tarball has chosen them.
fn printable(name: &str) -> String {
    name.replace(char::is_control, "\u{fffd}")
}

fn path(header: &[u8; BLOCK]) -> String {
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

    /// A member: its path, its kind, where it leads, what is in it.
    fn member(path: &str, kind: u8, to: &str, bytes: &[u8]) -> Vec<u8> {
        let mut header = [0; BLOCK];
        header[..path.len()].copy_from_slice(path.as_bytes());
        header[124..136].copy_from_slice(format!("{:011o}\0", bytes.len()).as_bytes());
        header[157..157 + to.len()].copy_from_slice(to.as_bytes());
        header[257..263].copy_from_slice(b"ustar\0");
        header[156] = kind;
        let sum = sum(&header);
        header[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
        let mut all = header.to_vec();
        all.extend_from_slice(bytes);
        all.resize(all.len().next_multiple_of(BLOCK), 0);
        all
    }

    fn tarball(members: &[Vec<u8>]) -> Vec<u8> {
        let mut all = members.concat();
        all.resize(all.len() + 2 * BLOCK, 0);
        all
    }

    fn one() -> Vec<u8> {
        tarball(&[member("node-1/nft", PLAIN, "", b"abc")])
    }

    /// What would fill the memory if it were unpacked is given up on the way.
    #[test]
    fn a_tarball_of_much_nothing_is_refused() {
        let mut header = member("nft", PLAIN, "", b"");
        header[124..136].copy_from_slice(format!("{MAX_BYTES:011o}\0").as_bytes());
        let mut own = [0; BLOCK];
        own.copy_from_slice(&header);
        let sum = sum(&own);
        header[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
        let size = u64::try_from(MAX_BYTES).unwrap();
        let one = || io::Cursor::new(header.clone()).chain(io::repeat(0).take(size));
        let endless = one().chain(one()).chain(one()).chain(one()).chain(one());
        let refused = read(endless, |_| false);
        assert!(matches!(refused, Err(TarballError::Large)), "{refused:?}");
    }

    /// The paths that are read, and those that are not.
    fn found(members: &[Vec<u8>]) -> (Vec<String>, Vec<String>) {
        let (files, others) = files(&tarball(members), |path| path.ends_with("nft")).unwrap();
        (files.into_iter().map(|file| file.path).collect(), others)
    }

    #[test]
    fn files_are_read() {
        let (files, _) = files(&one(), |_| true).unwrap();
        let file = Packed {
            path: "node-1/nft".to_owned(),
            bytes: b"abc".to_vec(),
        };
        assert_eq!(files, [file]);
        assert!(is_tarball(&one()));
    }

    #[test]
    fn a_path_is_a_name_wherever_it_leads() {
        let names = ["../../etc/nft", "/etc/nft", "a\u{1b}[2J/nft", "notes"];
        let members = names.map(|name| member(name, PLAIN, "", b"x"));
        let (files, others) = found(&members);
        assert_eq!(files, ["../../etc/nft", "/etc/nft", "a\u{fffd}[2J/nft"]);
        assert_eq!(others, ["notes"]);
    }

    #[test]
    fn long_paths_stand_before_their_files() {
        let long = format!("{}/nft", "a".repeat(300));
        let record = format!("313 path={long}\n");
        for before in [
            member("././@LongLink", LONG, "", format!("{long}\0").as_bytes()),
            member("PaxHeaders/nft", EXTENDED, "", record.as_bytes()),
        ] {
            let (files, _) = found(&[before, member("cut", PLAIN, "", b"x")]);
            assert_eq!(files.concat(), long);
        }
    }

    #[test]
    fn what_is_no_whole_tarball_is_refused() {
        let whole = one();
        let mut other = whole.clone();
        other[0] = b'x';
        let again = member("node-1/nft", PLAIN, "", b"abc");
        let link = |kind| tarball(&[member("node-1/nft", kind, "/etc/passwd", b"")]);
        let many = vec![member("notes", PLAIN, "", b""); MAX_FILES + 1];
        let told: Vec<String> = [
            &whole[..100],
            &whole[..600],
            &other,
            &[0x1f, 0x8b, 8, 0],
            &link(LINK),
            &link(SYMBOLIC),
            &tarball(&[again.clone(), again]),
            &tarball(&many),
        ]
        .iter()
        .map(|bytes| {
            let read = files(bytes, |path| path.ends_with("nft"));
            read.unwrap_err().to_string()
        })
        .collect();
        insta::assert_snapshot!(told.join("\n"));
    }
}
