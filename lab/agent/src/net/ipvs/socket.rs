//! Sends requests to the kernel's IPVS over generic netlink.
//!
//! The header of a generic request has as many bytes as that of netfilter, with the command in the
//! place of the address family (Linux v6.12, `include/uapi/linux/genetlink.h`,
//! `include/uapi/linux/netfilter/nfnetlink.h`). Therefore the code for netfilter serves here too.

use std::io;

use netlink_packet_core::NLM_F_DUMP;
use netlink_sys::Socket;
use netlink_sys::protocols::NETLINK_GENERIC;
use nix::errno::Errno;

use crate::net::netfilter::attributes::{EncodedAttributes, ReceivedAttributes};
use crate::net::netfilter::nfnetlink::{self, Request};
use crate::net::netns::NetNs;
use crate::runtime::failure;
use svclab_model::protocol::Failure;

/// Number of the family that knows all others, its command for a query, and the attributes of a
/// family's number and name (`include/uapi/linux/genetlink.h`).
const CONTROLLER: u16 = 0x10;
const GET_FAMILY: u8 = 3;
const FAMILY_ID: u16 = 1;
const FAMILY_NAME: u16 = 2;

/// Generic netlink socket of a namespace.
pub(super) struct IpvsSocket {
    socket: Socket,
    /// Number of the IPVS family. `None` on a kernel without IPVS.
    family: Option<u16>,
}

impl IpvsSocket {
    pub(super) fn open(ns: &NetNs, name: &str) -> Result<Self, Failure> {
        let socket = ns
            .enter(|| nfnetlink::open_for(NETLINK_GENERIC))
            .and_then(|opened| opened)
            .map_err(|error| failure::cannot_enter(name, &error))?;
        let mut family = None;
        let attributes = EncodedAttributes::default().with_text(FAMILY_NAME, "IPVS");
        let query = Request {
            command: CONTROLLER,
            family: GET_FAMILY,
            attributes: attributes.bytes(),
            ..Request::default()
        };
        // On a kernel without the family, the query fails with ENOENT.
        let _ = nfnetlink::query_on(&socket, &query, |response| {
            let number = ReceivedAttributes(response.attributes).get_bytes(FAMILY_ID);
            family = number.map(u16::from_ne_bytes).or(family);
        });
        Ok(Self { socket, family })
    }

    /// Sends requests, each a command with attributes, and waits until the kernel has executed them
    /// in order. An error has the index of the first rejected request.
    pub(super) fn request_all(
        &self,
        requests: &[(u8, EncodedAttributes)],
    ) -> Result<(), (usize, Errno)> {
        let family = self.family.ok_or((0, Errno::ENOPROTOOPT))?;
        let requests: Vec<Request<'_>> = requests
            .iter()
            .map(|(command, attributes)| Request {
                command: family,
                family: *command,
                attributes: attributes.bytes(),
                ..Request::default()
            })
            .collect();
        nfnetlink::request_each(&self.socket, &requests)
            .map_err(|(index, error)| (index, to_errno(&error)))
    }

    /// Returns the attributes of each object that a command lists.
    pub(super) fn list(
        &self,
        command: u8,
        attributes: &EncodedAttributes,
    ) -> Result<Vec<Vec<u8>>, Errno> {
        let request = Request {
            command: self.family.ok_or(Errno::ENOPROTOOPT)?,
            family: command,
            flags: NLM_F_DUMP,
            attributes: attributes.bytes(),
            ..Request::default()
        };
        let mut listed = Vec::new();
        nfnetlink::query_on(&self.socket, &request, |response| {
            listed.push(response.attributes.to_vec());
        })
        .map_err(|error| to_errno(&error))?;
        Ok(listed)
    }
}

fn to_errno(error: &io::Error) -> Errno {
    error.raw_os_error().map_or(Errno::EIO, Errno::from_raw)
}
