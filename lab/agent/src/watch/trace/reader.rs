//! Reads the kernel's messages on a separate thread. The kernel sends many messages in a short
//! time, and a full socket buffer loses messages while the agent is busy.

use std::io::{self, PipeReader, PipeWriter};
use std::os::fd::AsFd;
use std::thread::{self, JoinHandle};

use netlink_sys::Socket;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use crate::net::netfilter::nfnetlink;

/// Maximum number of buffers that are kept during one run of a lab.
const MAX_BUFFERS: usize = 250_000;

/// Received messages, which are decoded later.
#[derive(Default)]
pub(super) struct ReceivedMessages {
    /// Open sockets.
    pub sockets: Vec<Socket>,
    /// Socket index and end position in `bytes` of each received buffer, in the order of reading.
    ends: Vec<(usize, usize)>,
    bytes: Vec<u8>,
    /// Number of discarded buffers, by socket.
    pub missed: Vec<u64>,
}

/// Thread that reads messages until it is ended or dropped.
pub(super) struct Reader {
    /// Dropping this end of the pipe ends the thread.
    stop: Option<PipeWriter>,
    thread: Option<JoinHandle<ReceivedMessages>>,
}

impl Reader {
    /// Starts the thread.
    pub(super) fn start(sockets: Vec<Socket>) -> io::Result<Self> {
        let (stop_signal, stop) = io::pipe()?;
        let thread = thread::Builder::new()
            .name("trace".to_owned())
            .spawn(move || {
                let mut received = ReceivedMessages {
                    missed: vec![0; sockets.len()],
                    sockets,
                    ..ReceivedMessages::default()
                };
                received.read_until_stopped(&stop_signal);
                received
            })?;
        Ok(Self {
            stop: Some(stop),
            thread: Some(thread),
        })
    }

    /// Ends the thread and returns all messages that arrived until now.
    pub(super) fn end(mut self) -> io::Result<ReceivedMessages> {
        drop(self.stop.take());
        let ended = self.thread.take().map(JoinHandle::join);
        match ended {
            Some(Ok(received)) => Ok(received),
            _ => Err(io::Error::other("the trace reader thread panicked")),
        }
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl ReceivedMessages {
    /// Returns all received buffers, each with the index of its socket.
    pub(super) fn buffers(&self) -> impl Iterator<Item = (usize, &[u8])> {
        let mut begin = 0;
        self.ends.iter().map(move |(socket, end)| {
            let bytes = &self.bytes[begin..*end];
            begin = *end;
            (*socket, bytes)
        })
    }

    fn read_until_stopped(&mut self, stop_signal: &PipeReader) {
        let mut buffer = Vec::with_capacity(nfnetlink::BUFFER_BYTES);
        loop {
            let (is_stopped, ready) = {
                let sockets = self.sockets.iter().map(AsFd::as_fd);
                let mut descriptors: Vec<PollFd> = std::iter::once(stop_signal.as_fd())
                    .chain(sockets)
                    .map(|fd| PollFd::new(fd, PollFlags::POLLIN))
                    .collect();
                match poll(&mut descriptors, PollTimeout::NONE) {
                    Ok(_) | Err(nix::errno::Errno::EINTR) => {}
                    Err(_) => return,
                }
                let mut ready = descriptors.iter().map(|fd| fd.any().unwrap_or(false));
                let is_stopped = ready.next().unwrap_or(true);
                (is_stopped, ready.collect::<Vec<_>>())
            };
            for (socket, ready) in ready.into_iter().enumerate() {
                if ready || is_stopped {
                    self.read_socket(socket, &mut buffer);
                }
            }
            if is_stopped {
                return;
            }
        }
    }

    /// Reads all messages in a socket's buffer.
    fn read_socket(&mut self, socket: usize, buffer: &mut Vec<u8>) {
        loop {
            buffer.clear();
            match self.sockets[socket].recv(buffer, nix::libc::MSG_DONTWAIT) {
                Ok(0) | Err(_) => return,
                Ok(_) if self.ends.len() < MAX_BUFFERS => {
                    self.bytes.extend_from_slice(buffer);
                    self.ends.push((socket, self.bytes.len()));
                }
                Ok(_) => self.missed[socket] += 1,
            }
        }
    }
}
