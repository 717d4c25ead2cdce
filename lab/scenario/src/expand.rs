//! Expands the documents of a scenario into cases. A case has the patched lab and objects, their
//! state after each step, and its row of `expect`.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use indexmap::IndexMap;

use super::apply::{self, Placed};
use super::case::{Case, CaseStep};
use super::check_case;
use super::decode::strict;
use super::desugar::{self, FlowRows};
use super::documents::Other;
use super::lab::{Lab, LabSpec};
use super::limits;
use super::objects::{Decoded, Objects, decode};
use super::product::{Combination, combinations};
use super::reference::DocumentRef;
use super::sink::Sink;
use super::tree::Tree;
use super::{check_contradictions, check_fields, check_kinds, check_ports, check_unused};
use svclab_diagnostic::Diagnostic;

/// Documents of a scenario before patches, as trees and decoded.
pub(super) struct Base<'b> {
    pub lab: &'b Lab,
    pub lab_tree: &'b Tree,
    pub trees: &'b IndexMap<DocumentRef, Tree>,
    pub decoded: &'b IndexMap<DocumentRef, Decoded>,
    pub ignored: &'b BTreeMap<String, usize>,
    pub others: &'b [Other],
}

/// Identifier of a patch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum PatchId {
    /// Patch of an axis value: index of the axis, of the value, and in the value's list.
    OfAxis(usize, usize, usize),
    /// Patch of a step: index of the step and in its `change` list.
    OfStep(usize, usize),
}

/// Patched lab and the tree it was decoded from.
type PatchedLab = (Arc<LabSpec>, Tree);

/// Cache of patched labs and objects. Combinations with the same patches share the results: axes
/// that patch only the lab share the objects, and the reverse.
struct Expansion<'b> {
    base: &'b Base<'b>,
    labs: HashMap<Vec<PatchId>, Option<PatchedLab>>,
    objects: HashMap<Vec<PatchId>, Option<Arc<Objects>>>,
    /// Checked objects, identified by their address, with the `notModelled` list of the lab.
    checked: HashSet<(*const Objects, Vec<String>)>,
}

impl Base<'_> {
    /// Returns the patch with this identifier.
    fn patch(&self, id: PatchId) -> Option<Placed<'_>> {
        let spec = &self.lab.spec;
        match id {
            PatchId::OfAxis(axis, value, position) => {
                let (name, values) = spec.axes.get_index(axis)?;
                let (word, patches) = values.get_index(value)?;
                let path = crate::path!["spec", "axes", name.as_str(), word.as_str(), position];
                Some(Placed {
                    patch: patches.get(position)?,
                    tree: self.lab_tree.at(path)?,
                })
            }
            PatchId::OfStep(step, position) => {
                let path = crate::path!["spec", "steps", step, "change", position];
                Some(Placed {
                    patch: spec.steps.get(step)?.change.get(position)?,
                    tree: self.lab_tree.at(path)?,
                })
            }
        }
    }

    /// Returns the patches of all values of all axes and of all steps.
    pub fn patches(&self) -> impl Iterator<Item = Placed<'_>> + Clone {
        let axes = self.lab.spec.axes.values().enumerate();
        let values = axes.flat_map(|(axis, values)| {
            values
                .values()
                .enumerate()
                .map(move |(value, patches)| (axis, value, patches.len()))
        });
        values
            .flat_map(|(axis, value, length)| {
                (0..length).map(move |n| PatchId::OfAxis(axis, value, n))
            })
            .chain((0..self.lab.spec.steps.len()).flat_map(|step| self.step_ids(step)))
            .filter_map(|id| self.patch(id))
    }

    /// Returns the identifiers of a step's patches.
    fn step_ids(&self, step: usize) -> impl Iterator<Item = PatchId> + Clone + use<> {
        let length = self.lab.spec.steps.get(step);
        let length = length.map_or(0, |step| step.change.len());
        (0..length).map(move |position| PatchId::OfStep(step, position))
    }

    /// Returns the identifiers of a combination's patches: those of the lab, and those of objects.
    fn ids(&self, combination: &Combination) -> (Vec<PatchId>, Vec<PatchId>) {
        let values = combination.positions.iter().enumerate();
        values
            .flat_map(|(axis, value)| {
                let patches = self.lab.spec.axes.get_index(axis);
                let length = patches
                    .and_then(|(_, values)| values.get_index(*value))
                    .map_or(0, |(_, patches)| patches.len());
                (0..length).map(move |position| PatchId::OfAxis(axis, *value, position))
            })
            .partition(|id| self.patch(*id).is_some_and(Placed::is_of_lab))
    }
}

/// Builds all cases of a scenario. Errors go to `sink`; a case that cannot be built is omitted.
pub(super) fn cases(base: &Base<'_>, sink: &mut Sink) -> Vec<Case> {
    let spec = &base.lab.spec;
    let spec_node = base.lab_tree.nearest(crate::path!["spec"]);
    let place = |key: &str| spec_node.key_span(key).unwrap_or(spec_node.head());
    let (combinations, excluded) = match combinations(spec) {
        Ok(found) => found,
        Err(error) => {
            sink.push(
                Diagnostic::error(error.to_string())
                    .at(place("axes"), "")
                    .help("split the lab, or exclude combinations that mean nothing"),
            );
            return Vec::new();
        }
    };
    if combinations.is_empty() {
        let message = "`exclude` leaves no case";
        sink.push(Diagnostic::error(message).at(place("exclude"), ""));
        return Vec::new();
    }
    for (index, _) in excluded
        .iter()
        .enumerate()
        .filter(|(_, count)| **count == 0)
    {
        let entry = base
            .lab_tree
            .nearest(crate::path!["spec", "exclude", index]);
        let message = "this entry excludes no combination";
        sink.push(Diagnostic::warning(message).at(entry.head(), ""));
    }

    let stages = combinations.len().saturating_mul(spec.steps.len() + 1);
    if let Err(error) = limits::cases(stages, base.decoded.len(), place("axes")) {
        sink.push(error);
        return Vec::new();
    }
    let mut expansion = Expansion {
        base,
        labs: HashMap::new(),
        objects: HashMap::new(),
        checked: HashSet::new(),
    };
    let rows: Vec<Option<usize>> = combinations
        .iter()
        .map(|c| spec.expect.iter().position(|row| row.matches(&c.values)))
        .collect();
    // A lab that has only flows needs no rows of its own: the flows' rows contain all expectations.
    let flows_only = !spec.flows.is_empty() && spec.all_probes().next().is_none();
    if !flows_only || !spec.expect.is_empty() {
        without_row(base, &combinations, &rows, sink);
    }
    unreached(base, &combinations, &rows, sink);
    let name = &base.lab.metadata.name;
    let flows = desugar::rows(spec, base.lab_tree, name, &combinations, sink);
    let all = combinations.into_iter().zip(rows).zip(flows);
    all.filter_map(|((combination, row), flows)| expansion.case(combination, row, flows, sink))
        .collect()
}

/// Reports the cases without a row.
fn without_row(
    base: &Base<'_>,
    combinations: &[Combination],
    rows: &[Option<usize>],
    sink: &mut Sink,
) {
    let name = &base.lab.metadata.name;
    let missing: Vec<&Combination> = combinations
        .iter()
        .zip(rows)
        .filter_map(|(combination, row)| row.is_none().then_some(combination))
        .collect();
    let Some(first) = missing.first() else {
        return;
    };
    let message = match missing.len() {
        1 => format!("no row of `expect` is for the case `{}`", first.id(name)),
        more => format!(
            "no row of `expect` is for {more} cases, the first being `{}`",
            first.id(name)
        ),
    };
    let when: Vec<String> = first
        .values
        .iter()
        .map(|(axis, value)| format!("{axis}: {value}"))
        .collect();
    let spec = base.lab_tree.nearest(crate::path!["spec"]);
    let (at, label) = match spec.key_span("expect") {
        Some(at) => (at, "no row matches"),
        None => (
            base.lab_tree.key_span("spec").unwrap_or(spec.head()),
            "`expect` is missing here",
        ),
    };
    sink.push(
        Diagnostic::error(message)
            .at(at, label)
            .help(format!("add a row with `when: {{{}}}`", when.join(", "))),
    );
}

/// Reports the rows that no case reaches.
fn unreached(
    base: &Base<'_>,
    combinations: &[Combination],
    rows: &[Option<usize>],
    sink: &mut Sink,
) {
    for (index, row) in base.lab.spec.expect.iter().enumerate() {
        if rows.contains(&Some(index)) {
            continue;
        }
        let head = |row: usize| {
            base.lab_tree
                .nearest(crate::path!["spec", "expect", row])
                .head()
        };
        let mut diagnostic = Diagnostic::error("no case reaches this row");
        let taken = combinations
            .iter()
            .zip(rows)
            .find(|(combination, _)| row.matches(&combination.values))
            .and_then(|(_, earlier)| *earlier);
        diagnostic = match taken {
            Some(earlier) => diagnostic
                .at(head(index), "never used")
                .and(head(earlier), "this row matches first"),
            None => diagnostic.at(head(index), "no case has these values"),
        };
        sink.push(diagnostic);
    }
}

/// Expands the flows of a case's lab. Returns the lab, its tree and the index of the case's row;
/// `written` is the index before the expansion. `None` if the case has no row, which is already
/// reported for all cases together.
fn with_flows(
    spec: Arc<LabSpec>,
    tree: Tree,
    written: Option<usize>,
    flows: &FlowRows,
) -> Option<(Arc<LabSpec>, Tree, usize)> {
    if flows.len() < spec.flows.len() {
        return None;
    }
    if spec.flows.is_empty() {
        return Some((spec, tree, written?));
    }
    let (spec, tree, row) = desugar::case(&spec, &tree, written, flows);
    Some((Arc::new(spec), tree, row))
}

impl Expansion<'_> {
    fn case(
        &mut self,
        combination: Combination,
        written: Option<usize>,
        flows: FlowRows,
        sink: &mut Sink,
    ) -> Option<Case> {
        let lab = &self.base.lab.metadata.name;
        let id = combination.id(lab);
        let (mut lab_ids, mut object_ids) = self.base.ids(&combination);
        let (spec, lab_tree) = self.lab_of(&lab_ids, &id, sink)?;
        let objects = self.objects_of(&object_ids, &id, sink)?;
        let (spec, lab_tree, row) = with_flows(spec, lab_tree, written, &flows)?;
        limits::objects(&objects, &lab_tree, sink);
        check_case::case(&spec, &lab_tree, row, sink);
        check_unused::lab(&spec, &lab_tree, sink);
        self.objects(&spec, &objects, sink);
        let mut steps = Vec::with_capacity(self.base.lab.spec.steps.len());
        for (at, step) in self.base.lab.spec.steps.iter().enumerate() {
            for patch in self.base.step_ids(at) {
                let of_lab = self.base.patch(patch).is_some_and(Placed::is_of_lab);
                if of_lab {
                    &mut lab_ids
                } else {
                    &mut object_ids
                }
                .push(patch);
            }
            let (spec, lab_tree) = self.lab_of(&lab_ids, &id, sink)?;
            let (spec, lab_tree, _) = with_flows(spec, lab_tree, written, &flows)?;
            let objects = self.objects_of(&object_ids, &id, sink)?;
            limits::objects(&objects, &lab_tree, sink);
            self.objects(&spec, &objects, sink);
            steps.push(CaseStep {
                name: step.name.clone(),
                spec,
                objects,
                lab_tree,
            });
        }
        Some(Case {
            id,
            lab: lab.clone(),
            values: combination.values,
            spec,
            objects,
            row,
            flows,
            steps,
            lab_tree,
        })
    }

    /// Reports the features that the objects of a case or a stage request and svclab does not
    /// implement.
    fn objects(&mut self, spec: &LabSpec, objects: &Arc<Objects>, sink: &mut Sink) {
        // Objects that exceed the limits are not checked individually.
        if sink.has_errors() {
            return;
        }
        let key = (Arc::as_ptr(objects), spec.not_modelled.clone());
        if !self.checked.insert(key) {
            return;
        }
        check_contradictions::case(objects, sink);
        check_fields::case(spec, objects, sink);
        check_ports::case(objects, sink);
        check_kinds::others(spec, objects, self.base.others, sink);
    }

    /// Returns the lab with these patches, from the cache if possible.
    fn lab_of(&mut self, ids: &[PatchId], case: &str, sink: &mut Sink) -> Option<PatchedLab> {
        if !self.labs.contains_key(ids) {
            let patched = self.patched_lab(ids, case, sink);
            self.labs.insert(ids.to_vec(), patched);
        }
        self.labs.get(ids)?.clone()
    }

    /// Returns the objects with these patches, from the cache if possible.
    fn objects_of(&mut self, ids: &[PatchId], case: &str, sink: &mut Sink) -> Option<Arc<Objects>> {
        if !self.objects.contains_key(ids) {
            let patched = self.patched_objects(ids, case, sink);
            self.objects.insert(ids.to_vec(), patched);
        }
        self.objects.get(ids)?.clone()
    }

    fn patched_lab(&self, ids: &[PatchId], case: &str, sink: &mut Sink) -> Option<PatchedLab> {
        let patches = || ids.iter().filter_map(|id| self.base.patch(*id));
        let Some(last) = patches().next_back() else {
            return Some((
                Arc::new(self.base.lab.spec.clone()),
                self.base.lab_tree.clone(),
            ));
        };
        let tree = apply::to_lab(self.base.lab_tree, patches());
        match strict::<Lab>(&tree) {
            Ok(lab) => Some((Arc::new(lab.spec), tree)),
            Err(error) => {
                sink.push(last.blame(error.into(), case));
                None
            }
        }
    }

    fn patched_objects(
        &self,
        ids: &[PatchId],
        case: &str,
        sink: &mut Sink,
    ) -> Option<Arc<Objects>> {
        let patches = ids.iter().filter_map(|id| self.base.patch(*id));
        let changes = match apply::to_objects(self.base.trees, patches, case) {
            Ok(changes) => changes,
            Err(diagnostic) => {
                sink.push(diagnostic);
                return None;
            }
        };
        let mut all = self.base.decoded.clone();
        for (reference, (tree, placed)) in changes {
            let Some(tree) = tree else {
                all.shift_remove(&reference);
                continue;
            };
            match decode(&reference, &tree) {
                Ok((decoded, ignored)) => {
                    sink.extend(ignored.into_iter().map(Diagnostic::from));
                    all.insert(reference, decoded);
                }
                Err(diagnostic) => {
                    sink.push(placed.blame(diagnostic, case));
                    return None;
                }
            }
        }
        Some(Arc::new(Objects::new(&all, self.base.ignored)))
    }
}
