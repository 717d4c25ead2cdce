//! Reports objects of kinds that svclab does not model. The result is a warning, or an error if the
//! object would change what happens to packets of a pod.

use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::networking::v1::NetworkPolicy;

use crate::check::objects::unmodelled_kinds::{PacketEffect, packet_effect};
use crate::decode::lenient;
use crate::lab::reference::ObjectKind;
use crate::lab::{KIND, LabSpec};
use crate::objects::Objects;
use crate::objects::admission::check_selector;
use crate::objects::documents::{UnmodelledObject, name_span};
use crate::objects::endpoints::has_ended;
use crate::objects::selector::matches;
use crate::sink::Sink;
use svclab_diagnostic::Diagnostic;
use svclab_diagnostic::suggest::did_you_mean;

/// Reports the objects in a lab's file of kinds that svclab does not read, for one case.
pub(crate) fn check_unmodelled(
    spec: &LabSpec,
    objects: &Objects,
    others: &[UnmodelledObject],
    sink: &mut Sink,
) {
    let mut kinds: Vec<(&str, &str)> = Vec::new();
    for object in others {
        let is_listed = spec.not_modelled.contains(&object.kind);
        if packet_effect(&object.group, &object.kind) == PacketEffect::Filters {
            check_policy(object, objects, is_listed, sink);
            continue;
        }
        let kind = (object.group.as_str(), object.kind.as_str());
        if !is_listed && !kinds.contains(&kind) {
            kinds.push(kind);
            sink.extend(unmodelled_warning(object, others));
        }
    }
}

/// Builds one warning for all objects of a kind, at the first of them.
fn unmodelled_warning(
    first: &UnmodelledObject,
    unmodelled: &[UnmodelledObject],
) -> Option<Diagnostic> {
    let kind = &first.kind;
    let count = unmodelled
        .iter()
        .filter(|other| other.kind == *kind && other.group == first.group)
        .count();
    let objects = match count {
        1 => format!("an object of kind `{kind}` is"),
        many => format!("{many} objects of kind `{kind}` are"),
    };
    let warning = Diagnostic::warning(format!("{objects} not modelled"))
        .with_position(name_span(&first.tree), "no effect on packets");
    match packet_effect(&first.group, kind) {
        PacketEffect::Replaced(help) => Some(warning.with_help(help)),
        // The document parser already reported the misspelt kind.
        PacketEffect::Unknown if is_misspelt(kind) => None,
        PacketEffect::Unknown => Some(warning.with_help(format!(
            "remove it, or write `notModelled: [{kind}]` in the lab's spec if it does not affect \
             packets"
        ))),
        PacketEffect::None | PacketEffect::Filters => None,
    }
}

fn is_misspelt(kind: &str) -> bool {
    did_you_mean(
        kind,
        ObjectKind::ALL
            .map(ObjectKind::name)
            .into_iter()
            .chain([KIND]),
    )
    .is_some()
}

/// Reports a policy that selects pods of the case: an error, or a warning if the lab lists its kind
/// in `notModelled`.
fn check_policy(policy: &UnmodelledObject, objects: &Objects, is_listed: bool, sink: &mut Sink) {
    let selected = match select_pods(policy, objects, sink) {
        Ok(selected) => selected,
        Err(error) => {
            sink.push(error);
            return;
        }
    };
    let Some(first) = selected.first() else {
        return;
    };
    let kind = &policy.kind;
    let more = match selected.len() {
        1 => String::new(),
        many => format!(" and {} more", many - 1),
    };
    let name = policy.tree.node_at(crate::path!["metadata", "name"]);
    let name = name
        .and_then(crate::yaml::tree::Tree::as_str)
        .unwrap_or_default();
    let message = format!("the {kind} `{name}` selects pod {first}{more} and is not modelled");
    let span = name_span(&policy.tree);
    sink.push(if is_listed {
        Diagnostic::warning(message).with_position(span, "svclab drops no packets for it")
    } else {
        Diagnostic::error(message)
            .with_position(span, "svclab would not drop the packets that it drops")
            .with_help(format!(
                "remove it, or write `notModelled: [{kind}]` in the lab's spec"
            ))
    });
}

/// Returns the pods that a policy may apply to, in the form `NAMESPACE/NAME`.
///
/// A Kubernetes `NetworkPolicy` applies to the pods that it selects. Other kinds count as selecting
/// every pod, because svclab does not parse their selectors. Pods on the network of their node are
/// never selected: the effect of a policy on them is undefined.
fn select_pods(
    object: &UnmodelledObject,
    objects: &Objects,
    sink: &mut Sink,
) -> Result<Vec<String>, Diagnostic> {
    let is_kubernetes = object.kind == "NetworkPolicy" && object.group == "networking.k8s.io";
    let mut policy = None;
    if is_kubernetes {
        let (read, ignored) = lenient::<NetworkPolicy>(&object.tree)?;
        sink.extend(ignored.into_iter().map(Diagnostic::from));
        if let Some(selector) = read
            .spec
            .as_ref()
            .and_then(|spec| spec.pod_selector.as_ref())
        {
            check_selector(selector, &object.tree, crate::path!["spec", "podSelector"])?;
        }
        policy = Some(read);
    }
    let selects = |pod: &Pod, namespace: &str| {
        let Some(policy) = &policy else {
            return true;
        };
        let policy_namespace = policy.metadata.namespace.as_deref().unwrap_or("default");
        let spec = policy.spec.as_ref();
        let selector = spec.and_then(|spec| spec.pod_selector.clone());
        let selector = selector.unwrap_or_default();
        policy_namespace == namespace && matches(&selector, pod.metadata.labels.as_ref())
    };
    let pods = objects.pods.iter().filter(|pod| {
        let on_host = pod.value.spec.as_ref().and_then(|spec| spec.host_network);
        on_host != Some(true) && !has_ended(&pod.value)
    });
    Ok(pods
        .filter(|pod| selects(&pod.value, &pod.namespace))
        .map(|pod| format!("{}/{}", pod.namespace, pod.name))
        .collect())
}
