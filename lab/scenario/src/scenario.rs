//! Loads a lab and its objects and expands them into cases.

use crate::check;
use std::sync::Arc;

use crate::check::limits;
use crate::decode::strict;
use crate::expand::apply;
use crate::expand::case::Case;
use crate::expand::{self, ScenarioDocuments};
use crate::lab::reference::DocumentRef;
use crate::lab::{API_VERSION, KIND, Lab};
use crate::object_files::{FileAccess, InvalidScenario, with_object_files};
use crate::objects::decode_all;
use crate::objects::documents::{Documents, name_span};
use crate::objects::workloads::add_pods;
use crate::sink::Sink;
use crate::yaml::tree::Tree;
use svclab_diagnostic::Diagnostic;
use svclab_diagnostic::source::{Source, Sources};

/// Lab with its cases.
#[derive(Debug, Clone)]
pub struct Scenario {
    /// Lab before any patch.
    pub lab: Arc<Lab>,
    /// Files of the lab, for rendering diagnostics.
    pub sources: Sources,
    cases: Vec<Case>,
}

impl Scenario {
    /// Loads a lab with the files of objects that it names.
    ///
    /// The second part of the result are warnings.
    ///
    /// # Errors
    ///
    /// Returns the errors of the lab and of the files.
    pub fn load_lab(
        lab: Source,
        access: FileAccess,
    ) -> Result<(Self, Vec<Diagnostic>), Box<InvalidScenario>> {
        let sources = with_object_files(vec![lab], access)?;
        Self::load(&sources).map_err(|diagnostics| {
            Box::new(InvalidScenario {
                sources,
                diagnostics,
            })
        })
    }

    /// Loads a scenario from one or several files, such as a lab and a dump of the cluster's
    /// objects. Exactly one document must be a `Lab`.
    ///
    /// The second part of the result are warnings.
    ///
    /// # Errors
    ///
    /// Returns all errors that were found, then all warnings. Render them with the same `sources`.
    pub fn load(sources: &Sources) -> Result<(Self, Vec<Diagnostic>), Vec<Diagnostic>> {
        let mut sink = Sink::default();
        let scenario = load_scenario(sources, &mut sink);
        let has_errors = sink.has_errors();
        let diagnostics = sources.redact(sink.into_inner());
        match scenario {
            Some(scenario) if !has_errors => Ok((scenario, diagnostics)),
            _ => Err(diagnostics),
        }
    }

    /// Returns the name of the lab.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.lab.metadata.name
    }

    /// Returns the cases, the first axis varying slowest. There is at least one case.
    #[must_use]
    pub fn cases(&self) -> &[Case] {
        &self.cases
    }
}

fn load_scenario(sources: &Sources, sink: &mut Sink) -> Option<Scenario> {
    let mut documents = Documents::read(sources, sink);
    add_pods(&mut documents, sink);
    let decoded = decode_all(&documents.objects, sink);
    // An object with a decode error must not also be reported as missing.
    let has_all_objects = !sink.has_errors();
    let lab_tree = single_lab(&documents, sources, sink)?;
    limits::check_text(lab_tree, sink);
    check::lab::check_lab_name(lab_tree, sink);
    if !check::lab::check_row_keys(lab_tree, sink) {
        // The decoder would report an unknown key again, as an invalid probe.
        return None;
    }
    let lab: Lab = match strict(lab_tree) {
        Ok(lab) => lab,
        Err(error) => {
            sink.push(error.into());
            return None;
        }
    };
    check::lab::check_lab(&lab, lab_tree, sink);
    if sources.iter().count() <= lab.spec.objects.len() {
        let span = lab_tree.nearest(crate::path!["spec", "objects"]).span;
        let error = Diagnostic::error("the files of objects are not loaded with this lab");
        sink.push(error.with_position(span, ""));
    }
    let base = ScenarioDocuments {
        lab: &lab,
        lab_tree,
        trees: &documents.objects,
        decoded: &decoded,
        ignored: &documents.ignored,
        unmodelled: &documents.unmodelled,
    };
    if has_all_objects {
        apply::check(base.patches(), &documents.objects, sink);
        let document_tree = |target: &_| match target {
            DocumentRef::Lab => Some(lab_tree),
            object @ DocumentRef::Object { .. } => documents.objects.get(object),
        };
        expand::removals::check_removals(&base.patches(), document_tree, sink);
    }
    // Errors up to here would repeat in every case.
    if sink.has_errors() {
        return None;
    }
    let cases = expand::expand_cases(&base, sink);
    Some(Scenario {
        lab: Arc::new(lab),
        sources: sources.clone(),
        cases,
    })
}

/// Returns the single lab document, or reports that there is none or more than one.
fn single_lab<'d>(
    documents: &'d Documents,
    sources: &Sources,
    sink: &mut Sink,
) -> Option<&'d Tree> {
    match documents.labs.as_slice() {
        [lab] => Some(lab),
        [] => {
            // A file that did not parse may contain the lab document.
            if !sink.has_errors() {
                let names: Vec<&str> = sources.iter().map(|(_, source)| source.name()).collect();
                sink.push(
                    Diagnostic::error(format!("{}: no lab document", names.join(", ")))
                        .with_help(format!(
                            "add one: `apiVersion: {API_VERSION}`, `kind: {KIND}`, `metadata: {{name: …}}`, `spec: …`"
                        )),
                );
            }
            None
        }
        [first, others @ ..] => {
            for extra in others {
                sink.push(
                    Diagnostic::error("more than one lab document")
                        .with_position(name_span(extra), "again here")
                        .with_related(name_span(first), "first here")
                        .with_help("write each lab in a separate file"),
                );
            }
            None
        }
    }
}
