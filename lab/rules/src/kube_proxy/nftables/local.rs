//! Renders nftables matches for traffic of local pods. (kubernetes/kubernetes
//! `pkg/proxy/util/iptables/traffic.go` v1.29.1, `pkg/proxy/util/localdetector.go` v1.31.14 to
//! v1.36.2.)

use super::NftablesContext;
use crate::kube_proxy::Family;
use crate::kube_proxy::history::NFT_INTERFACES_BY_NAME;
use crate::kube_proxy::iptables::local::LocalTraffic;

/// Returns a match for packets from a local pod, or `None` if no detector is configured.
pub(super) fn local_match(context: &NftablesContext<'_>) -> Option<String> {
    render_match(context, "")
}

/// Returns a match for packets from other sources, or `None` if no detector is configured.
pub(super) fn nonlocal_match(context: &NftablesContext<'_>) -> Option<String> {
    render_match(context, "!= ")
}

fn render_match(context: &NftablesContext<'_>, operator: &str) -> Option<String> {
    let interface = if context.version.has(&NFT_INTERFACES_BY_NAME) {
        "iifname"
    } else {
        "iif"
    };
    Some(match context.local.as_ref()? {
        LocalTraffic::Source(network) => {
            let ip = Family::from_ip(network.ip()).nft();
            format!("{ip} saddr {operator}{network}")
        }
        LocalTraffic::Interface(name) => format!("{interface} {operator}{name}"),
        LocalTraffic::InterfacePrefix(prefix) => format!("{interface} {operator}{prefix}*"),
    })
}
