//! Defines the evidence file of a case, which `svclab run --report` writes.

use std::io;

use schemars::JsonSchema;
use serde::Serialize;

use crate::case_details::CaseDetails;
use crate::formats::gzip::compressed;
use crate::formats::write_json_line;
use svclab_model::evidence::Evidence;

/// Name of the file.
pub(crate) const EVIDENCE: &str = "evidence.json.gz";

/// Name and version of the schema.
pub(crate) const SCHEMA: &str = "svclab/evidence/v1";

/// Evidence of a case, and the paths of its packets.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct EvidenceDocument<'e> {
    /// Name and version of the schema: `svclab/evidence/v1`.
    schema: &'static str,
    /// Full name of the case.
    case: &'e str,
    /// Release of the kernel that the case ran in.
    kernel: &'e str,
    /// Recorded evidence.
    evidence: &'e Evidence,
    /// Result, topology and explanation.
    #[serde(flatten)]
    details: &'e CaseDetails,
}

impl<'e> EvidenceDocument<'e> {
    /// Creates the document of a case with its details.
    pub(crate) fn new(details: &'e CaseDetails, evidence: &'e Evidence) -> Self {
        Self {
            schema: SCHEMA,
            case: &details.result.case,
            kernel: &details.result.kernel,
            evidence,
            details,
        }
    }

    /// Returns the file: the document as a line of JSON, compressed.
    ///
    /// # Errors
    ///
    /// Never in practice: the document can be written as JSON, and is written to memory.
    pub(crate) fn file(&self) -> io::Result<Vec<u8>> {
        compressed(|out| write_json_line(out, self))
    }
}
