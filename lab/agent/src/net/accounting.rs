//! Creates the nfacct objects that rules count with, like `nfacct add`.

use netlink_packet_core::NLM_F_CREATE;

use crate::net::netns::NetNs;
use crate::net::nfnetlink;
use crate::runtime::failure;
use svclab_model::protocol::Failure;

/// Message that creates an object (Linux v6.12, `include/uapi/linux/netfilter/nfnetlink.h` and
/// `nfnetlink_acct.h`).
const NFNL_MSG_ACCT_NEW: u16 = 7 << 8;

/// Attribute with the name of the object.
const NFACCT_NAME: u16 = 1;

/// Creates objects with these names in a namespace.
///
/// # Errors
///
/// When a name is too long, or when the kernel rejects an object.
pub fn create(ns: &NetNs, namespace: &str, names: &[String]) -> Result<(), Failure> {
    for name in names {
        let Some(attribute) = name_attribute(name) else {
            return Err(failure::bug(format!(
                "the name of nfacct object {name} is too long"
            )));
        };
        let created = ns.enter(|| nfnetlink::request(NFNL_MSG_ACCT_NEW, NLM_F_CREATE, &attribute));
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

/// Returns the name as a netlink attribute: length, type, text and a zero byte, padded to a
/// multiple of 4 bytes. `None` if the name is too long.
fn name_attribute(name: &str) -> Option<Vec<u8>> {
    let length = u16::try_from(4 + name.len() + 1).ok()?;
    let mut attribute = Vec::new();
    attribute.extend_from_slice(&length.to_ne_bytes());
    attribute.extend_from_slice(&NFACCT_NAME.to_ne_bytes());
    attribute.extend_from_slice(name.as_bytes());
    attribute.push(0);
    attribute.resize(attribute.len().next_multiple_of(4), 0);
    Some(attribute)
}
