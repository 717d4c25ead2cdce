//! Compares the documents of two cases. The result lists the fields of the lab and the objects that
//! differ.

use std::sync::Arc;

use crate::decode::strict;
use crate::expand::case::Case;
use crate::lab::reference::{DocumentRef, ObjectKind};
use crate::lab::{Lab, LabSpec};
use crate::objects::{Object, Objects};
use crate::yaml::tree::{Entry, Map, Tree, Value};

/// Fields of the lab that affect probes, expectations or documentation, but not the cluster.
const NON_CLUSTER_FIELDS: [&str; 10] = [
    "about",
    "axes",
    "claims",
    "exclude",
    "expect",
    "flows",
    "notModelled",
    "probes",
    "source",
    "steps",
];

/// A difference between two cases: one field of the lab, or all differing fields of one object.
#[derive(Debug, Clone, PartialEq)]
pub struct DocumentDiff {
    /// Document that differs.
    pub document: DocumentRef,
    /// Fields that differ, with both values.
    pub fields: Vec<FieldDiff>,
}

/// A field of a document that differs.
#[derive(Debug, Clone, PartialEq)]
pub struct FieldDiff {
    /// Keys from the document's root to the field.
    pub path: Vec<String>,
    /// Value in the first case, `None` if absent.
    pub first: Option<Tree>,
    /// Value in the second case, `None` if absent.
    pub second: Option<Tree>,
}

impl Case {
    /// Returns the differences between two cases. Each field of the lab is a separate difference.
    /// All fields of an object are one difference.
    #[must_use]
    pub fn diff(&self, other: &Self) -> Vec<DocumentDiff> {
        let mut diffs = Vec::new();
        let spec = |case: &Self| case.lab_tree.get("spec").cloned();
        let mut fields = Vec::new();
        diff_trees(spec(self), spec(other), &mut Vec::new(), &mut fields);
        let lab_fields = fields.into_iter().filter(|field| {
            let first = field.path.first();
            first.is_some_and(|key| !NON_CLUSTER_FIELDS.contains(&key.as_str()))
        });
        diffs.extend(lab_fields.map(|field| DocumentDiff {
            document: DocumentRef::Lab,
            fields: vec![field],
        }));
        for document in written_documents(&self.objects, &other.objects) {
            let trees = [self, other].map(|case| case.objects.tree(&document).cloned());
            let [one, two] = trees;
            let mut fields = Vec::new();
            diff_trees(one, two, &mut Vec::new(), &mut fields);
            if !fields.is_empty() {
                diffs.push(DocumentDiff { document, fields });
            }
        }
        diffs
    }

    /// Returns this case with one difference taken from another case. `None` if the result is not a
    /// valid lab, or if the lab has flows: the change could alter the probes.
    #[must_use]
    pub fn with_diff(&self, other: &Self, diff: &DocumentDiff) -> Option<Self> {
        let mut case = self.clone();
        if diff.document != DocumentRef::Lab {
            let objects = Arc::make_mut(&mut case.objects);
            replace_object(objects, &other.objects, &diff.document);
            return Some(case);
        }
        if !self.spec.flows.is_empty() {
            return None;
        }
        let mut tree = self.lab_tree.clone();
        for field in &diff.fields {
            let path: Vec<&str> = std::iter::once("spec")
                .chain(field.path.iter().map(String::as_str))
                .collect();
            tree = with_value(&tree, &path, field.second.as_ref())?;
        }
        let lab: Lab = strict(&tree).ok()?;
        let spec = LabSpec {
            steps: self.spec.steps.clone(),
            ..lab.spec
        };
        case.spec = Arc::new(spec);
        case.lab_tree = tree;
        Some(case)
    }
}

/// Returns the objects that either case has, without derived slices.
fn written_documents(first: &Objects, second: &Objects) -> Vec<DocumentRef> {
    fn names<T>(kind: ObjectKind, objects: &[Object<T>], documents: &mut Vec<DocumentRef>) {
        for object in objects.iter().filter(|object| object.tree.is_some()) {
            let document = DocumentRef::object(kind, &object.namespace, &object.name);
            if !documents.contains(&document) {
                documents.push(document);
            }
        }
    }
    let mut documents = Vec::new();
    for objects in [first, second] {
        names(ObjectKind::Node, &objects.nodes, &mut documents);
        names(ObjectKind::Pod, &objects.pods, &mut documents);
        names(ObjectKind::Service, &objects.services, &mut documents);
        names(
            ObjectKind::EndpointSlice,
            &objects.endpoint_slices,
            &mut documents,
        );
        names(
            ObjectKind::ServiceCidr,
            &objects.service_cidrs,
            &mut documents,
        );
    }
    documents
}

/// Replaces an object, and the slices derived from it, by those of another case.
fn replace_object(target: &mut Objects, other: &Objects, document: &DocumentRef) {
    fn swap<T: Clone>(
        target: &mut Vec<Object<T>>,
        other: &[Object<T>],
        is_match: impl Fn(&Object<T>) -> bool,
    ) {
        let index = target.iter().position(&is_match).unwrap_or(target.len());
        target.retain(|object| !is_match(object));
        let replacements: Vec<Object<T>> = other
            .iter()
            .filter(|object| is_match(object))
            .cloned()
            .collect();
        let index = index.min(target.len());
        target.splice(index..index, replacements);
    }
    let DocumentRef::Object {
        kind,
        namespace,
        name,
    } = document
    else {
        return;
    };
    match kind {
        ObjectKind::Node => swap(&mut target.nodes, &other.nodes, |node| node.name == *name),
        ObjectKind::Pod => {
            swap(&mut target.pods, &other.pods, |pod| {
                pod.namespace == *namespace && pod.name == *name
            });
        }
        ObjectKind::Service => {
            swap(&mut target.services, &other.services, |service| {
                service.namespace == *namespace && service.name == *name
            });
        }
        ObjectKind::EndpointSlice => {
            swap(
                &mut target.endpoint_slices,
                &other.endpoint_slices,
                |slice| slice.namespace == *namespace && slice.name == *name,
            );
        }
        ObjectKind::ServiceCidr => {
            swap(&mut target.service_cidrs, &other.service_cidrs, |cidr| {
                cidr.name == *name
            });
        }
    }
    target.update_derived_slices();
}

/// Appends the differences between two trees to `found`, recursively through maps.
fn diff_trees(
    first: Option<Tree>,
    second: Option<Tree>,
    path: &mut Vec<String>,
    fields: &mut Vec<FieldDiff>,
) {
    let maps = (
        first.as_ref().and_then(Tree::as_map),
        second.as_ref().and_then(Tree::as_map),
    );
    if let (Some(first_map), Some(second_map)) = maps {
        let new = second_map
            .keys()
            .filter(|key| !first_map.contains_key(*key));
        for key in first_map.keys().chain(new) {
            let value = |map: &Map| map.get(key).map(|entry| entry.value.clone());
            path.push(key.to_string());
            diff_trees(value(first_map), value(second_map), path, fields);
            path.pop();
        }
        return;
    }
    let same = match (&first, &second) {
        (Some(one), Some(other)) => has_same_content(one, other),
        (None, None) => true,
        _ => false,
    };
    if !same {
        fields.push(FieldDiff {
            path: path.clone(),
            first,
            second,
        });
    }
}

/// Whether two trees have the same content, regardless of their spans.
fn has_same_content(first: &Tree, second: &Tree) -> bool {
    match (&first.value, &second.value) {
        (Value::Scalar(one), Value::Scalar(other)) => one == other,
        (Value::Sequence(one), Value::Sequence(other)) => {
            one.len() == other.len()
                && one
                    .iter()
                    .zip(other.iter())
                    .all(|(a, b)| has_same_content(a, b))
        }
        (Value::Map(one), Value::Map(other)) => {
            one.len() == other.len()
                && one.iter().all(|(key, entry)| {
                    let counterpart = other.get(key);
                    counterpart.is_some_and(|there| has_same_content(&entry.value, &there.value))
                })
        }
        _ => false,
    }
}

/// Returns the tree with the value at a path replaced, or removed if `value` is `None`. Creates
/// missing maps on the path. `None` if the path leads through a node that is not a map.
fn with_value(tree: &Tree, path: &[&str], value: Option<&Tree>) -> Option<Tree> {
    let Some((key, rest)) = path.split_first() else {
        return value.cloned();
    };
    let Value::Map(map) = &tree.value else {
        return None;
    };
    let mut map: Map = (**map).clone();
    let span = tree.span;
    let below = map.get(*key).map(|entry| entry.value.clone());
    let below = below.unwrap_or_else(|| Tree {
        span,
        value: Value::Map(Arc::default()),
    });
    match with_value(&below, rest, value) {
        Some(below) => {
            let known = map.get(*key).map_or(span, |entry| entry.key);
            let entry = Entry {
                key: known,
                value: below,
            };
            map.insert(Arc::from(*key), entry);
        }
        None if rest.is_empty() => {
            map.shift_remove(*key);
        }
        None => return None,
    }
    Some(Tree {
        span,
        value: Value::Map(Arc::new(map)),
    })
}

impl Tree {
    /// Renders the tree on one line in YAML flow style.
    #[must_use]
    pub fn to_flow_style(&self) -> String {
        match &self.value {
            Value::Scalar(scalar) => scalar.text.to_string(),
            Value::Sequence(all) => {
                let each: Vec<String> = all.iter().map(Self::to_flow_style).collect();
                format!("[{}]", each.join(", "))
            }
            Value::Map(map) => {
                let each = map.iter();
                let each: Vec<String> = each
                    .map(|(key, entry)| format!("{key}: {}", entry.value.to_flow_style()))
                    .collect();
                format!("{{{}}}", each.join(", "))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Scenario;
    use svclab_diagnostic::source::Source;
    use svclab_diagnostic::source::Sources;

    const LAB: &str = "apiVersion: svclab/v1
kind: Lab
metadata: {name: lab}
spec:
  about: A call.
  kubeProxy: {version: v1.30}
  probes:
    call: {from: pod/default/client, to: \"service/default/web:80\"}
  axes:
    is:
      good: []
      bad:
      - {patch: Lab, merge: {spec: {kubeProxy: {clusterCIDR: 10.244.0.0/16}, ipMasqAgent: {nonMasqueradeCIDRs: [10.0.0.0/8]}}}}
      - {patch: Service/default/web, merge: {spec: {internalTrafficPolicy: Local, ports: [{port: 81}]}}}
      - {delete: Pod/default/web}
  expect:
  - {when: {is: good}, call: {connected: 1}}
  - {when: {is: bad}, call: {timeout: 1}}
";

    const OBJECTS: &str = include_str!("../../../../tests/command/good.yaml");

    fn cases() -> Vec<Case> {
        let (_, objects) = OBJECTS.split_once("---\n").expect("objects");
        let text = format!("{LAB}---\n{objects}");
        let sources = Sources::new(vec![Source::from_text("lab.yaml".to_owned(), text)]);
        let (scenario, _) = Scenario::load(&sources).expect("a lab");
        scenario.cases().to_vec()
    }

    #[test]
    fn lab_diff_is_per_field_object_diff_is_per_object() {
        let cases = cases();
        let lines: Vec<String> = cases[0]
            .diff(&cases[1])
            .iter()
            .flat_map(|diff| {
                diff.fields.iter().map(move |field| {
                    let render = |tree: &Option<Tree>| tree.as_ref().map(Tree::to_flow_style);
                    format!(
                        "{} {}: {:?} {:?}",
                        diff.document,
                        field.path.join("."),
                        render(&field.first),
                        render(&field.second)
                    )
                })
            })
            .collect();
        insta::assert_snapshot!(lines.join("\n"));
        assert!(cases[0].diff(&cases[0]).is_empty());
    }

    #[test]
    fn service_diff_changes_derived_slices() {
        let cases = cases();
        let service = DocumentRef::object(ObjectKind::Service, "default", "web");
        let diffs = cases[0].diff(&cases[1]);
        let diff = diffs.iter().find(|diff| diff.document == service);
        let changed = cases[0].with_diff(&cases[1], diff.expect("a difference"));
        let has_target_port = |case: &Case| {
            let slices = case.objects.endpoint_slices.iter();
            let mut ports = slices.flat_map(|slice| slice.value.ports.iter().flatten());
            ports.any(|port| port.port == Some(81))
        };
        assert!(!has_target_port(&cases[0]));
        assert!(has_target_port(&changed.expect("a case")));
    }

    #[test]
    fn case_with_all_diffs_equals_other_case() {
        let cases = cases();
        let mut case = cases[0].clone();
        for diff in cases[0].diff(&cases[1]) {
            case = case.with_diff(&cases[1], &diff).expect("a case");
        }
        assert!(case.diff(&cases[1]).is_empty());
        assert_eq!(case.spec.kube_proxy, cases[1].spec.kube_proxy);
        let names = |case: &Case| {
            let slices = case.objects.endpoint_slices.iter();
            let slices: Vec<String> = slices.map(|slice| format!("{:?}", slice.value)).collect();
            slices
        };
        assert_eq!(names(&case), names(&cases[1]));
        // The reverse differences restore the original case.
        for diff in cases[1].diff(&cases[0]) {
            case = case.with_diff(&cases[0], &diff).expect("a case");
        }
        assert!(case.diff(&cases[0]).is_empty());
    }
}
