//! Keeps the latest changes of objects, for watches.

use std::collections::VecDeque;

use serde_json::Value;

use super::resource::Resource;

/// Maximum number of stored changes. A client that watches from an older version must list again.
pub(super) const MAX_CHANGES: usize = 16_384;

/// Change of an object.
#[derive(Debug, Clone, PartialEq)]
pub struct StoreEvent {
    /// Version of the store after the change.
    pub version: u64,
    /// Resource of the object.
    pub resource: Resource,
    /// Kind of change, with the object.
    pub change: ObjectChange,
}

/// Kind of change, with the object.
#[derive(Debug, Clone, PartialEq)]
pub enum ObjectChange {
    /// The object was added.
    Added(Value),
    /// The object was changed.
    Modified {
        /// Object before the change.
        before: Value,
        /// Object after the change.
        after: Value,
    },
    /// The object was deleted. Contains the last object, with the version of the deletion.
    Deleted(Value),
}

/// Latest changes. Each change increases the version by 1.
#[derive(Debug, Clone)]
pub(super) struct ChangeLog {
    version: u64,
    changes: VecDeque<StoreEvent>,
}

impl Default for ChangeLog {
    fn default() -> Self {
        Self {
            // In requests, resource version 0 means any version.
            version: 1,
            changes: VecDeque::new(),
        }
    }
}

impl ChangeLog {
    pub(super) const fn version(&self) -> u64 {
        self.version
    }

    pub(super) fn record(&mut self, resource: Resource, change: ObjectChange) {
        self.version += 1;
        if self.changes.len() == MAX_CHANGES {
            self.changes.pop_front();
        }
        self.changes.push_back(StoreEvent {
            version: self.version,
            resource,
            change,
        });
    }

    /// Returns the changes after a version. `None` if some of them are no longer stored.
    pub(super) fn since(&self, version: u64) -> Option<impl Iterator<Item = &StoreEvent>> {
        let first = self.changes.front();
        let first = first.map_or(self.version + 1, |change| change.version);
        let after = self
            .changes
            .partition_point(|change| change.version <= version);
        (version.saturating_add(1) >= first).then(|| self.changes.range(after..))
    }
}
