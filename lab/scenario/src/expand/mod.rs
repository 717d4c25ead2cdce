//! Expands the documents of a scenario into cases. A case has the patched lab and objects, their
//! state after each step, and its row of `expect`.

pub(crate) mod apply;
pub(crate) mod case;
pub(crate) mod desugar;
pub(crate) mod diff;
pub(crate) mod product;
pub(crate) mod removals;

use crate::check;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use indexmap::IndexMap;

use crate::check::limits;
use crate::decode::strict;
use crate::expand::apply::LocatedPatch;
use crate::expand::case::{Case, CaseStep};
use crate::expand::desugar::FlowRows;
use crate::expand::product::{Combination, combinations};
use crate::lab::reference::DocumentRef;
use crate::lab::{Lab, LabSpec};
use crate::objects::balancers::needed_balancers;
use crate::objects::documents::UnmodelledObject;
use crate::objects::{DecodedObject, Objects, decode_object};
use crate::sink::Sink;
use crate::yaml::tree::Tree;
use svclab_diagnostic::Diagnostic;

/// Documents of a scenario before patches, as trees and decoded.
pub(super) struct ScenarioDocuments<'b> {
    pub lab: &'b Lab,
    pub lab_tree: &'b Tree,
    pub trees: &'b IndexMap<DocumentRef, Tree>,
    pub decoded: &'b IndexMap<DocumentRef, DecodedObject>,
    pub ignored: &'b BTreeMap<String, usize>,
    pub unmodelled: &'b [UnmodelledObject],
}

/// Identifier of a patch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum PatchId {
    /// Patch of an axis value: index of the axis, of the value, and in the value's list.
    Axis(usize, usize, usize),
    /// Patch of a step: index of the step and in its `change` list.
    Step(usize, usize),
}

/// Patched lab and the tree it was decoded from.
type PatchedLab = (Arc<LabSpec>, Tree);

/// Cache of patched labs and objects. Combinations with the same patches share the results: axes
/// that patch only the lab share the objects, and the reverse.
struct Expansion<'b> {
    base: &'b ScenarioDocuments<'b>,
    labs: HashMap<Vec<PatchId>, Option<PatchedLab>>,
    objects: HashMap<Vec<PatchId>, Option<Arc<Objects>>>,
    /// Checked objects, identified by their address, with the `notModelled` list of the lab.
    checked: HashSet<(*const Objects, Vec<String>)>,
}

impl ScenarioDocuments<'_> {
    /// Returns the patch with this identifier.
    fn patch(&self, id: PatchId) -> Option<LocatedPatch<'_>> {
        let spec = &self.lab.spec;
        match id {
            PatchId::Axis(axis, value, position) => {
                let (name, values) = spec.axes.get_index(axis)?;
                let (value_name, patches) = values.get_index(value)?;
                let path =
                    crate::path!["spec", "axes", name.as_str(), value_name.as_str(), position];
                Some(LocatedPatch {
                    patch: patches.get(position)?,
                    tree: self.lab_tree.node_at(path)?,
                })
            }
            PatchId::Step(step, position) => {
                let path = crate::path!["spec", "steps", step, "change", position];
                Some(LocatedPatch {
                    patch: spec.steps.get(step)?.change.get(position)?,
                    tree: self.lab_tree.node_at(path)?,
                })
            }
        }
    }

    /// Returns the patches of all values of all axes and of all steps.
    pub(crate) fn patches(&self) -> impl Iterator<Item = LocatedPatch<'_>> + Clone {
        let axes = self.lab.spec.axes.values().enumerate();
        let values = axes.flat_map(|(axis, values)| {
            values
                .values()
                .enumerate()
                .map(move |(value, patches)| (axis, value, patches.len()))
        });
        values
            .flat_map(|(axis, value, length)| {
                (0..length).map(move |n| PatchId::Axis(axis, value, n))
            })
            .chain((0..self.lab.spec.steps.len()).flat_map(|step| self.step_patch_ids(step)))
            .filter_map(|id| self.patch(id))
    }

    /// Returns the identifiers of a step's patches.
    fn step_patch_ids(&self, step: usize) -> impl Iterator<Item = PatchId> + Clone + use<> {
        let length = self.lab.spec.steps.get(step);
        let length = length.map_or(0, |step| step.change.len());
        (0..length).map(move |position| PatchId::Step(step, position))
    }

    /// Returns the identifiers of a combination's patches: those of the lab, and those of objects.
    fn patch_ids(&self, combination: &Combination) -> (Vec<PatchId>, Vec<PatchId>) {
        let values = combination.positions.iter().enumerate();
        values
            .flat_map(|(axis, value)| {
                let patches = self.lab.spec.axes.get_index(axis);
                let length = patches
                    .and_then(|(_, values)| values.get_index(*value))
                    .map_or(0, |(_, patches)| patches.len());
                (0..length).map(move |position| PatchId::Axis(axis, *value, position))
            })
            .partition(|id| self.patch(*id).is_some_and(LocatedPatch::is_lab_patch))
    }
}

/// Builds all cases of a scenario. Errors go to `sink`; a case that cannot be built is omitted.
pub(super) fn expand_cases(base: &ScenarioDocuments<'_>, sink: &mut Sink) -> Vec<Case> {
    let spec = &base.lab.spec;
    let spec_node = base.lab_tree.nearest(crate::path!["spec"]);
    let place = |key: &str| spec_node.key_span(key).unwrap_or(spec_node.head_span());
    let (combinations, excluded) = match combinations(spec) {
        Ok(found) => found,
        Err(error) => {
            sink.push(
                Diagnostic::error(error.to_string())
                    .with_position(place("axes"), "")
                    .with_help("split the lab, or exclude combinations that are not needed"),
            );
            return Vec::new();
        }
    };
    if combinations.is_empty() {
        let message = "`exclude` removes all cases";
        sink.push(Diagnostic::error(message).with_position(place("exclude"), ""));
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
        sink.push(Diagnostic::warning(message).with_position(entry.head_span(), ""));
    }

    let stages = combinations.len().saturating_mul(spec.steps.len() + 1);
    if let Err(error) = limits::check_case_limits(stages, base.decoded.len(), place("axes")) {
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
        report_missing_rows(base, &combinations, &rows, sink);
    }
    report_unreached_rows(base, &combinations, &rows, sink);
    let name = &base.lab.metadata.name;
    let flows = desugar::select_rows(spec, base.lab_tree, name, &combinations, sink);
    let prepared = combinations.into_iter().zip(rows).zip(flows);
    prepared
        .filter_map(|((combination, row), flows)| {
            expansion.build_case(combination, row, flows, sink)
        })
        .collect()
}

/// Reports the cases without a row.
fn report_missing_rows(
    base: &ScenarioDocuments<'_>,
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
        1 => format!("no row of `expect` matches case `{}`", first.id(name)),
        more => format!(
            "{more} cases have no row in `expect`; the first is `{}`",
            first.id(name)
        ),
    };
    let when: Vec<String> = first
        .values
        .iter()
        .map(|(axis, value)| format!("{axis}: {value}"))
        .collect();
    let spec = base.lab_tree.nearest(crate::path!["spec"]);
    let (span, label) = match spec.key_span("expect") {
        Some(at) => (at, "no row matches"),
        None => (
            base.lab_tree.key_span("spec").unwrap_or(spec.head_span()),
            "`expect` is missing here",
        ),
    };
    sink.push(
        Diagnostic::error(message)
            .with_position(span, label)
            .with_help(format!("add a row with `when: {{{}}}`", when.join(", "))),
    );
}

/// Reports the rows that no case reaches.
fn report_unreached_rows(
    base: &ScenarioDocuments<'_>,
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
                .head_span()
        };
        let mut diagnostic = Diagnostic::error("no case uses this row");
        let taken = combinations
            .iter()
            .zip(rows)
            .find(|(combination, _)| row.matches(&combination.values))
            .and_then(|(_, earlier)| *earlier);
        diagnostic = match taken {
            Some(earlier) => diagnostic
                .with_position(head(index), "unused")
                .with_related(head(earlier), "this row matches first"),
            None => diagnostic.with_position(head(index), "no case has these values"),
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
    let (spec, tree, row) = desugar::expand_flows(&spec, &tree, written, flows);
    Some((Arc::new(spec), tree, row))
}

/// Adds the load balancers that the services need, if the lab requests them with `auto`.
fn with_balancers(mut spec: Arc<LabSpec>, objects: &Objects) -> Arc<LabSpec> {
    if spec.load_balancers.is_auto {
        let balancers = needed_balancers(&spec, objects);
        Arc::make_mut(&mut spec).load_balancers.by_name = balancers;
    }
    spec
}

impl Expansion<'_> {
    fn build_case(
        &mut self,
        combination: Combination,
        written: Option<usize>,
        flows: FlowRows,
        sink: &mut Sink,
    ) -> Option<Case> {
        let lab = &self.base.lab.metadata.name;
        let id = combination.id(lab);
        let (mut lab_ids, mut object_ids) = self.base.patch_ids(&combination);
        let (spec, lab_tree) = self.cached_lab(&lab_ids, &id, sink)?;
        let objects = self.cached_objects(&object_ids, &id, sink)?;
        let spec = with_balancers(spec, &objects);
        let (spec, lab_tree, row) = with_flows(spec, lab_tree, written, &flows)?;
        limits::check_object_limits(&objects, &lab_tree, sink);
        check::case::check_case(&spec, &lab_tree, row, sink);
        check::unused::check_unused_fields(&spec, &lab_tree, sink);
        self.check_objects(&spec, &objects, sink);
        let mut steps = Vec::with_capacity(self.base.lab.spec.steps.len());
        for (index, step) in self.base.lab.spec.steps.iter().enumerate() {
            for patch in self.base.step_patch_ids(index) {
                let is_lab_patch = self
                    .base
                    .patch(patch)
                    .is_some_and(LocatedPatch::is_lab_patch);
                if is_lab_patch {
                    &mut lab_ids
                } else {
                    &mut object_ids
                }
                .push(patch);
            }
            let (spec, lab_tree) = self.cached_lab(&lab_ids, &id, sink)?;
            let objects = self.cached_objects(&object_ids, &id, sink)?;
            let spec = with_balancers(spec, &objects);
            let (spec, lab_tree, _) = with_flows(spec, lab_tree, written, &flows)?;
            limits::check_object_limits(&objects, &lab_tree, sink);
            self.check_objects(&spec, &objects, sink);
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
    fn check_objects(&mut self, spec: &LabSpec, objects: &Arc<Objects>, sink: &mut Sink) {
        // Objects that exceed the limits are not checked individually.
        if sink.has_errors() {
            return;
        }
        let key = (Arc::as_ptr(objects), spec.not_modelled.clone());
        if !self.checked.insert(key) {
            return;
        }
        check::objects::contradictions::check_contradictions(objects, sink);
        check::objects::addresses::check_addresses(spec, objects, sink);
        check::objects::fields::check_fields(spec, objects, sink);
        check::objects::ports::check_ports(objects, sink);
        check::objects::selectors::check_selectors(spec, objects, sink);
        check::objects::kinds::check_unmodelled(spec, objects, self.base.unmodelled, sink);
    }

    /// Returns the lab with these patches, from the cache if possible.
    fn cached_lab(&mut self, ids: &[PatchId], case: &str, sink: &mut Sink) -> Option<PatchedLab> {
        if !self.labs.contains_key(ids) {
            let patched = self.patch_lab(ids, case, sink);
            self.labs.insert(ids.to_vec(), patched);
        }
        self.labs.get(ids)?.clone()
    }

    /// Returns the objects with these patches, from the cache if possible.
    fn cached_objects(
        &mut self,
        ids: &[PatchId],
        case: &str,
        sink: &mut Sink,
    ) -> Option<Arc<Objects>> {
        if !self.objects.contains_key(ids) {
            let patched = self.patch_objects(ids, case, sink);
            self.objects.insert(ids.to_vec(), patched);
        }
        self.objects.get(ids)?.clone()
    }

    fn patch_lab(&self, ids: &[PatchId], case: &str, sink: &mut Sink) -> Option<PatchedLab> {
        let patches = || ids.iter().filter_map(|id| self.base.patch(*id));
        let Some(last) = patches().next_back() else {
            return Some((
                Arc::new(self.base.lab.spec.clone()),
                self.base.lab_tree.clone(),
            ));
        };
        let tree = apply::patch_lab(self.base.lab_tree, patches());
        match strict::<Lab>(&tree) {
            Ok(lab) => Some((Arc::new(lab.spec), tree)),
            Err(error) => {
                sink.push(last.blame(error.into(), case));
                None
            }
        }
    }

    fn patch_objects(&self, ids: &[PatchId], case: &str, sink: &mut Sink) -> Option<Arc<Objects>> {
        let patches = ids.iter().filter_map(|id| self.base.patch(*id));
        let changes = match apply::patch_objects(self.base.trees, patches, case) {
            Ok(changes) => changes,
            Err(diagnostic) => {
                sink.push(diagnostic);
                return None;
            }
        };
        let mut objects = self.base.decoded.clone();
        for (reference, (tree, placed)) in changes {
            let Some(tree) = tree else {
                objects.shift_remove(&reference);
                continue;
            };
            match decode_object(&reference, &tree) {
                Ok((decoded, ignored)) => {
                    sink.extend(ignored.into_iter().map(Diagnostic::from));
                    objects.insert(reference, decoded);
                }
                Err(diagnostic) => {
                    sink.push(placed.blame(diagnostic, case));
                    return None;
                }
            }
        }
        Some(Arc::new(Objects::new(&objects, self.base.ignored)))
    }
}
