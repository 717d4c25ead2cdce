//! Names the oldest and the newest supported minor version.

/// Oldest supported minor version.
pub(super) const OLDEST_MINOR: u8 = 9;
/// Newest supported minor version. CONTRIBUTING.md lists the steps for a new version.
pub(super) const NEWEST_MINOR: u8 = 36;
