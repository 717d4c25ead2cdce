//! Reads the files of a zip archive.

use std::collections::BTreeSet;
use std::io::{Cursor, Read};

use zip::ZipArchive;

use super::budget::Metered;
use super::{ArchiveError, ArchiveReader, Place, display_path, path_components};
use svclab_ruleset::text::limits::MAX_UNPACKED;

impl ArchiveReader<'_> {
    /// Reads a zip archive. Its directory is at its end, so the whole archive is read first.
    pub(super) fn read_zip(
        &mut self,
        place: &Place,
        input: &mut dyn Read,
    ) -> Result<(), ArchiveError> {
        let mut bytes = Vec::new();
        let limit = u64::try_from(MAX_UNPACKED).unwrap_or(u64::MAX);
        input.take(limit + 1).read_to_end(&mut bytes)?;
        if bytes.len() > MAX_UNPACKED {
            return Err(ArchiveError::TooLarge);
        }
        let listed = listed_entries(&bytes);
        let mut archive =
            ZipArchive::new(Cursor::new(bytes)).map_err(|error| ArchiveError::Io(error.into()))?;
        // The `zip` crate keeps only one of the entries with the same path.
        if listed.is_some_and(|listed| listed != archive.len()) {
            return Err(ArchiveError::Duplicate("a file".to_owned()));
        }
        let mut paths = BTreeSet::new();
        for index in 0..archive.len() {
            self.budget.add_entry()?;
            let mut entry = match archive.by_index(index) {
                Ok(entry) => entry,
                Err(error) => {
                    self.skip(&place.entry(&format!("#{index}")).path, error.to_string());
                    continue;
                }
            };
            // Archives of Windows programs may have backslashes.
            let path = display_path(entry.name_raw()).replace('\\', "/");
            if entry.is_dir() {
                continue;
            }
            let inner = place.entry(&path);
            if !entry.is_file() {
                self.skip(&inner.path, "not a regular file");
                continue;
            }
            let components: Vec<String> = path_components(&path).map(str::to_owned).collect();
            if !paths.insert(components) {
                return Err(ArchiveError::Duplicate(path));
            }
            let mut metered = Metered::new(&mut entry, &self.budget);
            self.read_stream(&inner, &mut metered)?;
        }
        Ok(())
    }
}

/// Returns the number of entries according to the end of the central directory (APPNOTE 6.3.10,
/// 4.3.16). `None` if the number needs more than 16 bits.
fn listed_entries(bytes: &[u8]) -> Option<usize> {
    let end = bytes
        .windows(4)
        .rposition(|window| window == b"PK\x05\x06")?;
    let number = bytes.get(end + 10..end + 12)?;
    let number = u16::from_le_bytes(number.try_into().ok()?);
    (number != u16::MAX).then(|| usize::from(number))
}
