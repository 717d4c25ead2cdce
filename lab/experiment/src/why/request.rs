//! Input of a search.

use svclab_runner::run::prepare::{PrepareOptions, Prepared};
use svclab_runner::run::select::SelectedLab;
use svclab_scenario::expectation::ProbeExpectation;

/// Case to examine.
#[derive(Debug)]
pub struct WhyRequest<'l> {
    /// Lab of the case.
    pub lab: &'l SelectedLab,
    /// Prepared case.
    pub prepared: Prepared,
    /// Options for preparing changed cases.
    pub wishes: PrepareOptions,
    /// Name of the probe to examine; `None` means all probes with failing connections.
    pub probe: Option<String>,
    /// Wanted result of this probe; `None` for the result that the case expects.
    pub wanted: Option<ProbeExpectation>,
}
