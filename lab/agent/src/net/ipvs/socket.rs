//! Sends requests to the kernel's IPVS over generic netlink.

use futures_util::StreamExt as _;
use genetlink::GenetlinkHandle;
use netlink_packet_core::{
    DecodeError, Emitable, NLM_F_REQUEST, NetlinkMessage, NetlinkPayload, ParseableParametrized,
};
use netlink_packet_generic::{GenlFamily, GenlHeader, GenlMessage};
use nix::errno::Errno;
use tokio_util::task::AbortOnDropHandle;

use crate::net::netfilter::attributes::EncodedAttributes;
use crate::net::netns::NetNs;
use crate::runtime::failure;
use svclab_model::protocol::Failure;

/// Generic netlink socket of a namespace.
pub(super) struct IpvsSocket {
    handle: GenetlinkHandle,
    _driver: AbortOnDropHandle<()>,
}

impl IpvsSocket {
    pub(super) fn open(ns: &NetNs, name: &str) -> Result<Self, Failure> {
        let (connection, handle, _) = ns
            .enter(genetlink::new_connection)
            .and_then(|opened| opened)
            .map_err(|error| failure::cannot_enter(name, &error))?;
        Ok(Self {
            handle,
            _driver: AbortOnDropHandle::new(tokio::task::spawn_local(connection)),
        })
    }

    /// Sends a request and returns the attributes of each response.
    pub(super) async fn exchange(
        &mut self,
        command: u8,
        flags: u16,
        attributes: &EncodedAttributes,
    ) -> Result<Vec<Vec<u8>>, Errno> {
        let mut message = NetlinkMessage::from(GenlMessage::from_payload(IpvsMessage {
            command,
            attributes: attributes.bytes().to_vec(),
        }));
        message.header.flags = NLM_F_REQUEST | flags;
        // On a kernel without the family, the lookup of the family's number fails with ENOENT.
        let responses = self.handle.request(message).await;
        let mut responses = responses.map_err(|_| Errno::ENOPROTOOPT)?;
        let mut received = Vec::new();
        while let Some(response) = responses.next().await {
            match response.map_err(|_| Errno::EPROTO)?.payload {
                NetlinkPayload::InnerMessage(message) => received.push(message.payload.attributes),
                NetlinkPayload::Error(error) if error.raw_code() != 0 => {
                    return Err(Errno::from_raw(-error.raw_code()));
                }
                _ => {}
            }
        }
        Ok(received)
    }
}

/// Request to or response from the kernel's IPVS.
#[derive(Debug, Clone)]
struct IpvsMessage {
    command: u8,
    attributes: Vec<u8>,
}

impl GenlFamily for IpvsMessage {
    fn family_name() -> &'static str {
        "IPVS"
    }

    fn command(&self) -> u8 {
        self.command
    }

    fn version(&self) -> u8 {
        1
    }
}

impl Emitable for IpvsMessage {
    fn buffer_len(&self) -> usize {
        self.attributes.len()
    }

    fn emit(&self, buffer: &mut [u8]) {
        buffer[..self.attributes.len()].copy_from_slice(&self.attributes);
    }
}

impl ParseableParametrized<[u8], GenlHeader> for IpvsMessage {
    fn parse_with_param(bytes: &[u8], header: GenlHeader) -> Result<Self, DecodeError> {
        Ok(Self {
            command: header.cmd,
            attributes: bytes.to_vec(),
        })
    }
}
