//! Captures packets of a running lab live and sends them to a client.

use std::collections::HashMap;
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::time::Duration;

use futures_util::future::select_all;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::sync::mpsc;

use crate::net::attach_point::AttachPoint;
use crate::runtime::client_stream::{SendToClient, Window};
use crate::watch::capture;
use crate::watch::packet_clock::PacketClock;
use svclab_model::evidence::Packet;
use svclab_model::protocol::Failure;
use svclab_model::protocol::stream::{
    CaptureTarget, FromStream, OutputStream, StreamEnd, ToStream,
};

/// Maximum number of bytes kept of each packet. The largest packet of an interface has 64 KiB plus
/// headers.
const MAX_PACKET_BYTES: usize = 66 << 10;

/// Approximate maximum number of bytes per message.
const MAX_BATCH_BYTES: usize = 256 << 10;

/// Delay before packets are sent, so that packets captured at the same time on several sockets are
/// sorted. The kernel has no event for a socket that has received all packets up to a time.
const SORT_DELAY: Duration = Duration::from_millis(1);

/// Live capture of one namespace.
pub(crate) struct LiveCapture {
    fd: AsyncFd<OwnedFd>,
    request: CaptureTarget,
    names: HashMap<u32, String>,
}

impl LiveCapture {
    /// Starts a live capture.
    pub(crate) fn open(
        attach_point: &AttachPoint,
        request: CaptureTarget,
    ) -> Result<Self, Failure> {
        Ok(Self {
            fd: capture::open(&attach_point.ns, &request.namespace)?,
            names: attach_point.interfaces.clone(),
            request,
        })
    }

    /// Reads the available packets, up to about [`MAX_BATCH_BYTES`] bytes.
    fn read_available(
        &self,
        buffer: &mut [u8],
        clock: &mut PacketClock,
        packets: &mut Vec<Packet>,
    ) {
        let mut read = 0;
        while read < MAX_BATCH_BYTES {
            let next = self.fd.try_io(Interest::READABLE, |fd| {
                let socket = fd.as_raw_fd();
                capture::receive_in(buffer, socket, &self.request.namespace, &self.names)
            });
            let Ok(packet) = next else {
                return;
            };
            let is_requested = |packet: &Packet| {
                let interface = self.request.interface.as_ref();
                interface.is_none_or(|wanted| packet.interface == *wanted)
            };
            if let Some(mut packet) = packet.filter(is_requested) {
                packet.time = clock.time(packet.time);
                read += packet.bytes.len();
                packets.push(packet);
            }
        }
    }
}

/// Sends packets to the client until the client ends the stream or disconnects.
pub(crate) async fn run(
    taps: Vec<LiveCapture>,
    mut messages: mpsc::UnboundedReceiver<ToStream>,
    send: &SendToClient,
) -> FromStream {
    send(FromStream::Opened);
    let window = Window::default();
    let handle_messages = async {
        while let Some(message) = messages.recv().await {
            match message {
                ToStream::Ack { .. } => window.acknowledge(),
                ToStream::EndOfInput
                | ToStream::StopReading {
                    stream: OutputStream::Stdout,
                } => return,
                _ => {}
            }
        }
    };
    let mut buffer = PacketBuffer::default();
    tokio::select! {
        biased;
        () = handle_messages => {}
        () = buffer.forward(&taps, &window, send) => {}
    }
    // All packets received until now belong to the capture.
    buffer.read_available(&taps);
    buffer.send_packets(&taps, send);
    FromStream::Ended {
        end: StreamEnd::CaptureEnded,
    }
}

struct PacketBuffer {
    clock: PacketClock,
    buffer: Vec<u8>,
    packets: Vec<Packet>,
}

impl Default for PacketBuffer {
    fn default() -> Self {
        Self {
            clock: PacketClock::default(),
            buffer: vec![0; MAX_PACKET_BYTES],
            packets: Vec::new(),
        }
    }
}

impl PacketBuffer {
    fn read_available(&mut self, taps: &[LiveCapture]) {
        for tap in taps {
            tap.read_available(&mut self.buffer, &mut self.clock, &mut self.packets);
        }
    }

    /// Sends packets as they arrive, without end.
    async fn forward(&mut self, taps: &[LiveCapture], window: &Window, send: &SendToClient) {
        if taps.is_empty() {
            return std::future::pending().await;
        }
        loop {
            if self.packets.is_empty() {
                let readable = taps.iter().map(|tap| Box::pin(tap.fd.readable()));
                drop(select_all(readable).await);
                window.acquire().await;
                self.read_available(taps);
            } else {
                window.acquire().await;
            }
            // Packets later than all packets read so far wait for the next iteration.
            let latest = self.packets.iter().map(|packet| packet.time).max();
            tokio::time::sleep(SORT_DELAY).await;
            self.read_available(taps);
            self.packets.sort_by_key(|packet| packet.time);
            let complete = self
                .packets
                .partition_point(|packet| Some(packet.time) <= latest);
            let later = self.packets.split_off(complete);
            self.send_packets(taps, send);
            self.packets = later;
        }
    }

    fn send_packets(&mut self, taps: &[LiveCapture], send: &SendToClient) {
        self.packets.sort_by_key(|packet| packet.time);
        let missed = taps
            .iter()
            .map(|tap| capture::take_drop_count(tap.fd.as_raw_fd()))
            .sum();
        send(FromStream::Packets {
            packets: std::mem::take(&mut self.packets),
            missed,
        });
    }
}
