//! Making the objects that rules count with, as `nfacct add` does.

use netlink_packet_core::NLM_F_CREATE;

use super::netns::NetNs;
use super::{failure, nfnetlink};
use svclab_model::protocol::Failure;

/// Make one (Linux v6.12, `include/uapi/linux/netfilter/nfnetlink.h` and
/// `nfnetlink_acct.h`).
const NEW: u16 = 7 << 8;

/// The attribute that names it.
const NAME: u16 = 1;

/// Makes objects of these names in a namespace.
///
/// # Errors
///
/// When the kernel refuses one.
pub fn make(ns: &NetNs, namespace: &str, names: &[String]) -> Result<(), Failure> {
    for name in names {
        let Some(attribute) = attribute(name) else {
            return Err(failure::bug(format!("{name} is too long a name")));
        };
        let made = ns.enter(|| nfnetlink::ask(NEW, NLM_F_CREATE, &attribute));
        made.and_then(|made| made).map_err(|error| {
            failure::machine(
                format!(
                    "cannot make the nfacct object {name} in {namespace}: {error}; \
                     `accounting: false` in kubeProxy does without"
                ),
                &error,
            )
        })?;
    }
    Ok(())
}

/// The name as an attribute: its length, its kind, its letters and a nought, up to
/// a multiple of four.
fn attribute(name: &str) -> Option<Vec<u8>> {
    let length = u16::try_from(4 + name.len() + 1).ok()?;
    let mut attribute = Vec::new();
    attribute.extend_from_slice(&length.to_ne_bytes());
    attribute.extend_from_slice(&NAME.to_ne_bytes());
    attribute.extend_from_slice(name.as_bytes());
    attribute.push(0);
    attribute.resize(attribute.len().next_multiple_of(4), 0);
    Some(attribute)
}
