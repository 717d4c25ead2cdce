//! How large dumps may be: far above any node's, and below what would take a
//! machine's memory.

/// Bytes of one dump: 64 MiB. 200,000 rules have about 40.
pub const MAX_BYTES: usize = 64 << 20;

/// Bytes of all that is in a tarball: 256 MiB.
pub const MAX_UNPACKED: usize = 256 << 20;

/// Files of a directory that are looked at.
pub const MAX_FILES: usize = 256;

/// Problems of one file that are told; what comes after is counted.
pub const MAX_TOLD: usize = 20;
