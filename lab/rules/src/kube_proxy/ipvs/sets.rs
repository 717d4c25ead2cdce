//! Defines the ipsets of ipvs mode by version: name, type, contents and comment.
//! (kubernetes/kubernetes `pkg/proxy/ipvs/ipset.go` and `ipsetInfo` in
//! `pkg/proxy/ipvs/proxier.go`.)

use std::collections::HashSet;

use indexmap::IndexMap;

use crate::kube_proxy::Family;
use crate::kube_proxy::history::{
    HEALTH_CHECK_NODE_PORTS, IPVS_CHAINS, IPVS_EXTERNAL_IP_LOCAL, IPVS_FILTER, IPVS_IPV6_SET_NAMES,
    IPVS_SCTP, IPVS_SCTP_HASHES,
};
use crate::kube_proxy::version::Version;
use svclab_ruleset::ipset::{self, IpsetError, IpsetScript, MAX_NAME_LENGTH, SetType};

/// Size of every hash in kube-proxy, in buckets.
const HASH_SIZE: u32 = 1024;
/// Maximum number of entries of every hash in kube-proxy.
const MAX_ENTRIES: u32 = 65_536;
/// Type of a set of ports.
const ALL_PORTS: SetType = SetType::BitmapPort(0, 65_535);

/// Set of kube-proxy.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum SetName {
    /// Endpoints with themselves as source.
    LoopBack,
    ClusterIp,
    /// External IPs; from v1.19 on only those without the policy `Local`.
    ExternalIp,
    /// External IPs with the policy `Local`.
    ExternalIpLocal,
    /// Load balancer addresses; up to v1.10 only those with source ranges.
    LoadBalancer,
    /// Load balancer addresses without the policy `Local`, up to v1.10.
    LoadBalancerMasq,
    /// Load balancer addresses with source ranges.
    LoadBalancerFw,
    /// Load balancer addresses with the policy `Local`.
    LoadBalancerLocal,
    /// Load balancer addresses with themselves as an admitted source.
    SourceIp,
    /// Load balancer addresses with admitted source networks.
    SourceCidr,
    /// TCP node ports; from v1.11 on all, before only those without the policy `Local`.
    NodePortTcp,
    /// TCP node ports with the policy `Local`.
    NodePortLocalTcp,
    /// UDP node ports; from v1.11 on all, before only those without the policy `Local`.
    NodePortUdp,
    /// UDP node ports with the policy `Local`.
    NodePortLocalUdp,
    NodePortSctp,
    /// SCTP node ports with the policy `Local`.
    NodePortLocalSctp,
    HealthCheck,
    /// Addresses of `kube-ipvs0`.
    IpvsIps,
}

/// All sets in kube-proxy's order.
const ALL_SETS: [SetName; 18] = [
    SetName::LoopBack,
    SetName::ClusterIp,
    SetName::ExternalIp,
    SetName::ExternalIpLocal,
    SetName::LoadBalancer,
    SetName::LoadBalancerMasq,
    SetName::LoadBalancerFw,
    SetName::LoadBalancerLocal,
    SetName::SourceIp,
    SetName::SourceCidr,
    SetName::NodePortTcp,
    SetName::NodePortLocalTcp,
    SetName::NodePortUdp,
    SetName::NodePortLocalUdp,
    SetName::NodePortSctp,
    SetName::NodePortLocalSctp,
    SetName::HealthCheck,
    SetName::IpvsIps,
];

impl SetName {
    /// Whether `version` has the set.
    fn is_supported(self, version: Version) -> bool {
        match self {
            Self::LoadBalancerMasq => !version.has(&IPVS_CHAINS),
            Self::LoadBalancerFw
            | Self::LoadBalancerLocal
            | Self::NodePortLocalTcp
            | Self::NodePortLocalUdp => version.has(&IPVS_CHAINS),
            Self::ExternalIpLocal => version.has(&IPVS_EXTERNAL_IP_LOCAL),
            Self::NodePortSctp | Self::NodePortLocalSctp => version.has(&IPVS_SCTP),
            Self::HealthCheck => version.has(&HEALTH_CHECK_NODE_PORTS),
            Self::IpvsIps => version.has(&IPVS_FILTER),
            _ => true,
        }
    }

    /// Returns the name of the IPv4 set.
    fn ipv4_name(self, version: Version) -> &'static str {
        let has_hashes = version.has(&IPVS_SCTP_HASHES);
        match self {
            Self::LoopBack => "KUBE-LOOP-BACK",
            Self::ClusterIp => "KUBE-CLUSTER-IP",
            Self::ExternalIp => "KUBE-EXTERNAL-IP",
            Self::ExternalIpLocal => "KUBE-EXTERNAL-IP-LOCAL",
            Self::LoadBalancer => "KUBE-LOAD-BALANCER",
            Self::LoadBalancerMasq => "KUBE-LOAD-BALANCER-MASQ",
            Self::LoadBalancerFw => "KUBE-LOAD-BALANCER-FW",
            Self::LoadBalancerLocal => "KUBE-LOAD-BALANCER-LOCAL",
            Self::SourceIp => "KUBE-LOAD-BALANCER-SOURCE-IP",
            Self::SourceCidr => "KUBE-LOAD-BALANCER-SOURCE-CIDR",
            Self::NodePortTcp => "KUBE-NODE-PORT-TCP",
            Self::NodePortLocalTcp => "KUBE-NODE-PORT-LOCAL-TCP",
            Self::NodePortUdp => "KUBE-NODE-PORT-UDP",
            Self::NodePortLocalUdp => "KUBE-NODE-PORT-LOCAL-UDP",
            Self::NodePortSctp if has_hashes => "KUBE-NODE-PORT-SCTP-HASH",
            Self::NodePortSctp => "KUBE-NODE-PORT-SCTP",
            Self::NodePortLocalSctp if has_hashes => "KUBE-NODE-PORT-LOCAL-SCTP-HASH",
            Self::NodePortLocalSctp => "KUBE-NODE-PORT-LOCAL-SCTP",
            Self::HealthCheck => "KUBE-HEALTH-CHECK-NODE-PORT",
            Self::IpvsIps => "KUBE-IPVS-IPS",
        }
    }

    /// Returns the comment of rules that match the set.
    pub(crate) fn comment(self, version: Version) -> &'static str {
        let has_hashes = version.has(&IPVS_SCTP_HASHES);
        match self {
            Self::LoopBack => {
                "Kubernetes endpoints dst ip:port, source ip for solving hairpin purpose"
            }
            Self::ClusterIp => "Kubernetes service cluster ip + port for masquerade purpose",
            Self::ExternalIp => {
                "Kubernetes service external ip + port for masquerade and filter purpose"
            }
            Self::ExternalIpLocal => {
                "Kubernetes service external ip + port with externalTrafficPolicy=local"
            }
            Self::LoadBalancer | Self::LoadBalancerMasq => "Kubernetes service lb portal",
            Self::LoadBalancerFw => {
                "Kubernetes service load balancer ip + port for load balancer with sourceRange"
            }
            Self::LoadBalancerLocal => {
                "Kubernetes service load balancer ip + port with externalTrafficPolicy=local"
            }
            Self::SourceIp => {
                "Kubernetes service load balancer ip + port + source IP for packet filter purpose"
            }
            Self::SourceCidr => {
                "Kubernetes service load balancer ip + port + source cidr for packet filter purpose"
            }
            Self::NodePortTcp => "Kubernetes nodeport TCP port for masquerade purpose",
            Self::NodePortLocalTcp => {
                "Kubernetes nodeport TCP port with externalTrafficPolicy=local"
            }
            Self::NodePortUdp => "Kubernetes nodeport UDP port for masquerade purpose",
            Self::NodePortLocalUdp => {
                "Kubernetes nodeport UDP port with externalTrafficPolicy=local"
            }
            Self::NodePortSctp if has_hashes => {
                "Kubernetes nodeport SCTP port for masquerade purpose with type 'hash ip:port'"
            }
            Self::NodePortSctp => "Kubernetes nodeport SCTP port for masquerade purpose",
            Self::NodePortLocalSctp if has_hashes => {
                "Kubernetes nodeport SCTP port with externalTrafficPolicy=local with type 'hash ip:port'"
            }
            Self::NodePortLocalSctp => {
                "Kubernetes nodeport SCTP port with externalTrafficPolicy=local"
            }
            Self::HealthCheck => "Kubernetes health check node port",
            Self::IpvsIps => "Addresses on the ipvs interface",
        }
    }

    fn set_type(self, version: Version) -> SetType {
        match self {
            Self::LoopBack | Self::SourceIp => SetType::HashIpPortIp,
            Self::SourceCidr => SetType::HashIpPortNet,
            Self::NodePortTcp
            | Self::NodePortLocalTcp
            | Self::NodePortUdp
            | Self::NodePortLocalUdp
            | Self::HealthCheck => ALL_PORTS,
            Self::NodePortSctp | Self::NodePortLocalSctp if !version.has(&IPVS_SCTP_HASHES) => {
                ALL_PORTS
            }
            Self::IpvsIps => SetType::HashIp,
            _ => SetType::HashIpPort,
        }
    }
}

/// Sets of one version and IP family, to which entries are added.
pub(super) struct Sets {
    version: Version,
    family: Family,
    by_name: IndexMap<SetName, ipset::Set>,
    /// Sets to which kube-proxy tried to add an entry.
    attempted: HashSet<SetName>,
}

impl Sets {
    /// Creates all sets of `version`, empty.
    pub(crate) fn new(version: Version, family: Family) -> Self {
        let empty = |name: SetName| {
            let kind = name.set_type(version);
            let set = ipset::Set::new(kind, family);
            let set = match kind {
                SetType::BitmapPort(..) => set,
                _ => set.with_hashsize(HASH_SIZE).with_maxelem(MAX_ENTRIES),
            };
            (name, set)
        };
        let supported = ALL_SETS
            .into_iter()
            .filter(|name| name.is_supported(version));
        Self {
            version,
            family,
            by_name: supported.map(empty).collect(),
            attempted: HashSet::new(),
        }
    }

    /// Adds an entry. If the version lacks the set, the entry is discarded.
    pub(crate) fn add(&mut self, name: SetName, entry: String) {
        if let Some(set) = self.by_name.get_mut(&name) {
            set.add(entry);
            self.attempted.insert(name);
        }
    }

    /// Records that kube-proxy tried to add an entry that ipset rejects. kube-proxy then treats the
    /// set as nonempty.
    pub(crate) fn record_rejected(&mut self, name: SetName) {
        if self.by_name.contains_key(&name) {
            self.attempted.insert(name);
        }
    }

    /// Whether kube-proxy treats the set as empty.
    pub(crate) fn is_empty(&self, name: SetName) -> bool {
        !self.attempted.contains(&name)
    }

    /// Whether the elements of the set are ports.
    pub(crate) fn has_ports(&self, name: SetName) -> bool {
        matches!(name.set_type(self.version), SetType::BitmapPort(..))
    }

    /// Returns the name of the set in the family. (`NewIPSet` in `pkg/proxy/ipvs/ipset.go`.)
    fn name(&self, name: SetName) -> String {
        let ipv4_name = name.ipv4_name(self.version);
        match (self.family, ipv4_name.strip_prefix("KUBE-")) {
            (Family::V6, Some(rest)) if self.version.has(&IPVS_IPV6_SET_NAMES) => {
                let mut ipv6_name = format!("KUBE-6-{rest}");
                ipv6_name.truncate(MAX_NAME_LENGTH);
                ipv6_name
            }
            _ => ipv4_name.to_owned(),
        }
    }

    /// Returns iptables arguments that match elements of the set; `by` is `dst` or `src` for each
    /// part of an element.
    pub(crate) fn matching(&self, name: SetName, directions: &str) -> String {
        format!("-m set --match-set {} {directions}", self.name(name))
    }

    /// Returns the sets as input of `ipset restore`.
    pub(crate) fn into_script(self) -> Result<IpsetScript, IpsetError> {
        let names: Vec<String> = self.by_name.keys().map(|name| self.name(*name)).collect();
        let mut script = IpsetScript::new();
        for (name, set) in names.into_iter().zip(self.by_name.into_values()) {
            script.add_set(name, set)?;
        }
        Ok(script)
    }
}
