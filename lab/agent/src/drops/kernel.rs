//! Reads the type information of the running kernel once per process.

use std::collections::HashMap;
use std::fs;
use std::sync::OnceLock;

use super::btf::Btf;
use super::program::Offsets;
use super::untraced::{TYPES, Untraced};

/// Data from a kernel's type information.
#[derive(Debug)]
pub struct Described {
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
pub fn described() -> Result<&'static Described, Untraced> {
    static KERNEL: OnceLock<Result<Described, Untraced>> = OnceLock::new();
    KERNEL.get_or_init(describe).as_ref().map_err(|why| *why)
}

fn describe() -> Result<Described, Untraced> {
    let bytes = fs::read(TYPES).map_err(|error| Untraced::undescribed(&error))?;
    let btf = Btf::new(bytes).ok_or(Untraced::Strange)?;
    let reasons = btf.names("skb_drop_reason");
    if reasons.is_empty() {
        return Err(Untraced::Reasonless);
    }
    let offsets = Offsets::of(&btf).ok_or(Untraced::Strange)?;
    Ok(Described { offsets, reasons })
}
