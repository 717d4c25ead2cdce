//! Lists every difference between versions of kube-proxy that shows in the rules, each named once.
//! The lists read from top to bottom as kube-proxy's history.
//!
//! A cited file is that file of kubernetes/kubernetes at the given tags, between which the
//! behaviour appears or disappears. Minor versions decide: no difference between two patch releases
//! of one minor version is modelled, except where a [`VersionRange`] lists patch releases that have
//! it early. [`super::provenance`] records how the rules of each version were verified.

use super::change::{HistoryEntry, VersionRange, history};

history! {
    /// Objects that every mode reads: services, endpoints and nodes.
    OBJECTS;
    /// Endpoints come from `Endpoints` objects: ready ones only, sorted by IP address. Later
    /// versions read `EndpointSlice` objects and sort endpoints by their `IP:port` text.
    /// (`pkg/proxy/endpoints.go` v1.18.2 and `pkg/proxy/endpointslicecache.go` v1.19.2; the gate
    /// `EndpointSliceProxying` is on from v1.19.)
    pub const ENDPOINTS_OBJECTS: Change = VersionRange::until(18);
    /// Endpoints that are not ready are kept too. In ipvs mode they are therefore in
    /// `KUBE-LOOP-BACK`. (`pkg/proxy/endpointslicecache.go` v1.20.8, v1.21.1.)
    pub const UNREADY_ENDPOINTS_KEPT: Change = VersionRange::since(21);
    /// Endpoints are identified by IP address alone: of two endpoints with one address and
    /// different ports, only one is kept. (`addEndpointsByIP` in `pkg/proxy/endpointslicecache.go`
    /// v1.19.1, v1.21.2; by `IP:port` in v1.22.0-rc.0.)
    pub const ENDPOINTS_BY_IP: Change = VersionRange::between(19, 21);
    /// If two endpoints have the same address and port, the later is kept unless its pod is
    /// terminating. Before, the later was kept if it was on this node. (`addEndpoints` in
    /// `pkg/proxy/endpointslicecache.go` v1.35.6, v1.36.2.)
    pub const TERMINATING_DUPLICATE_IGNORED: Change = VersionRange::since(36);
    /// A service port without a name is still written with its colon, `ns/name:`, and the colon is
    /// part of the hash of its chain name. (`pkg/proxy/types.go` v1.18.6, v1.19.2.)
    pub const UNNAMED_PORT_HAS_COLON: Change = VersionRange::until(18);
    /// kube-proxy supports `internalTrafficPolicy: Local`. (Gate `ServiceInternalTrafficPolicy`, on
    /// from v1.22: `pkg/features/kube_features.go`.)
    pub const INTERNAL_TRAFFIC_POLICY: Change = VersionRange::since(22);
    /// Every endpoint counts for "has no endpoints", even an endpoint that is neither ready nor
    /// serving. (`pkg/proxy/iptables/proxier.go` v1.22.0-rc.0.)
    pub const UNREADY_ENDPOINTS_COUNTED: Change = VersionRange::between(22, 22);
    /// If no endpoint is ready, kube-proxy uses the endpoints that still serve while they
    /// terminate. (Gate `ProxyTerminatingEndpoints`, on from v1.26.)
    pub const TERMINATING_FALLBACK: Change = VersionRange::since(26);
    /// kube-proxy obeys zone hints in endpoint slices if the service's annotation is `Auto`. (Gate
    /// `TopologyAwareHints`, on from v1.24; `pkg/proxy/topology.go` v1.24.0.)
    pub const ZONE_HINTS: Change = VersionRange::since(24);
    /// The annotation can have any value except `Disabled`, and can be named `topology-mode`.
    /// (`pkg/proxy/topology.go`, `service.go` v1.27.1.)
    pub const ANY_TOPOLOGY_ANNOTATION: Change = VersionRange::between(27, 30);
    /// kube-proxy obeys zone hints without regard to the annotation. (Gate
    /// `ServiceTrafficDistribution`, on from v1.31.)
    pub const HINTS_WITHOUT_ANNOTATION: Change = VersionRange::since(31);
    /// `nodePortAddresses` can be `primary`, as its only entry: the node's primary address of each
    /// family. (kubernetes/kubernetes#123105.)
    pub const PRIMARY_ADDRESS: Change = VersionRange::since(31);
    /// Node hints have precedence over zone hints. (Gate `PreferSameTrafficDistribution`, on from
    /// v1.34: `pkg/features/kube_features.go`; `topologyModeFromHints` in `pkg/proxy/topology.go`
    /// v1.34.)
    pub const NODE_HINTS: Change = VersionRange::since(34);
    /// `externalTrafficPolicy: Local` also applies to a `ClusterIP` service with external IPs.
    /// (`pkg/api/v1/service/util.go` v1.28.3, v1.29.1.)
    pub const LOCAL_FOR_CLUSTER_IP_TYPE: Change = VersionRange::since(29);
    /// kube-proxy writes no rules for an ingress address with `ipMode: Proxy`; its traffic passes
    /// through the load balancer. (Gate `LoadBalancerIPMode`, on from v1.30.)
    pub const LOAD_BALANCER_IP_MODE: Change = VersionRange::since(30);
    /// A source range that covers all addresses is not a restriction. (`pkg/proxy/serviceport.go`
    /// v1.33, v1.34.)
    pub const ALL_ADDRESSES_RANGE_IGNORED: Change = VersionRange::since(34);
    /// kube-proxy ignores a service labelled `service.kubernetes.io/service-proxy-name`: another
    /// proxy serves it. (`cmd/kube-proxy/app/server.go` v1.13.5, v1.14.0.)
    pub const PROXY_NAME_LABEL: Change = VersionRange::since(14);
    /// kube-proxy does not watch endpoints labelled `service.kubernetes.io/headless`.
    /// (`cmd/kube-proxy/app/server.go` v1.15.3, v1.16.3.)
    pub const HEADLESS_LABEL: Change = VersionRange::since(16);
    /// Both labels apply to services and to endpoints. Later the proxy name label applies to
    /// services only, and the headless label to endpoints only. (`cmd/kube-proxy/app/server.go`
    /// v1.14.0, v1.35.6, v1.36.2.)
    pub const LABELS_APPLY_TO_BOTH: Change = VersionRange::between(14, 35);
    /// kube-proxy obeys `nodePortAddresses`. Before, iptables mode served node ports on every
    /// address of the node, and ipvs mode on the addresses of interfaces named `eth…`. (#58052:
    /// `syncProxyRules` of both modes, v1.9.4, v1.10.0.)
    pub const NODE_PORT_ADDRESSES: Change = VersionRange::since(10);
    /// `nodePortAddresses` of the other IP family are ignored. Before, they counted: with only such
    /// networks no node port was served, and a network of all addresses of either family meant all
    /// addresses. (`FilterIncorrectCIDRVersion` in `NewProxier` of both modes: absent in v1.18.20,
    /// present in v1.19.1.)
    pub const NODE_PORT_ADDRESSES_BY_FAMILY: Change = VersionRange::since(19);
    /// kube-proxy keeps node ports, and the ports of external IPs that belong to the node, open
    /// with a listener that never accepts. The listener prevents other programs from using the
    /// port. (`syncProxyRules` of both modes, v1.9.0 to v1.23.4; removed in v1.24.3.)
    pub const LISTENS_ON_NODE_PORTS: Change = VersionRange::until(23);
    /// kube-proxy listens for node ports on every address; later only on addresses in
    /// `nodePortAddresses`. (`syncProxyRules` of both modes, v1.10.6, v1.11.1.)
    pub const LISTENS_ON_ALL_ADDRESSES: Change = VersionRange::until(10);
    /// `detectLocalMode` exists, with `ClusterCIDR` and `NodeCIDR`. Before, only the cluster CIDR
    /// decided. (`pkg/proxy/apis/config/types.go` v1.17.17, v1.18.2.)
    pub const DETECT_LOCAL_MODE: Change = VersionRange::since(18);
    /// `detectLocalMode` can be `BridgeInterface` or `InterfaceNamePrefix`.
    /// (`pkg/proxy/apis/config/types.go` v1.23.4, v1.24.3.)
    pub const DETECT_LOCAL_BY_INTERFACE: Change = VersionRange::since(24);
    /// A single kube-proxy process serves both IP families. (Gate `IPv6DualStack`, on from v1.21:
    /// `pkg/features/kube_features.go`.)
    pub const DUAL_STACK: Change = VersionRange::since(21);
}

history! {
    /// UDP conntrack entries that kube-proxy deletes when endpoints change, in every mode. Where no
    /// file is cited, the versions in between were not read.
    CONNTRACK;
    /// kube-proxy also deletes entries to external IPs and, in iptables mode, entries to node
    /// ports. (Absent in `deleteEndpointConnections` of v1.9, present in v1.13.4.)
    pub const CONNTRACK_EXTERNAL_IPS: Change = VersionRange::since(13);
    /// When an endpoint is removed, kube-proxy also deletes entries to load balancer addresses.
    /// (Absent in v1.13.4, present in v1.15.5.)
    pub const CONNTRACK_LOAD_BALANCER_IPS: Change = VersionRange::since(14);
    /// For a service with a node port, kube-proxy deletes entries to the cluster IP as well as
    /// entries to the node port. (Only one of the two in v1.15.5; both in a run of v1.20.2 and in
    /// the source of v1.21.2.)
    pub const CONNTRACK_BOTH_PORTS: Change = VersionRange::since(20);
    /// kube-proxy deletes entries to a node port when the service gets its first endpoint. (#98305,
    /// v1.21.0.)
    pub const CONNTRACK_NEW_NODE_PORTS: Change = VersionRange::since(21);
    /// kube-proxy deletes entries to a load balancer address when the service gets its first
    /// endpoint. (#104009, v1.23.0.)
    pub const CONNTRACK_NEW_LOAD_BALANCER_IPS: Change = VersionRange::since(23);
    /// An endpoint that becomes unready counts as removed, although kube-proxy still keeps it.
    /// (Absent in `detectStaleConnections` of v1.21.2; #106163 describes the change in v1.22.)
    pub const CONNTRACK_READY: Change = VersionRange::between(22, 28);
    /// An endpoint that serves while it terminates keeps its entries. (#119394, merged after
    /// v1.28.0; `pkg/proxy/endpointschangetracker.go` v1.30.5.)
    pub const CONNTRACK_SERVING: Change = VersionRange::since(29);
    /// ipvs mode also deletes entries to node ports: one function handles all modes. (Absent in
    /// v1.21.2; #116104, v1.28.)
    pub const CONNTRACK_IPVS_NODE_PORTS: Change = VersionRange::since(28);
    /// Whenever UDP endpoints change, kube-proxy deletes every entry that does not lead to a
    /// serving endpoint. Before, it deleted only entries of the services and endpoints that
    /// changed. (#127318, v1.32.)
    pub const CONNTRACK_RECONCILED: Change = VersionRange::since(32);
    /// An endpoint is identified by address and port; before, by address.
    /// (`pkg/proxy/conntrack/cleanup.go` v1.36.2.)
    pub const CONNTRACK_BY_PORT: Change = VersionRange::since(36);
}

history! {
    /// Rules that iptables mode writes once for the node.
    IPTABLES_NODE;
    /// `KUBE-PROXY-CANARY` exists in mangle, nat and filter. If the chain is missing, kube-proxy
    /// detects that its rules were flushed. (`pkg/proxy/iptables/proxier.go` v1.17, #81517.)
    pub const CANARY: Change = VersionRange::since(17);
    /// Filter INPUT and OUTPUT jump to `KUBE-SERVICES` with packets of any conntrack state, and
    /// that chain rejects all traffic without endpoints. Later only new connections jump there, and
    /// `KUBE-EXTERNAL-SERVICES` handles traffic from outside. (#56164 and #60306, v1.10.)
    pub const SINGLE_REJECT_CHAIN: Change = VersionRange::until(9);
    /// The comment of the jump from filter FORWARD is "kubernetes forward rules", not "forwarding".
    /// (`syncProxyRules` v1.9.4, `iptablesJumpChains` v1.10.0.)
    pub const FORWARD_RULES_COMMENT: Change = VersionRange::until(9);
    /// Filter INPUT and FORWARD jump to `KUBE-SERVICES`, and a load balancer address without
    /// endpoints is rejected. (#72534 and #74394; absent in `iptablesJumpChains` of v1.13.5,
    /// present in v1.14.0 and, according to the release notes in `CHANGELOG/CHANGELOG-1.13.md`, in
    /// v1.13.6: #76516.)
    pub const LOAD_BALANCER_REJECTED: Change = VersionRange::since(14).with_backports(&[(13, 6)]);
    /// The jump from filter INPUT to `KUBE-SERVICES` is removed again. FORWARD also jumps to
    /// `KUBE-EXTERNAL-SERVICES`, which rejects load balancer addresses without endpoints. (#95252,
    /// v1.20.)
    pub const NO_SERVICES_JUMP_FROM_INPUT: Change = VersionRange::since(20);
    /// Filter `KUBE-NODEPORTS` accepts health check node ports. (`pkg/proxy/iptables/proxier.go`
    /// v1.21.0.)
    pub const HEALTH_CHECK_NODE_PORTS: Change = VersionRange::since(21);
    /// kube-proxy creates nat `KUBE-MARK-DROP` if the chain is missing; the kubelet writes its
    /// rule. (`iptablesEnsureChains` v1.20.0 to v1.24.3.)
    pub const CREATES_MARK_DROP: Change = VersionRange::between(20, 24);
    /// The filter table drops packets: `KUBE-PROXY-FIREWALL` for source ranges,
    /// `KUBE-EXTERNAL-SERVICES` for missing local endpoints. `KUBE-MARK-DROP` is no longer used.
    /// (`pkg/proxy/iptables/proxier.go` v1.25.1.)
    pub const DROPS_IN_FILTER: Change = VersionRange::since(25);
    /// kube-proxy itself protects 127.0.0.0/8 from other hosts in `KUBE-FIREWALL`.
    /// (`iptablesKubeletJumpChains` v1.27.1.)
    pub const LOCALNET_FIREWALL: Change = VersionRange::since(27);
    /// `KUBE-FORWARD` drops packets in conntrack state INVALID. (Issue #74839; absent in v1.14.0,
    /// present in v1.16.0-beta.2, released as v1.15.)
    pub const INVALID_DROPPED: Change = VersionRange::since(15);
    /// With `tcpBeLiberal`, kube-proxy omits the rule that drops INVALID packets.
    /// (`pkg/proxy/iptables/proxier.go` v1.29.1.)
    pub const LIBERAL_ACCEPTS_INVALID: Change = VersionRange::since(29);
    /// nfacct objects count dropped INVALID packets, and packets to node ports on 127.0.0.0/8.
    /// (`pkg/proxy/iptables/proxier.go` v1.31.)
    pub const ACCOUNTING: Change = VersionRange::since(31);
    /// The two ESTABLISHED rules of `KUBE-FORWARD` match the cluster CIDR and are absent without a
    /// cluster CIDR. (`pkg/proxy/iptables/proxier.go` v1.17, v1.18.2.)
    pub const FORWARD_MATCHES_CLUSTER_CIDR: Change = VersionRange::until(17);
    /// There are two ESTABLISHED rules, for "pod source" and "pod destination"; later one.
    /// (`pkg/proxy/iptables/proxier.go` v1.22.0-rc.0, v1.23.4.)
    pub const TWO_ESTABLISHED_RULES: Change = VersionRange::until(22);
    /// POSTROUTING clears the mark before it masquerades, so that a packet that traverses the chain
    /// again is not masqueraded twice. (#92035, and for earlier versions #92261, #92193 and #92256:
    /// absent in `pkg/proxy/iptables/proxier.go` v1.16.11, v1.17.7, v1.18.4, present in v1.16.13,
    /// v1.17.9, v1.18.6; the same holds for `pkg/proxy/ipvs/proxier.go`.)
    pub const MARK_CLEARED: Change = VersionRange::since(19).with_backports(&[(16, 13), (17, 9), (18, 6)]);
    /// kube-proxy writes `MASQUERADE --random-fully` if the node's iptables supports the option.
    /// (`pkg/proxy/iptables/proxier.go` v1.16.)
    pub const RANDOM_FULLY: Change = VersionRange::since(16);
    /// kube-proxy uses the bind address, `0.0.0.0` or `::`, as the node's address, so that source
    /// ranges seldom admit the node itself. (`nodeIPTuple` in `cmd/kube-proxy/app/server_others.go`
    /// v1.21.0 to v1.27.1; before, only one family was served and its address looked up.)
    pub const BIND_ADDRESS_FOR_NODE: Change = VersionRange::between(21, 27);
    /// `localhostNodePorts` decides whether node ports answer on 127.0.0.0/8. Node ports no longer
    /// answer on `::1`. (`pkg/proxy/iptables/proxier.go` v1.26.0.)
    pub const LOCALHOST_NODE_PORTS: Change = VersionRange::since(26);
    /// `nodePortAddresses` without 127.0.0.1 disables `localhostNodePorts`.
    /// (`pkg/proxy/iptables/proxier.go` v1.27.1.)
    pub const LOCALHOST_FOLLOWS_ADDRESSES: Change = VersionRange::since(27);
}

history! {
    /// Rules that the kubelet writes on the same node.
    KUBELET;
    /// The kubelet writes the rule that marks packets for dropping and the rule that drops marked
    /// packets. (`pkg/kubelet/kubelet_network_linux.go` v1.14.0 to v1.27; the gate
    /// `IPTablesOwnershipCleanup` removed them in v1.27.)
    pub const KUBELET_DROPS: Change = VersionRange::until(26);
    /// The kubelet protects 127.0.0.0/8 from other hosts (CVE-2020-8558).
    pub const KUBELET_LOCALNET: Change = VersionRange::since(19).with_backports(&[(16, 11), (17, 7), (18, 4)]);
    /// The kubelet creates `KUBE-KUBELET-CANARY`. (#81517, v1.17.)
    pub const KUBELET_CANARY: Change = VersionRange::since(17);
    /// The kubelet creates mangle `KUBE-IPTABLES-HINT`. (#109059, v1.24.)
    pub const KUBELET_HINT: Change = VersionRange::since(24);
}

history! {
    /// Rules that iptables mode writes for each service.
    IPTABLES_SERVICES;
    /// The rules of `KUBE-SVC` and `KUBE-SEP` have no comments. kube-proxy creates the comments but
    /// loses them: `append` grows a slice that the caller does not see. Before, these rules had
    /// comments. (`appendServiceCommentLocked`, added by #65755: absent in
    /// `pkg/proxy/iptables/proxier.go` v1.11.1, present in v1.12.1, v1.14.0 and v1.17.17, fixed in
    /// v1.18.2.)
    pub const LOST_COMMENTS: Change = VersionRange::between(12, 17);
    /// With more than 1000 endpoints, the rules of `KUBE-SVC` and `KUBE-SEP` have no comments.
    /// (#65755: `largeClusterEndpointsThreshold`, absent in v1.11.1, present in v1.12.1.)
    pub const COMMENTS_OMITTED_IF_LARGE: Change = VersionRange::since(12);
    /// Probabilities have five digits; later ten. (`computeProbability` v1.16.0-beta.2, v1.17.)
    pub const FIVE_DIGIT_PROBABILITIES: Change = VersionRange::until(16);
    /// `KUBE-XLB-` chains exist for `externalTrafficPolicy: Local`. Later `KUBE-EXT-` handles all
    /// external traffic and `KUBE-SVL-` the local endpoints. (`pkg/proxy/iptables/proxier.go`
    /// v1.23.4, v1.24.0.)
    pub const XLB_CHAINS: Change = VersionRange::until(23);
    /// A service without endpoints keeps its nat rules, which lead to a chain without rules. The
    /// filter table also rejects its traffic, the cluster IP last. (`syncProxyRules` v1.9.4;
    /// removed by #57461, v1.10.0.)
    pub const RULES_WITHOUT_ENDPOINTS: Change = VersionRange::until(9);
    /// The node's own traffic to a `Local` load balancer or node port reaches every endpoint;
    /// before, only local endpoints. (#77523, v1.15.)
    pub const NODE_TRAFFIC_TO_ALL_ENDPOINTS: Change = VersionRange::since(15);
    /// The two rules for the node's own traffic precede the rule for pod traffic; later they follow
    /// it. (`syncProxyRules` v1.15.3, v1.16.3; #78662.)
    pub const NODE_TRAFFIC_BEFORE_PODS: Change = VersionRange::between(15, 15);
    /// kube-proxy masquerades traffic that the node sends from 127.0.0.0/8 or `::1` to a node port
    /// with the policy `Local`. Otherwise the traffic could not leave the node. (#57942: absent in
    /// `pkg/proxy/iptables/proxier.go` v1.9.4, present in v1.10.0.)
    pub const LOOPBACK_MASQUERADED: Change = VersionRange::since(10);
    /// If `nodePortAddresses` match none of the node's addresses, a service port with a node port
    /// is only half written. Rules lead to its chains, but the chains are empty and no endpoint has
    /// a chain. (`syncProxyRules` v1.18.20, v1.19.1, v1.22.0-rc.0, v1.23.4.)
    pub const NODE_PORTS_NEED_AN_ADDRESS: Change = VersionRange::between(19, 22);
    /// External IPs obey `externalTrafficPolicy: Local`. (Gate `ExternalPolicyForExternalIP`: false
    /// in v1.18.2, true in v1.19.2.)
    pub const EXTERNAL_IPS_OBEY_POLICY: Change = VersionRange::since(19);
    /// An external IP is served only to traffic from outside the node, which `physdev` detects, or
    /// if the address belongs to the node. (`pkg/proxy/iptables/proxier.go` v1.20, v1.21.0.)
    pub const PHYSDEV_FOR_EXTERNAL_IPS: Change = VersionRange::until(20);
    /// The rules that decide about masquerading are in the service's own chain; before, in
    /// `KUBE-SERVICES` and `KUBE-NODEPORTS`. (`pkg/proxy/iptables/proxier.go` v1.21.0,
    /// v1.22.0-rc.0.)
    pub const MASQUERADE_IN_SERVICE_CHAIN: Change = VersionRange::since(22);
    /// Rules for local endpoints have the comment `Balancing rule N for …`.
    /// (`pkg/proxy/iptables/proxier.go` v1.22.0-rc.0, v1.23.4.)
    pub const BALANCING_RULE_COMMENTS: Change = VersionRange::until(22);
    /// A `KUBE-FW-` chain ends in a rule without a target whose comment names the chain that drops
    /// the remaining traffic. (`pkg/proxy/iptables/proxier.go` v1.27.1.)
    pub const FIREWALL_CHAIN_REMARK: Change = VersionRange::since(27);
}

// For ipvs mode, cited files are in `pkg/proxy/ipvs`; where none is named, the file is
// `proxier.go`.

history! {
    /// Rules, sets and virtual servers that ipvs mode writes.
    IPVS;
    /// Separate chains handle load balancers and node ports: `KUBE-LOAD-BALANCER`, `KUBE-NODE-PORT`
    /// and `KUBE-FIREWALL`. Comments of rules describe the purpose of their set. Before,
    /// `KUBE-SERVICES` did all of this. (v1.10.6, v1.11.1.)
    pub const IPVS_CHAINS: Change = VersionRange::since(11);
    /// Without a cluster CIDR, traffic from a cluster IP is masqueraded: the node itself uses the
    /// service's address as its source. Before, no traffic was masqueraded, and such connections
    /// never received a reply. (#63241, #63319, v1.11; but only #65388, v1.12, fills the set of
    /// cluster IPs for this. #65821 backported it to v1.11: `syncProxyRules` of v1.11.1 has it.)
    pub const IPVS_MASQUERADES_OWN_TRAFFIC: Change = VersionRange::since(12).with_backports(&[(11, 1)]);
    /// External IPs and load balancer addresses are bound to `kube-ipvs0` too, not only cluster
    /// IPs. (#59976 and #63066; v1.10.6, v1.11.1.)
    pub const IPVS_BINDS_EXTERNAL: Change = VersionRange::since(11);
    /// `externalTrafficPolicy: Local` also applies to the cluster IP. (`syncEndpoint` of the
    /// cluster IP in v1.9.4; removed by #57679, v1.10.0.)
    pub const IPVS_POLICY_FOR_CLUSTER_IP: Change = VersionRange::until(9);
    /// Virtual servers of external IPs obey `externalTrafficPolicy: Local`. They do so again from
    /// [`EXTERNAL_IPS_OBEY_POLICY`] on. (v1.10.6, v1.11.1.)
    pub const IPVS_EXTERNAL_IPS_OBEY_POLICY: Change = VersionRange::until(10);
    /// A load balancer's virtual server obeys `externalTrafficPolicy: Local` only with client
    /// affinity. (`syncProxyRules` v1.11.1, v1.12.2 and v1.13.5; added by #64146, removed in
    /// v1.14.0 by #72432.)
    pub const IPVS_POLICY_NEEDS_AFFINITY: Change = VersionRange::between(11, 13);
    /// Virtual servers of node ports obey `externalTrafficPolicy: Local`. (#66064, v1.12, and by
    /// #68278 v1.11.4; v1.9.4 and v1.10.6 did too.)
    pub const IPVS_NODE_PORTS_OBEY_POLICY: Change =
        VersionRange::since(12).with_backports(&[(9, 0), (10, 0), (11, 4)]);
    /// If the node has no local endpoint, `Local` falls back to all endpoints. (v1.23.4, v1.24.0.)
    pub const IPVS_LOCAL_FALLS_BACK: Change = VersionRange::since(24);
    /// `KUBE-LOOP-BACK` contains only endpoints of this node. (#66149: absent in `syncProxyRules`
    /// of v1.12.2, present in v1.13.1.)
    pub const IPVS_LOOP_BACK_LOCAL: Change = VersionRange::since(13);
    /// Packets jump to `KUBE-NODE-PORT` if their port is in a set; later, if they are addressed to
    /// the node. (v1.11, v1.14.0.)
    pub const IPVS_NODE_PORTS_BY_SET: Change = VersionRange::between(11, 11);
    /// kube-proxy creates `KUBE-FORWARD` but writes no rule to it. (`syncProxyRules` v1.11,
    /// v1.14.0.)
    pub const IPVS_EMPTY_FORWARD: Change = VersionRange::between(11, 11);
    /// SCTP is supported. (Gate `SCTPSupport`, #64973, v1.12.)
    pub const IPVS_SCTP: Change = VersionRange::since(12);
    /// The sets of SCTP node ports are hashes of address and port, not bitmaps, and their names end
    /// in `HASH`. (`ipset.go` v1.14.0, v1.16.0-beta.2, released as v1.15.)
    pub const IPVS_SCTP_HASHES: Change = VersionRange::since(15);
    /// The sets of SCTP node ports contain one address for each node port: the address that
    /// kube-proxy uses as the node's, without regard to `nodePortAddresses`. Later they contain
    /// every address that serves the node port. (`syncProxyRules` v1.15.3, v1.16.3.)
    pub const IPVS_SCTP_ONE_ADDRESS: Change = VersionRange::between(15, 15);
    /// The rule for SCTP node ports with the policy `Local` precedes the rule for all SCTP node
    /// ports. (v1.22.0-rc.0, v1.23.4.)
    pub const IPVS_SCTP_LOCAL_FIRST: Change = VersionRange::since(23);
    /// IPv6 sets are named `KUBE-6-…`, truncated to 31 characters. (`NewIPSet` in `ipset.go`
    /// v1.14.0, v1.16.0-beta.2.)
    pub const IPVS_IPV6_SET_NAMES: Change = VersionRange::since(16);
    /// Each address on `kube-ipvs0` has itself as its broadcast address. (The netlink library in
    /// v1.18.6 and v1.20.0-rc.0.)
    pub const IPVS_BROADCAST: Change = VersionRange::until(18);
    /// kube-proxy creates `KUBE-MARK-DROP` if the chain is missing. (v1.14.0, v1.16.0-beta.2 to
    /// v1.24.0; up to v1.19 kube-proxy also flushed the chain, until the kubelet restored its
    /// rule.)
    pub const IPVS_CREATES_MARK_DROP: Change = VersionRange::between(16, 24);
    /// A set contains external IPs with the policy `Local`, which are not masqueraded. (`ipset.go`
    /// v1.17, v1.18.2.)
    pub const IPVS_EXTERNAL_IP_LOCAL: Change = VersionRange::since(18);
    /// Node ports are served on loopback addresses too. (`NodeIPs` v1.21.1, v1.22.0-rc.0.)
    pub const IPVS_LOOPBACK_NODE_PORTS: Change = VersionRange::between(10, 21);
    /// A node port that no address serves is still entered in the sets; only its virtual servers
    /// are missing. Later kube-proxy skips the rest of the service port, including its health
    /// checks. (`syncProxyRules` v1.9.4, v1.10.6, v1.15.5, v1.16.3.)
    pub const IPVS_UNSERVED_NODE_PORTS_KEPT: Change = VersionRange::until(15);
    /// Traffic to a service's address but to none of its ports is rejected (`KUBE-IPVS-FILTER`),
    /// and rules ignore traffic from loopback addresses. (v1.25.1, v1.26.0.)
    pub const IPVS_FILTER: Change = VersionRange::since(26);
    /// The scheduler `mh` also hashes ports. (`FlagSourceHash` v1.26.0, v1.27.1.)
    pub const IPVS_HASHES_PORTS: Change = VersionRange::since(27);
    /// `KUBE-IPVS-FILTER` accepts health checks. (v1.27.1, v1.28.3.)
    pub const IPVS_FILTER_ACCEPTS_HEALTH_CHECKS: Change = VersionRange::since(28);
    /// An external IP or load balancer address that another interface of the node has is not bound
    /// to `kube-ipvs0`, and is not in `KUBE-IPVS-IPS`. A cluster IP always is. (`shouldBind` in
    /// `syncProxyRules` v1.28.3, v1.36.2; absent in v1.27.1.)
    pub const IPVS_OWN_ADDRESSES_NOT_BOUND: Change = VersionRange::since(28);
    /// The node itself cannot reach load balancers whose source ranges do not admit it
    /// (`KUBE-IPVS-OUT-FILTER`). (v1.28.3, v1.29.1.)
    pub const IPVS_OUT_FILTER: Change = VersionRange::since(29);
    /// `KUBE-IPVS-FILTER` accepts external IPs with the policy `Local`. (v1.29.1, v1.30.3; patch
    /// releases of v1.28 and v1.29 have it by #121928 and #122323, it is not recorded which ones.)
    pub const IPVS_FILTER_ACCEPTS_LOCAL_EXTERNAL_IPS: Change = VersionRange::since(30);
}

history! {
    /// Kernel settings that ipvs mode changes.
    IPVS_KERNEL;
    /// The timeouts of IPVS connections are configurable. (#85517, v1.18.)
    pub const IPVS_TIMEOUTS: Change = VersionRange::since(18);
    /// kube-proxy sets `route_localnet`. (`NewProxier` v1.20.0-rc.0, v1.21.1.)
    pub const IPVS_ROUTE_LOCALNET: Change = VersionRange::until(20);
    /// kube-proxy sets `conn_reuse_mode` to 0: a reused client port stays with its real server.
    /// (#71114: absent in `NewProxier` of v1.12.2, present in v1.13.1; backported to v1.11 by
    /// #72100 and to v1.12 by #72101. The patch releases are inferred from the dates.)
    pub const IPVS_CONN_REUSE: Change = VersionRange::since(13).with_backports(&[(11, 7), (12, 5)]);
    /// Connections to removed real servers expire at once: kube-proxy sets `expire_nodest_conn` and
    /// `expire_quiescent_template`. (#71834: absent in `NewProxier` of v1.13.1, present in v1.13.2
    /// by #72099 and in v1.14.0; backported to v1.11 and v1.12 with [`IPVS_CONN_REUSE`].)
    pub const IPVS_EXPIRES_CONNECTIONS: Change = VersionRange::since(14).with_backports(&[(11, 7), (12, 5), (13, 2)]);
    /// kube-proxy does not set `conn_reuse_mode` on kernels before 4.1, which lack it.
    /// (`NewProxier` v1.18.20, v1.19.1.)
    pub const IPVS_CONN_REUSE_FROM_4_1: Change = VersionRange::since(19);
    /// kube-proxy does not set `conn_reuse_mode` on kernels from 5.9 on, which do not need it.
    /// (`NewProxier` v1.21.2, v1.22.0-rc.0; backported to v1.20 by #107437 and to v1.21 by #107438.
    /// The patch releases are inferred from the dates.)
    pub const IPVS_CONN_REUSE_BEFORE_5_9: Change = VersionRange::since(22).with_backports(&[(20, 15), (21, 9)]);
    /// kube-proxy sets `arp_ignore` and `arp_announce`. (#70530, v1.13.)
    pub const IPVS_ARP: Change = VersionRange::since(13);
    /// kube-proxy sets `arp_ignore` and `arp_announce` only with `strictARP`. (#75295, v1.15; by
    /// #75719 in v1.14.2 and by #75720 in v1.13.6, according to their release notes. Absent in
    /// `NewProxier` of v1.13.5 and v1.14.1.)
    pub const IPVS_ARP_IF_STRICT: Change = VersionRange::since(15).with_backports(&[(13, 6), (14, 2)]);
}

// For nftables mode, the cited file is `pkg/proxy/nftables/proxier.go` unless another is named.

history! {
    /// Chains, sets and maps that nftables mode writes.
    NFTABLES;
    /// nftables mode exists. (Gate `NFTablesProxyMode`, off by default in v1.29 and v1.30, on from
    /// v1.31.)
    pub const NFTABLES_MODE: Change = VersionRange::since(29);
    /// A single chain, `endpoints-check`, handles services and node ports without endpoints, and
    /// the filter chains run directly before DNAT, at priority -101. Later services and node ports
    /// have a chain each, and only traffic to the node is checked for node ports. (v1.29.1,
    /// v1.30.3.)
    pub const NFT_ONE_ENDPOINTS_CHECK: Change = VersionRange::between(29, 29);
    /// Source ranges are elements of the sets `firewall` and `firewall-allow`; later the map
    /// `firewall-ips` leads to a chain of the service port. The kernel rejects overlapping elements
    /// and with them the whole transaction. This occurs if the ranges admit the node and contain
    /// the load balancer's own address. (v1.29.1, v1.30.3.)
    pub const NFT_FIREWALL_SETS: Change = VersionRange::between(29, 29);
    /// Forwarded packets in conntrack state INVALID are dropped, unless `tcpBeLiberal` is set.
    /// (v1.29.1, v1.30.3.)
    pub const NFT_INVALID_DROPPED: Change = VersionRange::between(29, 29);
    /// Traffic to a cluster IP but to none of its ports is rejected: set `cluster-ips`, chain
    /// `cluster-ips-check`. (v1.29.1, v1.30.3.)
    pub const NFT_CLUSTER_IPS: Change = VersionRange::since(30);
    /// Elements of `firewall-ips` have a comment that names the service port. (v1.30.3, v1.31.14.)
    pub const NFT_FIREWALL_COMMENTS: Change = VersionRange::between(30, 30);
    /// The filter chains have the filter priority, after DNAT, and chains that must process packets
    /// before DNAT are named `…-pre-dnat`. Before, the filter chains ran before DNAT at priority
    /// -110, and `filter-output-post-dnat` after it. (v1.32.13, v1.33.13.)
    pub const NFT_FILTER_AFTER_DNAT: Change = VersionRange::since(33);
    /// Without `nodePortAddresses`, node ports are served on the node's primary address only. In a
    /// family in which the node has no primary address, they are not served.
    /// (`NewNodePortAddresses` in `pkg/proxy/util/nodeport_addresses.go` v1.29.1, v1.30.3.)
    pub const NFT_NODE_PORTS_ON_PRIMARY: Change = VersionRange::since(30);
    /// In a family in which the node has no primary address, node ports are served on every
    /// address. (`platformApplyDefaults` in `cmd/kube-proxy/app/server_linux.go` and
    /// `newProxyServer` in `server.go` v1.31.14.)
    pub const NFT_NODE_PORTS_WITHOUT_PRIMARY: Change = VersionRange::since(31);
    /// kube-proxy obeys the flag `--masquerade-all`. Before, it read this setting of nftables mode
    /// only from the configuration file. (`cmd/kube-proxy/app/server.go` v1.30.3, `options.go`
    /// v1.31.14.)
    pub const NFT_OBEYS_MASQUERADE_FLAG: Change = VersionRange::since(31);
    /// Rules match interfaces by name (`iifname`). Before, they matched by index (`iif`), which
    /// requires that the interface exists and supports no name prefix.
    /// (`pkg/proxy/util/localdetector.go` v1.32.13, v1.33.13.)
    pub const NFT_INTERFACES_BY_NAME: Change = VersionRange::since(33);
    /// Traffic to the cluster's service networks, as `ServiceCIDR` objects list them, but to no
    /// cluster IP is dropped. (Gate `MultiCIDRServiceAllocator`, on from v1.33; the rule exists
    /// from v1.30.)
    pub const NFT_SERVICE_CIDRS: Change = VersionRange::since(33);
    /// The rule that masquerades traffic to a cluster IP also matches the port. (v1.33.13,
    /// v1.34.9.)
    pub const NFT_MASQUERADE_BY_PORT: Change = VersionRange::between(29, 33);
    /// Endpoints have chains only for client affinity: a service port's chain maps a random number
    /// to an address and a port. The chain that decides about masquerading sets the mark, with one
    /// rule for all cluster IPs. The set `hairpin-connections` matches traffic that an endpoint
    /// sends to itself. (v1.35.6, v1.36.2.)
    pub const NFT_ENDPOINT_MAPS: Change = VersionRange::since(36);
}
