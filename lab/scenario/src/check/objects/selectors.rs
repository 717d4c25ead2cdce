//! Warns about services that a probe names and whose selector probably matches no pod by mistake.
//! Labs also have services without endpoints on purpose.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Pod, Service};

use crate::check::objects::fields::{full_name, with_field_span};
use crate::lab::LabSpec;
use crate::objects::selector::has_labels;
use crate::objects::{Object, Objects};
use crate::sink::Sink;
use svclab_diagnostic::Diagnostic;
use svclab_diagnostic::suggest::{did_you_mean, format_list};

type Labels = BTreeMap<String, String>;

pub(crate) fn check_selectors(spec: &LabSpec, objects: &Objects, sink: &mut Sink) {
    for service in &objects.services {
        let service_spec = service.value.spec.as_ref();
        let Some(selector) = service_spec.and_then(|spec| spec.selector.as_ref()) else {
            continue;
        };
        if selector.is_empty() || !is_target(spec, service) || has_written_slices(objects, service)
        {
            continue;
        }
        let mut selected = pods_with(objects, selector);
        if selected.any(|pod| pod.namespace == service.namespace) {
            continue;
        }
        let Some(help) = help(objects, service, selector) else {
            continue;
        };
        let warning = Diagnostic::warning(format!(
            "the selector of service `{}` matches no pod of its namespace, so the service has no \
             endpoint",
            full_name(service)
        ));
        let path = crate::path!["spec", "selector"];
        sink.push(with_field_span(warning.with_help(help), service, path));
    }
}

/// Whether a probe names the service.
fn is_target(spec: &LabSpec, service: &Object<Service>) -> bool {
    let name = full_name(service);
    spec.all_probes().any(|(_, probe)| {
        let target = probe.to.split_once('/');
        let target = target.filter(|(kind, _)| ["service", "svc", "lb", "external"].contains(kind));
        target.is_some_and(|(_, target)| {
            let named = target.split_once(':').map_or(target, |(named, _)| named);
            named == name
        })
    })
}

/// Whether the lab has endpoint slices for the service.
fn has_written_slices(objects: &Objects, service: &Object<Service>) -> bool {
    let mut slices = objects.slices_of(&service.namespace, &service.name);
    slices.any(|slice| slice.tree.is_some())
}

fn pods_with<'o>(objects: &'o Objects, labels: &Labels) -> impl Iterator<Item = &'o Object<Pod>> {
    let pods = objects.pods.iter();
    pods.filter(|pod| has_labels(pod.value.metadata.labels.as_ref(), labels))
}

/// Names the namespaces of pods with these labels, or a similar label of a pod. `None` if nothing
/// shows a mistake.
fn help(objects: &Objects, service: &Object<Service>, selector: &Labels) -> Option<String> {
    let elsewhere = pods_with(objects, selector);
    let mut namespaces: Vec<&str> = elsewhere.map(|pod| pod.namespace.as_str()).collect();
    namespaces.sort_unstable();
    namespaces.dedup();
    if !namespaces.is_empty() {
        let namespaces = format_list(namespaces.iter().copied());
        return Some(format!("pods with these labels are in {namespaces}"));
    }
    let pods = objects.pods.iter();
    let pods = pods.filter(|pod| pod.namespace == service.namespace);
    let labels = pods.filter_map(|pod| pod.value.metadata.labels.as_ref());
    let known: Vec<String> = labels.flatten().map(render).collect();
    let mut wanted = selector.iter().map(render);
    wanted.find_map(|wanted| did_you_mean(&wanted, known.iter().map(String::as_str)))
}

fn render((key, value): (&String, &String)) -> String {
    format!("{key}: {value}")
}
