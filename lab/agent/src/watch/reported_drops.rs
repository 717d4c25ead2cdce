//! Keeps the drops that the front end traces for an agent without the privilege.

use std::cell::RefCell;
use std::rc::Rc;

use svclab_model::evidence::{DropEvidence, StageEvidence};

/// Drops of a lab that the front end reported while its probes run.
#[derive(Debug, Clone, Default)]
pub(crate) struct ReportedDrops(Rc<RefCell<DropEvidence>>);

impl ReportedDrops {
    pub(crate) fn clear(&self) {
        self.0.take();
    }

    pub(crate) fn add(&self, drops: DropEvidence) {
        self.0.borrow_mut().add(drops);
    }

    pub(crate) fn len(&self) -> usize {
        match &*self.0.borrow() {
            DropEvidence::Watched { dropped, .. } => dropped.len(),
            DropEvidence::Unwatched | DropEvidence::Uncertain(_) => 0,
        }
    }

    /// Adds the drops of the stage to evidence that this agent recorded without drops.
    pub(crate) fn complete(&self, evidence: &mut StageEvidence) {
        let DropEvidence::Uncertain(_) = evidence.drops else {
            return;
        };
        let begin = evidence.packets.iter().map(|packet| packet.time).min();
        let mut all = self.0.borrow().clone();
        let of_stage = all.split_off(begin.unwrap_or(u64::MAX));
        if let DropEvidence::Watched { .. } = of_stage {
            evidence.drops = of_stage;
        }
    }
}
