//! Classifies the documents of a file as labs, objects that svclab models, and other objects, which
//! are only counted.

use std::collections::BTreeMap;
use std::sync::Arc;

use indexmap::IndexMap;
use serde::de::IgnoredAny;

use crate::lab::reference::{DocumentRef, ObjectKind};
use crate::lab::{API_VERSION, KIND};
use crate::objects::v1beta1;
use crate::sink::Sink;
use crate::yaml;
use crate::yaml::tree::{Entry, Scalar, Tree, Value, shorten};
use svclab_diagnostic::Diagnostic;
use svclab_diagnostic::printable::{has_control, printable};
use svclab_diagnostic::source::{Sources, Span};
use svclab_diagnostic::suggest::{did_you_mean, suggest};

/// Documents of a scenario before they are decoded.
#[derive(Debug, Default)]
pub(crate) struct Documents {
    /// Lab documents. A valid scenario has exactly one.
    pub labs: Vec<Tree>,
    /// Objects that svclab models, before patches.
    pub objects: IndexMap<DocumentRef, Tree>,
    /// Number of other objects, by kind.
    pub ignored: BTreeMap<String, usize>,
    /// Objects of kinds that svclab does not model.
    pub unmodelled: Vec<UnmodelledObject>,
}

/// Object of a kind that svclab does not model.
#[derive(Debug, Clone)]
pub(crate) struct UnmodelledObject {
    /// Value of `kind`.
    pub kind: String,
    /// API group, empty for the core group.
    pub group: String,
    /// Tree of the object, with control characters replaced.
    pub tree: Tree,
}

impl Documents {
    /// Parses the documents of all files. Diagnostics go to `sink`.
    pub(crate) fn read(sources: &Sources, sink: &mut Sink) -> Self {
        let mut documents = Self::default();
        for (file, source) in sources.iter() {
            match yaml::parse(source, file) {
                Ok(trees) => {
                    for tree in &trees {
                        documents.add_document(tree, sink);
                    }
                }
                Err(error) => {
                    let diagnostic = Diagnostic::from(error);
                    let help = helm_help(source.text()).or_else(|| json_help(source.text()));
                    sink.push(diagnostic.with_optional_help(help));
                }
            }
        }
        documents
    }

    /// Returns the configuration of kube-proxy in the `ConfigMap` that kubeadm creates, which does not count
    /// as an ignored object then (Kubernetes v1.36, `cmd/kubeadm/app/constants/constants.go`,
    /// `KubeProxyConfigMap`, `KubeProxyConfigMapKey`).
    pub(super) fn take_kube_proxy(&mut self) -> Option<String> {
        let text = self.unmodelled.iter().find_map(|object| {
            let name = object.tree.get("metadata")?.get("name")?.as_str()?;
            let is_own = object.kind == "ConfigMap" && name == "kube-proxy";
            object
                .tree
                .get("data")?
                .get("config.conf")
                .filter(|_| is_own)?
                .as_str()
        });
        let text = text?.to_owned();
        if let Some(count) = self.ignored.get_mut("ConfigMap") {
            *count -= 1;
        }
        self.ignored.retain(|_, count| *count > 0);
        Some(text)
    }

    /// Classifies and adds a document. Items of a `List` are added recursively.
    ///
    /// A document with an invalid identity is reported to `diagnostics` and skipped.
    pub(crate) fn add_document(&mut self, tree: &Tree, diagnostics: &mut Sink) {
        self.add_document_as(tree, None, diagnostics);
    }

    /// Adds a document like [`Documents::add_document`]. `listed_as` is the kind of items in a
    /// typed list such as `PodList`: the API omits `kind` from those items.
    fn add_document_as(
        &mut self,
        tree: &Tree,
        listed_as: Option<ObjectKind>,
        diagnostics: &mut Sink,
    ) {
        if tree.as_map().is_none() {
            diagnostics.push(
                Diagnostic::error(format!("a document must be a map, found {tree}"))
                    .with_position(tree.span, "expected `apiVersion`, `kind`, `metadata`, …"),
            );
            return;
        }
        let (kind, version) = match (string_field(tree, "kind"), string_field(tree, "apiVersion")) {
            (Ok(Some(kind)), Ok(Some(version))) => (kind, version),
            (Ok(None), Ok(None)) if listed_as.is_some() => {
                if let Some(kind) = listed_as {
                    self.add_modelled(kind, tree.clone(), diagnostics);
                }
                return;
            }
            (Ok(kind), Ok(version)) => {
                let missing = if kind.is_none() { "kind" } else { "apiVersion" };
                let near = tree.as_map().and_then(|map| {
                    let key = suggest(missing, map.keys().map(AsRef::as_ref))?;
                    (key != "kind" && key != "apiVersion").then_some(key)
                });
                let missing_both = kind.is_none() && version.is_none();
                let message = if missing_both {
                    "this document has neither `apiVersion` nor `kind`".to_owned()
                } else {
                    format!("this document has no `{missing}`")
                };
                let span = near
                    .and_then(|key| tree.key_span(key))
                    .unwrap_or(tree.head_span());
                diagnostics.push(
                    Diagnostic::error(message)
                        .with_position(span, "")
                        .with_optional_help(near.map(|_| format!("did you mean `{missing}`?"))),
                );
                return;
            }
            (Err(error), _) | (_, Err(error)) => {
                diagnostics.push(error);
                return;
            }
        };
        self.classify(tree, kind, version, diagnostics);
    }

    fn classify(
        &mut self,
        tree: &Tree,
        (kind, kind_at): (&str, Span),
        (version, version_at): (&str, Span),
        diagnostics: &mut Sink,
    ) {
        let group = version.rsplit_once('/').map_or("", |(group, _)| group);
        if kind == KIND || group == "svclab" {
            if version != API_VERSION {
                diagnostics.push(
                    Diagnostic::error(format!("unsupported `apiVersion: {version}` of a lab"))
                        .with_position(version_at, "not supported")
                        .with_help(format!("write `apiVersion: {API_VERSION}`")),
                );
            } else if kind != KIND {
                diagnostics.push(
                    Diagnostic::error(format!("{API_VERSION} has no kind `{kind}`"))
                        .with_position(kind_at, "not supported")
                        .with_help(format!("write `kind: {KIND}`")),
                );
            } else {
                self.labs.push(tree.clone());
            }
            return;
        }
        if let Some(item_kind) = kind.strip_suffix("List") {
            let listed = ObjectKind::from_name(item_kind).filter(|listed| listed.group() == group);
            if (item_kind.is_empty() && version == "v1") || listed.is_some() {
                match tree.get("items") {
                    Some(items) if !items.is_null() => match items.as_sequence() {
                        Some(items) => {
                            for item in items {
                                self.add_document_as(item, listed, diagnostics);
                            }
                        }
                        None => diagnostics.push(
                            Diagnostic::error(format!("expected a list, found {items}"))
                                .with_position(items.head_span(), "expected a list"),
                        ),
                    },
                    _ => {}
                }
                return;
            }
        }
        match ObjectKind::from_name(kind).filter(|kind| kind.group() == group) {
            Some(ObjectKind::EndpointSlice) if version == v1beta1::API_VERSION => {
                self.add_modelled(
                    ObjectKind::EndpointSlice,
                    v1beta1::upgrade_slice(tree),
                    diagnostics,
                );
            }
            // Both versions have the same fields.
            Some(known @ ObjectKind::ServiceCidr) if version == "networking.k8s.io/v1beta1" => {
                self.add_modelled(known, tree.clone(), diagnostics);
            }
            Some(known) if known.api_version() == version => {
                self.add_modelled(known, tree.clone(), diagnostics);
            }
            Some(known) => diagnostics.push(
                Diagnostic::error(format!(
                    "unsupported `apiVersion: {version}` of kind `{known}`"
                ))
                .with_position(version_at, "not supported")
                .with_help(format!("write `apiVersion: {}`", known.api_version())),
            ),
            None => {
                let items = tree.get("items").and_then(Tree::as_sequence);
                if let (Some(kind), Some(items)) = (kind.strip_suffix("List"), items) {
                    for item in items {
                        self.add_unmodelled(kind, group, item);
                    }
                    return;
                }
                self.add_unmodelled(kind, group, tree);
                let ours = ObjectKind::ALL.map(ObjectKind::name);
                if let Some(help) = did_you_mean(kind, ours.into_iter().chain([KIND])) {
                    diagnostics.push(
                        Diagnostic::warning(format!("an object of kind `{kind}` is ignored"))
                            .with_position(kind_at, "svclab does not model this kind")
                            .with_help(help),
                    );
                }
            }
        }
    }

    /// Adds an object of a kind that svclab does not model.
    fn add_unmodelled(&mut self, kind: &str, group: &str, tree: &Tree) {
        *self.ignored.entry(kind.to_owned()).or_default() += 1;
        self.unmodelled.push(UnmodelledObject {
            kind: kind.to_owned(),
            group: group.to_owned(),
            tree: sanitize(tree).map_or_else(|| tree.clone(), |(safe, _)| safe),
        });
    }

    fn add_modelled(&mut self, kind: ObjectKind, tree: Tree, diagnostics: &mut Sink) {
        let tree = match sanitize(&tree) {
            None => tree,
            Some((safe, at)) => {
                diagnostics.push(
                    Diagnostic::warning(format!(
                        "control characters of this {kind} are replaced by U+FFFD"
                    ))
                    .with_position(at, "the first is here"),
                );
                safe
            }
        };
        let reference = match identity(kind, &tree) {
            Ok(reference) => reference,
            Err(diagnostic) => {
                diagnostics.push(diagnostic);
                return;
            }
        };
        if let Some(first) = self.objects.get(&reference) {
            diagnostics.push(
                Diagnostic::error(format!("duplicate object {reference}"))
                    .with_position(name_span(&tree), "again here")
                    .with_related(name_span(first), "first here"),
            );
            return;
        }
        self.objects.insert(reference, tree);
    }
}

/// Returns the help for a text that is not YAML because Helm wrote it, or has yet to render it.
fn helm_help(text: &str) -> Option<String> {
    let has_line = |start: &str| text.lines().any(|line| line.starts_with(start));
    if text.contains("{{") && text.contains("}}") {
        Some("this is a template of Helm; give the output of `helm template`".to_owned())
    } else if has_line("NOTES:") || has_line("MANIFEST:") {
        let help =
            "`helm install` adds lines that are not YAML; give the output of `helm template`";
        Some(help.to_owned())
    } else {
        None
    }
}

/// Returns the help for several JSON documents, of which YAML requires separators.
fn json_help(text: &str) -> Option<String> {
    let stream = serde_json::Deserializer::from_str(text).into_iter::<IgnoredAny>();
    let is_several = stream.take(2).flatten().count() == 2;
    is_several.then(|| {
        "put `---` between the JSON documents, or get all kinds with one command: `kubectl get \
         nodes,pods,services,endpointslices -A -o json`"
            .to_owned()
    })
}

/// Replaces the control characters of a tree. Returns the new tree and the span of the first
/// control character, or `None` if there are none.
fn sanitize(tree: &Tree) -> Option<(Tree, Span)> {
    let span = first_control(tree)?;
    Some((replace_controls(tree), span))
}

fn first_control(tree: &Tree) -> Option<Span> {
    let span_if_control = |text: &str, at| has_control(text).then_some(at);
    match &tree.value {
        Value::Scalar(scalar) => span_if_control(&scalar.text, tree.span),
        Value::Sequence(items) => items.iter().find_map(first_control),
        Value::Map(map) => map.iter().find_map(|(key, entry)| {
            span_if_control(key, entry.key).or_else(|| first_control(&entry.value))
        }),
    }
}

fn replace_controls(tree: &Tree) -> Tree {
    let value = match &tree.value {
        Value::Scalar(scalar) => Value::Scalar(Scalar {
            text: printable(&scalar.text).into(),
            kind: scalar.kind,
        }),
        Value::Sequence(items) => {
            Value::Sequence(Arc::new(items.iter().map(replace_controls).collect()))
        }
        Value::Map(map) => {
            let entries = map.iter().map(|(key, entry)| {
                let value = replace_controls(&entry.value);
                let key_at = entry.key;
                (printable(key).into(), Entry { key: key_at, value })
            });
            Value::Map(Arc::new(entries.collect()))
        }
    };
    Tree {
        span: tree.span,
        value,
    }
}

/// Returns the span of an object's name.
pub(crate) fn name_span(tree: &Tree) -> Span {
    tree.get("metadata")
        .and_then(|metadata| metadata.get("name"))
        .map_or(tree.head_span(), |name| name.span)
}

/// Returns the reference and tree of an object that a patch adds.
///
/// # Errors
///
/// Returns a diagnostic if svclab does not model the kind, or if the object's name is missing or
/// invalid.
pub(crate) fn parse_added(tree: &Tree) -> Result<(DocumentRef, Tree), Diagnostic> {
    let mut documents = Documents::default();
    let mut diagnostics = Sink::default();
    documents.add_document(tree, &mut diagnostics);
    if let Some(diagnostic) = diagnostics.into_first() {
        return Err(Diagnostic {
            severity: svclab_diagnostic::Severity::Error,
            ..diagnostic
        });
    }
    let mut objects = documents.objects.into_iter();
    match (objects.next(), objects.next()) {
        (Some(object), None) => Ok(object),
        _ => Err(
            Diagnostic::error("`add` requires one object of a kind that svclab models")
                .with_position(
                    tree.head_span(),
                    "expected a Node, Pod, Service, EndpointSlice or ServiceCIDR",
                ),
        ),
    }
}

/// Returns the reference of an object.
///
/// # Errors
///
/// Returns a diagnostic like [`name_and_namespace`].
pub(crate) fn identity(kind: ObjectKind, tree: &Tree) -> Result<DocumentRef, Diagnostic> {
    let (name, namespace) = name_and_namespace(kind.name(), kind.is_namespaced(), tree)?;
    Ok(DocumentRef::object(kind, namespace, name))
}

/// Returns the name and the namespace of an object.
///
/// # Errors
///
/// Returns a diagnostic if `metadata.name` is missing, or if it or `metadata.namespace` is not a
/// valid Kubernetes name.
pub(crate) fn name_and_namespace<'t>(
    kind: &str,
    is_namespaced: bool,
    tree: &'t Tree,
) -> Result<(&'t str, &'t str), Diagnostic> {
    let Some(metadata) = tree.get("metadata").filter(|metadata| !metadata.is_null()) else {
        return Err(
            Diagnostic::error(format!("this {kind} has no `metadata.name`"))
                .with_position(tree.head_span(), "`metadata` is missing here"),
        );
    };
    if metadata.as_map().is_none() {
        return Err(
            Diagnostic::error(format!("expected a map, found {metadata}"))
                .with_position(metadata.span, "expected `name`, `namespace`, …"),
        );
    }
    let Some((name, span)) = string_field(metadata, "name")? else {
        let span = tree.key_span("metadata").unwrap_or(tree.head_span());
        return Err(
            Diagnostic::error(format!("this {kind} has no `metadata.name`"))
                .with_position(span, "`name` is missing here"),
        );
    };
    check_object_name(name, span)?;
    let namespace = match string_field(metadata, "namespace")? {
        Some((namespace, at)) if is_namespaced => {
            check_object_name(namespace, at)?;
            namespace
        }
        _ => "default",
    };
    Ok((name, namespace))
}

/// Returns the string at `key`, `None` if the key is absent or null.
fn string_field<'t>(tree: &'t Tree, key: &str) -> Result<Option<(&'t str, Span)>, Diagnostic> {
    match tree.get(key) {
        None => Ok(None),
        Some(value) if value.is_null() => Ok(None),
        Some(value) => match value.as_str() {
            Some(text) => Ok(Some((text, value.span))),
            None => Err(
                Diagnostic::error(format!("expected a string, found {value}"))
                    .with_position(value.head_span(), "expected a string")
                    .with_optional_help(quote_help(value)),
            ),
        },
    }
}

/// Returns the help `quote it`, `None` for a tree that is not a scalar.
fn quote_help(value: &Tree) -> Option<String> {
    match &value.value {
        crate::yaml::tree::Value::Scalar(scalar) => Some(format!("quote it: \"{}\"", scalar.text)),
        _ => None,
    }
}

/// Whether the text has the characters of an RFC 1123 label. The length is not checked.
pub(crate) fn is_label(label: &str) -> bool {
    !label.is_empty()
        && !label.starts_with('-')
        && !label.ends_with('-')
        && label
            .bytes()
            .all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-')
}

/// Checks that a name is an RFC 1123 subdomain, as Kubernetes requires
/// (`apimachinery/pkg/util/validation`).
fn check_object_name(name: &str, span: Span) -> Result<(), Diagnostic> {
    if name.len() <= 253 && name.split('.').all(is_label) {
        return Ok(());
    }
    let name = shorten(name);
    Err(
        Diagnostic::error(format!("{name} is not a valid Kubernetes name"))
            .with_position(span, "")
            .with_help("a name has at most 253 lower-case letters, digits, `-` and `.`"),
    )
}
