//! Reads the type information of the running kernel once per process.

use std::collections::HashMap;
use std::fs;
use std::sync::OnceLock;

use super::btf::Btf;
use super::program::Offsets;
use super::trace_error::{TYPES_FILE, TraceError};

/// Data from a kernel's type information.
#[derive(Debug)]
pub(super) struct KernelTypes {
    /// Offsets of the parts of packets.
    pub offsets: Offsets,
    /// Names of the drop reasons, by number.
    pub reasons: HashMap<u32, String>,
}

/// Returns the type information of the running kernel, which is read on first use.
///
/// # Errors
///
/// When the type information is missing or incomplete.
pub(super) fn kernel_types() -> Result<&'static KernelTypes, TraceError> {
    static KERNEL: OnceLock<Result<KernelTypes, TraceError>> = OnceLock::new();
    KERNEL.get_or_init(read_types).as_ref().map_err(|why| *why)
}

fn read_types() -> Result<KernelTypes, TraceError> {
    let bytes = fs::read(TYPES_FILE).map_err(|error| TraceError::no_types(&error))?;
    let btf = Btf::new(bytes).ok_or(TraceError::UnknownFormat)?;
    let reasons = btf.names("skb_drop_reason");
    if reasons.is_empty() {
        return Err(TraceError::NoReasons);
    }
    let offsets = Offsets::from_btf(&btf).ok_or(TraceError::UnknownFormat)?;
    Ok(KernelTypes { offsets, reasons })
}
