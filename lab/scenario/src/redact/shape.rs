//! Fields that remain in redacted objects, with the treatment of their values.

use crate::lab::reference::ObjectKind;
use crate::redact::names::NameKind;

/// Treatment of a value.
#[derive(Debug)]
pub(super) enum Shape {
    /// Numbers, booleans and words of the Kubernetes API stay. Other texts are renamed.
    Word,
    /// Numbers and names of ports stay.
    Port,
    /// Names are renamed.
    Name(NameKind),
    /// Addresses and networks are renamed, and `None` stays. Other texts are renamed as names.
    Address(NameKind),
    /// Keys and values of labels or of a selector are renamed.
    Labels,
    /// A key of a label is renamed.
    LabelKey,
    /// The text replaces any value.
    Constant(&'static str),
    /// Each item of a list.
    List(&'static Shape),
    /// Fields of a map. Other fields are dropped.
    Map(&'static [(&'static str, Shape)]),
}

use Shape::{Address, Constant, LabelKey, Labels, List, Map, Name, Port, Word};

/// Words of the Kubernetes API and of protocols, which stay unchanged.
pub(super) const WORDS: &[&str] = &[
    "Always",
    "Auto",
    "ClientIP",
    "Cluster",
    "ClusterIP",
    "ContainersReady",
    "DaemonSet",
    "Deployment",
    "DiskPressure",
    "Disabled",
    "DoesNotExist",
    "Equal",
    "Exists",
    "ExternalDNS",
    "ExternalIP",
    "ExternalName",
    "FQDN",
    "Failed",
    "False",
    "Hostname",
    "IPv4",
    "IPv6",
    "In",
    "Initialized",
    "InternalDNS",
    "InternalIP",
    "LoadBalancer",
    "Local",
    "MemoryPressure",
    "Never",
    "NetworkUnavailable",
    "NoExecute",
    "NoSchedule",
    "Node",
    "NodePort",
    "None",
    "NotIn",
    "OnFailure",
    "PIDPressure",
    "Pending",
    "Pod",
    "PodReadyToStartContainers",
    "PodScheduled",
    "PreferClose",
    "PreferDualStack",
    "PreferNoSchedule",
    "PreferSameNode",
    "PreferSameZone",
    "Proxy",
    "Ready",
    "ReplicaSet",
    "RequireDualStack",
    "Running",
    "SCTP",
    "Service",
    "SingleStack",
    "StatefulSet",
    "Succeeded",
    "TCP",
    "True",
    "UDP",
    "Unknown",
    "VIP",
    "auto",
    "disabled",
];

/// Keys of labels that stay unchanged.
pub(super) const LABEL_KEYS: &[&str] = &[
    "endpointslice.kubernetes.io/managed-by",
    "kubernetes.io/hostname",
    "kubernetes.io/service-name",
    "node.kubernetes.io/exclude-from-external-load-balancers",
    "service.kubernetes.io/headless",
    "service.kubernetes.io/service-proxy-name",
    "topology.kubernetes.io/region",
    "topology.kubernetes.io/zone",
];

/// Returns the fields of a kind that remain.
pub(super) const fn object_shape(kind: ObjectKind) -> &'static Shape {
    match kind {
        ObjectKind::Node => &NODE,
        ObjectKind::Pod => &POD,
        ObjectKind::Service => &SERVICE,
        ObjectKind::EndpointSlice => &ENDPOINT_SLICE,
        ObjectKind::ServiceCidr => &SERVICE_CIDR,
    }
}

const CONDITIONS: Shape = List(&Map(&[("type", Word), ("status", Word)]));

const NODE: Shape = Map(&[
    (
        "metadata",
        Map(&[("name", Name(NameKind::Node)), ("labels", Labels)]),
    ),
    (
        "spec",
        Map(&[
            ("podCIDR", Address(NameKind::Value)),
            ("podCIDRs", List(&Address(NameKind::Value))),
            ("unschedulable", Word),
            (
                "taints",
                List(&Map(&[
                    ("key", LabelKey),
                    ("value", Name(NameKind::Name)),
                    ("effect", Word),
                ])),
            ),
        ]),
    ),
    (
        "status",
        Map(&[
            (
                "addresses",
                List(&Map(&[
                    ("type", Word),
                    ("address", Address(NameKind::Node)),
                ])),
            ),
            ("conditions", CONDITIONS),
        ]),
    ),
]);

const POD: Shape = Map(&[
    (
        "metadata",
        Map(&[
            ("name", Name(NameKind::Name)),
            ("namespace", Name(NameKind::Namespace)),
            ("labels", Labels),
            (
                "annotations",
                Map(&[("k8s.v1.cni.cncf.io/networks", Constant("redacted"))]),
            ),
            ("deletionTimestamp", Constant("1970-01-01T00:00:00Z")),
        ]),
    ),
    ("spec", POD_SPEC),
    (
        "status",
        Map(&[
            ("phase", Word),
            ("hostIP", Address(NameKind::Value)),
            ("podIP", Address(NameKind::Value)),
            ("podIPs", List(&Map(&[("ip", Address(NameKind::Value))]))),
            ("conditions", CONDITIONS),
        ]),
    ),
]);

const POD_SPEC: Shape = Map(&[
    ("nodeName", Name(NameKind::Node)),
    ("nodeSelector", Labels),
    (
        "tolerations",
        List(&Map(&[
            ("key", LabelKey),
            ("operator", Word),
            ("value", Name(NameKind::Name)),
            ("effect", Word),
        ])),
    ),
    ("hostNetwork", Word),
    ("hostname", Name(NameKind::Name)),
    ("subdomain", Name(NameKind::Name)),
    ("restartPolicy", Word),
    (
        "securityContext",
        Map(&[("sysctls", List(&Map(&[("name", Name(NameKind::Value))])))]),
    ),
    ("initContainers", CONTAINERS),
    ("containers", CONTAINERS),
]);

/// Fields of a workload from which svclab writes pods.
pub(super) const WORKLOAD: Shape = Map(&[
    (
        "metadata",
        Map(&[
            ("name", Name(NameKind::Name)),
            ("namespace", Name(NameKind::Namespace)),
            (
                "ownerReferences",
                List(&Map(&[
                    ("apiVersion", Constant("apps/v1")),
                    ("kind", Word),
                    ("name", Name(NameKind::Name)),
                    ("uid", Constant("redacted")),
                ])),
            ),
        ]),
    ),
    (
        "spec",
        Map(&[
            ("replicas", Word),
            ("ordinals", Map(&[("start", Word)])),
            ("selector", LABEL_SELECTOR),
            (
                "template",
                Map(&[("metadata", Map(&[("labels", Labels)])), ("spec", POD_SPEC)]),
            ),
        ]),
    ),
]);

const LABEL_SELECTOR: Shape = Map(&[
    ("matchLabels", Labels),
    (
        "matchExpressions",
        List(&Map(&[
            ("key", LabelKey),
            ("operator", Word),
            ("values", List(&Name(NameKind::Name))),
        ])),
    ),
]);

const CONTAINERS: Shape = List(&Map(&[
    ("name", Name(NameKind::Name)),
    ("restartPolicy", Word),
    (
        "ports",
        List(&Map(&[
            ("name", Port),
            ("containerPort", Word),
            ("hostPort", Word),
            ("hostIP", Address(NameKind::Value)),
            ("protocol", Word),
        ])),
    ),
]));

const SERVICE: Shape = Map(&[
    (
        "metadata",
        Map(&[
            ("name", Name(NameKind::Name)),
            ("namespace", Name(NameKind::Namespace)),
            ("labels", Labels),
            (
                "annotations",
                Map(&[
                    ("service.kubernetes.io/topology-aware-hints", Word),
                    ("service.kubernetes.io/topology-mode", Word),
                ]),
            ),
        ]),
    ),
    ("spec", SERVICE_SPEC),
    (
        "status",
        Map(&[(
            "loadBalancer",
            Map(&[(
                "ingress",
                List(&Map(&[
                    ("ip", Address(NameKind::Value)),
                    ("hostname", Name(NameKind::Host)),
                    ("ipMode", Word),
                ])),
            )]),
        )]),
    ),
]);

const SERVICE_SPEC: Shape = Map(&[
    ("type", Word),
    ("clusterIP", Address(NameKind::Value)),
    ("clusterIPs", List(&Address(NameKind::Value))),
    ("externalIPs", List(&Address(NameKind::Value))),
    ("externalName", Name(NameKind::Host)),
    ("loadBalancerIP", Address(NameKind::Value)),
    ("loadBalancerSourceRanges", List(&Address(NameKind::Value))),
    ("loadBalancerClass", Name(NameKind::Value)),
    ("allocateLoadBalancerNodePorts", Word),
    ("ipFamilies", List(&Word)),
    ("ipFamilyPolicy", Word),
    ("externalTrafficPolicy", Word),
    ("internalTrafficPolicy", Word),
    ("trafficDistribution", Word),
    ("healthCheckNodePort", Word),
    ("publishNotReadyAddresses", Word),
    ("sessionAffinity", Word),
    (
        "sessionAffinityConfig",
        Map(&[("clientIP", Map(&[("timeoutSeconds", Word)]))]),
    ),
    ("selector", Labels),
    (
        "ports",
        List(&Map(&[
            ("name", Port),
            ("protocol", Word),
            ("port", Word),
            ("targetPort", Port),
            ("nodePort", Word),
        ])),
    ),
]);

const ENDPOINT_SLICE: Shape = Map(&[
    (
        "metadata",
        Map(&[
            ("name", Name(NameKind::Name)),
            ("namespace", Name(NameKind::Namespace)),
            ("labels", Labels),
        ]),
    ),
    ("addressType", Word),
    (
        "ports",
        List(&Map(&[("name", Port), ("protocol", Word), ("port", Word)])),
    ),
    (
        "endpoints",
        List(&Map(&[
            ("addresses", List(&Address(NameKind::Host))),
            (
                "conditions",
                Map(&[("ready", Word), ("serving", Word), ("terminating", Word)]),
            ),
            ("hostname", Name(NameKind::Name)),
            ("nodeName", Name(NameKind::Node)),
            ("zone", Name(NameKind::Name)),
            (
                "hints",
                Map(&[
                    ("forZones", List(&Map(&[("name", Name(NameKind::Name))]))),
                    ("forNodes", List(&Map(&[("name", Name(NameKind::Node))]))),
                ]),
            ),
            (
                "targetRef",
                Map(&[
                    ("kind", Word),
                    ("namespace", Name(NameKind::Namespace)),
                    ("name", Name(NameKind::Name)),
                ]),
            ),
        ])),
    ),
]);

const SERVICE_CIDR: Shape = Map(&[
    ("metadata", Map(&[("name", Name(NameKind::Name))])),
    ("spec", Map(&[("cidrs", List(&Address(NameKind::Value)))])),
]);

/// Fields of a `NetworkPolicy` that select pods. Its rules are dropped.
pub(super) const NETWORK_POLICY: Shape = Map(&[
    ("metadata", UNMODELLED_METADATA),
    ("spec", Map(&[("podSelector", LABEL_SELECTOR)])),
]);

/// Fields of an object that svclab does not model.
pub(super) const UNMODELLED: Shape = Map(&[("metadata", UNMODELLED_METADATA)]);

const UNMODELLED_METADATA: Shape = Map(&[
    ("name", Name(NameKind::Name)),
    ("namespace", Name(NameKind::Namespace)),
]);
