//! Compares the documents of two cases. The result lists the fields of the lab and the objects that
//! differ.

use std::sync::Arc;

use super::case::Case;
use super::decode::strict;
use super::lab::{Lab, LabSpec};
use super::objects::{Object, Objects};
use super::reference::{DocumentRef, ObjectKind};
use super::tree::{Entry, Map, Tree, Value};

/// Fields of the lab that affect probes, expectations or documentation, but not the cluster.
const BESIDE: [&str; 10] = [
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
pub struct Said {
    /// Document that differs.
    pub document: DocumentRef,
    /// Fields that differ, with both values.
    pub fields: Vec<Field>,
}

/// A field of a document that differs.
#[derive(Debug, Clone, PartialEq)]
pub struct Field {
    /// Keys from the document's root to the field.
    pub path: Vec<String>,
    /// Value in the first case, `None` if absent.
    pub one: Option<Tree>,
    /// Value in the second case, `None` if absent.
    pub other: Option<Tree>,
}

impl Case {
    /// Returns the differences between two cases. Each field of the lab is a separate difference.
    /// All fields of an object are one difference.
    #[must_use]
    pub fn differs(&self, other: &Self) -> Vec<Said> {
        let mut all = Vec::new();
        let spec = |case: &Self| case.lab_tree.get("spec").cloned();
        let mut fields = Vec::new();
        compare(spec(self), spec(other), &mut Vec::new(), &mut fields);
        let of_lab = fields.into_iter().filter(|field| {
            let first = field.path.first();
            first.is_some_and(|key| !BESIDE.contains(&key.as_str()))
        });
        all.extend(of_lab.map(|field| Said {
            document: DocumentRef::Lab,
            fields: vec![field],
        }));
        for document in documents(&self.objects, &other.objects) {
            let trees = [self, other].map(|case| case.objects.tree(&document).cloned());
            let [one, two] = trees;
            let mut fields = Vec::new();
            compare(one, two, &mut Vec::new(), &mut fields);
            if !fields.is_empty() {
                all.push(Said { document, fields });
            }
        }
        all
    }

    /// Returns this case with one difference taken from another case. `None` if the result is not a
    /// valid lab, or if the lab has flows: the change could alter the probes.
    #[must_use]
    pub fn with(&self, other: &Self, said: &Said) -> Option<Self> {
        let mut case = self.clone();
        if said.document != DocumentRef::Lab {
            let objects = Arc::make_mut(&mut case.objects);
            taken(objects, &other.objects, &said.document);
            return Some(case);
        }
        if !self.spec.flows.is_empty() {
            return None;
        }
        let mut tree = self.lab_tree.clone();
        for field in &said.fields {
            let path: Vec<&str> = std::iter::once("spec")
                .chain(field.path.iter().map(String::as_str))
                .collect();
            tree = put(&tree, &path, field.other.as_ref())?;
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
fn documents(one: &Objects, other: &Objects) -> Vec<DocumentRef> {
    fn names<T>(kind: ObjectKind, of: &[Object<T>], all: &mut Vec<DocumentRef>) {
        for object in of.iter().filter(|object| object.tree.is_some()) {
            let document = DocumentRef::object(kind, &object.namespace, &object.name);
            if !all.contains(&document) {
                all.push(document);
            }
        }
    }
    let mut all = Vec::new();
    for objects in [one, other] {
        names(ObjectKind::Node, &objects.nodes, &mut all);
        names(ObjectKind::Pod, &objects.pods, &mut all);
        names(ObjectKind::Service, &objects.services, &mut all);
        names(
            ObjectKind::EndpointSlice,
            &objects.endpoint_slices,
            &mut all,
        );
        names(ObjectKind::ServiceCidr, &objects.service_cidrs, &mut all);
    }
    all
}

/// Replaces an object, and the slices derived from it, by those of another case.
fn taken(own: &mut Objects, other: &Objects, document: &DocumentRef) {
    fn swap<T: Clone>(
        own: &mut Vec<Object<T>>,
        other: &[Object<T>],
        is: impl Fn(&Object<T>) -> bool,
    ) {
        let at = own.iter().position(&is).unwrap_or(own.len());
        own.retain(|object| !is(object));
        let theirs: Vec<Object<T>> = other.iter().filter(|object| is(object)).cloned().collect();
        let at = at.min(own.len());
        own.splice(at..at, theirs);
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
        ObjectKind::Node => swap(&mut own.nodes, &other.nodes, |node| node.name == *name),
        ObjectKind::Pod => {
            swap(&mut own.pods, &other.pods, |pod| {
                pod.namespace == *namespace && pod.name == *name
            });
            // Derived slices depend on the pods of their Kubernetes namespace.
            swap(&mut own.endpoint_slices, &other.endpoint_slices, |slice| {
                slice.namespace == *namespace && slice.tree.is_none()
            });
        }
        ObjectKind::Service => {
            swap(&mut own.services, &other.services, |service| {
                service.namespace == *namespace && service.name == *name
            });
        }
        ObjectKind::EndpointSlice => {
            swap(&mut own.endpoint_slices, &other.endpoint_slices, |slice| {
                slice.namespace == *namespace && slice.name == *name
            });
        }
        ObjectKind::ServiceCidr => {
            swap(&mut own.service_cidrs, &other.service_cidrs, |cidr| {
                cidr.name == *name
            });
        }
    }
}

/// Appends the differences between two trees to `found`, recursively through maps.
fn compare(one: Option<Tree>, other: Option<Tree>, way: &mut Vec<String>, found: &mut Vec<Field>) {
    let maps = (
        one.as_ref().and_then(Tree::as_map),
        other.as_ref().and_then(Tree::as_map),
    );
    if let (Some(these), Some(those)) = maps {
        let new = those.keys().filter(|key| !these.contains_key(*key));
        for key in these.keys().chain(new) {
            let value = |map: &Map| map.get(key).map(|entry| entry.value.clone());
            way.push(key.to_string());
            compare(value(these), value(those), way, found);
            way.pop();
        }
        return;
    }
    let same = match (&one, &other) {
        (Some(one), Some(other)) => means(one, other),
        (None, None) => true,
        _ => false,
    };
    if !same {
        found.push(Field {
            path: way.clone(),
            one,
            other,
        });
    }
}

/// Whether two trees have the same content, regardless of their spans.
fn means(one: &Tree, other: &Tree) -> bool {
    match (&one.value, &other.value) {
        (Value::Scalar(one), Value::Scalar(other)) => one == other,
        (Value::Sequence(one), Value::Sequence(other)) => {
            one.len() == other.len() && one.iter().zip(other.iter()).all(|(a, b)| means(a, b))
        }
        (Value::Map(one), Value::Map(other)) => {
            one.len() == other.len()
                && one.iter().all(|(key, entry)| {
                    let there = other.get(key);
                    there.is_some_and(|there| means(&entry.value, &there.value))
                })
        }
        _ => false,
    }
}

/// Returns the tree with the value at a path replaced, or removed if `value` is `None`. Creates
/// missing maps on the path. `None` if the path leads through a node that is not a map.
fn put(tree: &Tree, path: &[&str], value: Option<&Tree>) -> Option<Tree> {
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
    match put(&below, rest, value) {
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
    pub fn in_line(&self) -> String {
        match &self.value {
            Value::Scalar(scalar) => scalar.text.to_string(),
            Value::Sequence(all) => {
                let each: Vec<String> = all.iter().map(Self::in_line).collect();
                format!("[{}]", each.join(", "))
            }
            Value::Map(map) => {
                let each = map.iter();
                let each: Vec<String> = each
                    .map(|(key, entry)| format!("{key}: {}", entry.value.in_line()))
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

    const OBJECTS: &str = include_str!("../../../tests/command/good.yaml");

    fn cases() -> Vec<Case> {
        let (_, objects) = OBJECTS.split_once("---\n").expect("objects");
        let text = format!("{LAB}---\n{objects}");
        let sources = Sources::new(vec![Source::of_text("lab.yaml".to_owned(), text)]);
        let (scenario, _) = Scenario::load(&sources).expect("a lab");
        scenario.cases().to_vec()
    }

    #[test]
    fn fields_of_the_lab_differ_by_themselves_and_those_of_an_object_together() {
        let cases = cases();
        let told: Vec<String> = cases[0]
            .differs(&cases[1])
            .iter()
            .flat_map(|said| {
                said.fields.iter().map(move |field| {
                    let there = |tree: &Option<Tree>| tree.as_ref().map(Tree::in_line);
                    format!(
                        "{} {}: {:?} {:?}",
                        said.document,
                        field.path.join("."),
                        there(&field.one),
                        there(&field.other)
                    )
                })
            })
            .collect();
        insta::assert_snapshot!(told.join("\n"));
        assert!(cases[0].differs(&cases[0]).is_empty());
    }

    #[test]
    fn with_all_that_differs_one_case_is_the_other() {
        let cases = cases();
        let mut case = cases[0].clone();
        for said in cases[0].differs(&cases[1]) {
            case = case.with(&cases[1], &said).expect("a case");
        }
        assert!(case.differs(&cases[1]).is_empty());
        assert_eq!(case.spec.kube_proxy, cases[1].spec.kube_proxy);
        let names = |case: &Case| {
            let slices = case.objects.endpoint_slices.iter();
            let slices: Vec<String> = slices.map(|slice| format!("{:?}", slice.value)).collect();
            slices
        };
        assert_eq!(names(&case), names(&cases[1]));
        // The reverse differences restore the original case.
        for said in cases[1].differs(&cases[0]) {
            case = case.with(&cases[0], &said).expect("a case");
        }
        assert!(case.differs(&cases[0]).is_empty());
    }
}
