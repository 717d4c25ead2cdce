//! Which kube-proxy: its version, and every difference between versions that
//! the rules show, each named once. Reading the constants from top to bottom is
//! reading kube-proxy's history.
//!
//! Where a constant cites a file, it means that file of kubernetes/kubernetes
//! at the tags between which the behaviour came or went. Minor versions decide:
//! no difference between two patch releases of one minor version is modelled,
//! except where a [`Change`] names the patch releases that had it early.
//!
//! What is known how well: v1.14 and v1.16 to v1.36 were read in source (v1.19,
//! v1.21 and v1.22 near their first releases) and v1.15 lies between two of
//! them; the versions under `tests/recorded/kube-proxy` were also recorded.
//! v1.13 was read in source; v1.10 to v1.12 are taken to be alike but for the
//! changes named here, and v1.9 to be v1.10 before #56164.

use std::fmt;
use std::str::FromStr;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};
use thiserror::Error;

/// The oldest minor version whose rules are known.
pub const OLDEST_MINOR: u8 = 9;
/// The newest minor version whose rules are known.
pub const NEWEST_MINOR: u8 = 36;

/// A version of kube-proxy, `v1.18` or `v1.18.2`.
///
/// Without a patch number it stands for the newest patch release of its minor
/// version.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Version {
    minor: u8,
    patch: Option<u8>,
}

/// Why a text is not a [`Version`].
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum VersionError {
    /// Not of the form `v1.MINOR` or `v1.MINOR.PATCH`.
    #[error("`{0}` is not a kube-proxy version: write it as v1.18 or v1.18.2")]
    Form(String),
    /// A version whose rules are not known.
    #[error("kube-proxy {0} is not known: versions v1.{OLDEST_MINOR} to v1.{NEWEST_MINOR} are")]
    Unknown(String),
}

impl Version {
    /// `v1.MINOR`, at its newest patch release.
    ///
    /// # Errors
    ///
    /// [`VersionError::Unknown`] outside the known range.
    pub fn minor(minor: u8) -> Result<Self, VersionError> {
        if (OLDEST_MINOR..=NEWEST_MINOR).contains(&minor) {
            Ok(Self { minor, patch: None })
        } else {
            Err(VersionError::Unknown(format!("v1.{minor}")))
        }
    }

    /// Whether this version shows `change`.
    #[must_use]
    pub fn has(self, change: &Change) -> bool {
        let early = |&(minor, patch): &(u8, u8)| {
            self.minor == minor && self.patch.is_none_or(|own| own >= patch)
        };
        (change.since..=change.until).contains(&self.minor) || change.early.iter().any(early)
    }
}

impl FromStr for Version {
    type Err = VersionError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let form = || VersionError::Form(text.to_owned());
        let digits = text.strip_prefix('v').unwrap_or(text);
        let mut parts = digits.split('.');
        let (Some("1"), Some(minor), patch, None) =
            (parts.next(), parts.next(), parts.next(), parts.next())
        else {
            return Err(form());
        };
        let number = |part: &str| {
            let plain = !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit());
            plain.then(|| part.parse::<u8>().ok()).flatten()
        };
        let minor = number(minor).ok_or_else(form)?;
        let patch = match patch {
            Some(patch) => Some(number(patch).ok_or_else(form)?),
            None => None,
        };
        if (OLDEST_MINOR..=NEWEST_MINOR).contains(&minor) {
            Ok(Self { minor, patch })
        } else {
            Err(VersionError::Unknown(text.to_owned()))
        }
    }
}

impl TryFrom<String> for Version {
    type Error = VersionError;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        text.parse()
    }
}

impl From<Version> for String {
    fn from(version: Version) -> Self {
        version.to_string()
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.patch {
            Some(patch) => write!(f, "v1.{}.{patch}", self.minor),
            None => write!(f, "v1.{}", self.minor),
        }
    }
}

impl JsonSchema for Version {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "KubeProxyVersion".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "type": "string",
            "description": "A kube-proxy version, v1.9 to v1.36, with or without a patch number.",
            "pattern": r"^v?1\.(9|[12][0-9]|3[0-6])(\.[0-9]+)?$"
        })
    }
}

/// A behaviour that only some versions of kube-proxy have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Change {
    /// The first minor version that has it.
    since: u8,
    /// The last minor version that has it.
    until: u8,
    /// Patch releases of earlier minor versions, `(minor, patch)`, from which on
    /// they have it too.
    early: &'static [(u8, u8)],
}

impl Change {
    /// Came with `minor` and stayed.
    const fn since(minor: u8) -> Self {
        Self {
            since: minor,
            until: NEWEST_MINOR,
            early: &[],
        }
    }

    /// Was there before the known versions and went after `minor`.
    const fn until(minor: u8) -> Self {
        Self {
            since: OLDEST_MINOR,
            until: minor,
            early: &[],
        }
    }

    /// Came with `first` and went after `last`.
    const fn between(first: u8, last: u8) -> Self {
        Self {
            since: first,
            until: last,
            early: &[],
        }
    }

    /// Was also in patch releases of earlier minor versions.
    const fn early(self, early: &'static [(u8, u8)]) -> Self {
        Self { early, ..self }
    }
}

// What kube-proxy makes of the objects, in every mode.

/// Endpoints come from `Endpoints` objects: ready ones only, in the order of
/// their IP addresses. Later they come from `EndpointSlice`s, in the order of
/// their `IP:port` texts.
/// (`pkg/proxy/endpoints.go` v1.18.2 and `pkg/proxy/endpointslicecache.go`
/// v1.19.2; the gate `EndpointSliceProxying` is on from v1.19.)
pub const ENDPOINTS_OBJECTS: Change = Change::until(18);
/// A service port without a name is still written with its colon, `ns/name:`,
/// which also goes into the hash of its chain.
/// (`pkg/proxy/types.go` v1.18.6, v1.19.2.)
pub const COLON_OF_UNNAMED_PORT: Change = Change::until(18);
/// `internalTrafficPolicy: Local` is obeyed.
/// (Gate `ServiceInternalTrafficPolicy`, on from v1.22: `pkg/features/kube_features.go`.)
pub const INTERNAL_TRAFFIC_POLICY: Change = Change::since(22);
/// Endpoints that are not ready are kept too: in ipvs mode they are in
/// `KUBE-LOOP-BACK`. Before, one that another slice has as ready was ready.
/// (`newEndpointSliceInfo` in `pkg/proxy/endpointslicecache.go` v1.20.2, v1.21.1.)
pub const UNREADY_ENDPOINTS_KEPT: Change = Change::since(21);
/// Every endpoint counts as one for "has no endpoints", also one that is
/// neither ready nor serving. (`pkg/proxy/iptables/proxier.go` v1.22.0-rc.0.)
pub const UNREADY_ENDPOINTS_COUNT: Change = Change::between(22, 22);
/// With no ready endpoint left, those that still serve while they terminate
/// are used. (Gate `ProxyTerminatingEndpoints`, on from v1.26.)
pub const TERMINATING_FALLBACK: Change = Change::since(26);
/// Zone hints in endpoint slices are obeyed when the service's annotation
/// asks for it with `Auto`. (Gate `TopologyAwareHints`, on from v1.24;
/// `pkg/proxy/topology.go` v1.24.0.)
pub const ZONE_HINTS: Change = Change::since(24);
/// The annotation may say anything but `Disabled`, and may be called
/// `topology-mode`. (`pkg/proxy/topology.go`, `service.go` v1.27.1.)
pub const ANY_TOPOLOGY_ANNOTATION: Change = Change::between(27, 30);
/// Zone hints are obeyed whatever the annotation says.
/// (Gate `ServiceTrafficDistribution`, on from v1.31.)
pub const HINTS_WITHOUT_ANNOTATION: Change = Change::since(31);
/// Node hints go before zone hints.
/// (Gate `PreferSameTrafficDistribution`, on from v1.34.)
pub const NODE_HINTS: Change = Change::since(34);
/// `externalTrafficPolicy: Local` also holds for a `ClusterIP` service with
/// external IPs. (`pkg/api/v1/service/util.go` v1.28.3, v1.29.1.)
pub const LOCAL_FOR_CLUSTER_IP_TYPE: Change = Change::since(29);
/// An ingress address with `ipMode: Proxy` is left to the load balancer.
/// (Gate `LoadBalancerIPMode`, on from v1.30.)
pub const LOAD_BALANCER_IP_MODE: Change = Change::since(30);
/// A source range of all addresses is no restriction.
/// (`pkg/proxy/serviceport.go` v1.33, v1.34.)
pub const ZERO_RANGE_IS_NO_RANGE: Change = Change::since(34);
/// One process serves both IP families.
/// (Gate `IPv6DualStack`, on from v1.21: `pkg/features/kube_features.go`.)
pub const DUAL_STACK: Change = Change::since(21);

// What iptables mode writes once for the node.

/// `KUBE-PROXY-CANARY` in mangle, nat and filter, by whose absence kube-proxy
/// notices a flush. (`pkg/proxy/iptables/proxier.go` v1.17, #81517.)
pub const CANARY: Change = Change::since(17);
/// Filter INPUT and OUTPUT jump to `KUBE-SERVICES` with packets of any state,
/// and everything without endpoints is refused there. Later only new
/// connections, and what comes from outside has `KUBE-EXTERNAL-SERVICES`.
/// (#56164 and #60306, v1.10.)
pub const ONE_CHAIN_REFUSES: Change = Change::until(9);
/// Filter INPUT and FORWARD jump to `KUBE-SERVICES`, and a load balancer's
/// address without endpoints is refused. (#74394; in `iptablesJumpChains` of
/// v1.14.0 and of the newest v1.13.)
pub const LOAD_BALANCER_REFUSED: Change = Change::since(13);
/// The jump from filter INPUT to `KUBE-SERVICES` is gone again: FORWARD jumps to
/// `KUBE-EXTERNAL-SERVICES` too, and load balancers' addresses without endpoints
/// are refused there. (#95252, v1.20.)
pub const INPUT_SPARED: Change = Change::since(20);
/// Filter `KUBE-NODEPORTS` accepts health check node ports.
/// (`pkg/proxy/iptables/proxier.go` v1.21.0.)
pub const HEALTH_CHECK_NODE_PORTS: Change = Change::since(21);
/// kube-proxy makes nat `KUBE-MARK-DROP` if it is missing; its rule stays the
/// kubelet's. (`iptablesEnsureChains` v1.20.0 to v1.24.3.)
pub const ENSURES_MARK_DROP: Change = Change::between(20, 24);
/// Drops happen in the filter table: `KUBE-PROXY-FIREWALL` for source ranges,
/// `KUBE-EXTERNAL-SERVICES` for missing local endpoints. `KUBE-MARK-DROP` is
/// no longer used. (`pkg/proxy/iptables/proxier.go` v1.25.1.)
pub const DROPS_IN_FILTER: Change = Change::since(25);
/// kube-proxy itself keeps strangers from 127.0.0.0/8 in `KUBE-FIREWALL`.
/// (`iptablesKubeletJumpChains` v1.27.1.)
pub const LOCALNET_FIREWALL: Change = Change::since(27);
/// Packets in conntrack state INVALID are dropped in `KUBE-FORWARD`.
/// (Issue #74839; absent in v1.14.0, there in v1.16.0-beta.2, released as v1.15.)
pub const INVALID_DROPPED: Change = Change::since(15);
/// `tcpBeLiberal` leaves that drop out. (`pkg/proxy/iptables/proxier.go` v1.29.1.)
pub const LIBERAL_KEEPS_INVALID: Change = Change::since(29);
/// nfacct objects count dropped invalid packets and node ports reached over
/// 127.0.0.0/8. (`pkg/proxy/iptables/proxier.go` v1.31.)
pub const ACCOUNTING: Change = Change::since(31);
/// The two ESTABLISHED rules of `KUBE-FORWARD` are tied to the cluster CIDR and
/// absent without one. (`pkg/proxy/iptables/proxier.go` v1.17, v1.18.2.)
pub const FORWARD_TIED_TO_CLUSTER_CIDR: Change = Change::until(17);
/// Two ESTABLISHED rules, for "pod source" and "pod destination"; later one.
/// (`pkg/proxy/iptables/proxier.go` v1.22.0-rc.0, v1.23.4.)
pub const TWO_ESTABLISHED_RULES: Change = Change::until(22);
/// POSTROUTING takes the mark off before it masquerades, so that a packet that
/// comes by again is not masqueraded twice.
/// (`pkg/proxy/iptables/proxier.go` v1.18.2, v1.18.6, v1.19.2; in
/// `pkg/proxy/ipvs/proxier.go` of the same versions.)
pub const MARK_CLEARED: Change = Change::since(19).early(&[(18, 6)]);
/// `MASQUERADE --random-fully` when iptables knows it.
/// (`pkg/proxy/iptables/proxier.go` v1.16.)
pub const RANDOM_FULLY: Change = Change::since(16);
/// The node's address is taken to be the bind address, `0.0.0.0` or `::`, so
/// that source ranges seldom admit the node itself.
/// (`nodeIPTuple` in `cmd/kube-proxy/app/server_others.go` v1.21.0 to v1.27.1;
/// before, only one family was served and its address looked up.)
pub const BIND_ADDRESS_FOR_NODE: Change = Change::between(21, 27);
/// `localhostNodePorts` decides whether node ports answer on 127.0.0.0/8, and
/// they no longer answer on `::1`. (`pkg/proxy/iptables/proxier.go` v1.26.0.)
pub const LOCALHOST_NODE_PORTS: Change = Change::since(26);
/// `nodePortAddresses` without 127.0.0.1 turns `localhostNodePorts` off.
/// (`pkg/proxy/iptables/proxier.go` v1.27.1.)
pub const LOCALHOST_FOLLOWS_ADDRESSES: Change = Change::since(27);

// What the kubelet writes beside it.

/// The kubelet marks for dropping and drops what is marked.
/// (`pkg/kubelet/kubelet_network_linux.go` v1.14.0 to v1.27; the gate
/// `IPTablesOwnershipCleanup` ended it in v1.27.)
pub const KUBELET_DROPS: Change = Change::until(26);
/// The kubelet keeps strangers from 127.0.0.0/8 (CVE-2020-8558).
pub const KUBELET_LOCALNET: Change = Change::since(19).early(&[(16, 11), (17, 7), (18, 4)]);
/// The kubelet makes `KUBE-KUBELET-CANARY`. (#81517, v1.17.)
pub const KUBELET_CANARY: Change = Change::since(17);
/// The kubelet makes mangle `KUBE-IPTABLES-HINT`. (#109059, v1.24.)
pub const KUBELET_HINT: Change = Change::since(24);

// What iptables mode writes for each service.

/// Comments were meant for the rules of `KUBE-SVC` and `KUBE-SEP` but lost on
/// the way to them: `append` to a slice that the caller never saw.
/// (`appendServiceCommentLocked` v1.14.0 and v1.17, mended in v1.18.2.)
pub const LOST_COMMENTS: Change = Change::until(17);
/// Probabilities have five digits; later ten.
/// (`computeProbability` v1.16.0-beta.2, v1.17.)
pub const FIVE_DIGIT_PROBABILITIES: Change = Change::until(16);
/// `KUBE-XLB-` chains for `externalTrafficPolicy: Local`; later `KUBE-EXT-` for
/// all external traffic and `KUBE-SVL-` for local endpoints.
/// (`pkg/proxy/iptables/proxier.go` v1.23.4, v1.24.0.)
pub const XLB_CHAINS: Change = Change::until(23);
/// The node's own traffic to a `Local` load balancer or node port goes to every
/// endpoint; before, it met only local ones. (#77523, v1.15.)
pub const NODE_TRAFFIC_MEETS_ALL: Change = Change::since(15);
/// External IPs obey `externalTrafficPolicy: Local`.
/// (Gate `ExternalPolicyForExternalIP`: false in v1.18.2, true in v1.19.2.)
pub const EXTERNAL_IPS_OBEY_POLICY: Change = Change::since(19);
/// An external IP is served only to traffic from off the machine, told by
/// `physdev`, or when the address is the node's own.
/// (`pkg/proxy/iptables/proxier.go` v1.20, v1.21.0.)
pub const PHYSDEV_FOR_EXTERNAL_IPS: Change = Change::until(20);
/// The rules that decide about masquerading stand in the service's own chain;
/// before, in `KUBE-SERVICES` and `KUBE-NODEPORTS`.
/// (`pkg/proxy/iptables/proxier.go` v1.21.0, v1.22.0-rc.0.)
pub const MASQUERADE_IN_SERVICE_CHAIN: Change = Change::since(22);
/// The rules of node ports are left out where the node has no address to serve
/// them on (`nodePortAddresses`). Later they are there, and nothing leads to them.
/// (`pkg/proxy/iptables/proxier.go` v1.20.2 and v1.24; without it where outside
/// traffic without endpoints is told apart, from v1.25.)
pub const NODE_PORTS_NEED_ADDRESS: Change = Change::between(10, 24);
/// … and the whole service is left as it is at that point: its chains are there,
/// and no rule leads from them to an endpoint. (The same, v1.20.2; gone in v1.23.
/// v1.21 and v1.22 are taken to be like v1.20.)
pub const NO_NODE_ADDRESS_ENDS_SERVICE: Change = Change::between(10, 22);
/// Rules for local endpoints are called `Balancing rule N for …`.
/// (`pkg/proxy/iptables/proxier.go` v1.22.0-rc.0, v1.23.4.)
pub const BALANCING_RULE_COMMENTS: Change = Change::until(22);
/// The end of a `KUBE-FW-` chain says in a rule without a target who drops the
/// rest. (`pkg/proxy/iptables/proxier.go` v1.27.1.)
pub const FIREWALL_CHAIN_REMARK: Change = Change::since(27);

// What ipvs mode writes. Files are those of `pkg/proxy/ipvs`, `proxier.go`
// unless another is named.
//
// v1.14 and v1.16 to v1.36 were read in source, v1.11 at two of its releases,
// v1.9 and v1.10 while they were made (v1.9 with its sets already as in the dump
// of a v1.9.11); v1.12, v1.13 and v1.15 lie between those. v1.18.2, v1.20.2,
// v1.23.4, v1.25.1, v1.28.3, v1.30.5 and v1.36.2 were recorded.

/// Chains of their own decide about load balancers and node ports,
/// `KUBE-LOAD-BALANCER`, `KUBE-NODE-PORT` and `KUBE-FIREWALL`, and rules say in a
/// comment what their set is for. Before, `KUBE-SERVICES` did all of it.
/// (v1.10 alpha, v1.11.)
pub const IPVS_CHAINS: Change = Change::since(11);
/// Without a cluster CIDR, what comes from a cluster IP is masqueraded: the
/// node itself, which takes the service's address for its own. Before, nothing
/// was, and such connections never got an answer. (#63241, #63319, v1.11.)
pub const IPVS_MASQUERADES_OWN_TRAFFIC: Change = Change::since(11);
/// External IPs and load balancers' addresses are bound to `kube-ipvs0` too,
/// not only cluster IPs. (#59976; v1.10 alpha, v1.11.)
pub const IPVS_BINDS_EXTERNAL: Change = Change::since(11);
/// `externalTrafficPolicy: Local` also holds for the cluster IP.
/// (`syncEndpoint` of the cluster IP in v1.9 and the v1.10 alpha.)
pub const IPVS_POLICY_FOR_CLUSTER_IP: Change = Change::until(9);
/// Virtual servers of external IPs obey `externalTrafficPolicy: Local`, as they
/// do again from [`EXTERNAL_IPS_OBEY_POLICY`] on. (v1.10 alpha, v1.11.)
pub const IPVS_EXTERNAL_IPS_OBEYED: Change = Change::until(10);
/// A load balancer's virtual server obeys `externalTrafficPolicy: Local` only
/// with client affinity. (v1.11; gone in v1.14.0.)
pub const IPVS_POLICY_NEEDS_AFFINITY: Change = Change::between(11, 11);
/// Virtual servers of node ports obey `externalTrafficPolicy: Local`.
/// (#66064, v1.12 and by #68278 v1.11.4; v1.9 and the v1.10 alpha did too.)
pub const IPVS_NODE_PORTS_OBEY_POLICY: Change =
    Change::since(12).early(&[(9, 0), (10, 0), (11, 4)]);
/// With no local endpoint to be found, `Local` falls back to all endpoints.
/// (v1.23.4, v1.24.0.)
pub const IPVS_LOCAL_FALLS_BACK: Change = Change::since(24);
/// `KUBE-LOOP-BACK` holds only endpoints of this node.
/// (#71114, v1.14; taken into v1.11 by #72100 and, by their dates, into v1.12.5
/// and v1.13.2.)
pub const IPVS_LOOP_BACK_LOCAL: Change = Change::since(14).early(&[(11, 7), (12, 5), (13, 2)]);
/// Packets are led to `KUBE-NODE-PORT` by the set their port is in; later,
/// whatever is addressed to the node is. (v1.11, v1.14.0.)
pub const IPVS_NODE_PORTS_BY_SET: Change = Change::between(11, 11);
/// `KUBE-FORWARD` is made but nothing is written to it. (`syncProxyRules` v1.11,
/// v1.14.0.)
pub const IPVS_EMPTY_FORWARD: Change = Change::between(11, 11);
/// SCTP is served. (Gate `SCTPSupport`, #64973, v1.12.)
pub const IPVS_SCTP: Change = Change::since(12);
/// The sets of SCTP node ports are hashes of address and port, not bitmaps, and
/// called so. (`ipset.go` v1.14.0, v1.16.0-beta.2, released as v1.15.)
pub const IPVS_SCTP_HASHES: Change = Change::since(15);
/// The rule for SCTP node ports with the policy `Local` comes before the one for
/// all. (v1.22.0-rc.0, v1.23.4.)
pub const IPVS_SCTP_LOCAL_FIRST: Change = Change::since(23);
/// IPv6 sets are called `KUBE-6-…`, shortened to 31 characters.
/// (`NewIPSet` in `ipset.go` v1.14.0, v1.16.0-beta.2.)
pub const IPVS_SIX_SETS: Change = Change::since(16);
/// Addresses get themselves for a broadcast address. (The netlink library in
/// v1.18.6 and v1.20.0-rc.0.)
pub const IPVS_BROADCAST: Change = Change::until(18);
/// kube-proxy makes `KUBE-MARK-DROP` if it is missing. (v1.14.0, v1.16.0-beta.2
/// to v1.24.0; until v1.18 it also flushed it, until the kubelet came by.)
pub const IPVS_ENSURES_MARK_DROP: Change = Change::between(16, 24);
/// There is a set of external IPs with the policy `Local`, which are not
/// masqueraded. (`ipset.go` v1.17, v1.18.2.)
pub const IPVS_EXTERNAL_IP_LOCAL: Change = Change::since(18);
/// Node ports are served on loopback addresses too. (`NodeIPs` v1.21.1,
/// v1.22.0-rc.0.)
pub const IPVS_LOOPBACK_NODE_PORTS: Change = Change::between(10, 21);
/// `nodePortAddresses` is obeyed. (v1.9, v1.10 alpha. v1.9 served node ports on
/// the interfaces called `eth…`; #56685.)
pub const IPVS_NODE_PORT_ADDRESSES: Change = Change::since(10);
/// What is addressed to a service's address but to no port of it is refused
/// (`KUBE-IPVS-FILTER`), and what comes from a loopback address is let alone.
/// (v1.25.1, v1.26.0.)
pub const IPVS_FILTER: Change = Change::since(26);
/// The scheduler `mh` hashes ports too. (`FlagSourceHash` v1.26.0, v1.27.1.)
pub const IPVS_HASHES_PORTS: Change = Change::since(27);
/// Health checks pass `KUBE-IPVS-FILTER`. (v1.27.1, v1.28.3.)
pub const IPVS_FILTER_SPARES_HEALTH_CHECKS: Change = Change::since(28);
/// A cluster IP or a load balancer's address that is the node's own anyway is
/// not bound to `kube-ipvs0`. (v1.27.1, v1.28.3.)
pub const IPVS_OWN_ADDRESSES_NOT_BOUND: Change = Change::since(28);
/// The node itself is kept from load balancers whose source ranges do not admit
/// it (`KUBE-IPVS-OUT-FILTER`). (v1.28.3, v1.29.1.)
pub const IPVS_OUT_FILTER: Change = Change::since(29);
/// External IPs with the policy `Local` pass `KUBE-IPVS-FILTER`.
/// (v1.29.1, v1.30.3.)
pub const IPVS_FILTER_SPARES_LOCAL_EXTERNAL_IPS: Change = Change::since(30);

// What ipvs mode sets in the kernel.

/// How long connections are remembered can be told. (#85517, v1.18.)
pub const IPVS_TIMEOUTS: Change = Change::since(18);
/// `route_localnet` is set. (`NewProxier` v1.20.0-rc.0, v1.21.1.)
pub const IPVS_ROUTE_LOCALNET: Change = Change::until(20);
/// Connections to real servers that are gone do not linger: `conn_reuse_mode`,
/// `expire_nodest_conn` and `expire_quiescent_template` are set.
/// (#71834, v1.14; taken into v1.11 by #72100 and, by their dates, into v1.12.5
/// and v1.13.2.)
pub const IPVS_EXPIRES_CONNECTIONS: Change = Change::since(14).early(&[(11, 7), (12, 5), (13, 2)]);
/// `conn_reuse_mode` is left alone on kernels before 4.1, which lack it.
/// (`NewProxier` v1.18.6, v1.20.0-rc.0.)
pub const IPVS_CONN_REUSE_FROM_4_1: Change = Change::since(20);
/// `conn_reuse_mode` is left alone on kernels from 5.9 on, which do not need it.
/// (`NewProxier` v1.21.1, v1.22.0-rc.0.)
pub const IPVS_CONN_REUSE_BEFORE_5_9: Change = Change::since(22);
/// `arp_ignore` and `arp_announce` are set. (#70530, v1.13.)
pub const IPVS_ARP: Change = Change::since(13);
/// … but only if `strictARP` asks for it. (#75295, v1.15, and by #75719 in
/// v1.14.2; v1.14.0 has it not.)
pub const IPVS_ARP_IF_STRICT: Change = Change::since(15).early(&[(14, 2)]);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_forms_are_read_and_written_alike() {
        for text in ["v1.9", "v1.18", "v1.18.2", "v1.36.2"] {
            assert_eq!(text.parse::<Version>().unwrap().to_string(), text);
        }
        assert_eq!("1.20".parse::<Version>().unwrap().to_string(), "v1.20");
    }

    #[test]
    fn anything_else_says_what_is_wrong() {
        for text in [
            "",
            "v1",
            "v2.3",
            "v1.x",
            "v1.18.",
            "v1.18.2.1",
            "v1.+9",
            "latest",
        ] {
            assert_eq!(
                text.parse::<Version>(),
                Err(VersionError::Form(text.to_owned()))
            );
        }
        for text in ["v1.8", "v1.37", "v1.99.1"] {
            let error = text.parse::<Version>().unwrap_err();
            assert_eq!(
                error.to_string(),
                format!("kube-proxy {text} is not known: versions v1.9 to v1.36 are")
            );
        }
    }

    #[test]
    fn a_change_is_there_from_its_first_to_its_last_version() {
        let at = |minor| Version::minor(minor).unwrap();
        assert!(!at(19).has(&ENSURES_MARK_DROP));
        assert!(at(20).has(&ENSURES_MARK_DROP));
        assert!(at(24).has(&ENSURES_MARK_DROP));
        assert!(!at(25).has(&ENSURES_MARK_DROP));
    }

    #[test]
    fn some_patch_releases_have_a_change_early() {
        let has = |text: &str| text.parse::<Version>().unwrap().has(&KUBELET_LOCALNET);
        assert!(!has("v1.18.3") && has("v1.18.4") && has("v1.18") && has("v1.19.0"));
        assert!(!has("v1.15"));
    }
}
