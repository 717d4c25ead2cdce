//! Hearing what kernels tell, on a thread of its own: they tell much at once, and
//! what finds no room in a socket is lost while the agent does other things.

use std::io::{self, PipeReader, PipeWriter};
use std::os::fd::AsFd;
use std::thread::{self, JoinHandle};

use netlink_sys::Socket;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use super::connections;
use super::legacy::Log;
use super::nft::Passes;
use super::step::Step;
use crate::agent::nfnetlink::{self, messages};
use crate::evidence::Connection;

/// The most steps that are kept of one lab's run.
const MOST: usize = 200_000;

/// A socket of one namespace, and what is heard on it.
pub struct Ear {
    pub socket: Socket,
    /// Which of the traced namespaces, and its name.
    pub place: usize,
    pub name: String,
    pub hears: Hears,
}

/// What is heard on a socket.
pub enum Hears {
    Nft(Passes),
    Legacy(Log),
    Forgotten,
}

/// What was heard.
#[derive(Default)]
pub struct Heard {
    /// Steps, each with which of the traced namespaces it was taken in; those of one
    /// socket are in the order in which they were told.
    pub steps: Vec<(usize, Step)>,
    /// Steps that were more than are kept.
    pub left_out: u64,
    /// Entries that conntrack forgot.
    pub forgotten: Vec<Connection>,
    /// The sockets, still open.
    pub ears: Vec<Ear>,
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
    pub fn begin(ears: Vec<Ear>) -> io::Result<Self> {
        let (ended, stop) = io::pipe()?;
        let thread = thread::Builder::new()
            .name("trace".to_owned())
            .spawn(move || {
                let mut heard = Heard {
                    ears,
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
    fn until(&mut self, ended: &PipeReader) {
        let mut room = Vec::with_capacity(nfnetlink::ROOM);
        loop {
            let (over, ready) = {
                let ears = self.ears.iter().map(|ear| ear.socket.as_fd());
                let mut all: Vec<PollFd> = std::iter::once(ended.as_fd())
                    .chain(ears)
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
            for (ear, ready) in ready.into_iter().enumerate() {
                if ready || over {
                    self.hear(ear, &mut room);
                }
            }
            if over {
                return;
            }
        }
    }

    /// Reads what a socket holds.
    fn hear(&mut self, ear: usize, room: &mut Vec<u8>) {
        loop {
            let ear = &mut self.ears[ear];
            room.clear();
            match ear.socket.recv(room, nix::libc::MSG_DONTWAIT) {
                Ok(0) | Err(_) => return,
                Ok(_) => {}
            }
            for message in messages(room) {
                let step = match &mut ear.hears {
                    Hears::Nft(passes) => passes.step(&message),
                    Hears::Legacy(log) => log.step(&message),
                    Hears::Forgotten => {
                        self.forgotten
                            .extend(connections::forgotten(&message, &ear.name));
                        None
                    }
                };
                if let Some(step) = step {
                    if self.steps.len() < MOST {
                        self.steps.push((ear.place, step));
                    } else {
                        self.left_out += 1;
                    }
                }
            }
        }
    }
}
