//! Recognises output of `ip addr` that lacks link layers.

use svclab_ruleset::link::{Link, Links};

/// Whether all outputs of interfaces are of `ip -4 addr`, `ip -6 addr` or `ip -o addr`, which print
/// neither link layers nor interfaces without addresses (iproute2 7.1, `ip/ipaddress.c`,
/// `print_linkinfo`).
pub(super) fn has_only_addressed_links(links: &Links) -> bool {
    let is_addressed = |link: &Link| link.link_layer.is_none() && !link.addresses.is_empty();
    let is_real = |link: &Link| link.is_partial() || link.is_complete();
    links.values().all(is_addressed) && links.values().any(is_real)
}
