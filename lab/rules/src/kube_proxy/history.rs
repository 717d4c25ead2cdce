//! Every difference between versions of kube-proxy that the rules show, each named
//! once. Reading it from top to bottom is reading kube-proxy's history.
//!
//! Where a change cites a file, it means that file of kubernetes/kubernetes at
//! the tags between which the behaviour came or went. Minor versions decide: no
//! difference between two patch releases of one minor version is modelled,
//! except where a [`Change`] names the patch releases that had it early. How well
//! each version is known says [`super::known`].

use super::change::{Change, Noted, history};

history! {
    /// What kube-proxy makes of the objects, in every mode.
    OBJECTS;
    /// Endpoints come from `Endpoints` objects: ready ones only, in the order of
    /// their IP addresses. Later they come from `EndpointSlice`s, in the order of
    /// their `IP:port` texts.
    /// (`pkg/proxy/endpoints.go` v1.18.2 and `pkg/proxy/endpointslicecache.go`
    /// v1.19.2; the gate `EndpointSliceProxying` is on from v1.19.)
    pub const ENDPOINTS_OBJECTS: Change = Change::until(18);
    /// Endpoints that are not ready are kept too, so that in ipvs mode they are in
    /// `KUBE-LOOP-BACK`. (`pkg/proxy/endpointslicecache.go` v1.20.8, v1.21.1.)
    pub const UNREADY_ENDPOINTS_KEPT: Change = Change::since(21);
    /// Endpoints are told apart by their IP addresses alone: of two on one address,
    /// whatever their ports, one is left. (`addEndpointsByIP` in
    /// `pkg/proxy/endpointslicecache.go` v1.19.1, v1.21.2; by `IP:port` in
    /// v1.22.0-rc.0.)
    pub const ENDPOINTS_BY_IP: Change = Change::between(19, 21);
    /// Of two endpoints in one place, the later stays unless its pod is going away.
    /// Before, it stayed if it was on this node. (`addEndpoints` in
    /// `pkg/proxy/endpointslicecache.go` v1.35.6, v1.36.2.)
    pub const TERMINATING_TWIN_YIELDS: Change = Change::since(36);
    /// A service port without a name is still written with its colon, `ns/name:`,
    /// which also goes into the hash of its chain.
    /// (`pkg/proxy/types.go` v1.18.6, v1.19.2.)
    pub const COLON_OF_UNNAMED_PORT: Change = Change::until(18);
    /// `internalTrafficPolicy: Local` is obeyed.
    /// (Gate `ServiceInternalTrafficPolicy`, on from v1.22: `pkg/features/kube_features.go`.)
    pub const INTERNAL_TRAFFIC_POLICY: Change = Change::since(22);
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
    /// `nodePortAddresses` may be `primary`, alone: the node's own address of each
    /// family. (kubernetes/kubernetes#123105.)
    pub const PRIMARY_ADDRESS: Change = Change::since(31);
    /// Node hints go before zone hints.
    /// (Gate `PreferSameTrafficDistribution`, on from v1.34:
    /// `pkg/features/kube_features.go`; `topologyModeFromHints` in
    /// `pkg/proxy/topology.go` v1.34.)
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
    /// A service labelled `service.kubernetes.io/service-proxy-name` is another
    /// proxy's. (`cmd/kube-proxy/app/server.go` v1.13.5, v1.14.0.)
    pub const PROXY_NAME_LABEL: Change = Change::since(14);
    /// Endpoints labelled `service.kubernetes.io/headless` are not watched.
    /// (`cmd/kube-proxy/app/server.go` v1.15.3, v1.16.3.)
    pub const HEADLESS_LABEL: Change = Change::since(16);
    /// What these labels keep kube-proxy from it neither watches as a service nor as
    /// endpoints; later the name of a proxy says something of services only, and the
    /// other label of endpoints only. (`cmd/kube-proxy/app/server.go` v1.14.0,
    /// v1.35.6, v1.36.2.)
    pub const LABELS_OF_BOTH: Change = Change::between(14, 35);
    /// `nodePortAddresses` is obeyed. Before, iptables mode served node ports on every
    /// address of the node, and ipvs mode on those of interfaces called `eth…`.
    /// (#58052: `syncProxyRules` of both modes, v1.9.4, v1.10.0.)
    pub const NODE_PORT_ADDRESSES: Change = Change::since(10);
    /// Those of the other family do not count; before, they did, so that with them
    /// alone nothing was served, and a network of all addresses of either family
    /// meant all. (`FilterIncorrectCIDRVersion` in `NewProxier` of both modes: not in
    /// v1.18.20, there in v1.19.1.)
    pub const NODE_PORT_ADDRESSES_BY_FAMILY: Change = Change::since(19);
    /// Node ports, and the ports of external IPs that are the node's own, are held
    /// open by a listener that never accepts, to keep others away from them.
    /// (`syncProxyRules` of both modes, v1.9.0 to v1.23.4; gone in v1.24.3.)
    pub const HOLDS_PORTS: Change = Change::until(23);
    /// Node ports are held on every address; later on those of `nodePortAddresses`
    /// only. (`syncProxyRules` of both modes, v1.10.6, v1.11.1.)
    pub const HOLDS_PORTS_EVERYWHERE: Change = Change::until(10);
    /// `detectLocalMode` is known, with `ClusterCIDR` and `NodeCIDR`; before, the
    /// cluster CIDR alone decided. (`pkg/proxy/apis/config/types.go` v1.17.17,
    /// v1.18.2.)
    pub const DETECT_LOCAL_MODE: Change = Change::since(18);
    /// `detectLocalMode` may be `BridgeInterface` and `InterfaceNamePrefix`.
    /// (`pkg/proxy/apis/config/types.go` v1.23.4, v1.24.3.)
    pub const DETECT_LOCAL_BY_INTERFACE: Change = Change::since(24);
    /// One process serves both IP families.
    /// (Gate `IPv6DualStack`, on from v1.21: `pkg/features/kube_features.go`.)
    pub const DUAL_STACK: Change = Change::since(21);
}

history! {
    /// Which flows of UDP are forgotten when endpoints change, in every mode. What no
    /// file is cited for was not looked at in the versions between.
    CONNTRACK;
    /// Those to external IPs, and in iptables mode those to node ports, too. (Not in
    /// `deleteEndpointConnections` of v1.9, there in v1.13.4.)
    pub const CONNTRACK_EXTERNAL_IPS: Change = Change::since(13);
    /// Those to load balancers' addresses, when an endpoint goes. (Not in v1.13.4,
    /// there in v1.15.5.)
    pub const CONNTRACK_LOAD_BALANCER_IPS: Change = Change::since(14);
    /// Of a service with a node port, those to its cluster IP as well as those to the
    /// node port. (One or the other in v1.15.5; both by a v1.20.2 that was run, and in
    /// v1.21.2.)
    pub const CONNTRACK_BOTH_PORTS: Change = Change::since(20);
    /// Those to a node port whose service gets its first endpoint. (#98305, v1.21.0.)
    pub const CONNTRACK_NEW_NODE_PORTS: Change = Change::since(21);
    /// Those to a load balancer's address whose service gets its first endpoint.
    /// (#104009, v1.23.0.)
    pub const CONNTRACK_NEW_LOAD_BALANCER_IPS: Change = Change::since(23);
    /// An endpoint that is not ready any more counts as gone though it is still known.
    /// (Not in `detectStaleConnections` of v1.21.2; #106163, for what came with v1.22.)
    pub const CONNTRACK_READY: Change = Change::between(22, 28);
    /// One that serves while it terminates keeps its flows. (#119394, merged after
    /// v1.28.0; `pkg/proxy/endpointschangetracker.go` v1.30.5.)
    pub const CONNTRACK_SERVING: Change = Change::since(29);
    /// Node ports in ipvs mode, too: one function does it for all modes. (Not in
    /// v1.21.2; #116104, v1.28.)
    pub const CONNTRACK_IPVS_NODE_PORTS: Change = Change::since(28);
    /// Whatever leads to no endpoint that serves is forgotten, whenever endpoints of
    /// UDP change; before, what belonged to what went or came. (#127318, v1.32.)
    pub const CONNTRACK_RECONCILED: Change = Change::since(32);
    /// An endpoint is told by its address and port; before, by its address.
    /// (`pkg/proxy/conntrack/cleanup.go` v1.36.2.)
    pub const CONNTRACK_BY_PORT: Change = Change::since(36);
}

history! {
    /// What iptables mode writes once for the node.
    IPTABLES_NODE;
    /// `KUBE-PROXY-CANARY` in mangle, nat and filter, by whose absence kube-proxy
    /// notices a flush. (`pkg/proxy/iptables/proxier.go` v1.17, #81517.)
    pub const CANARY: Change = Change::since(17);
    /// Filter INPUT and OUTPUT jump to `KUBE-SERVICES` with packets of any state,
    /// and everything without endpoints is refused there. Later only new
    /// connections, and what comes from outside has `KUBE-EXTERNAL-SERVICES`.
    /// (#56164 and #60306, v1.10.)
    pub const ONE_CHAIN_REFUSES: Change = Change::until(9);
    /// The jump from filter FORWARD says "kubernetes forward rules", not
    /// "forwarding". (`syncProxyRules` v1.9.4, `iptablesJumpChains` v1.10.0.)
    pub const FORWARD_RULES_COMMENT: Change = Change::until(9);
    /// Filter INPUT and FORWARD jump to `KUBE-SERVICES`, and a load balancer's
    /// address without endpoints is refused. (#72534 and #74394; not in
    /// `iptablesJumpChains` of v1.13.5, there in v1.14.0 and, by the release notes in
    /// `CHANGELOG/CHANGELOG-1.13.md`, in v1.13.6: #76516.)
    pub const LOAD_BALANCER_REFUSED: Change = Change::since(14).early(&[(13, 6)]);
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
    /// (#92035, and for earlier versions #92261, #92193 and #92256: not in
    /// `pkg/proxy/iptables/proxier.go` v1.16.11, v1.17.7, v1.18.4, there in v1.16.13,
    /// v1.17.9, v1.18.6; so it is in `pkg/proxy/ipvs/proxier.go`.)
    pub const MARK_CLEARED: Change = Change::since(19).early(&[(16, 13), (17, 9), (18, 6)]);
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
}

history! {
    /// What the kubelet writes beside it.
    KUBELET;
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
}

history! {
    /// What iptables mode writes for each service.
    IPTABLES_SERVICES;
    /// Comments were meant for the rules of `KUBE-SVC` and `KUBE-SEP` but lost on
    /// the way to them: `append` to a slice that the caller never saw. Before, these
    /// rules had them. (`appendServiceCommentLocked`, which came with #65755:
    /// absent in `pkg/proxy/iptables/proxier.go` v1.11.1, there in v1.12.1, v1.14.0
    /// and v1.17.17, mended in v1.18.2.)
    pub const LOST_COMMENTS: Change = Change::between(12, 17);
    /// With more than 1000 endpoints, these rules go without comments.
    /// (#65755: `largeClusterEndpointsThreshold`, absent in v1.11.1, there in
    /// v1.12.1.)
    pub const COMMENTS_SPARED: Change = Change::since(12);
    /// Probabilities have five digits; later ten.
    /// (`computeProbability` v1.16.0-beta.2, v1.17.)
    pub const FIVE_DIGIT_PROBABILITIES: Change = Change::until(16);
    /// `KUBE-XLB-` chains for `externalTrafficPolicy: Local`; later `KUBE-EXT-` for
    /// all external traffic and `KUBE-SVL-` for local endpoints.
    /// (`pkg/proxy/iptables/proxier.go` v1.23.4, v1.24.0.)
    pub const XLB_CHAINS: Change = Change::until(23);
    /// A service without endpoints has its rules in nat all the same, which lead to a
    /// chain without rules, and is refused besides, its cluster IP last.
    /// (`syncProxyRules` v1.9.4; gone with #57461, v1.10.0.)
    pub const RULES_WITHOUT_ENDPOINTS: Change = Change::until(9);
    /// The node's own traffic to a `Local` load balancer or node port goes to every
    /// endpoint; before, it met only local ones. (#77523, v1.15.)
    pub const NODE_TRAFFIC_MEETS_ALL: Change = Change::since(15);
    /// The two rules for the node's own traffic stand before the one for the pods';
    /// later, after it. (`syncProxyRules` v1.15.3, v1.16.3; #78662.)
    pub const NODE_TRAFFIC_BEFORE_PODS: Change = Change::between(15, 15);
    /// What the node sends from 127.0.0.0/8 or `::1` to a node port with the policy
    /// `Local` is masqueraded, because it could not leave the node otherwise.
    /// (#57942: absent in `pkg/proxy/iptables/proxier.go` v1.9.4, there in v1.10.0.)
    pub const LOOPBACK_MASQUERADED: Change = Change::since(10);
    /// With `nodePortAddresses` that none of the node's addresses match, a service
    /// port with a node port is left half written: its chains are there and led to,
    /// but empty, without endpoints. (`syncProxyRules` v1.18.20, v1.19.1,
    /// v1.22.0-rc.0, v1.23.4.)
    pub const NODE_PORTS_NEED_AN_ADDRESS: Change = Change::between(19, 22);
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
    /// Rules for local endpoints are called `Balancing rule N for …`.
    /// (`pkg/proxy/iptables/proxier.go` v1.22.0-rc.0, v1.23.4.)
    pub const BALANCING_RULE_COMMENTS: Change = Change::until(22);
    /// The end of a `KUBE-FW-` chain says in a rule without a target who drops the
    /// rest. (`pkg/proxy/iptables/proxier.go` v1.27.1.)
    pub const FIREWALL_CHAIN_REMARK: Change = Change::since(27);
}

// Of ipvs mode, files are those of `pkg/proxy/ipvs`, `proxier.go` unless another
// is named.

history! {
    /// What ipvs mode writes.
    IPVS;
    /// Chains of their own decide about load balancers and node ports,
    /// `KUBE-LOAD-BALANCER`, `KUBE-NODE-PORT` and `KUBE-FIREWALL`, and rules say in a
    /// comment what their set is for. Before, `KUBE-SERVICES` did all of it.
    /// (v1.10.6, v1.11.1.)
    pub const IPVS_CHAINS: Change = Change::since(11);
    /// Without a cluster CIDR, what comes from a cluster IP is masqueraded: the
    /// node itself, which takes the service's address for its own. Before, nothing
    /// was, and such connections never got an answer. (#63241, #63319, v1.11; but the
    /// set of cluster IPs is filled for it only with #65388, v1.12, which #65821 took
    /// into v1.11: `syncProxyRules` of v1.11.1 has it.)
    pub const IPVS_MASQUERADES_OWN_TRAFFIC: Change = Change::since(12).early(&[(11, 1)]);
    /// External IPs and load balancers' addresses are bound to `kube-ipvs0` too,
    /// not only cluster IPs. (#59976 and #63066; v1.10.6, v1.11.1.)
    pub const IPVS_BINDS_EXTERNAL: Change = Change::since(11);
    /// `externalTrafficPolicy: Local` also holds for the cluster IP.
    /// (`syncEndpoint` of the cluster IP in v1.9.4; gone with #57679, v1.10.0.)
    pub const IPVS_POLICY_FOR_CLUSTER_IP: Change = Change::until(9);
    /// Virtual servers of external IPs obey `externalTrafficPolicy: Local`, as they
    /// do again from [`EXTERNAL_IPS_OBEY_POLICY`] on. (v1.10.6, v1.11.1.)
    pub const IPVS_EXTERNAL_IPS_OBEYED: Change = Change::until(10);
    /// A load balancer's virtual server obeys `externalTrafficPolicy: Local` only
    /// with client affinity. (`syncProxyRules` v1.11.1, v1.12.2 and v1.13.5; came with
    /// #64146, gone in v1.14.0 with #72432.)
    pub const IPVS_POLICY_NEEDS_AFFINITY: Change = Change::between(11, 13);
    /// Virtual servers of node ports obey `externalTrafficPolicy: Local`.
    /// (#66064, v1.12 and by #68278 v1.11.4; v1.9.4 and v1.10.6 did too.)
    pub const IPVS_NODE_PORTS_OBEY_POLICY: Change =
        Change::since(12).early(&[(9, 0), (10, 0), (11, 4)]);
    /// With no local endpoint to be found, `Local` falls back to all endpoints.
    /// (v1.23.4, v1.24.0.)
    pub const IPVS_LOCAL_FALLS_BACK: Change = Change::since(24);
    /// `KUBE-LOOP-BACK` holds only endpoints of this node.
    /// (#66149: not in `syncProxyRules` of v1.12.2, there in v1.13.1.)
    pub const IPVS_LOOP_BACK_LOCAL: Change = Change::since(13);
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
    /// They hold one address for each node port, the one kube-proxy takes for the
    /// node's, whatever `nodePortAddresses` says; later every address that serves it.
    /// (`syncProxyRules` v1.15.3, v1.16.3.)
    pub const IPVS_SCTP_ONE_ADDRESS: Change = Change::between(15, 15);
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
    /// to v1.24.0; until v1.19 it also flushed it, until the kubelet came by.)
    pub const IPVS_ENSURES_MARK_DROP: Change = Change::between(16, 24);
    /// There is a set of external IPs with the policy `Local`, which are not
    /// masqueraded. (`ipset.go` v1.17, v1.18.2.)
    pub const IPVS_EXTERNAL_IP_LOCAL: Change = Change::since(18);
    /// Node ports are served on loopback addresses too. (`NodeIPs` v1.21.1,
    /// v1.22.0-rc.0.)
    pub const IPVS_LOOPBACK_NODE_PORTS: Change = Change::between(10, 21);
    /// A node port without an address to serve on is entered in the sets all the same,
    /// and nothing but its virtual servers is missing; later the rest of the service
    /// port is passed over, its health checks too. (`syncProxyRules` v1.9.4, v1.10.6,
    /// v1.15.5, v1.16.3.)
    pub const IPVS_UNSERVED_NODE_PORTS_KEPT: Change = Change::until(15);
    /// What is addressed to a service's address but to no port of it is refused
    /// (`KUBE-IPVS-FILTER`), and what comes from a loopback address is let alone.
    /// (v1.25.1, v1.26.0.)
    pub const IPVS_FILTER: Change = Change::since(26);
    /// The scheduler `mh` hashes ports too. (`FlagSourceHash` v1.26.0, v1.27.1.)
    pub const IPVS_HASHES_PORTS: Change = Change::since(27);
    /// Health checks pass `KUBE-IPVS-FILTER`. (v1.27.1, v1.28.3.)
    pub const IPVS_FILTER_SPARES_HEALTH_CHECKS: Change = Change::since(28);
    /// An external IP or a load balancer's address that another interface of the node has
    /// is not bound to `kube-ipvs0`, and is not in `KUBE-IPVS-IPS`. A cluster IP always is.
    /// (`shouldBind` in `syncProxyRules` v1.28.3, v1.36.2; not in v1.27.1.)
    pub const IPVS_OWN_ADDRESSES_NOT_BOUND: Change = Change::since(28);
    /// The node itself is kept from load balancers whose source ranges do not admit
    /// it (`KUBE-IPVS-OUT-FILTER`). (v1.28.3, v1.29.1.)
    pub const IPVS_OUT_FILTER: Change = Change::since(29);
    /// External IPs with the policy `Local` pass `KUBE-IPVS-FILTER`.
    /// (v1.29.1, v1.30.3; patch releases of v1.28 and v1.29 have it by #121928 and
    /// #122323, which ones is not known.)
    pub const IPVS_FILTER_SPARES_LOCAL_EXTERNAL_IPS: Change = Change::since(30);
}

history! {
    /// What ipvs mode sets in the kernel.
    IPVS_KERNEL;
    /// How long connections are remembered can be told. (#85517, v1.18.)
    pub const IPVS_TIMEOUTS: Change = Change::since(18);
    /// `route_localnet` is set. (`NewProxier` v1.20.0-rc.0, v1.21.1.)
    pub const IPVS_ROUTE_LOCALNET: Change = Change::until(20);
    /// `conn_reuse_mode` is set, to 0: a client's port used again stays with its real
    /// server. (#71114: not in `NewProxier` of v1.12.2, there in v1.13.1; taken into
    /// v1.11 by #72100 and into v1.12 by #72101, into which patch releases is told by
    /// their dates.)
    pub const IPVS_CONN_REUSE: Change = Change::since(13).early(&[(11, 7), (12, 5)]);
    /// Connections to real servers that are gone do not linger: `expire_nodest_conn`
    /// and `expire_quiescent_template` are set. (#71834: not in `NewProxier` of
    /// v1.13.1, there in v1.13.2 by #72099 and in v1.14.0; taken into v1.11 and v1.12
    /// with [`IPVS_CONN_REUSE`].)
    pub const IPVS_EXPIRES_CONNECTIONS: Change = Change::since(14).early(&[(11, 7), (12, 5), (13, 2)]);
    /// `conn_reuse_mode` is left alone on kernels before 4.1, which lack it.
    /// (`NewProxier` v1.18.20, v1.19.1.)
    pub const IPVS_CONN_REUSE_FROM_4_1: Change = Change::since(19);
    /// `conn_reuse_mode` is left alone on kernels from 5.9 on, which do not need it.
    /// (`NewProxier` v1.21.2, v1.22.0-rc.0; taken into v1.20 by #107437 and into v1.21
    /// by #107438, into which patch releases is told by their dates.)
    pub const IPVS_CONN_REUSE_BEFORE_5_9: Change = Change::since(22).early(&[(20, 15), (21, 9)]);
    /// `arp_ignore` and `arp_announce` are set. (#70530, v1.13.)
    pub const IPVS_ARP: Change = Change::since(13);
    /// … but only if `strictARP` asks for it. (#75295, v1.15; by #75719 in v1.14.2 and
    /// by #75720 in v1.13.6, as its release notes say. `NewProxier` of v1.13.5 and
    /// v1.14.1 has it not.)
    pub const IPVS_ARP_IF_STRICT: Change = Change::since(15).early(&[(13, 6), (14, 2)]);
}

// Of nftables mode, files are `pkg/proxy/nftables/proxier.go` unless another is named.

history! {
    /// What nftables mode writes.
    NFTABLES;
    /// There is a mode that writes nftables. (Gate `NFTablesProxyMode`, off unless
    /// asked for in v1.29 and v1.30, on from v1.31.)
    pub const NFTABLES_MODE: Change = Change::since(29);
    /// One chain, `endpoints-check`, asks for services and node ports without
    /// endpoints, and the filter chains come right before DNAT, at priority -101.
    /// Later services and node ports have a chain each, and only what is for the node
    /// is asked for node ports. (v1.29.1, v1.30.3.)
    pub const NFT_ONE_ENDPOINTS_CHECK: Change = Change::between(29, 29);
    /// Source ranges are entries of the sets `firewall` and `firewall-allow`; later the
    /// map `firewall-ips` leads to a chain of the service port. The kernel refuses
    /// entries that overlap, and with them all that was to be written: so it is when
    /// the ranges admit the node and hold the load balancer's own address.
    /// (v1.29.1, v1.30.3.)
    pub const NFT_FIREWALL_SETS: Change = Change::between(29, 29);
    /// What conntrack calls invalid is dropped when it is forwarded, unless
    /// `tcpBeLiberal` is set. (v1.29.1, v1.30.3.)
    pub const NFT_INVALID_DROPPED: Change = Change::between(29, 29);
    /// What is addressed to a cluster IP but to no port of it is refused: set
    /// `cluster-ips`, chain `cluster-ips-check`. (v1.29.1, v1.30.3.)
    pub const NFT_CLUSTER_IPS: Change = Change::since(30);
    /// Entries of `firewall-ips` say in a comment whose they are. (v1.30.3, v1.31.14.)
    pub const NFT_FIREWALL_COMMENTS: Change = Change::between(30, 30);
    /// The filter chains stand at the filter priority, after DNAT, and those that must
    /// see packets before it are called `…-pre-dnat`. Before, they came before DNAT at
    /// priority -110, and `filter-output-post-dnat` after it. (v1.32.13, v1.33.13.)
    pub const NFT_FILTER_AFTER_DNAT: Change = Change::since(33);
    /// Unless told otherwise, node ports are served on the node's primary address
    /// only, and in a family in which the node has none, nowhere.
    /// (`NewNodePortAddresses` in `pkg/proxy/util/nodeport_addresses.go` v1.29.1,
    /// v1.30.3.)
    pub const NFT_NODE_PORTS_ON_PRIMARY: Change = Change::since(30);
    /// … and in a family in which the node has none, on every address.
    /// (`platformApplyDefaults` in `cmd/kube-proxy/app/server_linux.go` and
    /// `newProxyServer` in `server.go` v1.31.14.)
    pub const NFT_NODE_PORTS_WITHOUT_PRIMARY: Change = Change::since(31);
    /// The flag `--masquerade-all` is obeyed. Before, only what the configuration file
    /// said about this mode was. (`cmd/kube-proxy/app/server.go` v1.30.3, `options.go`
    /// v1.31.14.)
    pub const NFT_OBEYS_MASQUERADE_FLAG: Change = Change::since(31);
    /// Interfaces are told by name (`iifname`); before, by number (`iif`), for which
    /// they must be there, and which no beginning of a name has.
    /// (`pkg/proxy/util/localdetector.go` v1.32.13, v1.33.13.)
    pub const NFT_INTERFACES_BY_NAME: Change = Change::since(33);
    /// What is addressed into the cluster's service networks, as `ServiceCIDR` objects
    /// say them, but to no cluster IP is dropped. (Gate `MultiCIDRServiceAllocator`, on
    /// from v1.33; the rule is there from v1.30.)
    pub const NFT_SERVICE_CIDRS: Change = Change::since(33);
    /// The rule that masquerades traffic to a cluster IP matches the port, too.
    /// (v1.33.13, v1.34.9.)
    pub const NFT_MASQUERADE_BY_PORT: Change = Change::between(29, 33);
    /// Endpoints have no chains but for client affinity: a service port's chain maps a
    /// random number to an address and a port. The mark is set where it is decided
    /// upon, for all cluster IPs in one rule, and what an endpoint sends to itself is
    /// told by the set `hairpin-connections`. (v1.35.6, v1.36.2.)
    pub const NFT_ENDPOINT_MAPS: Change = Change::since(36);
}
