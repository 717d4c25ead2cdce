//! What is done with each field that svclab reads. The fields are taken from the types
//! themselves, so a field that is new in the API, or in the lab document, has to be listed
//! here with what is done with it.
//!
//! - `obeyed`: packets are as the field says, or the field is part of what is checked.
//! - `refused`, `warned`: see `unmodelled_tests.rs` for the messages.
//! - `inert`: no packet depends on it, for the reason that follows.

use std::cell::RefCell;
use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::{Node, Pod, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use k8s_openapi::api::networking::v1::{NetworkPolicy, ServiceCIDR};
use serde::de::value::{BorrowedStrDeserializer, Error};
use serde::de::{DeserializeOwned, DeserializeSeed, Deserializer, MapAccess, SeqAccess, Visitor};
use serde::forward_to_deserialize_any;

const METADATA: &str = "
metadata.annotations warned those that decide about packets: networks, topology-mode
metadata.creationTimestamp inert nobody reads it
metadata.deletionGracePeriodSeconds inert nobody waits
metadata.deletionTimestamp obeyed
metadata.finalizers inert nothing is deleted
metadata.generateName inert the name is written
metadata.generation inert nobody reads it
metadata.labels obeyed
metadata.managedFields inert nobody reads it
metadata.name obeyed
metadata.namespace obeyed
metadata.ownerReferences inert nothing is deleted
metadata.resourceVersion inert the API server of a lab counts its own
metadata.selfLink inert nobody reads it
metadata.uid obeyed
apiVersion obeyed
kind obeyed
";

const NODE: &str = "
spec.configSource inert the kubelet is not run
spec.externalID inert a cloud's name
spec.podCIDR obeyed
spec.podCIDRs obeyed
spec.providerID inert a cloud's name
spec.taints inert pods are placed by nodeName
spec.unschedulable inert pods are placed by nodeName
status.addresses obeyed
status.allocatable inert no resources are counted
status.capacity inert no resources are counted
status.conditions warned
status.config inert the kubelet is not run
status.daemonEndpoints inert the kubelet is not run
status.declaredFeatures inert the kubelet is not run
status.features inert the kubelet is not run
status.images inert no image is run
status.nodeInfo inert versions are written in the lab
status.phase inert no component reads it
status.runtimeHandlers inert no container is run
status.volumesAttached inert there are no volumes
status.volumesInUse inert there are no volumes
";

const CONTAINER: &str = "
args inert no image is run
command inert no image is run
env inert no image is run
envFrom inert no image is run
image inert no image is run
imagePullPolicy inert no image is run
lifecycle inert no image is run
livenessProbe inert the kubelet is not run
name inert nobody reads it
ports.containerPort obeyed
ports.hostIP refused with hostPort
ports.hostPort refused
ports.name obeyed
ports.protocol obeyed
readinessProbe inert readiness is the pod's condition
resizePolicy inert no image is run
resources inert no resources are counted
restartPolicy obeyed
restartPolicyRules inert no image is run
securityContext inert no image is run
startupProbe inert the kubelet is not run
stdin inert no image is run
stdinOnce inert no image is run
terminationMessagePath inert no image is run
terminationMessagePolicy inert no image is run
tty inert no image is run
volumeDevices inert there are no volumes
volumeMounts inert there are no volumes
workingDir inert no image is run
";

const POD: &str = "
spec.activeDeadlineSeconds inert no image is run
spec.affinity inert pods are placed by nodeName
spec.automountServiceAccountToken inert no image is run
spec.dnsConfig inert there is no DNS
spec.dnsPolicy inert there is no DNS
spec.enableServiceLinks inert no image is run
spec.ephemeralContainers inert the API admits no ports of them
spec.hostAliases inert there is no DNS
spec.hostIPC inert no image is run
spec.hostNetwork obeyed
spec.hostPID inert no image is run
spec.hostUsers inert the network is the same
spec.hostname obeyed
spec.hostnameOverride inert there is no DNS
spec.imagePullSecrets inert no image is run
spec.nodeName obeyed
spec.nodeSelector inert pods are placed by nodeName
spec.os inert Linux is meant
spec.overhead inert no resources are counted
spec.preemptionPolicy inert pods are placed by nodeName
spec.priority inert pods are placed by nodeName
spec.priorityClassName inert pods are placed by nodeName
spec.readinessGates inert readiness is the pod's condition
spec.resourceClaims inert no resources are counted
spec.resources inert no resources are counted
spec.restartPolicy inert no image is run
spec.runtimeClassName inert no image is run
spec.schedulerName inert pods are placed by nodeName
spec.schedulingGates inert pods are placed by nodeName
spec.schedulingGroup inert pods are placed by nodeName
spec.securityContext.sysctls warned
spec.securityContext.appArmorProfile inert no image is run
spec.securityContext.fsGroup inert no image is run
spec.securityContext.fsGroupChangePolicy inert no image is run
spec.securityContext.runAsGroup inert no image is run
spec.securityContext.runAsNonRoot inert no image is run
spec.securityContext.runAsUser inert no image is run
spec.securityContext.seLinuxChangePolicy inert no image is run
spec.securityContext.seLinuxOptions inert no image is run
spec.securityContext.seccompProfile inert no image is run
spec.securityContext.supplementalGroups inert no image is run
spec.securityContext.supplementalGroupsPolicy inert no image is run
spec.securityContext.windowsOptions inert no image is run
spec.serviceAccount inert no image is run
spec.serviceAccountName inert no image is run
spec.setHostnameAsFQDN inert no image is run
spec.shareProcessNamespace inert no image is run
spec.subdomain obeyed
spec.terminationGracePeriodSeconds inert nobody waits
spec.tolerations inert pods are placed by nodeName
spec.topologySpreadConstraints inert pods are placed by nodeName
spec.volumes inert there are no volumes
status.allocatedResources inert no resources are counted
status.conditions obeyed
status.containerStatuses inert readiness is the pod's condition
status.ephemeralContainerStatuses inert readiness is the pod's condition
status.extendedResourceClaimStatus inert no resources are counted
status.hostIP inert the node's own addresses are used
status.hostIPs inert the node's own addresses are used
status.initContainerStatuses inert readiness is the pod's condition
status.message inert nobody reads it
status.nodeAllocatableResourceClaimStatuses inert no resources are counted
status.nominatedNodeName inert pods are placed by nodeName
status.observedGeneration inert nobody reads it
status.phase obeyed
status.podIP obeyed
status.podIPs obeyed
status.qosClass inert no resources are counted
status.reason inert nobody reads it
status.resize inert no resources are counted
status.resourceClaimStatuses inert no resources are counted
status.resources inert no resources are counted
status.startTime inert nobody reads it
";

const SERVICE: &str = "
spec.allocateLoadBalancerNodePorts obeyed
spec.clusterIP warned where it is absent
spec.clusterIPs obeyed
spec.externalIPs obeyed
spec.externalName warned
spec.externalTrafficPolicy obeyed
spec.healthCheckNodePort obeyed
spec.internalTrafficPolicy obeyed
spec.ipFamilies obeyed
spec.ipFamilyPolicy inert the addresses are written
spec.loadBalancerClass inert balancers are written in the lab
spec.loadBalancerIP warned
spec.loadBalancerSourceRanges obeyed
spec.ports.appProtocol inert kube-proxy does not read it
spec.ports.name obeyed
spec.ports.nodePort obeyed
spec.ports.port obeyed
spec.ports.protocol obeyed
spec.ports.targetPort obeyed
spec.publishNotReadyAddresses obeyed
spec.selector obeyed
spec.sessionAffinity obeyed
spec.sessionAffinityConfig.clientIP.timeoutSeconds obeyed
spec.trafficDistribution obeyed
spec.type obeyed
status.conditions inert no component reads it
status.loadBalancer.ingress.hostname inert there is no DNS
status.loadBalancer.ingress.ip obeyed
status.loadBalancer.ingress.ipMode obeyed
status.loadBalancer.ingress.ports inert kube-proxy does not read it
";

const ENDPOINT_SLICE: &str = "
addressType obeyed
endpoints.addresses obeyed
endpoints.conditions.ready obeyed
endpoints.conditions.serving obeyed
endpoints.conditions.terminating obeyed
endpoints.deprecatedTopology obeyed
endpoints.hints.forNodes obeyed
endpoints.hints.forZones obeyed
endpoints.hostname inert there is no DNS
endpoints.nodeName obeyed
endpoints.targetRef obeyed
endpoints.zone inert kube-proxy reads the hints
ports.appProtocol inert kube-proxy does not read it
ports.name obeyed
ports.port obeyed
ports.protocol obeyed
";

const SERVICE_CIDR: &str = "
spec.cidrs obeyed
status.conditions inert no component reads it
";

const NETWORK_POLICY: &str = "
spec.podSelector refused where it selects a pod
spec.egress refused with podSelector
spec.ingress refused with podSelector
spec.policyTypes refused with podSelector
";

/// Fields of the lab document that no packet depends on, each by its type; all others are
/// obeyed or refused.
const INERT: [&str; 15] = [
    "Claim.notCheckable",
    "Claim.says",
    "Claimed.id",
    "Claimed.part",
    "Fact.notCovered",
    "Fact.says",
    "Fact.test",
    "FlowRow.because",
    "FlowRow.covers",
    "FlowRow.source",
    "LabSpec.about",
    "LabSpec.claims",
    "LabSpec.columns",
    "LabSpec.source",
    "Row.claims",
];

/// Fields of the lab document that are obeyed, or refused where they cannot be.
const OBEYED: &str = "
ByHand: commands iptables outputLimit processLimit timeLimit
Calico: natOutgoing pools randomFully version
ChainExpectation: chain is on table
Claimed: says
CounterExpectation: counter grows on
Docker: bip
EarlierFlannel: lease network randomFully subnetFile version
Expected: chains counters ipvs links rules sets steps wire
Fabric: foreignSources routes subnet type
FabricRoute: to via
Fact: fails masqueraded reaches when
Flannel: ipMasq network port randomFully version vni
Flow: across after bind connections expect from patience protocol to
FlowRow: answered any connected connections endpoints refused reset seenSource seenSources silent sourcePort timeout unreachable when
HealthCheck: every
HostSpec: address ports
IpMasqAgent: masqLinkLocal nonMasqueradeCIDRs version
KubeProxy: accounting args binary bindLoadBalancerIPs bridgeInterface clusterCIDR detectLocalMode interfaceNamePrefix ipvsScheduler localhostNodePorts masqueradeAll masqueradeBit mode nodePortAddresses randomFully strictARP tcpBeLiberal tcpFinTimeout tcpTimeout timeout udpTimeout version
Lab: apiVersion kind metadata spec
LabSpec: axes calico connections docker exclude expect fabric facts flannel flows hosts ipMasqAgent iptables kubeProxy loadBalancers nodes notModelled probes steps
Leftovers: flannel ipset iptables
LinkExpectation: addresses flags on
LoadBalancerSpec: backends healthCheck keepSource noBackend public retryAfter scheduler securityGroup service skipOwnSource target
Metadata: name
NodeSpec: byHand dump kubeProxy lenient leftovers subnet sysctls
Patch: add delete merge patch terminate
Probe: across after bind connections from patience protocol to
ProbeExpectation: answered connected endpoints refused reset seenSource seenSources silent sourcePort timeout unreachable
Public: egress
Row: chains counters ipvs links rules sets steps when wire
RuleExpectation: chain hits on rule table
SecurityGroup: allow
SetExpectation: members on set table type
Step: change name probes
StepExpectation: within
VirtualServerExpectation: is on server
WireExpectation: count mss never on resent see window
";

#[test]
fn fields_of_kubernetes_objects_are_all_listed() {
    let containers = |list: &str| CONTAINER.trim().replace('\n', &format!("\nspec.{list}."));
    let containers = ["containers", "initContainers"]
        .map(|list| format!("spec.{list}.{}\n", containers(list)))
        .concat();
    let pod = format!("{METADATA}{POD}{containers}");
    let and = |own: &str| format!("{METADATA}{own}");
    let wrong = [
        compared("Node", &fields::<Node>(), &and(NODE)),
        compared("Pod", &fields::<Pod>(), &pod),
        compared("Service", &fields::<Service>(), &and(SERVICE)),
        compared(
            "EndpointSlice",
            &fields::<EndpointSlice>(),
            &and(ENDPOINT_SLICE),
        ),
        compared("ServiceCIDR", &fields::<ServiceCIDR>(), &and(SERVICE_CIDR)),
        compared(
            "NetworkPolicy",
            &fields::<NetworkPolicy>(),
            &and(NETWORK_POLICY),
        ),
    ];
    assert_eq!(wrong.concat(), Vec::<String>::new());
}

/// Fields that no entry is for, and entries that no field is for. An entry is for its field
/// and for those below.
fn compared(kind: &str, fields: &BTreeSet<String>, listed: &str) -> Vec<String> {
    let entries: Vec<&str> = listed.lines().filter(|line| !line.is_empty()).collect();
    let path = |entry: &str| entry.split(' ').next().unwrap_or_default().to_owned();
    let covers = |entry: &str, field: &str| {
        field
            .strip_prefix(&path(entry))
            .is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
    };
    let mut wrong = Vec::new();
    for entry in &entries {
        let words: Vec<&str> = entry.splitn(3, ' ').collect();
        match words[..] {
            [_, "obeyed" | "refused" | "warned", ..] | [_, "inert", _] => {}
            _ => wrong.push(format!(
                "{kind}: `{entry}` says not what is done, or why nothing"
            )),
        }
        if !fields.iter().any(|field| covers(entry, field)) {
            wrong.push(format!("{kind}: there is no field {}", path(entry)));
        }
    }
    // Where a field has fields of its own, those are to be listed.
    let below = |field: &str| {
        let inside = format!("{field}.");
        entries.iter().any(|entry| path(entry).starts_with(&inside))
    };
    for field in fields {
        if !entries.iter().any(|entry| covers(entry, field)) && !below(field) {
            wrong.push(format!(
                "{kind}: it is not listed what is done with {field}"
            ));
        }
    }
    wrong
}

#[test]
fn fields_of_the_lab_document_are_all_listed() {
    let schema = serde_json::to_value(super::schema::lab()).expect("a schema");
    let mut fields = BTreeSet::new();
    let definitions = schema["$defs"].as_object().expect("definitions");
    let all = definitions
        .iter()
        .map(|(name, schema)| (name.as_str(), schema));
    for (name, schema) in all.chain([("Lab", &schema)]) {
        let alternatives = ["anyOf", "oneOf"].map(|key| schema[key].as_array());
        let alternatives = alternatives.into_iter().flatten().flatten();
        for schema in alternatives.chain([schema]) {
            let properties = schema["properties"].as_object();
            let properties = properties.into_iter().flat_map(|map| map.keys());
            fields.extend(properties.map(|property| format!("{name}.{property}")));
        }
    }
    let mut listed: BTreeSet<String> = INERT.map(str::to_owned).into();
    for line in OBEYED.lines().filter(|line| !line.is_empty()) {
        let (name, own) = line.split_once(": ").expect("a type and its fields");
        listed.extend(own.split(' ').map(|field| format!("{name}.{field}")));
    }
    let unlisted: Vec<&String> = fields.difference(&listed).collect();
    let unknown: Vec<&String> = listed.difference(&fields).collect();
    assert_eq!((unlisted, unknown), (Vec::new(), Vec::new()));
}

/// The fields of a type, and of the types in them, as they tell them when they are read.
fn fields<T: DeserializeOwned>() -> BTreeSet<String> {
    let all = RefCell::new(BTreeSet::new());
    let read = T::deserialize(Fields {
        path: String::new(),
        all: &all,
    });
    read.map(drop).expect("every field can be read");
    all.into_inner()
}

/// Answers whatever is asked for, and writes down the fields of structs.
#[derive(Clone)]
struct Fields<'a> {
    path: String,
    all: &'a RefCell<BTreeSet<String>>,
}

impl Fields<'_> {
    fn below(&self, field: &str) -> Self {
        let path = match self.path.as_str() {
            "" => field.to_owned(),
            path => format!("{path}.{field}"),
        };
        Self {
            path,
            all: self.all,
        }
    }
}

impl<'de> Deserializer<'de> for Fields<'_> {
    type Error = Error;

    /// A text that is a time as well, for types that read one.
    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_str("2000-01-01T00:00:00Z")
    }

    fn deserialize_bool<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_bool(true)
    }

    fn deserialize_i32<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_i32(1)
    }

    fn deserialize_i64<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_i64(1)
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_some(self)
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        visitor: V,
    ) -> Result<V::Value, Error> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_seq<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_seq(Once(Some(self)))
    }

    fn deserialize_map<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_map(Each {
            fields: vec!["key"],
            value: self,
            is_struct: false,
        })
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        let mut all = self.all.borrow_mut();
        all.extend(fields.iter().map(|field| self.below(field).path));
        drop(all);
        // They have to be those of the type.
        let is_type = |field: &&str| self.path.is_empty() && ["apiVersion", "kind"].contains(field);
        let mut fields: Vec<&str> = fields
            .iter()
            .copied()
            .filter(|field| !is_type(field))
            .collect();
        fields.reverse();
        visitor.visit_map(Each {
            fields,
            value: self,
            is_struct: true,
        })
    }

    forward_to_deserialize_any! {
        i8 i16 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf
        unit unit_struct tuple tuple_struct enum identifier ignored_any
    }
}

/// A list with one element.
struct Once<'a>(Option<Fields<'a>>);

impl<'de> SeqAccess<'de> for Once<'_> {
    type Error = Error;

    fn next_element_seed<T: DeserializeSeed<'de>>(
        &mut self,
        seed: T,
    ) -> Result<Option<T::Value>, Error> {
        self.0
            .take()
            .map(|value| seed.deserialize(value))
            .transpose()
    }
}

/// A map with each of some fields, the last one first.
struct Each<'a> {
    fields: Vec<&'static str>,
    value: Fields<'a>,
    is_struct: bool,
}

impl<'de> MapAccess<'de> for Each<'_> {
    type Error = Error;

    fn next_key_seed<K: DeserializeSeed<'de>>(
        &mut self,
        seed: K,
    ) -> Result<Option<K::Value>, Error> {
        let key = self.fields.last();
        key.map(|key| seed.deserialize(BorrowedStrDeserializer::new(key)))
            .transpose()
    }

    fn next_value_seed<V: DeserializeSeed<'de>>(&mut self, seed: V) -> Result<V::Value, Error> {
        let field = self.fields.pop().unwrap_or_default();
        let value = if self.is_struct {
            self.value.below(field)
        } else {
            self.value.clone()
        };
        seed.deserialize(value)
    }
}
