//! Captures packets of a running lab live and sends them to a client.

use std::collections::HashMap;
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::time::Duration;

use futures_util::future::select_all;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::sync::mpsc;

use super::capture;
use super::clock::Clock;
use super::streams::{Place, Say, Window};
use svclab_model::evidence::Packet;
use svclab_model::protocol::Failure;
use svclab_model::protocol::stream::{Captured, End, FromStream, ToStream, Written};

/// Maximum number of bytes kept of each packet. The largest packet of an interface has 64 KiB plus
/// headers.
const SNAP: usize = 66 << 10;

/// Approximate maximum number of bytes per message.
const BATCH: usize = 256 << 10;

/// Delay before packets are sent, so that packets captured at the same time on several sockets are
/// sorted.
const TOGETHER: Duration = Duration::from_millis(1);

/// Live capture of one namespace.
pub struct Tap {
    fd: AsyncFd<OwnedFd>,
    wanted: Captured,
    names: HashMap<u32, String>,
}

impl Tap {
    /// Starts a live capture.
    ///
    /// # Errors
    ///
    /// When the namespace cannot be entered or the kernel refuses the socket.
    pub fn open(place: &Place, wanted: Captured) -> Result<Self, Failure> {
        Ok(Self {
            fd: capture::open(&place.ns, &wanted.namespace)?,
            names: place.interfaces.clone(),
            wanted,
        })
    }

    /// Reads the available packets, up to about [`BATCH`] bytes.
    fn sweep(&self, buffer: &mut [u8], clock: &mut Clock, into: &mut Vec<Packet>) {
        let mut read = 0;
        while read < BATCH {
            let next = self.fd.try_io(Interest::READABLE, |fd| {
                let socket = fd.as_raw_fd();
                capture::receive_in(buffer, socket, &self.wanted.namespace, &self.names)
            });
            let Ok(packet) = next else {
                return;
            };
            let of_wanted = |packet: &Packet| {
                let interface = self.wanted.interface.as_ref();
                interface.is_none_or(|wanted| packet.interface == *wanted)
            };
            if let Some(mut packet) = packet.filter(of_wanted) {
                packet.time = clock.time(packet.time);
                read += packet.bytes.len();
                into.push(packet);
            }
        }
    }
}

/// Sends packets to the client until the client ends the stream or disconnects.
pub async fn run(
    taps: Vec<Tap>,
    mut told: mpsc::UnboundedReceiver<ToStream>,
    say: &Say,
) -> FromStream {
    say(FromStream::Opened);
    let window = Window::default();
    let obeying = async {
        while let Some(word) = told.recv().await {
            match word {
                ToStream::Took { .. } => window.answered(),
                ToStream::EndOfInput
                | ToStream::Unread {
                    of: Written::Stdout,
                } => return,
                _ => {}
            }
        }
    };
    let mut basket = Basket::default();
    tokio::select! {
        biased;
        () = obeying => {}
        () = basket.fill(&taps, &window, say) => {}
    }
    // All packets received until now belong to the capture.
    basket.sweep(&taps);
    basket.tell_all(&taps, say);
    FromStream::Ended { end: End::Wish }
}

struct Basket {
    clock: Clock,
    buffer: Vec<u8>,
    packets: Vec<Packet>,
}

impl Default for Basket {
    fn default() -> Self {
        Self {
            clock: Clock::default(),
            buffer: vec![0; SNAP],
            packets: Vec::new(),
        }
    }
}

impl Basket {
    fn sweep(&mut self, taps: &[Tap]) {
        for tap in taps {
            tap.sweep(&mut self.buffer, &mut self.clock, &mut self.packets);
        }
    }

    /// Sends packets as they arrive, without end.
    async fn fill(&mut self, taps: &[Tap], window: &Window, say: &Say) {
        if taps.is_empty() {
            return std::future::pending().await;
        }
        loop {
            if self.packets.is_empty() {
                let each = taps.iter().map(|tap| Box::pin(tap.fd.readable()));
                drop(select_all(each).await);
                window.one().await;
                self.sweep(taps);
            } else {
                window.one().await;
            }
            // Packets later than all packets read so far wait for the next iteration.
            let latest = self.packets.iter().map(|packet| packet.time).max();
            tokio::time::sleep(TOGETHER).await;
            self.sweep(taps);
            self.packets.sort_by_key(|packet| packet.time);
            let ripe = self
                .packets
                .partition_point(|packet| Some(packet.time) <= latest);
            let later = self.packets.split_off(ripe);
            self.tell_all(taps, say);
            self.packets = later;
        }
    }

    fn tell_all(&mut self, taps: &[Tap], say: &Say) {
        self.packets.sort_by_key(|packet| packet.time);
        let missed = taps
            .iter()
            .map(|tap| capture::dropped(tap.fd.as_raw_fd()))
            .sum();
        say(FromStream::Packets {
            packets: std::mem::take(&mut self.packets),
            missed,
        });
    }
}
