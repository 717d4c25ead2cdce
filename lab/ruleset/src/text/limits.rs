//! Sets the maximum sizes of dumps. The limits are far above the size of any node's dump and below
//! what would exhaust the memory of a machine.

/// Maximum size of one dump: 64 MiB. A dump of 200,000 rules has about 40 MiB.
pub const MAX_BYTES: usize = 64 << 20;

/// Maximum size of all files of a dump in an archive: 256 MiB.
pub const MAX_UNPACKED: usize = 256 << 20;

/// Maximum number of files of a dump in a directory or archive.
pub const MAX_FILES: usize = 256;

/// Maximum number of entries of a directory tree or archive, including files of other kinds. A
/// report of `sos` has about 10,000 files.
pub const MAX_ENTRIES: usize = 100_000;

/// Maximum size of the unpacked content of an archive that is skipped or read: 4 GiB. It bounds the
/// time to read an archive.
pub const MAX_STREAM: u64 = 4 << 30;

/// Maximum number of reported problems per file. Further problems are only counted.
pub const MAX_REPORTED: usize = 20;
