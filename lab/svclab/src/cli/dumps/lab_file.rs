//! Distinguishes lab files from dumps and files of objects.

use std::path::Path;

use svclab_diagnostic::files::Location;
use svclab_diagnostic::source::MAX_BYTES;
use svclab_scenario::has_lab_document;

/// Whether a file contains a lab document. `None` if the path is not a readable file.
pub(super) fn contains_lab(path: &Path) -> Option<bool> {
    let (bytes, _) = Location::anywhere(path).read(MAX_BYTES).ok()?;
    Some(has_lab_document(&String::from_utf8_lossy(&bytes)))
}
