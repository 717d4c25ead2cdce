//! Kubernetes kinds that svclab does not model, with their effect on packets.

/// Effect of an object on packets in a real cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PacketEffect {
    /// The object has no effect on packets.
    None,
    /// A controller creates modelled objects from the object, or modelled objects replace it. The
    /// text states what to write instead.
    Replaced(&'static str),
    /// The object admits or drops packets of pods. A lab with such an object is refused unless its
    /// `notModelled` lists the kind.
    Filters,
    /// svclab has no information about the kind.
    Unknown,
}

const PODS_HELP: &str = "write its pods, each with a node and an address";
const SERVICES_HELP: &str = "write the Service, its endpoints, and the pods of the proxy";

/// Returns the effect of objects with this API group and kind.
pub(crate) fn packet_effect(group: &str, kind: &str) -> PacketEffect {
    match kind {
        "NetworkPolicy"
        | "GlobalNetworkPolicy"
        | "StagedNetworkPolicy"
        | "CiliumNetworkPolicy"
        | "CiliumClusterwideNetworkPolicy"
        | "AdminNetworkPolicy"
        | "BaselineAdminNetworkPolicy"
        | "ClusterNetworkPolicy"
        | "EgressFirewall"
        | "AuthorizationPolicy" => PacketEffect::Filters,
        "Deployment"
        | "StatefulSet"
        | "DaemonSet"
        | "ReplicaSet"
        | "ReplicationController"
        | "Job"
        | "CronJob"
        | "DeploymentConfig" => PacketEffect::Replaced(PODS_HELP),
        "Endpoints" if group.is_empty() => {
            PacketEffect::Replaced("write an EndpointSlice with the same addresses and ports")
        }
        "Ingress" | "IngressClass" | "Gateway" | "GatewayClass" | "HTTPRoute" | "GRPCRoute"
        | "TCPRoute" | "UDPRoute" | "TLSRoute" | "Route" | "VirtualService" => {
            PacketEffect::Replaced(SERVICES_HELP)
        }
        "IPPool" | "BGPPeer" | "BGPConfiguration" | "FelixConfiguration" => {
            PacketEffect::Replaced("write `calico` in the lab's spec")
        }
        _ if is_inert(group, kind) => PacketEffect::None,
        _ => PacketEffect::Unknown,
    }
}

/// Whether no packet depends on objects of the kind.
fn is_inert(group: &str, kind: &str) -> bool {
    const GROUPS: [&str; 12] = [
        "rbac.authorization.k8s.io",
        "storage.k8s.io",
        "events.k8s.io",
        "coordination.k8s.io",
        "autoscaling",
        "policy",
        "scheduling.k8s.io",
        "certificates.k8s.io",
        "admissionregistration.k8s.io",
        "apiextensions.k8s.io",
        "apiregistration.k8s.io",
        "flowcontrol.apiserver.k8s.io",
    ];
    const CORE: [&str; 13] = [
        "Binding",
        "ComponentStatus",
        "ConfigMap",
        "Event",
        "LimitRange",
        "Namespace",
        "PersistentVolume",
        "PersistentVolumeClaim",
        "PodTemplate",
        "ResourceQuota",
        "Secret",
        "ServiceAccount",
        "List",
    ];
    GROUPS.contains(&group)
        || (group.is_empty() && CORE.contains(&kind))
        || (group == "apps" && kind == "ControllerRevision")
        || (group == "networking.k8s.io" && kind == "IPAddress")
}
