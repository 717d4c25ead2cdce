//! Applies the patches of axis values and steps to the documents as written.

use std::sync::Arc;

use indexmap::IndexMap;

use crate::check::lab::UNPATCHABLE;
use crate::lab::patch::Patch;
use crate::lab::reference::DocumentRef;
use crate::objects::documents::{identity, name_span, parse_added};
use crate::sink::Sink;
use crate::yaml::merge::apply_merge_patch;
use crate::yaml::tree::{Entry, Map, Scalar, ScalarKind, Tree, Value};
use svclab_diagnostic::Diagnostic;
use svclab_diagnostic::source::Span;
use svclab_diagnostic::suggest::did_you_mean;

/// A patch with the tree of the YAML node that defines it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct LocatedPatch<'l> {
    pub patch: &'l Patch,
    pub tree: &'l Tree,
}

impl<'l> LocatedPatch<'l> {
    /// Whether the patch changes the lab rather than a Kubernetes object.
    pub(crate) fn is_lab_patch(self) -> bool {
        matches!(
            self.patch,
            Patch::Merge {
                target: DocumentRef::Lab,
                ..
            }
        )
    }

    /// Returns the document that the patch changes, `None` if the patch adds an object.
    fn target(self) -> Option<&'l DocumentRef> {
        match self.patch {
            Patch::Merge { target, .. }
            | Patch::Delete { target }
            | Patch::Terminate { target } => Some(target),
            Patch::Add { .. } => None,
        }
    }

    /// Returns the tree to merge or to add, `None` for a deletion or termination.
    pub(crate) fn body(self) -> Option<&'l Tree> {
        self.tree.get("merge").or_else(|| self.tree.get("add"))
    }

    /// Returns the span of the reference to the document.
    pub(crate) fn document_span(self) -> Span {
        let named = ["patch", "delete", "terminate"];
        let named = named.iter().find_map(|key| self.tree.get(key));
        named.map_or(self.tree.head_span(), |name| name.span)
    }

    /// Adds a label with this patch to a diagnostic. A diagnostic that points into the patch stays
    /// as is.
    pub(crate) fn blame(self, diagnostic: Diagnostic, case: &str) -> Diagnostic {
        let whole = self.tree.span;
        let is_inside = diagnostic.primary.as_ref().is_some_and(|label| {
            let span = label.span;
            span.file == whole.file && whole.start <= span.start && span.end <= whole.end
        });
        if is_inside {
            return diagnostic;
        }
        diagnostic.with_related(
            self.document_span(),
            format!("after this patch, in case `{case}`"),
        )
    }
}

/// Checks the patches against all documents of the lab, independent of cases. `known` are the
/// objects before any patch.
pub(crate) fn check<'l>(
    patches: impl Iterator<Item = LocatedPatch<'l>> + Clone,
    objects: &IndexMap<DocumentRef, Tree>,
    sink: &mut Sink,
) {
    let mut names: Vec<String> = vec![DocumentRef::Lab.to_string()];
    names.extend(objects.keys().map(ToString::to_string));
    for placed in patches.clone() {
        if let (Patch::Add { .. }, Some(body)) = (placed.patch, placed.body()) {
            match parse_added(body) {
                Ok((reference, _)) => names.push(reference.to_string()),
                Err(diagnostic) => sink.push(diagnostic),
            }
        }
    }
    for placed in patches {
        if let Some(target) = placed.target() {
            let name = target.to_string();
            if !names.contains(&name) {
                sink.push(unknown_document(&name, placed.document_span(), &names));
            }
        }
        if placed.is_lab_patch() {
            check_lab_fields(placed, sink);
        }
    }
}

fn unknown_document(name: &str, span: Span, names: &[String]) -> Diagnostic {
    Diagnostic::error(format!("unknown object {name}"))
        .with_position(span, "no such object")
        .with_optional_help(did_you_mean(name, names.iter().map(String::as_str)))
}

/// Refuses patches of the lab's metadata, probes and expectations: a patch can only change the
/// cluster.
fn check_lab_fields(placed: LocatedPatch<'_>, sink: &mut Sink) {
    let Some(body) = placed.body() else {
        return;
    };
    let mut refuse = |name: &str, span: Span| {
        sink.push(
            Diagnostic::error(format!("a patch cannot change `{name}` of the lab"))
                .with_position(span, "")
                .with_help(
                    "patch only fields that describe the cluster, such as `merge: {spec: \
                    {nodes: …}}`",
                ),
        );
    };
    for (key, entry) in body.as_map().into_iter().flatten() {
        if key.as_ref() != "spec" {
            refuse(key, entry.key);
        }
    }
    for name in UNPATCHABLE {
        if let Some(span) = body.get("spec").and_then(|spec| spec.key_span(name)) {
            refuse(name, span);
        }
    }
}

/// Merges the patches into a copy of the lab.
pub(crate) fn patch_lab<'l>(lab: &Tree, patches: impl Iterator<Item = LocatedPatch<'l>>) -> Tree {
    patches.fold(lab.clone(), |tree, placed| match placed.body() {
        Some(body) => apply_merge_patch(&tree, body),
        None => tree,
    })
}

/// Objects that patches change: the new tree, `None` for a deleted object, and the last patch that
/// changed it.
pub(crate) type Changes<'l> = IndexMap<DocumentRef, (Option<Tree>, LocatedPatch<'l>)>;

/// Applies patches to the objects, in order.
///
/// # Errors
///
/// - A patch names an object that an earlier patch deleted, or that no patch added.
/// - A patch adds an object that already exists.
/// - A patch changes the name, kind or API version of its object.
pub(crate) fn patch_objects<'l>(
    objects: &IndexMap<DocumentRef, Tree>,
    patches: impl Iterator<Item = LocatedPatch<'l>>,
    case: &str,
) -> Result<Changes<'l>, Diagnostic> {
    let mut changes: Changes<'l> = IndexMap::new();
    for placed in patches {
        let current = |reference: &DocumentRef, changes: &Changes<'l>| match changes.get(reference)
        {
            Some((tree, _)) => tree.clone(),
            None => objects.get(reference).cloned(),
        };
        let (reference, result) = match placed.patch {
            Patch::Merge { target, .. } => {
                let (Some(tree), Some(body)) = (current(target, &changes), placed.body()) else {
                    return Err(missing_document(target, placed, case));
                };
                let tree = apply_merge_patch(&tree, body);
                check_same_identity(target, &tree, placed, case)?;
                (target.clone(), Some(tree))
            }
            Patch::Delete { target } => {
                if current(target, &changes).is_none() {
                    return Err(missing_document(target, placed, case));
                }
                (target.clone(), None)
            }
            Patch::Terminate { target } => {
                let Some(tree) = current(target, &changes) else {
                    return Err(missing_document(target, placed, case));
                };
                let path = crate::path!["metadata", "deletionTimestamp"];
                if tree.node_at(path).is_some_and(|time| !time.is_null()) {
                    return Err(
                        Diagnostic::error(format!("{target} is already terminating"))
                            .with_position(placed.document_span(), "again here"),
                    );
                }
                (
                    target.clone(),
                    Some(apply_merge_patch(
                        &tree,
                        &termination_fields(placed.document_span()),
                    )),
                )
            }
            Patch::Add { .. } => {
                let Some(body) = placed.body() else {
                    continue;
                };
                let (reference, tree) = parse_added(body)?;
                if let Some(first) = current(&reference, &changes) {
                    return Err(Diagnostic::error(format!(
                        "duplicate object {reference} in case `{case}`"
                    ))
                    .with_position(name_span(&tree), "again here")
                    .with_related(name_span(&first), "first here"));
                }
                (reference, Some(tree))
            }
        };
        changes.insert(reference, (result, placed));
    }
    Ok(changes)
}

/// Returns the fields of a terminating pod. The value of the timestamp is never read.
fn termination_fields(span: Span) -> Tree {
    let map = |key: &str, value: Tree| Tree {
        span,
        value: Value::Map(Arc::new(Map::from([(
            Arc::from(key),
            Entry { key: span, value },
        )]))),
    };
    let time = Tree {
        span,
        value: Value::Scalar(Scalar {
            text: Arc::from("2000-01-01T00:00:00Z"),
            kind: ScalarKind::String,
        }),
    };
    map("metadata", map("deletionTimestamp", time))
}

fn missing_document(target: &DocumentRef, placed: LocatedPatch<'_>, case: &str) -> Diagnostic {
    Diagnostic::error(format!("object {target} does not exist in case `{case}`"))
        .with_position(placed.document_span(), "not in this case")
        .with_help(
            "patches apply in this order: first those of axes, then those of steps, each in list \
             order",
        )
}

/// Checks that a patch keeps the name, kind and API version of its object.
fn check_same_identity(
    target: &DocumentRef,
    tree: &Tree,
    placed: LocatedPatch<'_>,
    case: &str,
) -> Result<(), Diagnostic> {
    let DocumentRef::Object { kind, .. } = target else {
        return Ok(());
    };
    let named = identity(*kind, tree).map_err(|diagnostic| placed.blame(diagnostic, case))?;
    let text = |key: &str| tree.get(key).and_then(Tree::as_str);
    let is_kind = text("kind").is_none_or(|text| text == kind.name())
        && text("apiVersion").is_none_or(|text| text == kind.api_version());
    if named == *target && is_kind {
        return Ok(());
    }
    Err(
        Diagnostic::error(format!("a patch cannot change the identity of {target}"))
            .with_position(
                placed.document_span(),
                "this patch changes its kind, name, namespace or `apiVersion`",
            )
            .with_help("delete the object and add a new one"),
    )
}
