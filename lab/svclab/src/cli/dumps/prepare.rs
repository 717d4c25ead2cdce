//! Prepares cases whose nodes are replaced by dumps.

use std::collections::BTreeMap;

use crate::cli::args::ReplayArguments;
use crate::cli::error::CliError;
use svclab_planner::replay::HardwareAddresses;
use svclab_runner::run::dumps::DumpOverride;
use svclab_runner::run::{PrepareOptions, Prepared, SelectedLab, prepare};
use svclab_scenario::Case;

/// Prepares a case with its nodes replaced by the dumps. `known_addresses` are the link-layer
/// addresses according to other dumps.
pub(super) fn prepare_with_dumps(
    lab: &SelectedLab,
    case: &Case,
    arguments: &ReplayArguments,
    dumps: BTreeMap<String, DumpOverride>,
    known_addresses: &HardwareAddresses,
) -> Result<Prepared, CliError> {
    let options = PrepareOptions {
        dumps,
        known_addresses: known_addresses.clone(),
        allow_outside: arguments.allow_outside,
        ..PrepareOptions::from(arguments.max_wait)
    };
    prepare(lab, case, options)
        .map_err(|diagnostics| CliError::invalid_input(&lab.scenario.sources, diagnostics))
}
