//! A lab and its objects, read and expanded.

use std::sync::Arc;

use super::apply;
use super::case::Case;
use super::check_lab;
use super::check_removals;
use super::decode::strict;
use super::documents::{Documents, name_span};
use super::expand::{self, Base};
use super::lab::{API_VERSION, KIND, Lab};
use super::limits;
use super::objects::decode_all;
use super::reference::DocumentRef;
use super::sink::Sink;
use super::tree::Tree;
use svclab_diagnostic::Diagnostic;
use svclab_diagnostic::source::Sources;

/// A lab with its cases.
#[derive(Debug, Clone)]
pub struct Scenario {
    /// The lab as written, before any patch.
    pub lab: Arc<Lab>,
    /// The files it was read from, for rendering diagnostics.
    pub sources: Sources,
    cases: Vec<Case>,
}

impl Scenario {
    /// Reads a scenario from one file or several that belong together (a lab and
    /// a dump of the cluster's objects): exactly one `Lab` document among them.
    ///
    /// With the scenario come warnings.
    ///
    /// # Errors
    ///
    /// Everything that is wrong, as far as it could be read: errors first, then
    /// warnings. Render them with the same `sources`.
    pub fn load(sources: &Sources) -> Result<(Self, Vec<Diagnostic>), Vec<Diagnostic>> {
        let mut sink = Sink::default();
        let scenario = read(sources, &mut sink);
        let has_errors = sink.has_errors();
        let diagnostics = sources.redact(sink.into_inner());
        match scenario {
            Some(scenario) if !has_errors => Ok((scenario, diagnostics)),
            _ => Err(diagnostics),
        }
    }

    /// The lab's name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.lab.metadata.name
    }

    /// The cases, the first axis varying slowest. There is at least one.
    #[must_use]
    pub fn cases(&self) -> &[Case] {
        &self.cases
    }
}

fn read(sources: &Sources, sink: &mut Sink) -> Option<Scenario> {
    let documents = Documents::read(sources, sink);
    let decoded = decode_all(&documents.objects, sink);
    // An object that could not be read is not also missing.
    let has_all_objects = !sink.has_errors();
    let lab_tree = the_lab(&documents, sources, sink)?;
    limits::text(lab_tree, sink);
    check_lab::name(lab_tree, sources, sink);
    if !check_lab::row_keys(lab_tree, sink) {
        // Decoded as a probe, an unknown key would be wrong in other ways as well.
        return None;
    }
    let lab: Lab = match strict(lab_tree) {
        Ok(lab) => lab,
        Err(error) => {
            sink.push(error.into());
            return None;
        }
    };
    check_lab::lab(&lab, lab_tree, sink);
    let base = Base {
        lab: &lab,
        lab_tree,
        trees: &documents.objects,
        decoded: &decoded,
        ignored: &documents.ignored,
        others: &documents.others,
    };
    if has_all_objects {
        apply::check(base.patches(), &documents.objects, sink);
        let written = |target: &_| match target {
            DocumentRef::Lab => Some(lab_tree),
            object @ DocumentRef::Object { .. } => documents.objects.get(object),
        };
        check_removals::check(&base.patches(), written, sink);
    }
    // What is wrong already would be found again in every case.
    if sink.has_errors() {
        return None;
    }
    let cases = expand::cases(&base, sink);
    Some(Scenario {
        lab: Arc::new(lab),
        sources: sources.clone(),
        cases,
    })
}

/// The one lab document.
fn the_lab<'d>(documents: &'d Documents, sources: &Sources, sink: &mut Sink) -> Option<&'d Tree> {
    match documents.labs.as_slice() {
        [lab] => Some(lab),
        [] => {
            // A file that did not parse may well have one.
            if !sink.has_errors() {
                let names: Vec<&str> = sources.iter().map(|(_, source)| source.name()).collect();
                sink.push(
                    Diagnostic::error(format!("{}: there is no lab document", names.join(", ")))
                        .help(format!(
                            "add one: `apiVersion: {API_VERSION}`, `kind: {KIND}`, `metadata: {{name: …}}`, `spec: …`"
                        )),
                );
            }
            None
        }
        [first, others @ ..] => {
            for other in others {
                sink.push(
                    Diagnostic::error("there are two lab documents")
                        .at(name_span(other), "again here")
                        .and(name_span(first), "first here")
                        .help("a lab is a file of its own"),
                );
            }
            None
        }
    }
}
