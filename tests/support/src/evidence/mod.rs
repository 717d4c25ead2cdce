//! Plans whose evidence is known, and checks of evidence, for this host and for guests.

pub mod accounting;
pub mod dropped;
pub mod traced;

use std::fs::File;
use std::io;
use std::path::Path;

use flate2::read::GzDecoder;
use serde_json::Value;
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

/// Reads the evidence file in the directory of a case, which `svclab run --report` writes.
pub fn read_case(directory: &Path) -> io::Result<Value> {
    let file = File::open(directory.join("evidence.json.gz"))?;
    Ok(serde_json::from_reader(io::BufReader::new(
        GzDecoder::new(file),
    ))?)
}
