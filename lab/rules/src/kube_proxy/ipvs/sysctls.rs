//! Computes the sysctls that ipvs mode sets when it starts. (`NewProxier` of kubernetes/kubernetes
//! `pkg/proxy/ipvs/proxier.go`.)
//!
//! `net.bridge.bridge-nf-call-iptables` is not among them: kube-proxy only logs if it is not set.

use std::ops::Range;

use crate::kube_proxy::KubeProxy;
use crate::kube_proxy::history::{
    IPVS_ARP, IPVS_ARP_IF_STRICT, IPVS_CONN_REUSE, IPVS_CONN_REUSE_BEFORE_5_9,
    IPVS_CONN_REUSE_FROM_4_1, IPVS_EXPIRES_CONNECTIONS, IPVS_ROUTE_LOCALNET,
};

/// Kernel version: the first two numbers of `uname -r`.
pub type KernelVersion = (u16, u16);

/// Range of all kernels.
const ANY_KERNEL: Range<KernelVersion> = (0, 0)..(u16::MAX, 0);

/// Sysctl that kube-proxy sets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProxySysctl {
    /// Dotted name, as `sysctl` prints it.
    pub key: &'static str,
    /// Value as text.
    pub value: &'static str,
    /// Kernels on which kube-proxy sets the sysctl; the end is exclusive.
    pub kernels: Range<KernelVersion>,
}

impl ProxySysctl {
    /// Whether kube-proxy sets the sysctl on this kernel.
    #[must_use]
    pub fn is_set_on(&self, kernel: KernelVersion) -> bool {
        self.kernels.contains(&kernel)
    }
}

/// Returns the sysctls that `proxy` in ipvs mode sets, in kube-proxy's order.
#[must_use]
pub fn sysctls(proxy: &KubeProxy) -> Vec<ProxySysctl> {
    let version = proxy.version;
    let reuses = version.has(&IPVS_CONN_REUSE);
    let expires = version.has(&IPVS_EXPIRES_CONNECTIONS);
    let arp = version.has(&IPVS_ARP) && (proxy.strict_arp || !version.has(&IPVS_ARP_IF_STRICT));
    let reuse = Range {
        start: if version.has(&IPVS_CONN_REUSE_FROM_4_1) {
            (4, 1)
        } else {
            ANY_KERNEL.start
        },
        end: if version.has(&IPVS_CONN_REUSE_BEFORE_5_9) {
            (5, 9)
        } else {
            ANY_KERNEL.end
        },
    };
    let candidates = [
        (
            version.has(&IPVS_ROUTE_LOCALNET),
            "net.ipv4.conf.all.route_localnet",
            "1",
            ANY_KERNEL,
        ),
        (true, "net.ipv4.vs.conntrack", "1", ANY_KERNEL),
        (reuses, "net.ipv4.vs.conn_reuse_mode", "0", reuse),
        (expires, "net.ipv4.vs.expire_nodest_conn", "1", ANY_KERNEL),
        (
            expires,
            "net.ipv4.vs.expire_quiescent_template",
            "1",
            ANY_KERNEL,
        ),
        (true, "net.ipv4.ip_forward", "1", ANY_KERNEL),
        (arp, "net.ipv4.conf.all.arp_ignore", "1", ANY_KERNEL),
        (arp, "net.ipv4.conf.all.arp_announce", "2", ANY_KERNEL),
    ];
    candidates
        .into_iter()
        .filter(|(is_enabled, ..)| *is_enabled)
        .map(|(_, key, value, kernels)| ProxySysctl {
            key,
            value,
            kernels,
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn proxy(version: &str) -> KubeProxy {
        KubeProxy::new(version.parse().unwrap())
    }

    fn set_sysctls(proxy: &KubeProxy, kernel: KernelVersion) -> Vec<String> {
        let sysctls_of_proxy = sysctls(proxy).into_iter();
        sysctls_of_proxy
            .filter(|sysctl| sysctl.is_set_on(kernel))
            .map(|sysctl| format!("{}={}", sysctl.key, sysctl.value))
            .collect()
    }

    #[test]
    fn sysctls_v1_9_sets_only_required() {
        assert_eq!(
            set_sysctls(&proxy("v1.9"), (4, 4)),
            [
                "net.ipv4.conf.all.route_localnet=1",
                "net.ipv4.vs.conntrack=1",
                "net.ipv4.ip_forward=1",
            ]
        );
    }

    #[test]
    fn sysctls_conn_reuse_mode_depends_on_kernel() {
        let reuse = "net.ipv4.vs.conn_reuse_mode=0".to_owned();
        for (version, kernel, sets) in [
            ("v1.18", (6, 1), true),
            ("v1.20.14", (6, 1), true),
            ("v1.20.15", (6, 1), false),
            ("v1.21.8", (6, 1), true),
            ("v1.21.9", (6, 1), false),
            ("v1.18", (4, 0), true),
            ("v1.19", (4, 0), false),
            ("v1.22", (6, 1), false),
            ("v1.22", (5, 8), true),
            ("v1.36", (5, 9), false),
            ("v1.11.6", (4, 4), false),
            ("v1.11", (4, 4), true),
        ] {
            assert_eq!(
                set_sysctls(&proxy(version), kernel).contains(&reuse),
                sets,
                "{version} on {kernel:?}"
            );
        }
    }

    #[test]
    fn sysctls_connection_settings_depend_on_patch_release() {
        let reuse = "net.ipv4.vs.conn_reuse_mode=0".to_owned();
        let expire = [
            "net.ipv4.vs.expire_nodest_conn=1".to_owned(),
            "net.ipv4.vs.expire_quiescent_template=1".to_owned(),
        ];
        for (version, reuses, expires) in [
            ("v1.11.6", false, false),
            ("v1.11.7", true, true),
            ("v1.12.4", false, false),
            ("v1.12.5", true, true),
            ("v1.13.1", true, false),
            ("v1.13.2", true, true),
            ("v1.14.0", true, true),
        ] {
            let set = set_sysctls(&proxy(version), (4, 4));
            assert_eq!(set.contains(&reuse), reuses, "{version}");
            for sysctl in &expire {
                assert_eq!(set.contains(sysctl), expires, "{version} {sysctl}");
            }
        }
    }

    #[test]
    fn sysctls_arp_depends_on_version_and_strict_arp() {
        let strict = "net.ipv4.conf.all.arp_announce=2".to_owned();
        for (version, is_strict, sets) in [
            ("v1.12", true, false),
            ("v1.13.5", false, true),
            ("v1.13.6", false, false),
            ("v1.13.6", true, true),
            ("v1.14.0", false, true),
            ("v1.14", false, false),
            ("v1.14", true, true),
            ("v1.36", false, false),
            ("v1.36", true, true),
        ] {
            let mut proxy = proxy(version);
            proxy.strict_arp = is_strict;
            assert_eq!(
                set_sysctls(&proxy, (6, 1)).contains(&strict),
                sets,
                "{version}, strictARP {is_strict}"
            );
        }
    }
}
