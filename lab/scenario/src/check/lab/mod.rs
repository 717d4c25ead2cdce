//! Checks a lab before any patch: the names in it must exist, and no part of it may be without
//! effect.

mod flow;
pub(crate) mod steps;

use std::collections::{BTreeMap, BTreeSet};

use indexmap::IndexMap;

use crate::decode::values::AxisValues;
use crate::expectation::{EXPECTED_KEYS, ROW_KEYS};
use crate::lab::{Lab, LabSpec};
use crate::sink::Sink;
use crate::yaml::tree::{PathSegment, Tree, shorten};
use svclab_diagnostic::Diagnostic;
use svclab_diagnostic::source::Span;
use svclab_diagnostic::suggest::{did_you_mean, format_list};

/// Fields of `spec` that a patch may not change. They define cases, expectations and files, not the
/// cluster.
pub(crate) const UNPATCHABLE: [&str; 9] = [
    "axes", "exclude", "expect", "claims", "steps", "flows", "facts", "columns", "objects",
];

/// Checks the keys of `expect` rows before the rows are decoded, and returns whether all keys
/// exist. The decoder would report a misspelt key as a probe of the wrong type.
pub(crate) fn check_row_keys(tree: &Tree, sink: &mut Sink) -> bool {
    let mut unknown = Vec::new();
    let mut probes: BTreeSet<&str> = keys(tree.node_at(crate::path!["spec", "probes"])).collect();
    let steps = tree.node_at(crate::path!["spec", "steps"]);
    for step in steps.into_iter().flat_map(children) {
        probes.extend(keys(step.get("probes")));
    }
    let axes = tree.node_at(crate::path!["spec", "axes"]);
    let patches = axes
        .into_iter()
        .flat_map(children)
        .flat_map(children)
        .flat_map(children);
    probes.extend(
        patches.flat_map(|patch| keys(patch.node_at(crate::path!["merge", "spec", "probes"]))),
    );
    let rows = tree.node_at(crate::path!["spec", "expect"]);
    let flows = tree.node_at(crate::path!["spec", "flows"]);
    for row in rows.into_iter().flat_map(children) {
        for name in keys(flows) {
            if let (Some(span), Some(flow)) =
                (row.key_span(name), flows.and_then(|f| f.key_span(name)))
            {
                unknown.push(
                    Diagnostic::error(format!(
                        "`{name}` is a flow: its rows belong in its own `expect`"
                    ))
                    .with_position(span, "not allowed here")
                    .with_related(flow, "move the row to `expect` of this flow"),
                );
            }
        }
        probes.extend(keys(flows));
        unknown.extend(unknown_probes(row, &ROW_KEYS, &probes));
        for claim in row.get("claims").into_iter().flat_map(children) {
            if let Some(says) = claim.get("says") {
                unknown.extend(unknown_probes(says, &EXPECTED_KEYS, &probes));
            }
        }
    }
    let all_exist = unknown.is_empty();
    sink.extend(unknown);
    all_exist
}

/// Reports the keys of a row that are neither keywords nor probes.
fn unknown_probes(
    row: &Tree,
    keywords: &[&'static str],
    probes: &BTreeSet<&str>,
) -> Vec<Diagnostic> {
    let entries = row.as_map().into_iter().flatten();
    entries
        .filter(|(key, _)| !keywords.contains(&key.as_ref()) && !probes.contains(key.as_ref()))
        .map(|(key, entry)| {
            let known = probes.iter().copied().chain(keywords.iter().copied());
            let help = did_you_mean(key, known).unwrap_or_else(|| {
                format!("the probes are {}", format_list(probes.iter().copied()))
            });
            Diagnostic::error(format!("unknown probe `{key}`"))
                .with_position(entry.key, "no such probe")
                .with_help(help)
        })
        .collect()
}

fn keys(tree: Option<&Tree>) -> impl Iterator<Item = &str> {
    tree.and_then(Tree::as_map)
        .into_iter()
        .flat_map(|map| map.keys().map(AsRef::as_ref))
}

/// Returns the values of a map or the elements of a list.
fn children(tree: &Tree) -> impl Iterator<Item = &Tree> {
    let values = tree
        .as_map()
        .into_iter()
        .flat_map(|map| map.values().map(|entry| &entry.value));
    let items = tree.as_sequence().into_iter().flatten();
    values.chain(items)
}

/// Checks that the name of the lab can be the start of a case's name, and the name of a file.
pub(crate) fn check_lab_name(tree: &Tree, sink: &mut Sink) {
    let Some(name) = tree.node_at(crate::path!["metadata", "name"]) else {
        return;
    };
    let is_wrong =
        |text: &&str| text.trim().is_empty() || text.starts_with('.') || text.contains('/');
    if let Some(text) = name.as_str().filter(is_wrong) {
        sink.push(
            Diagnostic::error(format!("{} is not a valid name of a lab", shorten(text)))
                .with_position(name.span, "")
                .with_help("a name is not empty, does not start with `.`, and has no `/`"),
        );
    }
}

/// Runs all checks that need the decoded lab.
pub(crate) fn check_lab(lab: &Lab, tree: &Tree, sink: &mut Sink) {
    let spec = &lab.spec;
    check_axes(spec, tree, sink);
    for (index, entry) in spec.exclude.iter().enumerate() {
        let path = [PathSegment::from("spec"), "exclude".into(), index.into()];
        check_selector(spec, entry, tree, &path, sink);
    }
    for (index, row) in spec.expect.iter().enumerate() {
        let path = [PathSegment::from("spec"), "expect".into(), index.into()];
        let when = [path.as_slice(), &["when".into()]].concat();
        check_selector(spec, &row.when, tree, &when, sink);
        // The result of a dumped node cannot be predicted, so its rows may be empty.
        let dumped = spec.nodes.values().any(|node| node.dump.is_some());
        if row.expected.is_empty() && !dumped {
            sink.push(
                Diagnostic::error("this row has no expectations")
                    .with_position(tree.nearest(&path).head_span(), "expects nothing")
                    .with_help("add the expected result of a probe: `PROBE: {connected: 1}`"),
            );
        }
    }
    check_claims(spec, tree, sink);
    flow::check_flows(spec, tree, sink);
    check_columns(spec, tree, sink);
    for name in spec
        .all_probes()
        .map(|(name, _)| name)
        .filter(|name| ROW_KEYS.contains(&name.as_str()))
    {
        sink.push(
            Diagnostic::error(format!("a probe cannot be named `{name}`"))
                .with_position(steps::probe_name_span(spec, tree, name), "")
                .with_help("choose another name: this word is a keyword in rows of `expect`"),
        );
    }
    steps::check_steps(spec, tree, sink);
}

/// Checks that the axis of the table's columns exists.
fn check_columns(spec: &LabSpec, tree: &Tree, sink: &mut Sink) {
    let Some(axis) = &spec.columns else {
        return;
    };
    if spec.axes.contains_key(axis) {
        return;
    }
    let known = spec.axes.keys().map(String::as_str);
    let help = did_you_mean(axis, known.clone())
        .unwrap_or_else(|| format!("the axes are {}", format_list(known)));
    sink.push(
        Diagnostic::error(format!("unknown axis `{axis}`"))
            .with_position(
                tree.nearest(crate::path!["spec", "columns"]).span,
                "no such axis",
            )
            .with_help(help),
    );
}

/// Checks that names of axes and values fit into the id of a case, and that every axis has a value.
fn check_axes(spec: &LabSpec, tree: &Tree, sink: &mut Sink) {
    let axes = tree.nearest(crate::path!["spec", "axes"]);
    let has_reserved_char = |name: &str| {
        name.is_empty()
            || name.contains(|c: char| "=,/".contains(c) || c.is_whitespace() || c.is_control())
    };
    let mut report_name = |name: &str, span: Span| {
        sink.push(
            Diagnostic::error(format!("`{name}` is not valid in a case ID"))
                .with_position(span, "")
                .with_help("remove whitespace, `=`, `,` and `/`"),
        );
    };
    for (axis, values) in &spec.axes {
        let span = axes.key_span(axis).unwrap_or(axes.head_span());
        if has_reserved_char(axis) {
            report_name(axis, span);
        }
        for value in values.keys().filter(|value| has_reserved_char(value)) {
            let span = axes
                .get(axis)
                .and_then(|values| values.key_span(value))
                .unwrap_or(span);
            report_name(value, span);
        }
    }
    for (axis, _) in spec.axes.iter().filter(|(_, values)| values.is_empty()) {
        sink.push(
            Diagnostic::error(format!("axis `{axis}` has no values"))
                .with_position(axes.key_span(axis).unwrap_or(axes.head_span()), "no values")
                .with_help(
                    "add values, such as `{VALUE: []}` for the lab as written, or remove the axis",
                ),
        );
    }
}

/// Checks that the axes and values of a `when` or an `exclude` entry exist.
pub(crate) fn check_selector(
    spec: &LabSpec,
    entry: &IndexMap<String, AxisValues>,
    tree: &Tree,
    path: &[PathSegment],
    sink: &mut Sink,
) {
    let node = tree.nearest(path);
    for (axis, wanted) in entry {
        let Some(values) = spec.axes.get(axis) else {
            let axes = spec.axes.keys().map(String::as_str);
            let help = did_you_mean(axis, axes.clone())
                .unwrap_or_else(|| format!("the axes are {}", format_list(axes)));
            sink.push(
                Diagnostic::error(format!("unknown axis `{axis}`"))
                    .with_position(
                        node.key_span(axis).unwrap_or(node.head_span()),
                        "no such axis",
                    )
                    .with_help(help),
            );
            continue;
        };
        for (index, value) in wanted.0.iter().enumerate() {
            if values.contains_key(value) {
                continue;
            }
            let span = node.get(axis).map_or(node.head_span(), |written| {
                written
                    .as_sequence()
                    .and_then(|s| s.get(index))
                    .unwrap_or(written)
                    .span
            });
            let known = values.keys().map(String::as_str);
            let help = did_you_mean(value, known.clone())
                .unwrap_or_else(|| format!("its values are {}", format_list(known)));
            sink.push(
                Diagnostic::error(format!("axis `{axis}` has no value `{value}`"))
                    .with_position(span, "no such value")
                    .with_help(help),
            );
        }
    }
}

/// Checks that claims used in rows are declared, and that declared claims are used.
fn check_claims(spec: &LabSpec, tree: &Tree, sink: &mut Sink) {
    let declared = tree.nearest(crate::path!["spec", "claims"]);
    let mut used: BTreeMap<&str, Span> = BTreeMap::new();
    for (row, index) in spec.expect.iter().zip(0usize..) {
        for (position, claim) in row.claims.iter().enumerate() {
            let path = crate::path!["spec", "expect", index, "claims", position];
            let node = tree.nearest(path);
            let span = node.get("id").map_or(node.span, |id| id.span);
            used.entry(&claim.id).or_insert(span);
            if claim
                .says
                .as_ref()
                .is_some_and(crate::expectation::Expected::is_empty)
            {
                sink.push(
                    Diagnostic::error(format!("`says` of claim `{}` is empty", claim.id))
                        .with_position(node.key_span("says").unwrap_or(span), "")
                        .with_help("remove `says`, or write the expectations of the claim"),
                );
            }
            if !spec.claims.contains_key(&claim.id) {
                let known = spec.claims.keys().map(String::as_str);
                let help = did_you_mean(&claim.id, known).unwrap_or_else(|| {
                    format!("declare it: `claims: {{{}: {{says: …}}}}`", claim.id)
                });
                sink.push(
                    Diagnostic::error(format!("claim `{}` is not declared", claim.id))
                        .with_position(span, "not in `spec.claims`")
                        .with_help(help),
                );
            }
        }
    }
    for (id, claim) in &spec.claims {
        let span = declared.key_span(id).unwrap_or(declared.head_span());
        match (used.get(id.as_str()), &claim.not_checkable) {
            (None, None) => sink.push(
                Diagnostic::warning(format!("no row refers to claim `{id}`"))
                    .with_position(span, "neither confirmed nor refuted")
                    .with_help(
                        "add it to `claims` of a row, or write the reason in `notCheckable`",
                    ),
            ),
            (Some(row), Some(_)) => sink.push(
                Diagnostic::warning(format!("claim `{id}` is checked, but has `notCheckable`"))
                    .with_position(*row, "checked here")
                    .with_related(span, "declared here"),
            ),
            _ => {}
        }
    }
}
