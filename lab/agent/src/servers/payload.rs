//! Defines the bytes that probes and servers exchange.
//!
//! A TCP request is one byte that says whether another request follows. A request with a payload
//! has [`SIZED`], its total size as four bytes, and filler before that byte. The answer is a line,
//! and filler up to the size of the request. A UDP request is a line with a number, and filler; the
//! answer has at least the size of the request.

use std::io;
use std::num::NonZeroU32;
use std::sync::atomic::{AtomicU64, Ordering};

use svclab_model::plan::{MAX_DATAGRAM_BYTES, MAX_STREAM_BYTES};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};

/// Last bytes of a request: the connection stays open after the answer, or closes.
const KEEP_OPEN: u8 = b'!';
const LAST: u8 = b'?';

/// First byte of a request with a size.
const SIZED: u8 = b'+';

/// Bytes of a sized request without filler.
const SIZED_HEADER_BYTES: usize = 6;

/// Byte of payloads that carry no information.
const FILLER: u8 = b'.';

/// Filler written at once.
static FILLER_CHUNK: [u8; 16 << 10] = [FILLER; 16 << 10];

/// TCP request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct PayloadRequest {
    /// Whether the connection stays open after the answer.
    pub keep_open: bool,
    /// Minimum size of the request and of the answer.
    pub bytes: Option<NonZeroU32>,
}

impl PayloadRequest {
    /// Writes the request. Adds the number of written bytes to `sent`.
    pub(crate) async fn write(
        self,
        stream: &mut (impl AsyncWrite + Unpin),
        sent: &mut u64,
    ) -> io::Result<()> {
        let last = [if self.keep_open { KEEP_OPEN } else { LAST }];
        if let Some(bytes) = self.bytes {
            let mut header = vec![SIZED];
            header.extend(bytes.get().to_be_bytes());
            write_counted(stream, &header, sent).await?;
            write_filler(stream, self.filler(), sent).await?;
        }
        write_counted(stream, &last, sent).await
    }

    /// Reads a request of a client; `None` at the end of the stream.
    pub(crate) async fn read(stream: &mut (impl AsyncRead + Unpin)) -> io::Result<Option<Self>> {
        let mut request = Self {
            keep_open: false,
            bytes: None,
        };
        loop {
            let mut kind = [0];
            if stream.read(&mut kind).await? == 0 {
                return Ok(None);
            }
            if kind[0] != SIZED {
                request.keep_open = kind[0] == KEEP_OPEN;
                return Ok(Some(request));
            }
            let bytes = stream.read_u32().await?;
            request.bytes = NonZeroU32::new(bytes.min(MAX_STREAM_BYTES));
            let filler = u64::try_from(request.filler()).unwrap_or(u64::MAX);
            let mut filler = (&mut *stream).take(filler);
            tokio::io::copy(&mut filler, &mut tokio::io::sink()).await?;
        }
    }

    /// Writes the answer to the request.
    pub(crate) async fn answer(
        self,
        stream: &mut (impl AsyncWrite + Unpin),
        line: &str,
    ) -> io::Result<()> {
        let mut sent = 0;
        write_counted(stream, line.as_bytes(), &mut sent).await?;
        write_filler(stream, self.size().saturating_sub(line.len()), &mut sent).await
    }

    /// Returns the minimum size of the answer.
    pub(crate) fn size(self) -> usize {
        self.bytes.map_or(0, to_size)
    }

    fn filler(self) -> usize {
        self.size().saturating_sub(SIZED_HEADER_BYTES)
    }

    /// Returns the size of the request.
    pub(crate) fn request_bytes(self) -> u64 {
        let bytes = self
            .bytes
            .map_or(1, |bytes| to_size(bytes).max(SIZED_HEADER_BYTES));
        u64::try_from(bytes).unwrap_or(u64::MAX)
    }
}

/// Returns a size as a number of bytes in memory.
pub(crate) fn to_size(bytes: NonZeroU32) -> usize {
    usize::try_from(bytes.get()).unwrap_or(usize::MAX)
}

async fn write_filler(
    stream: &mut (impl AsyncWrite + Unpin),
    mut bytes: usize,
    sent: &mut u64,
) -> io::Result<()> {
    while bytes > 0 {
        let next = bytes.min(FILLER_CHUNK.len());
        write_counted(stream, &FILLER_CHUNK[..next], sent).await?;
        bytes -= next;
    }
    Ok(())
}

async fn write_counted(
    stream: &mut (impl AsyncWrite + Unpin),
    mut bytes: &[u8],
    sent: &mut u64,
) -> io::Result<()> {
    while !bytes.is_empty() {
        let written = stream.write(bytes).await?;
        if written == 0 {
            return Err(io::ErrorKind::WriteZero.into());
        }
        *sent += u64::try_from(written).unwrap_or(u64::MAX);
        bytes = &bytes[written..];
    }
    Ok(())
}

/// Returns the content of a UDP request. No two requests are equal, so that each can be identified
/// in captures.
pub(crate) fn next_datagram(bytes: Option<NonZeroU32>) -> Vec<u8> {
    static NUMBER: AtomicU64 = AtomicU64::new(0);
    let line = format!("? {}\n", NUMBER.fetch_add(1, Ordering::Relaxed));
    padded(line, bytes.map_or(0, to_size))
}

/// Returns the line with filler up to this size.
pub(crate) fn padded(line: String, size: usize) -> Vec<u8> {
    let mut bytes = line.into_bytes();
    let size = size.min(MAX_DATAGRAM_BYTES as usize).max(bytes.len());
    bytes.resize(size, FILLER);
    bytes
}

/// Returns the line at the begin of an answer, with its end; `None` if it has no end.
pub(crate) fn first_line(answer: &[u8]) -> Option<&[u8]> {
    let end = answer.iter().position(|byte| *byte == b'\n')?;
    answer.get(..=end)
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn round_trip(request: PayloadRequest) -> (u64, Option<PayloadRequest>, usize) {
        let (mut client, mut server) = tokio::io::duplex(64);
        let mut sent = 0;
        let (written, read) = tokio::join!(
            request.write(&mut client, &mut sent),
            PayloadRequest::read(&mut server)
        );
        written.unwrap();
        let read = read.unwrap();
        let mut answer = Vec::new();
        let (answered, _) = tokio::join!(
            async {
                let answered = request.answer(&mut server, "web 10.0.0.1:1\n").await;
                drop(server);
                answered
            },
            client.read_to_end(&mut answer)
        );
        answered.unwrap();
        assert_eq!(first_line(&answer), Some(b"web 10.0.0.1:1\n".as_slice()));
        (sent, read, answer.len())
    }

    #[tokio::test]
    async fn request_and_answer_have_requested_size() {
        for (bytes, request_bytes, answer_bytes) in [
            (0, 1, 15),
            (1, 6, 15),
            (6, 6, 15),
            (7, 7, 15),
            (100_000, 100_000, 100_000),
        ] {
            for keep_open in [false, true] {
                let request = PayloadRequest {
                    keep_open,
                    bytes: NonZeroU32::new(bytes),
                };
                assert_eq!(
                    round_trip(request).await,
                    (request_bytes, Some(request), answer_bytes)
                );
                assert_eq!(request.request_bytes(), request_bytes);
            }
        }
    }

    #[test]
    fn datagrams_differ_and_have_requested_size() {
        let bytes = NonZeroU32::new(2000);
        let (first, second) = (next_datagram(bytes), next_datagram(bytes));
        assert_ne!(first, second);
        assert_eq!([first.len(), second.len()], [2000, 2000]);
        assert!(next_datagram(None).len() < 30);
    }
}
