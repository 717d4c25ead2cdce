//! Full evidence of a case that ran.

use std::sync::Arc;

use crate::results::evidence_document::EvidenceDocument;
use crate::run::Prepared;

/// Full evidence of a case.
#[derive(Debug, Clone)]
pub struct CaseEvidence {
    /// Evidence as a serializable document.
    pub document: EvidenceDocument,
    /// Namespace and name of every interface: `node-1`, `eth0`.
    pub interfaces: Vec<(String, String)>,
    /// Case as it ran.
    pub prepared: Arc<Prepared>,
}
