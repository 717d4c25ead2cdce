//! Attaches the copies of the program, and removes the records that more than one copy made.

use std::collections::HashMap;
use std::io;
use std::os::fd::OwnedFd;

use super::bpf;
use super::program::{self, COPIES, COPY, Handles, Offsets, TIME};
use super::ring::Counters;

/// Bytes of a record that all copies of the program write alike.
const SHARED: std::ops::Range<usize> = TIME + 8..COPY;

/// Attached copies of the program. Dropping the value detaches them.
#[derive(Debug)]
pub(super) struct Copies {
    copies: Vec<Copy>,
    /// Records that did not fit into the ring, by copy.
    lost: Counters,
}

#[derive(Debug)]
struct Copy {
    program: OwnedFd,
    _attached: OwnedFd,
}

impl Copies {
    /// Attaches the copies, which count lost records in `lost`.
    pub(super) fn attach(offsets: &Offsets, handles: Handles, lost: &OwnedFd) -> io::Result<Self> {
        let attach = |copy| {
            let program = bpf::load(&program::program(offsets, handles, copy))?;
            Ok(Copy {
                _attached: bpf::attach(&program)?,
                program,
            })
        };
        Ok(Self {
            copies: (0..COPIES).map(attach).collect::<io::Result<_>>()?,
            lost: Counters::new(lost, COPIES)?,
        })
    }

    /// Returns the number of drops without a record since the copies were attached, by copy.
    pub(super) fn missed(&self) -> io::Result<Vec<u64>> {
        let copies = self.copies.iter().enumerate();
        let missed = copies.map(|(index, copy)| {
            Ok(bpf::count_skipped(&copy.program)?.saturating_add(self.lost.get(index)))
        });
        missed.collect()
    }
}

/// Set of recorded drops, which finds the records of a drop that an earlier copy of the program has
/// recorded.
#[derive(Debug, Default)]
pub(super) struct RecordedDrops {
    /// Number of records of the first copy without a record of the second one, by content.
    unmatched: HashMap<Vec<u8>, usize>,
}

impl RecordedDrops {
    /// Adds the next record of the ring. Returns whether its drop is new. The first copy runs first, so
    /// that its record precedes that of the second copy.
    pub(super) fn insert(&mut self, record: &[u8]) -> bool {
        let Some(content) = record.get(SHARED) else {
            return true;
        };
        if record.get(COPY) == Some(&0) {
            *self.unmatched.entry(content.to_vec()).or_default() += 1;
            return true;
        }
        let Some(count) = self.unmatched.get_mut(content) else {
            return true;
        };
        *count -= 1;
        if *count == 0 {
            self.unmatched.remove(content);
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::watch::drops::program::SIZE;

    fn record(copy: u8, time: u8, packet: u8) -> Vec<u8> {
        let mut record = vec![0; SIZE];
        record[TIME] = time;
        record[COPY - 1] = packet;
        record[COPY] = copy;
        record
    }

    #[test]
    fn duplicates_drop_with_skipped_copy_is_kept() {
        let mut recorded = RecordedDrops::default();
        let mut kept = |copy, time, packet| recorded.insert(&record(copy, time, packet));
        assert!(kept(0, 1, 7));
        // An interrupt during the second copy: only the first one records packet 8.
        assert!(kept(0, 2, 8));
        assert!(!kept(1, 3, 7));
        // An interrupt during the first copy: only the second one records packet 9.
        assert!(kept(1, 4, 9));
        assert!(kept(0, 5, 7));
        assert!(kept(0, 6, 7));
        assert!(!kept(1, 7, 7));
        assert!(!kept(1, 8, 7));
        assert!(kept(1, 9, 7));
    }
}
