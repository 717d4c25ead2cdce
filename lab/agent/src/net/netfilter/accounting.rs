//! Creates the nfacct objects that rules count with, like `nfacct add`.

use netlink_packet_core::NLM_F_CREATE;

use super::attributes::EncodedAttributes;
use super::nfnetlink::{self, Request};
use crate::net::netns::NetNs;
use crate::runtime::failure;
use svclab_model::protocol::Failure;

/// Message that creates an object (Linux v6.12, `include/uapi/linux/netfilter/nfnetlink.h` and
/// `nfnetlink_acct.h`).
const NFNL_MSG_ACCT_NEW: u16 = 7 << 8;

/// Attribute with the name of the object.
const NFACCT_NAME: u16 = 1;

/// Creates objects with these names in a namespace.
pub(crate) fn create(ns: &NetNs, namespace: &str, names: &[String]) -> Result<(), Failure> {
    for name in names {
        let attribute = EncodedAttributes::default().with_text(NFACCT_NAME, name);
        let request = Request {
            command: NFNL_MSG_ACCT_NEW,
            flags: NLM_F_CREATE,
            attributes: attribute.bytes(),
            ..Request::default()
        };
        let created = ns.enter(|| nfnetlink::request(&request));
        created.and_then(|made| made).map_err(|error| {
            failure::host(
                format!(
                    "cannot create nfacct object {name} in {namespace}: {error}; \
                     set `accounting: false` in kubeProxy to run without nfacct objects"
                ),
                &error,
            )
        })?;
    }
    Ok(())
}
