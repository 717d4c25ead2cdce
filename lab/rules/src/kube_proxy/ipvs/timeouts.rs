//! Computes the IPVS connection timeouts that kube-proxy sets when it starts, from its
//! configuration. (`NewProxier` of kubernetes/kubernetes `pkg/proxy/ipvs/proxier.go` and
//! `ConfigureTimeouts` of `pkg/util/ipvs/ipvs_linux.go`, from v1.18 on.)

use crate::kube_proxy::KubeProxy;
use crate::kube_proxy::history::IPVS_TIMEOUTS;
use svclab_ruleset::ipvs::Timeouts;

/// Returns the timeouts that `proxy` in ipvs mode sets, or `None` if no timeout is configured or
/// the version does not support them.
#[must_use]
pub fn timeouts(proxy: &KubeProxy) -> Option<Timeouts> {
    let configured = Timeouts {
        tcp: proxy.tcp_timeout.seconds(),
        tcp_fin: proxy.tcp_fin_timeout.seconds(),
        udp: proxy.udp_timeout.seconds(),
    };
    (proxy.version.has(&IPVS_TIMEOUTS) && configured != Timeouts::default()).then_some(configured)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timeouts_unset_or_unsupported_returns_none() {
        let mut proxy = KubeProxy::new("v1.18".parse().unwrap());
        assert_eq!(timeouts(&proxy), None);
        proxy.udp_timeout = "30s".parse().unwrap();
        let configured = Timeouts {
            tcp: 0,
            tcp_fin: 0,
            udp: 30,
        };
        assert_eq!(timeouts(&proxy), Some(configured));
        proxy.version = "v1.17".parse().unwrap();
        assert_eq!(timeouts(&proxy), None);
    }
}
