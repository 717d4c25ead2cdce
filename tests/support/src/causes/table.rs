//! The causes by lab.

use super::{Cause, Undo};

const SURPLUS_RULE: &str = "`! -s 192.168.64.0/20 -d 192.168.66.0/24 -j RETURN`";
const SET_CLUSTER_CIDR: &str = "start kube-proxy with --cluster-cidr=";
const MASQUERADE_ALL: &str = "start kube-proxy with --masquerade-all";
const DISABLE_RP_FILTER: &str = "set net.ipv4.conf.all.rp_filter = 0 on node-1, node-2";
const DISABLE_SOURCE_CHECK: &str = "let the underlay forward packets whose source";
const SET_POLICY_CLUSTER: &str = "set externalTrafficPolicy: Cluster in service ";
const SET_NGINX_CLUSTER: &str = "set externalTrafficPolicy: Cluster in service ns1/nginx";
const SET_SVC1_CLUSTER: &str = "set externalTrafficPolicy: Cluster in service ns1/svc1";
const SOURCE_OF_BALANCER: &str = "let load balancer clb forward from its own address";
const REMOVE_BACKEND: &str = "remove node-1 from the backends of load balancer clb";
const MASQUERADE_NETWORK: &str = "from nonMasqueradeCIDRs of ip-masq-agent";
const ADD_BACKEND: &str = "add node-2 to the backends of load balancer clb";
const POD_TARGETS: &str = "let load balancer clb forward to pods";
const DELETE_MANUAL_RULE: &str = "`-p tcp -m tcp --dport 30443 -j DROP`";

/// The rule of an earlier flannel, which prevents masquerading of packets to the other node's pods.
const REMOVE_SURPLUS_RULE: Undo = Undo::WithoutLine {
    namespace: "node-1",
    line: "-A POSTROUTING ! -s 192.168.64.0/20 -d 192.168.66.0/24 -j RETURN",
};

const STALE_RULE_PRESENT: (&str, &[&str]) = ("stale", &["present", "missed", "respelled"]);

const LOCAL: (&str, &[&str]) = ("policy", &["Local"]);

/// Marks packets that do not come from pods, as a kube-proxy with the pod network does. Without the
/// pod network, kube-proxy also leaves its set of cluster IPs empty, so the rule names their
/// network.
const MARK_NON_POD_SOURCES: Undo = Undo::WithLine {
    namespace: "node-1",
    table: "nat",
    line: "-I KUBE-SERVICES ! -s 11.0.0.0/16 -d 10.20.0.0/16 -j KUBE-MARK-MASQ",
};

/// The rule by which Local exempts packets to a balancer's address from the mark, in ipvs mode.
const REMOVE_LOCAL_RETURN: Undo = Undo::WithoutLine {
    namespace: "node-1",
    line: "-A KUBE-LOAD-BALANCER -m comment --comment \"Kubernetes service load balancer ip + port \
           with externalTrafficPolicy=local\" -m set --match-set KUBE-LOAD-BALANCER-LOCAL dst,dst \
           -j RETURN",
};

/// First half of a balancer that forwards from its own address: masquerades the forwarded packets.
const MASQUERADE_ON_BALANCER: Undo = Undo::WithLine {
    namespace: "fabric",
    table: "nat",
    line: "-A POSTROUTING -p tcp -d 172.18.1.10 --dport 30443 -j MASQUERADE",
};

/// Second half: conntrack tracks the packets that IPVS forwards; otherwise the kernel does not
/// masquerade them.
const TRACK_IPVS_CONNECTIONS: Undo = Undo::WithSysctl {
    namespaces: &["fabric"],
    key: "net.ipv4.vs.conntrack",
    value: "1",
};

/// Causes, the most specific first.
pub(super) const CAUSES: &[Cause] = &[
    // S2-30, S2-35: the surplus rule is one half of the cause; the other is a strict reverse path
    // filter, or an underlay that checks sources. Undoing one half is sufficient, unless both nodes
    // and underlay are strict. A rule that masquerades earlier hides the surplus rule.
    Cause {
        lab: "canal-stale-rule",
        when: &[
            STALE_RULE_PRESENT,
            ("rpFilter", &["1"]),
            ("underlay", &["passes"]),
        ],
        probes: &["call"],
        required: &[SURPLUS_RULE, DISABLE_RP_FILTER],
        allowed: &[SET_CLUSTER_CIDR, MASQUERADE_ALL],
        remedies: &[
            &[REMOVE_SURPLUS_RULE],
            &[Undo::WithSysctl {
                namespaces: &["node-1", "node-2"],
                key: "net.ipv4.conf.all.rp_filter",
                value: "0",
            }],
        ],
    },
    Cause {
        lab: "canal-stale-rule",
        when: &[
            STALE_RULE_PRESENT,
            ("rpFilter", &["1"]),
            ("underlay", &["drops"]),
        ],
        probes: &["call"],
        required: &[SURPLUS_RULE],
        allowed: &[SET_CLUSTER_CIDR, MASQUERADE_ALL],
        remedies: &[&[REMOVE_SURPLUS_RULE]],
    },
    Cause {
        lab: "canal-stale-rule",
        when: &[
            STALE_RULE_PRESENT,
            ("rpFilter", &["0", "2"]),
            ("underlay", &["drops"]),
        ],
        probes: &["call"],
        required: &[SURPLUS_RULE, DISABLE_SOURCE_CHECK],
        allowed: &[SET_CLUSTER_CIDR, MASQUERADE_ALL],
        remedies: &[
            &[REMOVE_SURPLUS_RULE],
            &[Undo::WithoutLine {
                namespace: "fabric",
                line: "-A SOURCE-node-2 -m comment --comment \"not a source of node-2 (foreignSources)\" -j DROP",
            }],
        ],
    },
    // S3: the policy. A kube-proxy with the pod network forwards connections of pods to the
    // service.
    Cause {
        lab: "local-ingress",
        when: &[
            LOCAL,
            ("clusterCIDR", &["none"]),
            ("version", &["v1.30"]),
            ("mode", &["iptables"]),
        ],
        probes: &["apart"],
        required: &[SET_NGINX_CLUSTER],
        allowed: &[SET_CLUSTER_CIDR],
        remedies: &[&[Undo::WithoutLine {
            namespace: "node-1",
            line: "-A KUBE-EXTERNAL-SERVICES -m comment --comment \"ns1/nginx:http has no local \
                   endpoints\" -m tcp -p tcp -d 1.2.3.4 --dport 80 -j DROP",
        }]],
    },
    Cause {
        lab: "local-ingress",
        when: &[
            LOCAL,
            ("clusterCIDR", &["none"]),
            ("version", &["v1.30"]),
            ("mode", &["iptables"]),
        ],
        probes: &["podToExternal"],
        required: &[SET_SVC1_CLUSTER],
        allowed: &[SET_CLUSTER_CIDR],
        remedies: &[&[Undo::WithoutLine {
            namespace: "node-1",
            line: "-A KUBE-EXTERNAL-SERVICES -m comment --comment \"ns1/svc1:p80 has no local \
                   endpoints\" -m tcp -p tcp -d 192.168.99.11 --dport 80 -j DROP",
        }]],
    },
    // In nftables mode, the drop is an entry of a map. Packets of pods match it while they are
    // forwarded, and up to v1.32 those of a node before they are sent.
    Cause {
        lab: "local-ingress",
        when: &[LOCAL, ("mode", &["nftables"])],
        probes: &["apart", "nodeWithout"],
        required: &[SET_NGINX_CLUSTER],
        allowed: &[SET_CLUSTER_CIDR],
        remedies: &[&[Undo::WithoutEntry {
            namespace: "node-1",
            set: "no-endpoint-services",
            key: "1.2.3.4 . tcp . 80",
        }]],
    },
    Cause {
        lab: "local-ingress",
        when: &[LOCAL, ("mode", &["nftables"])],
        probes: &["podToExternal", "nodeToExternal"],
        required: &[SET_SVC1_CLUSTER],
        allowed: &[SET_CLUSTER_CIDR],
        remedies: &[&[Undo::WithoutEntry {
            namespace: "node-1",
            set: "no-endpoint-services",
            key: "192.168.99.11 . tcp . 80",
        }]],
    },
    Cause {
        lab: "local-ingress",
        when: &[LOCAL, ("version", &["v1.14"])],
        probes: &["nodeWithout"],
        required: &[SET_NGINX_CLUSTER],
        allowed: &[SET_CLUSTER_CIDR],
        remedies: &[&[Undo::WithoutLine {
            namespace: "node-1",
            line: "-A KUBE-FIREWALL -m comment --comment \"kubernetes firewall for dropping marked \
                   packets\" -m mark --mark 0x00008000/0x00008000 -j DROP",
        }]],
    },
    // kube-proxy does not forward packets from the bridge to the service on their own node. The
    // other node does, and half of the replies bypass that node.
    Cause {
        lab: "local-ingress",
        when: &[LOCAL, ("clusterCIDR", &["set"]), ("version", &["v1.20"])],
        probes: &["podToExternal"],
        required: &[SET_SVC1_CLUSTER],
        allowed: &[SET_CLUSTER_CIDR],
        remedies: &[
            &[Undo::WithoutWords {
                namespace: "node-1",
                line: "-A KUBE-SERVICES -m comment --comment \"ns1/svc1:p80 external IP\" -m tcp \
                       -p tcp -d 192.168.99.11 --dport 80 -m physdev ! --physdev-is-in -m addrtype \
                       ! --src-type LOCAL -j KUBE-XLB-XPGD46QRK7WJZT7O",
                words: " -m physdev ! --physdev-is-in",
            }],
            &[Undo::WithoutLine {
                namespace: "node-2",
                line: "-A KUBE-XLB-XPGD46QRK7WJZT7O -m comment --comment \"Redirect pods trying to \
                       reach external loadbalancer VIP to clusterIP\" -s 10.0.0.0/8 -j \
                       KUBE-SVC-XPGD46QRK7WJZT7O",
            }],
        ],
    },
    // In ipvs mode, Local also exempts the node's own connections from the mark.
    Cause {
        lab: "local-ingress",
        when: &[LOCAL, ("version", &["v1.24"]), ("mode", &["ipvs"])],
        probes: &["nodeWithout"],
        required: &[SET_NGINX_CLUSTER],
        allowed: &[SET_CLUSTER_CIDR],
        remedies: &[&[REMOVE_LOCAL_RETURN]],
    },
    Cause {
        lab: "local-ingress",
        when: &[LOCAL, ("version", &["v1.24"]), ("mode", &["ipvs"])],
        probes: &["nodeToExternal"],
        required: &[SET_SVC1_CLUSTER],
        allowed: &[SET_CLUSTER_CIDR],
        remedies: &[&[Undo::WithLine {
            namespace: "node-1",
            table: "nat",
            line: "-I KUBE-SERVICES -m set --match-set KUBE-EXTERNAL-IP-LOCAL dst,dst -j \
                   KUBE-MARK-MASQ",
        }]],
    },
    // Connections that the kernel refuses.
    Cause {
        lab: "local-ingress",
        when: &[LOCAL],
        probes: &["apart", "nodeWithout"],
        required: &[SET_NGINX_CLUSTER],
        allowed: &[SET_CLUSTER_CIDR],
        remedies: &[],
    },
    Cause {
        lab: "local-ingress",
        when: &[LOCAL],
        probes: &["podToExternal", "nodeToExternal"],
        required: &[SET_SVC1_CLUSTER],
        allowed: &[SET_CLUSTER_CIDR],
        remedies: &[],
    },
    // As with Cluster, forwards to any endpoint, and masquerades so that replies pass the node.
    Cause {
        lab: "service-paths",
        when: &[("mode", &["iptables"])],
        probes: &["outsideToLocal", "podToLocal"],
        required: &[],
        allowed: &[],
        remedies: &[&[
            Undo::WithLine {
                namespace: "node-a",
                table: "nat",
                line: "-A KUBE-EXT-CKNT3XJEPRBDUPB5 -j KUBE-MARK-MASQ",
            },
            Undo::WithLine {
                namespace: "node-a",
                table: "nat",
                line: "-A KUBE-EXT-CKNT3XJEPRBDUPB5 -j KUBE-SVC-CKNT3XJEPRBDUPB5",
            },
        ]],
    },
    Cause {
        lab: "service-paths",
        when: &[("mode", &["nftables"])],
        probes: &["outsideToLocal", "podToLocal"],
        required: &[],
        allowed: &[],
        remedies: &[&[
            Undo::WithRule {
                namespace: "node-a",
                chain: "external-DTMMQG6G-default/apart/tcp/p",
                rule: "mark set mark or 0x00004000",
            },
            Undo::WithRule {
                namespace: "node-a",
                chain: "external-DTMMQG6G-default/apart/tcp/p",
                rule: "goto service-DTMMQG6G-default/apart/tcp/p",
            },
        ]],
    },
    Cause {
        lab: "service-paths",
        when: &[("mode", &["ipvs"])],
        probes: &["outsideToLocal", "nodeToLocal"],
        required: &[],
        allowed: &[],
        remedies: &[&[Undo::WithoutLine {
            namespace: "node-a",
            line: "-A KUBE-LOAD-BALANCER -m comment --comment \"Kubernetes service load balancer \
                   ip + port with externalTrafficPolicy=local\" -m set --match-set \
                   KUBE-LOAD-BALANCER-LOCAL dst,dst -j RETURN",
        }]],
    },
    // The dead backend of a layer 7 balancer, which the lab itself blocks.
    Cause {
        lab: "clb-hairpin",
        when: &[("balancer", &["layer7"])],
        probes: &["call"],
        required: &[DELETE_MANUAL_RULE],
        allowed: &[REMOVE_BACKEND, POD_TARGETS],
        remedies: &[],
    },
    // S1-22: the node of the client is the only backend, and excluded.
    Cause {
        lab: "clb-hairpin",
        when: &[("balancer", &["single"])],
        probes: &["call"],
        required: &[ADD_BACKEND],
        allowed: &[],
        remedies: &[],
    },
    // A balancer that forwards from its own address need not exclude it.
    Cause {
        lab: "clb-hairpin",
        when: &[("balancer", &["singleDrops"])],
        probes: &["call"],
        required: &[ADD_BACKEND],
        allowed: &[],
        remedies: &[&[
            Undo::WithoutLine {
                namespace: "fabric",
                line: "-A PREROUTING -s 172.18.1.10 -d 172.18.96.4 -p tcp --dport 443 -j MARK \
                       --set-mark 101",
            },
            MASQUERADE_ON_BALANCER,
            TRACK_IPVS_CONNECTIONS,
        ]],
    },
    // No health check asks node-1 whether it has an endpoint, so connections of any source fail.
    // With or without health check, a backend without an endpoint does not answer.
    Cause {
        lab: "clb-hairpin",
        when: &[("balancer", &["unchecked"])],
        probes: &["call", "outside"],
        required: &["let load balancer clb check the health of its backends"],
        allowed: &[
            SET_POLICY_CLUSTER,
            REMOVE_BACKEND,
            SOURCE_OF_BALANCER,
            MASQUERADE_NETWORK,
            POD_TARGETS,
        ],
        remedies: &[&[Undo::WithoutBackend {
            namespace: "fabric",
            to: "172.18.1.10:30443",
        }]],
    },
    Cause {
        lab: "clb-hairpin",
        when: &[("balancer", &["blocked"])],
        probes: &["call"],
        required: &["remove the security group of load balancer clb"],
        allowed: &[SOURCE_OF_BALANCER, SET_POLICY_CLUSTER],
        remedies: &[&[Undo::WithoutLine {
            namespace: "internet",
            line: "-A SG-clb -m comment --comment \"securityGroup of clb\" -j DROP",
        }]],
    },
    // S0, S1: the loop, which the policy causes: the rule that Local adds precedes the mark. A
    // source address of the balancer, or another backend, fixes the loop.
    Cause {
        lab: "clb-hairpin",
        when: &[("ingress", &["both"])],
        probes: &["call"],
        required: &[SET_POLICY_CLUSTER],
        // ip-masq-agent masquerades packets without the mark, once the network is not excluded
        // (S0-15).
        allowed: &[SOURCE_OF_BALANCER, REMOVE_BACKEND, MASQUERADE_NETWORK],
        remedies: &[&[REMOVE_LOCAL_RETURN]],
    },
    // With a single backend, masquerading on the node only makes the backend unavailable to the
    // client. A balancer that forwards from its own address fixes the loop.
    Cause {
        lab: "clb-hairpin",
        when: &[],
        probes: &["call"],
        required: &[SOURCE_OF_BALANCER],
        allowed: &[SET_POLICY_CLUSTER],
        remedies: &[&[MASQUERADE_ON_BALANCER, TRACK_IPVS_CONNECTIONS]],
    },
    // S4: an operator flushed kube-proxy's rules, or kube-proxy has no pod network.
    Cause {
        lab: "missing-cluster-cidr",
        when: &[("byHand", &["flushed"])],
        probes: &["fromNode", "fromHostPod", "other"],
        required: &[
            "restore `-m set --match-set KUBE-CLUSTER-IP dst,dst ! -s 11.0.0.0/16 -j KUBE-MARK-MASQ`",
            "restore `-m comment --comment \"kubernetes service traffic requiring SNAT\" ",
        ],
        allowed: &[],
        remedies: &[&[
            Undo::WithoutLine {
                namespace: "node-1",
                line: "-F KUBE-SERVICES",
            },
            Undo::WithoutLine {
                namespace: "node-1",
                line: "-F KUBE-POSTROUTING",
            },
        ]],
    },
    Cause {
        lab: "missing-cluster-cidr",
        when: &[],
        probes: &["fromNode", "fromHostPod", "other"],
        required: &[SET_CLUSTER_CIDR],
        allowed: &[MASQUERADE_ALL],
        remedies: &[&[MARK_NON_POD_SOURCES]],
    },
];
