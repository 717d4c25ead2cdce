//! Checks that a patch uses `null` only on a key that a document or patch sets.
//!
//! Removing a missing key has no effect (RFC 7386), so a misspelt key would go unnoticed.

use crate::expand::apply::LocatedPatch;
use crate::lab::patch::Patch;
use crate::lab::reference::DocumentRef;
use crate::objects::documents::parse_added;
use crate::sink::Sink;
use crate::yaml::tree::Tree;
use svclab_diagnostic::Diagnostic;
use svclab_diagnostic::source::Span;
use svclab_diagnostic::suggest::did_you_mean;

/// Checks the patches of all cases. `written` returns a document before patches.
pub(crate) fn check_removals<'l>(
    patches: &(impl Iterator<Item = LocatedPatch<'l>> + Clone),
    document_tree: impl Fn(&DocumentRef) -> Option<&'l Tree>,
    sink: &mut Sink,
) {
    for placed in patches.clone() {
        let Patch::Merge { target, .. } = placed.patch else {
            continue;
        };
        let Some(body) = placed.body() else {
            continue;
        };
        let setting_patches = patches.clone().filter(|other| can_set_keys(*other, target));
        let bodies: Vec<&Tree> = setting_patches.filter_map(LocatedPatch::body).collect();
        for removal in removals(body) {
            let (parents, key) = removal.path.split_at(removal.path.len() - 1);
            let in_document =
                document_tree(target).and_then(|document| get_path(document, parents));
            let in_patches = bodies.iter().filter_map(|body| get_path(body, parents));
            let is_set = |map: &Tree| map.get(key[0]).is_some_and(|value| !value.is_null());
            // A document may have the key with a null value.
            let is_written = in_document.is_some_and(|map| map.get(key[0]).is_some());
            if is_written || in_patches.clone().any(is_set) {
                continue;
            }
            let maps = in_document.into_iter().chain(in_patches);
            let keys = maps.flat_map(|map| map.as_map().into_iter().flatten());
            let known = keys.filter(|(_, entry)| !entry.value.is_null());
            sink.push(
                Diagnostic::error(format!(
                    "cannot remove `{}` from {target}: no such key",
                    removal.path.join(".")
                ))
                .with_position(
                    removal.span,
                    "neither the document nor a patch sets this key",
                )
                .with_optional_help(did_you_mean(key[0], known.map(|(key, _)| key.as_ref()))),
            );
        }
    }
}

/// Whether a patch may set keys of the document.
fn can_set_keys(placed: LocatedPatch<'_>, target: &DocumentRef) -> bool {
    match placed.patch {
        Patch::Merge { target: other, .. } => other == target,
        Patch::Add { .. } => {
            let added = placed.body().and_then(|body| parse_added(body).ok());
            added.is_some_and(|(reference, _)| reference == *target)
        }
        Patch::Delete { .. } | Patch::Terminate { .. } => false,
    }
}

fn get_path<'t>(tree: &'t Tree, path: &[&str]) -> Option<&'t Tree> {
    path.iter().try_fold(tree, |tree, key| tree.get(key))
}

/// Key that a patch removes.
struct Removal<'t> {
    /// Keys from the document's root to the removed key.
    path: Vec<&'t str>,
    span: Span,
}

fn removals(body: &Tree) -> Vec<Removal<'_>> {
    let mut removals = Vec::new();
    for (key, entry) in body.as_map().into_iter().flatten() {
        if entry.value.is_null() {
            removals.push(Removal {
                path: vec![key],
                span: entry.key,
            });
        }
        removals.extend(self::removals(&entry.value).into_iter().map(|mut removal| {
            removal.path.insert(0, key);
            removal
        }));
    }
    removals
}
