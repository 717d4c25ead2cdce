//! What the running kernel says of itself, which it says once.

use std::collections::HashMap;
use std::fs;
use std::sync::OnceLock;

use super::btf::Btf;
use super::program::Offsets;
use super::untraced::{TYPES, Untraced};

/// What is asked of a kernel's description.
#[derive(Debug)]
pub struct Described {
    /// Where the parts of packets are.
    pub offsets: Offsets,
    /// Its words for why it drops, by their numbers.
    pub reasons: HashMap<u32, String>,
}

/// The running kernel's description, read when it is asked for first.
///
/// # Errors
///
/// When there is none, or it lacks something.
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
