//! Kinds of Kubernetes objects that svclab does not model, by what they do to packets.

/// What an object of a kind does to packets in a real cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Effect {
    /// Nothing.
    None,
    /// It makes objects that svclab reads, or replaces them; the text says what to write.
    Instead(&'static str),
    /// It admits or drops packets of pods. A lab with such an object is refused unless
    /// its `notModelled` lists the kind.
    Filters,
    /// svclab knows nothing of the kind.
    Unknown,
}

const PODS: &str = "write its pods, each with a node and an address";
const SERVICES: &str = "write the Service, its endpoints, and the pods of the proxy";

/// The effect of objects of a kind in an API group.
pub(super) fn effect(group: &str, kind: &str) -> Effect {
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
        | "AuthorizationPolicy" => Effect::Filters,
        "Deployment"
        | "StatefulSet"
        | "DaemonSet"
        | "ReplicaSet"
        | "ReplicationController"
        | "Job"
        | "CronJob"
        | "DeploymentConfig" => Effect::Instead(PODS),
        "Endpoints" if group.is_empty() => {
            Effect::Instead("write an EndpointSlice with the same addresses and ports")
        }
        "Ingress" | "IngressClass" | "Gateway" | "GatewayClass" | "HTTPRoute" | "GRPCRoute"
        | "TCPRoute" | "UDPRoute" | "TLSRoute" | "Route" | "VirtualService" => {
            Effect::Instead(SERVICES)
        }
        "IPPool" | "BGPPeer" | "BGPConfiguration" | "FelixConfiguration" => {
            Effect::Instead("write `calico` in the lab's spec")
        }
        _ if is_inert(group, kind) => Effect::None,
        _ => Effect::Unknown,
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
