//! Reads and writes a descriptor as an asynchronous stream: a pipe, a socket or a port of a guest.
//!
//! tokio's own pipes treat a short read as the last one available. A virtio port returns one page
//! per read and accepts 32 KiB per write, even if there is more (Linux v6.12,
//! `drivers/char/virtio_console.c`). Only `EAGAIN` means that no data is available.

use std::io;
use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd, OwnedFd};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use nix::errno::Errno;
use nix::fcntl::{FcntlArg, OFlag, fcntl};
use tokio::io::unix::AsyncFd;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::runtime::poll;

/// Descriptor for reading or writing.
#[derive(Debug)]
pub(crate) struct Stream(AsyncFd<OwnedFd>);

impl Stream {
    /// Sets a descriptor to non-blocking mode and registers it with the event loop.
    pub(crate) fn new(fd: OwnedFd) -> io::Result<Self> {
        let flags = OFlag::from_bits_retain(fcntl(&fd, FcntlArg::F_GETFL)?);
        fcntl(&fd, FcntlArg::F_SETFL(flags | OFlag::O_NONBLOCK))?;
        Ok(Self(poll::register(fd)?))
    }

    /// Reads the available bytes. Returns `None` if no bytes are available.
    pub(crate) fn read_now(&self, buffer: &mut [u8]) -> io::Result<Option<usize>> {
        match nix::unistd::read(self.0.get_ref(), buffer) {
            Ok(length) => Ok(Some(length)),
            Err(Errno::EAGAIN | Errno::EINTR) => Ok(None),
            Err(errno) => Err(errno.into()),
        }
    }
}

impl AsFd for Stream {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.get_ref().as_fd()
    }
}

impl AsyncRead for Stream {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        loop {
            let mut ready = ready!(self.0.poll_read_ready(context))?;
            match ready.try_io(|fd| read_into(fd.get_ref(), buffer)) {
                Ok(Ok(())) => return Poll::Ready(Ok(())),
                Ok(Err(error)) => return Poll::Ready(Err(error)),
                Err(_would_block) => {}
            }
        }
    }
}

/// Reads the available bytes into the free part of a buffer. The buffer of a plan can have hundreds
/// of megabytes, so that it is not cleared for each read.
fn read_into(fd: &OwnedFd, buffer: &mut ReadBuf<'_>) -> io::Result<()> {
    // SAFETY: the bytes are only written.
    let room = unsafe { buffer.unfilled_mut() };
    // SAFETY: the kernel writes at most `room.len()` bytes to `room`.
    let length = unsafe { nix::libc::read(fd.as_raw_fd(), room.as_mut_ptr().cast(), room.len()) };
    let length = Errno::result(length)?;
    let length = usize::try_from(length).map_err(io::Error::other)?;
    // SAFETY: the kernel has written this number of bytes.
    unsafe { buffer.assume_init(length) };
    buffer.advance(length);
    Ok(())
}

impl AsyncWrite for Stream {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        loop {
            let mut ready = ready!(self.0.poll_write_ready(context))?;
            match ready.try_io(|fd| Ok(nix::unistd::write(fd.get_ref(), bytes)?)) {
                Ok(written) => return Poll::Ready(written),
                Err(_would_block) => {}
            }
        }
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    #[tokio::test]
    async fn long_write_is_read_completely() {
        let (reader, to) = nix::unistd::pipe().unwrap();
        let (mut reader, mut to) = (Stream::new(reader).unwrap(), Stream::new(to).unwrap());
        // Longer than the buffer of a pipe.
        let long: Vec<u8> = (0..1_000_000_u32).map(|at| at.to_le_bytes()[0]).collect();
        let mut read = vec![0; long.len()];
        let (written, filled) = tokio::join!(to.write_all(&long), reader.read_exact(&mut read));
        written.unwrap();
        filled.unwrap();
        assert_eq!(read, long);
        drop(to);
        assert_eq!(reader.read(&mut read).await.unwrap(), 0);
    }
}
