//! Plans whose evidence is known, and checks of evidence, for this host and for guests.

pub mod accounting;
pub mod dropped;
pub mod traced;

use svclab_model::evidence::{Evidence, StageEvidence};

/// Returns the evidence of the only stage.
///
/// # Panics
///
/// When there is another number of stages.
pub fn single_stage(evidence: Evidence) -> StageEvidence {
    let [stage] = <[StageEvidence; 1]>::try_from(evidence.stages).expect("one stage");
    stage
}
