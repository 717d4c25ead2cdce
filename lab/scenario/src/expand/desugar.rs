//! Expands flows into probes and into one generated row of `expect` per case. Every generated value
//! keeps the span of its source.

use std::sync::Arc;

use indexmap::IndexMap;

use crate::expand::product::Combination;
use crate::expectation::matches_values;
use crate::lab::LabSpec;
use crate::lab::flow::NON_EXPECTATION_KEYS;
use crate::sink::Sink;
use crate::yaml::tree::{Entry, Map, Tree, Value};
use svclab_diagnostic::Diagnostic;
use svclab_diagnostic::source::Span;

/// Index of the row for a case in each flow's `expect`, by the flow's name.
pub(crate) type FlowRows = IndexMap<String, usize>;

/// Returns the row of each flow for these axis values, `None` for a flow without a matching row.
fn rows_for(spec: &LabSpec, values: &IndexMap<String, String>) -> Vec<Option<usize>> {
    let flows = spec.flows.values();
    flows
        .map(|flow| {
            flow.expect
                .iter()
                .position(|row| matches_values(&row.when, values))
        })
        .collect()
}

/// Returns the rows of all combinations. Missing rows and rows that no combination reaches are
/// reported to `sink`.
pub(crate) fn select_rows(
    spec: &LabSpec,
    tree: &Tree,
    lab: &str,
    combinations: &[Combination],
    sink: &mut Sink,
) -> Vec<FlowRows> {
    let rows_by_case: Vec<Vec<Option<usize>>> = combinations
        .iter()
        .map(|combination| rows_for(spec, &combination.values))
        .collect();
    for (flow_index, (name, flow)) in spec.flows.iter().enumerate() {
        if flow.expect.is_empty() {
            continue;
        }
        let missing: Vec<&Combination> = combinations
            .iter()
            .zip(&rows_by_case)
            .filter_map(|(combination, rows)| rows[flow_index].is_none().then_some(combination))
            .collect();
        if let Some(first) = missing.first() {
            sink.push(missing_row(tree, lab, name, first, missing.len()));
        }
        for (index, row) in flow.expect.iter().enumerate() {
            if rows_by_case
                .iter()
                .any(|rows| rows[flow_index] == Some(index))
            {
                continue;
            }
            let taken = combinations
                .iter()
                .zip(&rows_by_case)
                .find(|(combination, _)| matches_values(&row.when, &combination.values))
                .and_then(|(_, rows)| rows[flow_index]);
            let head = |row: usize| {
                tree.nearest(crate::path!["spec", "flows", name.as_str(), "expect", row])
                    .head_span()
            };
            let unreached = Diagnostic::error(format!("no case uses this row of flow `{name}`"));
            sink.push(match taken {
                Some(earlier) => unreached
                    .with_position(head(index), "unused")
                    .with_related(head(earlier), "this row matches first"),
                None => unreached.with_position(head(index), "no case has these values"),
            });
        }
        for (index, row) in flow.expect.iter().enumerate() {
            let cases = || {
                let all = combinations.iter().zip(&rows_by_case);
                all.filter_map(|(case, rows)| {
                    (rows[flow_index] == Some(index)).then_some(&case.values)
                })
            };
            for (position, id) in row.covers.iter().enumerate() {
                let Some(fact) = spec.facts.get(id) else {
                    continue;
                };
                if cases().next().is_some() && !cases().any(|case| matches_values(&fact.when, case))
                {
                    let facts = tree.nearest(crate::path!["spec", "facts", id.as_str()]);
                    let path = crate::path![
                        "spec",
                        "flows",
                        name.as_str(),
                        "expect",
                        index,
                        "covers",
                        position
                    ];
                    sink.push(
                        Diagnostic::error(format!("fact `{id}` applies to no case of this row"))
                            .with_position(tree.nearest(path).span, "covered here")
                            .with_related(
                                facts.key_span("when").unwrap_or(facts.head_span()),
                                "the fact applies to these cases",
                            ),
                    );
                }
            }
        }
    }
    let named = |rows: Vec<Option<usize>>| {
        let names = spec.flows.keys().cloned();
        names
            .zip(rows)
            .filter_map(|(name, row)| Some((name, row?)))
            .collect()
    };
    rows_by_case.into_iter().map(named).collect()
}

fn missing_row(
    tree: &Tree,
    lab: &str,
    flow: &str,
    first: &Combination,
    cases: usize,
) -> Diagnostic {
    let message = match cases {
        1 => format!("no row of flow `{flow}` matches case `{}`", first.id(lab)),
        more => format!(
            "{more} cases have no row in flow `{flow}`; the first is `{}`",
            first.id(lab)
        ),
    };
    let when: Vec<String> = first
        .values
        .iter()
        .map(|(axis, value)| format!("{axis}: {value}"))
        .collect();
    let flow = tree.nearest(crate::path!["spec", "flows", flow]);
    Diagnostic::error(message)
        .with_position(
            flow.key_span("expect").unwrap_or(flow.head_span()),
            "no row matches",
        )
        .with_help(format!("add a row with `when: {{{}}}`", when.join(", ")))
}

/// Returns the lab of a case with its flows expanded, its tree, and the index of the generated row
/// in `expect`.
///
/// The generated row joins the row `row` of the lab, if any, with the given rows of the flows.
pub(crate) fn expand_flows(
    spec: &LabSpec,
    tree: &Tree,
    row: Option<usize>,
    rows: &FlowRows,
) -> (LabSpec, Tree, usize) {
    let mut spec = spec.clone();
    let mut joined = row
        .and_then(|row| spec.expect.get(row).cloned())
        .unwrap_or_default();
    for (name, row) in rows {
        let Some(flow) = spec.flows.get(name) else {
            continue;
        };
        if let Some(row) = flow.expect.get(*row) {
            let connections = flow.connections(row, spec.connections);
            let probe = flow.probe(connections);
            let expectation = row.expectation(connections);
            spec.probes.insert(name.clone(), probe);
            joined.expected.probes.insert(name.clone(), expectation);
        }
    }
    let row_index = spec.expect.len();
    spec.expect.push(joined);
    (spec, expand_flows_tree(tree, row, rows), row_index)
}

/// Expands the flows in the lab's tree, so that later diagnostics point at the source of each
/// value.
fn expand_flows_tree(tree: &Tree, row: Option<usize>, rows: &FlowRows) -> Tree {
    let written = tree.nearest(crate::path!["spec", "flows"]);
    let flows = written.as_map();
    let entries = |take: &dyn Fn(&str, &Tree) -> Option<Tree>| -> Vec<(Arc<str>, Entry)> {
        let all = flows.into_iter().flatten();
        all.filter_map(|(name, entry)| {
            let value = take(name, &entry.value)?;
            let key = entry.key;
            Some((Arc::clone(name), Entry { key, value }))
        })
        .collect()
    };
    let row_of = |name: &str, flow: &'_ Tree| -> Option<Tree> {
        let rows_of_flow = flow.get("expect")?.as_sequence()?;
        rows_of_flow.get(*rows.get(name)?).cloned()
    };
    let probes = entries(&|name, flow| {
        let row = row_of(name, flow)?;
        let connections = row
            .as_map()
            .and_then(|row| row.get_key_value("connections"));
        let connections = connections.map(|(key, entry)| (Arc::clone(key), entry.clone()));
        let flow = without_keys(flow, &["expect"]);
        Some(with_entries(
            Some(&flow),
            flow.span,
            connections.into_iter().collect(),
        ))
    });
    let expected =
        entries(&|name, flow| Some(without_keys(&row_of(name, flow)?, &NON_EXPECTATION_KEYS)));
    let base = row.and_then(|row| tree.node_at(crate::path!["spec", "expect", row]));
    let joined = with_entries(base, written.span, expected);
    let spec = tree.nearest(crate::path!["spec"]);
    let mut list: Vec<Tree> = spec
        .get("expect")
        .and_then(Tree::as_sequence)
        .map(<[Tree]>::to_vec)
        .unwrap_or_default();
    list.push(joined);
    let place = |key: &str| {
        spec.key_span(key)
            .unwrap_or_else(|| spec.key_span("flows").unwrap_or(spec.head_span()))
    };
    let span = spec
        .get("expect")
        .map_or(written.span, |expect| expect.span);
    let probes = with_entries(spec.get("probes"), written.span, probes);
    let spec = with_entries(
        Some(spec),
        spec.span,
        vec![
            (
                "probes".into(),
                Entry {
                    key: place("probes"),
                    value: probes,
                },
            ),
            (
                "expect".into(),
                Entry {
                    key: place("expect"),
                    value: Tree {
                        span,
                        value: Value::Sequence(Arc::new(list)),
                    },
                },
            ),
        ],
    );
    let key = tree.key_span("spec").unwrap_or(tree.head_span());
    with_entries(
        Some(tree),
        tree.span,
        vec![("spec".into(), Entry { key, value: spec })],
    )
}

/// Returns a map with added entries. An added entry replaces an entry with the same key.
fn with_entries(tree: Option<&Tree>, span: Span, entries: Vec<(Arc<str>, Entry)>) -> Tree {
    let mut map: Map = tree.and_then(Tree::as_map).cloned().unwrap_or_default();
    map.extend(entries);
    Tree {
        span: tree.map_or(span, |tree| tree.span),
        value: Value::Map(Arc::new(map)),
    }
}

/// Returns a map without some of its keys. A tree that is not a map stays as is.
fn without_keys(tree: &Tree, keys: &[&str]) -> Tree {
    let Some(map) = tree.as_map() else {
        return tree.clone();
    };
    let kept = map
        .iter()
        .filter(|(key, _)| !keys.contains(&key.as_ref()))
        .map(|(key, entry)| (Arc::clone(key), entry.clone()))
        .collect::<Map>();
    Tree {
        span: tree.span,
        value: Value::Map(Arc::new(kept)),
    }
}
