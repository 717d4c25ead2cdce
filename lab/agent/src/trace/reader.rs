//! Hearing what kernels tell, on a thread of its own: they tell much at once, and
//! what finds no room in a socket is lost while the agent does other things.

use std::io::{self, PipeReader, PipeWriter};
use std::os::fd::AsFd;
use std::thread::{self, JoinHandle};

use netlink_sys::Socket;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use crate::nfnetlink;

/// The most messages that are kept of one lab's run.
const MOST: usize = 250_000;

/// What was heard, as it was received: it is understood when there is time.
#[derive(Default)]
pub struct Heard {
    /// The sockets, still open.
    pub sockets: Vec<Socket>,
    /// By whose socket and up to where in `bytes`, in the order in which it was read.
    ends: Vec<(usize, usize)>,
    bytes: Vec<u8>,
    /// By socket, messages that were more than are kept.
    pub left_out: Vec<u64>,
}

/// Hears until it is ended or dropped.
pub struct Reader {
    /// When nobody can write any more, the thread ends.
    stop: Option<PipeWriter>,
    thread: Option<JoinHandle<Heard>>,
}

impl Reader {
    /// Begins to hear.
    ///
    /// # Errors
    ///
    /// When no descriptor or no thread is left.
    pub fn begin(sockets: Vec<Socket>) -> io::Result<Self> {
        let (ended, stop) = io::pipe()?;
        let thread = thread::Builder::new()
            .name("trace".to_owned())
            .spawn(move || {
                let mut heard = Heard {
                    left_out: vec![0; sockets.len()],
                    sockets,
                    ..Heard::default()
                };
                heard.until(&ended);
                heard
            })?;
        Ok(Self {
            stop: Some(stop),
            thread: Some(thread),
        })
    }

    /// Ends it. What was told before this has been heard.
    ///
    /// # Errors
    ///
    /// When the thread panicked.
    pub fn end(mut self) -> io::Result<Heard> {
        drop(self.stop.take());
        let ended = self.thread.take().map(JoinHandle::join);
        match ended {
            Some(Ok(heard)) => Ok(heard),
            _ => Err(io::Error::other("the thread that hears it panicked")),
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

impl Heard {
    /// Everything, each with whose socket it was received by.
    pub fn all(&self) -> impl Iterator<Item = (usize, &[u8])> {
        let mut begin = 0;
        self.ends.iter().map(move |(socket, end)| {
            let bytes = &self.bytes[begin..*end];
            begin = *end;
            (*socket, bytes)
        })
    }

    fn until(&mut self, ended: &PipeReader) {
        let mut room = Vec::with_capacity(nfnetlink::ROOM);
        loop {
            let (over, ready) = {
                let sockets = self.sockets.iter().map(AsFd::as_fd);
                let mut all: Vec<PollFd> = std::iter::once(ended.as_fd())
                    .chain(sockets)
                    .map(|fd| PollFd::new(fd, PollFlags::POLLIN))
                    .collect();
                match poll(&mut all, PollTimeout::NONE) {
                    Ok(_) | Err(nix::errno::Errno::EINTR) => {}
                    Err(_) => return,
                }
                let mut ready = all.iter().map(|fd| fd.any().unwrap_or(false));
                let over = ready.next().unwrap_or(true);
                (over, ready.collect::<Vec<_>>())
            };
            for (socket, ready) in ready.into_iter().enumerate() {
                if ready || over {
                    self.hear(socket, &mut room);
                }
            }
            if over {
                return;
            }
        }
    }

    /// Reads what a socket holds.
    fn hear(&mut self, socket: usize, room: &mut Vec<u8>) {
        loop {
            room.clear();
            match self.sockets[socket].recv(room, nix::libc::MSG_DONTWAIT) {
                Ok(0) | Err(_) => return,
                Ok(_) if self.ends.len() < MOST => {
                    self.bytes.extend_from_slice(room);
                    self.ends.push((socket, self.bytes.len()));
                }
                Ok(_) => self.left_out[socket] += 1,
            }
        }
    }
}
