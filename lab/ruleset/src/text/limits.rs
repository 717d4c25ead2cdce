//! Sets the maximum sizes of dumps. The limits are far above the size of any node's dump and below
//! what would exhaust the memory of a machine.

/// Maximum size of one dump: 64 MiB. A dump of 200,000 rules has about 40 MiB.
pub const MAX_BYTES: usize = 64 << 20;

/// Maximum size of the unpacked content of a tarball: 256 MiB.
pub const MAX_UNPACKED: usize = 256 << 20;

/// Maximum number of files that are read from a directory.
pub const MAX_FILES: usize = 256;

/// Maximum number of reported problems per file. Further problems are only counted.
pub const MAX_REPORTED: usize = 20;
