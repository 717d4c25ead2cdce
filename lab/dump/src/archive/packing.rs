//! Recognises archives and compressed files by their first bytes, and decompresses them.

use std::io::{self, BufRead, BufReader, Read};

use flate2::bufread::GzDecoder;
use lzma_rust2::XzReader;
use ruzstd::decoding::StreamingDecoder;

use super::ArchiveError;

/// Maximum memory of a decompressor in MiB. `xz -9` needs 65 MiB (xz 5.4, `xz(1)`), and `zstd
/// --ultra -22` needs 128 MiB.
const MAX_MEMORY: u32 = 160;

/// Archive or compressed file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Packing {
    Tar,
    Zip,
    Compressed(Compression),
}

/// Format of a compressed file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Compression {
    Gzip,
    Xz,
    Zstd,
}

const GZIP: &[u8] = b"\x1f\x8b";
const ZSTD: &[u8] = b"\x28\xb5\x2f\xfd";

/// Bytes after the first byte of a skippable frame, which is 0x50 to 0x5F (RFC 8878, 3.1.2).
const ZSTD_SKIPPABLE: &[u8] = b"\x2a\x4d\x18";

impl Packing {
    /// Returns the packing of a file with these first bytes. `None` for a plain file.
    pub(super) fn detect(head: &[u8]) -> Option<Self> {
        // The signature of a tarball follows the header of its first file (POSIX.1-1988, `ustar`).
        if head.get(257..262) == Some(b"ustar") {
            return Some(Self::Tar);
        }
        let compression = match head {
            [b'P', b'K', 3, 4, ..] | [b'P', b'K', 5, 6, ..] => return Some(Self::Zip),
            _ if head.starts_with(GZIP) => Compression::Gzip,
            _ if head.starts_with(b"\xfd7zXZ\0") => Compression::Xz,
            [first, rest @ ..] if first & 0xf0 == 0x50 && rest.starts_with(ZSTD_SKIPPABLE) => {
                Compression::Zstd
            }
            _ if head.starts_with(ZSTD) => Compression::Zstd,
            _ => return None,
        };
        Some(Self::Compressed(compression))
    }
}

impl Compression {
    /// Returns a reader of the decompressed data.
    pub(super) fn decoder<'r>(self, input: &'r mut dyn Read) -> io::Result<Box<dyn Read + 'r>> {
        let input = BufReader::new(input);
        Ok(match self {
            Self::Gzip => Box::new(Members::new(input, open_gzip)?),
            Self::Xz => Box::new(XzReader::new_mem_limit(input, true, MAX_MEMORY << 10)),
            Self::Zstd => Box::new(Members::new(input, open_zstd)?),
        })
    }
}

/// Decoder of one member of a compressed file.
trait Member: Read {
    type Input: BufRead;

    fn into_input(self) -> Self::Input;
}

impl<R: BufRead> Member for GzDecoder<R> {
    type Input = R;

    fn into_input(self) -> R {
        self.into_inner()
    }
}

impl<R: BufRead> Member for StreamingDecoder<R, ruzstd::decoding::FrameDecoder> {
    type Input = R;

    fn into_input(self) -> R {
        self.into_inner()
    }
}

/// Opens the next member. `None` if the data is not a member.
type Open<M> = fn(<M as Member>::Input) -> io::Result<Option<M>>;

/// Concatenated gzip files are a gzip file with several members (RFC 1952, 2.2).
fn open_gzip<R: BufRead>(mut input: R) -> io::Result<Option<GzDecoder<R>>> {
    let is_member = input.fill_buf()?.first() == GZIP.first();
    Ok(is_member.then(|| GzDecoder::new(input)))
}

/// Concatenated frames are a Zstandard file (RFC 8878, 3).
fn open_zstd<R: BufRead>(
    mut input: R,
) -> io::Result<Option<StreamingDecoder<R, ruzstd::decoding::FrameDecoder>>> {
    loop {
        let mut signature = [0; 4];
        let begin = input.fill_buf()?;
        // A buffer has at least one byte of the signature.
        if begin.first() == ZSTD.first() {
            let window = u64::from(MAX_MEMORY) << 20;
            let opened = StreamingDecoder::new_with_max_window_size(input, window);
            return opened.map(Some).map_err(io::Error::other);
        }
        if begin.first().is_none_or(|byte| byte & 0xf0 != 0x50) {
            return Ok(None);
        }
        input.read_exact(&mut signature)?;
        if &signature[1..] != ZSTD_SKIPPABLE {
            return Ok(None);
        }
        let mut length = [0; 4];
        input.read_exact(&mut length)?;
        let length = u64::from(u32::from_le_bytes(length));
        if io::copy(&mut input.by_ref().take(length), &mut io::sink())? < length {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
    }
}

/// Reader of all members of a compressed file, one after the other.
struct Members<M: Member> {
    member: Option<M>,
    open: Open<M>,
}

impl<M: Member> Members<M> {
    fn new(input: M::Input, open: Open<M>) -> io::Result<Self> {
        Ok(Self {
            member: open(input)?,
            open,
        })
    }
}

impl<M: Member> Read for Members<M> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        while let Some(member) = &mut self.member {
            let read = member.read(into)?;
            if read > 0 || into.is_empty() {
                return Ok(read);
            }
            let Some(ended) = self.member.take() else {
                break;
            };
            let mut input = ended.into_input();
            if input.fill_buf()?.is_empty() {
                break;
            }
            let next = (self.open)(input)?;
            self.member = Some(next.ok_or_else(|| io::Error::other(ArchiveError::TrailingData))?);
        }
        Ok(0)
    }
}
